"""Workers of an attached cluster that die, at each phase of their lives."""

from __future__ import annotations

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Calls

pytestmark = pytest.mark.slow


def the_worker(attached: Attached) -> str:
    """The one that there is, or is on its way."""
    wait_until(lambda: len(attached.worker_jobs()) == 1, "there is one worker", WITHIN_S)
    return attached.worker_jobs()[0]


def ended(attached: Attached, worker: str) -> str:
    """How a worker ended, once that is known and its Job is gone."""
    wait_until(lambda: attached.gone(worker) != "", f"{worker} has ended", WITHIN_S)
    wait_until(lambda: worker not in attached.worker_jobs(), "its Job is gone", WITHIN_S)
    return attached.gone(worker)


def test_a_pod_that_is_deleted_before_it_has_started_is_made_up_for(
    attached: Attached, calls: Calls, lab: RunningLab
) -> None:
    for node in lab.nodes:
        lab.verb("fail-pull", node)
    call = calls.submit("call")
    worker = the_worker(attached)
    wait_until(lambda: attached.cluster.waits != (), "it is told that the worker does not start", WITHIN_S)
    (pod,) = attached.pods()
    attached.remove_pod(pod.metadata.name, 0)
    why = ended(attached, worker)
    for node in lab.nodes:
        lab.verb("pull-again", node)
    call.begins()
    assert call.ends()[0] == 1
    assert why


def test_a_worker_that_dies_before_it_has_reported_is_made_up_for(attached: Attached, calls: Calls) -> None:
    call = calls.submit("call")
    worker = the_worker(attached)
    wait_until(lambda: attached.processes(worker) != [], "its process is there", WITHIN_S)
    attached.kill_worker(worker)
    assert "137" in ended(attached, worker)
    call.begins()
    assert the_worker(attached) != worker
    assert call.ends()[0] == 1


def test_an_idle_worker_that_dies_is_replaced_when_the_next_call_comes(attached: Attached, calls: Calls) -> None:
    first = calls.submit("first")
    first.begins()
    worker = the_worker(attached)
    first.ends()
    attached.kill_worker(worker)
    assert "137" in ended(attached, worker)
    assert attached.cluster.workers == 0
    assert calls.submit("next").ends()[0] == 1
    assert the_worker(attached) != worker


def test_a_call_under_way_uses_a_retry_when_its_worker_dies(attached: Attached, calls: Calls) -> None:
    call = calls.submit("call")
    call.begins()
    worker = the_worker(attached)
    attached.kill_worker(worker)
    assert "137" in ended(attached, worker)
    call.begins(2)
    assert call.ends()[0] == 2
    assert [attempt for attempt, _ in call.attempts] == [1, 2]


def test_a_worker_that_dies_while_it_winds_down_costs_its_call_a_retry(attached: Attached, calls: Calls) -> None:
    call = calls.submit("call")
    call.begins()
    worker = the_worker(attached)
    attached.ask(object, f"workers/{worker}/drain", method="POST")
    wait_until(lambda: attached.state_of(worker) == "draining", f"{worker} winds down", WITHIN_S)
    assert [attempt for attempt, _ in call.attempts] == [1]
    attached.kill_worker(worker)
    assert "137" in ended(attached, worker)
    call.begins(2)
    assert the_worker(attached) != worker
    assert call.ends()[0] == 2


def test_an_idle_worker_that_dies_instead_of_leaving_is_replaced_when_the_next_call_comes(
    attached: Attached, calls: Calls
) -> None:
    calls.submit("first").ends()
    worker = the_worker(attached)
    with attached.hanging(worker):
        attached.ask(object, f"workers/{worker}/drain", method="POST")
        wait_until(lambda: attached.state_of(worker) == "draining", f"{worker} is to leave", WITHIN_S)
        attached.kill_worker(worker)
    assert "137" in ended(attached, worker)
    assert calls.submit("next").ends()[0] == 1
    assert the_worker(attached) != worker
