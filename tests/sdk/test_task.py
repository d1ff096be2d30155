"""A call that is under way, seen from here and from another program."""

from __future__ import annotations

from types import ModuleType

import pytest

from levers9 import Client, Task
from levers9.errors import DeadlinePassed, Refused, WouldBlock
from levers9.model.reasons import HoldKind
from levers9.model.states import TaskState
from levers9.sdk.connection import Connection
from levers9.sdk.current import current

from .control_plane import FakeControlPlane

LINES = b'{"n":1,"stream":"out","time":1.5,"text":"one"}\n{"n":2,"stream":"err","time":2.5,"text":"two"}\n{"end":2}\n'


def test_a_result_that_is_not_there_would_block(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    plane.http.answers["GET /api/v1/tasks/*"] = (200, {"state": "RUNNING"})
    task = work.double.submit(1)
    with pytest.raises(WouldBlock, match="has no result yet"):
        task.result()
    with pytest.raises(DeadlinePassed, match=r"within 0.01 s. The call goes on"):
        task.result(wait=0.01)
    assert (task.status, task.is_complete) == (TaskState.RUNNING, False)
    plane.release()
    assert task.result(wait=True) == 2
    assert (task.status, task.is_complete) == (TaskState.COMPLETE, True)
    assert task.result() == 2


def test_a_call_that_is_not_committed_yet_is_waited_for(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    task = work.double.submit(1)
    plane.wait_until(lambda: bool(plane.tasks))
    plane.release()  # its state is asked for over HTTP meanwhile, and nobody knows it there
    assert task.status == TaskState.COMPLETE


def test_its_lines_come_in_order(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.http.answers["GET /api/v1/tasks/*/logs[?]follow=1&after=0"] = (200, LINES)
    task = work.double.submit(1)
    task.result(wait=True)
    assert [(line.n, line.stream, line.text) for line in task.logs()] == [(1, "out", "one"), (2, "err", "two")]


@pytest.mark.slow
def test_reading_goes_on_where_a_connection_broke(plane: FakeControlPlane, work: ModuleType) -> None:
    first, rest = LINES.split(b"\n", 1)
    plane.http.answers["GET /api/v1/tasks/*/logs[?]follow=1&after=0"] = (200, first + b"\n")
    plane.http.answers["GET /api/v1/tasks/*/logs[?]follow=1&after=1"] = (200, rest)
    task = work.double.submit(1)
    task.result(wait=True)
    assert [line.text for line in task.logs()] == ["one", "two"]


def test_a_lost_tail_is_told(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.http.answers["GET /api/v1/tasks/*/logs*"] = (200, b'{"lost":true}\n')
    task = work.double.submit(1)
    task.result(wait=True)
    assert [line.text for line in task.logs()] == ["[its last lines were lost with its machine]"]


def test_subscribing_ends_with_the_state(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.http.answers["GET /api/v1/tasks/*/logs*"] = (200, LINES)
    task = work.double.submit(1)
    assert list(task.subscribe())[-1] == TaskState.COMPLETE


def test_why_tells_the_reasons(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.http.answers["GET /api/v1/tasks/*/why"] = (200, {"reasons": ["no worker is free"]})
    task = work.double.submit(1)
    assert (task.why(), task.holds()) == (["no worker is free"], [])


def test_what_it_waits_for_is_told_as_data(plane: FakeControlPlane, work: ModuleType) -> None:
    hold = {"kind": "quota", "quota": "gpu", "lacks": [{"resource": "GB200", "amount": 8.0}]}
    plane.http.answers["GET /api/v1/tasks/*/why"] = (200, {"reasons": ["8 more GB200 needed"], "holds": [hold]})
    (told,) = work.double.submit(1).holds()
    assert (told.kind, told.quota, told.lacks[0].resource, told.lacks[0].amount) == (HoldKind.QUOTA, "gpu", "GB200", 8)


def test_a_result_can_be_taken_by_another_program(plane: FakeControlPlane, work: ModuleType) -> None:
    first = work.double.submit(4)
    first.result(wait=True)
    again: Task[object] = Task(first.id, current())
    assert again.result(wait=True) == 8


def test_a_client_finds_tasks_and_stores_files(plane: FakeControlPlane, work: ModuleType) -> None:
    client = Client("token-of-a-test", "127.0.0.1", 1)
    client._made = current()
    plane.http.answers["GET /api/v1/tasks/task-1"] = (200, {"state": "ERROR"})
    assert client.get_task_by_id("task-1").status == TaskState.ERROR
    with pytest.raises(Refused):
        client.get_task_by_id("task-2")
    key = client.upload_file(__file__)
    assert plane.http.objects[key].startswith(b'"""A call')
    assert client.upload_file(__file__) == key


def test_inside_a_client_functions_use_it_and_the_other_goes_on(plane: FakeControlPlane, work: ModuleType) -> None:
    outer = current()
    client = Client("token-of-a-test", "127.0.0.1", 1)
    inner = client._made = Connection(plane.settings, dial=plane.dial)
    with client:
        assert current() is inner
        assert work.double.remote(2) == 4
    assert current() is outer
    assert outer.ended_by is None
    client.close()
