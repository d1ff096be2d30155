"""Shares: what is used now and was used lately, by weight, in integers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler.fairness import (
    SHARE_ONE,
    STEPS,
    Account,
    Fairness,
    FairnessPast,
    kept,
    scales_of,
    share_of,
)
from levers9.actors.scheduler.queues import Parked, Queues
from levers9.model.queues import Share
from levers9.model.resources import Amount

from .queueing_words import TOTAL, configuration, new_queues, place, request, waiting_groups

HOUR_MS = 3_600_000


def test_a_share_is_the_largest_part_of_anything_by_weight() -> None:
    scales = scales_of(Amount(1000, 1000, 8000))
    assert share_of((100, 0, 4000), 1, scales) == SHARE_ONE // 2
    assert share_of((100, 0, 4000), 2, scales) == SHARE_ONE // 4


def test_what_there_is_none_of_counts_nothing() -> None:
    assert share_of((100, 100, 100), 1, scales_of(Amount())) == 0


def test_what_was_used_counts_half_after_a_half_life() -> None:
    fairness = Fairness(3600.0)
    fairness.set_total(Amount(1000, 1000, 1000))
    account = fairness.of_space("w", 1, 0)
    account.charge((1000, 0, 0), 1, 0)
    for minute in range(60 * 20):  # long enough that the mean is what is used
        fairness.settle(minute * 60_000)
    assert account.count(fairness.scales) == pytest.approx(SHARE_ONE, rel=0.001)
    end_ms = 60 * 20 * 60_000
    account.charge((1000, 0, 0), -1, end_ms)
    fairness.settle(end_ms)
    before = account.count(fairness.scales)
    fairness.settle(end_ms + HOUR_MS)
    assert account.count(fairness.scales) == pytest.approx(before / 2, rel=0.001)


def test_short_work_between_two_looks_is_not_forgotten() -> None:
    fairness = Fairness(3600.0)
    fairness.set_total(Amount(1000, 1000, 1000))
    account = fairness.of_space("w", 1, 0)
    account.charge((1000, 0, 0), 1, 0)
    account.charge((1000, 0, 0), -1, 20_000)
    assert fairness.settle(40_000)
    assert account.count(fairness.scales) > 0


@given(st.integers(0, 200_000))
def test_the_past_fades_and_never_grows(steps: int) -> None:
    assert 0 <= kept(steps + 1) <= kept(steps) <= 1 << 32
    assert kept(steps) == pytest.approx(2**32 * 0.5 ** (steps / STEPS), rel=0.001, abs=2)


uses = st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(0, 600_000)), max_size=30)


@settings(settings.get_profile("property"))
@given(uses, st.integers(0, 30))
def test_who_takes_over_comes_to_the_same_shares(steps: list[tuple[int, int, int]], at: int) -> None:
    """Also: use is never below zero, and shares are never below what is used now."""
    one = Fairness(600.0)
    one.set_total(TOTAL)
    now_ms = 1_700_000_000_000
    one.settle(now_ms)
    for number, (place_, change, elapsed_ms) in enumerate(steps):
        if number == at:
            other = Fairness(600.0)
            other.set_total(TOTAL)
            past = one.remember(now_ms)
            for name, account in one.spaces.items():
                other.of_space(name, 1, now_ms).charge((1000, 10, 0), account.members, now_ms)
            assert isinstance(past, FairnessPast)
            other.recall(past)
            one = _same(one, other, now_ms)
        now_ms += elapsed_ms
        one.settle(now_ms)
        account = one.of_space(f"w{place_}", 1, now_ms)
        account.charge((1000, 10, 0), max(change, -account.members), now_ms)
        assert account.count(one.scales) >= share_of(account.used, 1, one.scales) // 2


def _same(one: Fairness, other: Fairness, now_ms: int) -> Fairness:
    for later_ms in (now_ms, now_ms + 500_000):
        one.settle(later_ms)
        other.settle(later_ms)
        shares = [{name: each.count(found.scales) for name, each in found.spaces.items()} for found in (one, other)]
        assert shares[0] == shares[1]
    return other


def test_an_account_that_nothing_is_left_of_is_idle() -> None:
    account = Account(0)
    assert account.idle
    account.charge((1, 1, 1), 1, 0)
    assert not account.idle


def running(queues: Queues, *workspaces: tuple[str, int], now_s: float = 0.0) -> None:
    """So many requests of each, started."""
    for workspace, count in workspaces:
        for number in range(count):
            queues.add(request(f"{workspace}{number}", workspace, at_s=now_s), now_s)
    for name in place(queues, now_s):
        queues.started(name, now_s)


class TestYielding:
    def small(self, *shares: Share) -> Queues:
        """Eight CPUs are all there is."""
        queues = new_queues(configuration(shares=shares))
        queues.set_total(Amount(8000, 8000, 0))
        return queues

    def ask(self, queues: Queues, workspace: str, count: int, now_s: float) -> None:
        """These wait for room."""
        for number in range(count):
            queues.add(request(f"{workspace}{number}", workspace, at_s=now_s), now_s)
        assert place(queues, now_s, room=0) == []

    def test_nobody_yields_before_the_slice_is_over(self) -> None:
        queues = self.small()
        running(queues, ("rich", 8))
        self.ask(queues, "poor", 1, 1.0)
        assert queues.yields(1.9) == ()
        assert queues.yields(2.5) == ("rich0",)

    def test_shares_come_nearer_and_never_change_places(self) -> None:
        queues = self.small()
        running(queues, ("rich", 8))
        self.ask(queues, "poor", 20, 3.0)
        asked = queues.yields(3.0)
        assert len(asked) == 4
        assert queues.yields(4.0) == ()
        for name in asked:
            queues.end_member(name, 5.0)
        queues.wake_room(lambda _: True)
        assert len(place(queues, 5.0, room=4)) == 4
        for name in asked:
            queues.add(request(name, "rich", at_s=5.0), 5.0)
        assert place(queues, 5.0, room=0) == []
        assert queues.yields(100.0) == ()

    def test_a_weight_is_a_larger_fair_share(self) -> None:
        queues = self.small(Share(workspace="rich", weight=3))
        running(queues, ("rich", 8))
        self.ask(queues, "poor", 20, 3.0)
        assert len(queues.yields(3.0)) == 2

    def test_nobody_yields_who_would_have_less_than_the_other_then(self) -> None:
        queues = self.small()
        queues.add(request("rich", "rich", 8), 0.0)
        place(queues)
        queues.started("rich", 0.0)
        self.ask(queues, "poor", 1, 3.0)
        assert queues.yields(3.0) == ()

    def test_a_slice_lasts_as_long_when_a_clock_goes_back(self) -> None:
        queues = self.small()
        assert queues.next(100.0) is None
        running(queues, ("rich", 8), now_s=50.0)
        self.ask(queues, "poor", 1, 51.0)
        assert queues.yields(53.0) == ()
        assert queues.yields(102.0) == ("rich0",)

    def test_no_more_yield_than_wait(self) -> None:
        queues = self.small()
        running(queues, ("rich", 8))
        self.ask(queues, "poor", 1, 3.0)
        assert len(queues.yields(3.0)) == 1
        assert queues.yields(4.0) == ()

    def test_nobody_yields_for_one_whom_another_limit_holds(self) -> None:
        queues = self.small(Share(workspace="poor", max_containers=0))
        running(queues, ("rich", 8))
        queues.add(request("poor", "poor", at_s=3.0), 3.0)
        assert place(queues, 3.0) == []
        assert queues.yields(3.0) == ()
        assert {parked for _, _, parked in waiting_groups(queues)} == {Parked.QUOTA}
