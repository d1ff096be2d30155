"""Connections that break: nothing is lost, nothing is run twice by us, and nobody has to do anything."""

from __future__ import annotations

from types import ModuleType

import pytest

from levers9.errors import TaskExpired
from levers9.wire.client import SubmitTasks, WatchTasks
from levers9.wire.control import ReportAgain

from .control_plane import FakeControlPlane


@pytest.mark.slow
@pytest.mark.parametrize("forget", [False, True])
def test_a_map_goes_on_over_a_cut(plane: FakeControlPlane, work: ModuleType, forget: bool) -> None:
    plane.hold = True
    results = work.double.map(range(1000))
    plane.wait_until(lambda: bool(plane.tasks))
    plane.cut(forget=forget)
    plane.wait_until(lambda: len(plane.tasks) == 1000)
    plane.release()
    assert list(results) == [2 * x for x in range(1000)]
    assert set(plane.runs.values()) == {1}
    assert plane.dials > 1


def test_a_new_control_plane_is_asked_for_the_results_that_are_open(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    task = work.double.submit(4)
    plane.wait_until(lambda: bool(plane.tasks))
    work.add._caller.stub()  # its answer comes after that to the submission
    plane.cut(forget=True)
    plane.wait_until(lambda: any(isinstance(message, WatchTasks) for message in plane.seen))
    plane.release()
    assert task.result(wait=True) == 8


def test_a_new_leader_that_asks_gets_everything_again(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    plane.deaf = 1
    task = work.double.submit(4)
    plane.wait_until(lambda: any(isinstance(message, SubmitTasks) for message in plane.seen))
    assert plane.tasks == {}
    plane.tell(ReportAgain(epoch=2))
    plane.wait_until(lambda: task.id in plane.tasks)
    plane.release()
    assert task.result(wait=True) == 8


def test_a_task_nobody_knows_any_more_has_expired(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    task = work.double.submit(4)
    plane.wait_until(lambda: bool(plane.tasks))
    work.add._caller.stub()  # its answer comes after that to the submission
    plane.tasks.clear()
    plane.cut(forget=True)
    with pytest.raises(TaskExpired):
        task.result(wait=True)
