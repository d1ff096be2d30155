"""What keeps work from an attached cluster, told in words, and how soon it goes on after that."""

from __future__ import annotations

import time

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Call, Calls

pytestmark = pytest.mark.slow
PLACED_S = 10.0


def says(attached: Attached, call: Call, words: str, token: str = "") -> None:
    """Wait until `task why` has these words."""
    try:
        wait_until(lambda: words in attached.why(call.task_id, token), f"why says {words!r}", 15.0)
    except AssertionError as error:
        raise AssertionError(f"{error}, but {attached.why(call.task_id, token)!r}") from error


def test_a_cordoned_node_gets_nothing_new_and_work_soon_after(
    attached: Attached, calls: Calls, lab: RunningLab
) -> None:
    for node in lab.nodes:
        lab.verb("cordon", node)
    wait_until(lambda: {one.state for one in attached.cluster.nodes} == {"cordoned"}, "both are told", WITHIN_S)
    call = calls.submit("call")
    says(attached, call, "cordoned")
    assert (attached.worker_jobs(), attached.cluster.workers) == ([], 0)
    lab.verb("uncordon", "tray-1")
    begun_s = time.monotonic()
    wait_until(lambda: attached.cluster.workers == 1, "a worker is ordered", PLACED_S)
    ordered_s = time.monotonic() - begun_s
    assert call.begins() == "tray-1"
    print(f"ordered after {ordered_s:.1f} s, begun after {time.monotonic() - begun_s:.1f} s")
    assert call.ends() == (1, "tray-1", 1)
