"""Pods of others on the nodes of an attached cluster: the cards that they take are not ours, and ours once freed."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Call, Calls

pytestmark = pytest.mark.slow
PLACED_S = 10.0


def says(attached: Attached, call: Call, words: str) -> None:
    """Wait until `task why` has these words."""
    try:
        wait_until(lambda: words in attached.why(call.task_id), f"why says {words!r}", WITHIN_S)
    except AssertionError as error:
        raise AssertionError(f"{error}, but {attached.why(call.task_id)!r}") from error


def test_other_tenants_take_cards_and_free_them(attached: Attached, calls: Calls) -> None:
    with ExitStack() as freed, attached.tenant("tray-1", 3):
        freed.enter_context(attached.tenant("tray-0", 4))
        wait_until(lambda: attached.cards_free == 1, "one card is free", WITHIN_S)
        small, large = calls.submit("small"), calls.submit("large", "four")
        assert small.begins() == "tray-1"
        says(attached, large, "4 more GB200 needed")
        beside = calls.submit("beside")
        says(attached, beside, "1 more GB200 needed")
        assert len(attached.worker_jobs()) == 1
        freed.close()
        begun_s = time.monotonic()
        wait_until(lambda: len(attached.worker_jobs()) == 2, "a worker is ordered for the cards", PLACED_S)
        print(f"ordered {time.monotonic() - begun_s:.1f} s after the cards were free")
        assert large.begins() == "tray-0"
    assert small.ends() == (1, "tray-1", 1)
    assert large.ends() == (1, "tray-0", 4)
    assert beside.ends()[0] == 1


def test_cards_that_are_free_on_two_nodes_are_told_to_who_needs_as_many_on_one(
    attached: Attached, calls: Calls
) -> None:
    with ExitStack() as freed, attached.tenant("tray-1", 2):
        freed.enter_context(attached.tenant("tray-0", 2))
        wait_until(lambda: attached.cards_free == 4, "four cards are free", WITHIN_S)
        large = calls.submit("large", "four")
        says(attached, large, "4 GB200 are free, at most 2 on one node; 2 more GB200 needed there.")
        assert attached.worker_jobs() == []
        freed.close()
        assert large.begins() == "tray-0"
    assert large.ends() == (1, "tray-0", 4)
