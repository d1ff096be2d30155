"""An attached cluster when who steers it is away: its agent, our control plane, the API server."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, descendants, kill, wait_until
from .attached import WITHIN_S, Attached, Calls

pytestmark = pytest.mark.slow
SET_CHILD_SUBREAPER = 36
AWAY_S = 30.0
AGAIN_S = 60.0  # a worker or agent dials again within 30 s at most, and a new leader waits for reports


def kill_all(plane: ControlPlane) -> None:
    """Kill every process of it, and see to it that none is left as a zombie that seems to live."""
    libc = ctypes.CDLL(None)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pids = (plane.process.pid, *descendants(plane.process.pid))
    for pid in pids:
        kill(pid)
    plane.process.wait()
    for pid in pids[1:]:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    libc.prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert plane.process.stdout is not None
    plane.process.stdout.close()


def test_an_agent_that_is_killed_costs_nothing_that_runs_and_the_next_one_places_again(
    attached: Attached, calls: Calls
) -> None:
    running = calls.submit("running", "four")
    node = running.begins()
    before = attached.agent_pod()
    attached.remove_pod(before, 0)
    assert running.ends() == (1, node, 4)
    wait_until(lambda: attached.agent_pod() not in ("", before), "Kubernetes has begun another agent", WITHIN_S)
    both = [calls.submit(key, "four") for key in ("one", "two")]
    assert {call.begins() for call in both} == {"tray-0", "tray-1"}
    assert len(attached.worker_jobs()) == 2
    assert attached.cluster.status == "online"


def test_a_brain_that_is_killed_finds_its_workers_again_and_orders_none_twice(attached: Attached, calls: Calls) -> None:
    running = calls.submit("running", "four")
    node = running.begins()
    jobs = attached.worker_jobs()
    kill(attached.plane.brain())
    later = calls.submit("later", "four")
    assert {node, later.begins(within_s=AGAIN_S)} == {"tray-0", "tray-1"}
    assert running.ends() == (1, node, 4)
    assert running.attempts == [(1, node)]
    assert set(attached.worker_jobs()) > set(jobs)
    assert len(attached.worker_jobs()) == 2
    wait_until(lambda: attached.cluster.workers == 2, "the new leader knows both workers", WITHIN_S)


def test_a_control_plane_that_is_killed_altogether_is_found_again_by_agent_and_workers(
    attached: Attached, calls: Calls
) -> None:
    running = calls.submit("running", "four")
    node = running.begins()
    jobs = attached.worker_jobs()
    kill_all(attached.plane)
    running.go()
    attached.plane.start()
    assert running.ends(AGAIN_S) == (1, node, 4)
    assert running.attempts == [(1, node)]
    more = [calls.submit(key, "four") for key in ("one", "two")]
    assert {call.begins(within_s=AGAIN_S) for call in more} == {"tray-0", "tray-1"}
    assert set(attached.worker_jobs()) > set(jobs)
    assert len(attached.worker_jobs()) == 2


def works_for(calls: Calls, seconds: float, node: str) -> None:
    """Calls run on a node one after the other, for so long."""
    began_s = time.monotonic()
    number = 0
    while time.monotonic() - began_s < seconds:
        number += 1
        assert calls.submit(f"beside-{number}").ends() == (1, node, 1)


@pytest.mark.parametrize("how", ["it does not answer", "it is killed"])
def test_while_the_api_server_is_away_nobody_is_given_up_and_work_goes_on(
    attached: Attached, calls: Calls, lab: RunningLab, how: str
) -> None:
    running = calls.submit("running")
    node = running.begins()
    jobs = attached.worker_jobs()
    if how == "it is killed":
        lab.kill()
        beside = calls.submit("beside").ends()
    else:
        with lab.paused():
            works_for(calls, AWAY_S, node)
            beside = calls.submit("beside").ends()
            cluster = attached.cluster
            assert (cluster.status, cluster.workers, cluster.pending) == ("online", 1, 0)
    back_s = time.monotonic()
    assert beside == (1, node, 1)
    other = calls.submit("other", "four")
    assert other.begins() != node
    assert time.monotonic() - back_s < 20.0
    assert running.ends() == (1, node, 1)
    assert set(attached.worker_jobs()) > set(jobs)


def test_a_revoked_token_closes_the_agents_stream_and_its_log_says_so(attached: Attached, calls: Calls) -> None:
    running = calls.submit("running")
    node = running.begins()
    found = attached.tokens()
    (agent,) = [one.token_id for one in found if one.kind == "agent" and one.active]
    attached.ask(object, f"tokens/{agent}", method="DELETE")
    wait_until(lambda: attached.streams() == 0, "its stream is closed", WITHIN_S)
    wait_until(lambda: "refuses this agent" in attached.log_of_agent(), "its log says why", AGAIN_S)
    assert "revoked" in attached.log_of_agent()
    assert running.ends() == (1, node, 1)
    attached.join()
    wait_until(lambda: attached.streams() == 1, "with another token it is let in", WITHIN_S)
