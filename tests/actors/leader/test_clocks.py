"""Campaigns whose clocks tell different times: a lease is what one has watched of another, by a clock of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levers9.actors.leader import BeginReign, Campaign
from levers9.model.figures import LEADER_LEASE_S, LEADER_RENEW_S
from levers9.store import operations as ops
from levers9.store.memory.tables import Tables, carry_out

HOUR_S = 3600.0
TICK_S = 0.1
SLOWEST, FASTEST = 0.95, 1.05  # how fast a clock may run
LEADS_WITHIN_S = 1.5 * LEADER_LEASE_S / SLOWEST


class Brain:
    """One life of a replica's campaign with its clocks: one is set and drifts, the other only goes forward."""

    def __init__(self, replica: str, life: int, born_s: float, *, ahead_s: float = 0.0, rate: float = 1.0) -> None:
        self.replica = replica
        self.campaign = Campaign(replica, str(life), f"ws://{replica}")
        self.ahead_s = ahead_s
        self.rate = rate
        self.next_s = self.awake_since_s = born_s
        self.frozen = False
        self.asked: ops.Operation | None = None
        self.answer: ops.Answer = None

    def steady_s(self, true_s: float) -> float:
        return true_s * self.rate

    def ask(self, true_s: float) -> None:
        """Decide what to ask; it may be on its way for long."""
        steady_s = self.steady_s(true_s)
        self.asked = self.campaign.next_operation(HOUR_S + steady_s + self.ahead_s, steady_s)

    def hear(self, true_s: float) -> tuple[int, ...]:
        """Take the answer in; returns the epoch of a reign that begins."""
        answer, self.answer = self.answer, None
        if not isinstance(answer, ops.Leadership):
            self.campaign.resigned()
            return ()
        decisions = self.campaign.heard(answer, self.steady_s(true_s))
        return tuple(each.epoch for each in decisions if isinstance(each, BeginReign))


class World:
    """Replicas on one row, and what is true of it: when it was last renewed, and in which epochs somebody reigned."""

    def __init__(self, brains: list[Brain]) -> None:
        self.tables = Tables()
        self.brains = brains
        self.true_s = self.renewed_s = 0.0
        self.reigned: set[int] = set()

    def epoch(self) -> int:
        return self.tables.leadership.epoch if self.tables.leadership else 0

    def answer(self, brain: Brain) -> None:
        """The question arrives. Whoever takes another's place has seen it silent for a lease of its own."""
        assert brain.asked is not None
        before = self.tables.leadership
        brain.answer, brain.asked = carry_out(self.tables, brain.asked), None
        after = self.tables.leadership
        if before is not None and before.holder and after is not None and after.epoch != before.epoch:
            assert self.true_s - self.renewed_s >= LEADER_LEASE_S / FASTEST - 1e-6, "it took a leader's place"
        if after != before:
            self.renewed_s = self.true_s

    def hear(self, brain: Brain) -> None:
        for epoch in brain.hear(self.true_s):
            assert epoch not in self.reigned, "an epoch was reigned twice"
            self.reigned.add(epoch)

    def step(self, brain: Brain) -> None:
        """One question with its answer, and what was stuck on the way before it."""
        if brain.answer is None and brain.asked is None:
            brain.ask(self.true_s)
        if brain.asked is not None:
            self.answer(brain)
        self.hear(brain)
        pause_s = LEADER_RENEW_S if brain.campaign.reigning else LEADER_RENEW_S / 2
        brain.next_s = self.true_s + pause_s / brain.rate

    def run(self, duration_s: float) -> None:
        """Let time pass; whoever is not frozen asks when it wants to."""
        for _ in range(round(duration_s / TICK_S)):
            self.true_s += TICK_S
            for brain in self.brains:
                if not brain.frozen and brain.next_s <= self.true_s:
                    self.step(brain)
            self.check()

    def check(self) -> None:
        """Whoever follows leads soon after the leader's last word."""
        awake_since_s = min((brain.awake_since_s for brain in self.brains if not brain.frozen), default=self.true_s)
        assert self.true_s - max(awake_since_s, self.renewed_s) <= LEADS_WITHIN_S, "nobody leads"


def pair(ahead_s: float = 0.0) -> tuple[World, Brain, Brain]:
    """Two replicas, of which the first leads; the second's clock is ahead by so much."""
    leader, other = Brain("here", 1, 0.0), Brain("there", 2, 0.05, ahead_s=ahead_s)
    world = World([leader, other])
    world.run(2.0)
    assert leader.campaign.reigning == 1
    return world, leader, other


def asleep(world: World, brains: list[Brain], duration_s: float) -> None:
    """They stand still together, as the processes of a paused machine do."""
    for brain in brains:
        brain.frozen = True
    world.run(duration_s)
    for brain in brains:
        brain.frozen, brain.awake_since_s = False, world.true_s


@pytest.mark.parametrize("ahead_s", [-HOUR_S, -6.0, 6.0, HOUR_S])
def test_clocks_that_differ_by_an_hour_take_nobodys_place(ahead_s: float) -> None:
    world, _, other = pair(ahead_s)
    world.run(60.0)
    assert (world.epoch(), other.campaign.followed) == (1, (1, "ws://here"))


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S])
def test_who_followed_leads_about_a_lease_after_the_last_word(ahead_s: float) -> None:
    world, leader, other = pair(ahead_s)
    leader.frozen = True
    world.run(LEADER_LEASE_S - LEADER_RENEW_S)
    assert other.campaign.reigning == 0
    world.run(2 * LEADER_RENEW_S)
    assert other.campaign.reigning == 2


def test_who_has_just_started_watches_for_a_whole_lease_first() -> None:
    world, leader, other = pair()
    leader.frozen = other.frozen = True
    world.run(HOUR_S)
    world.brains = [leader, newborn := Brain("third", 3, world.true_s)]
    world.run(LEADER_LEASE_S - TICK_S)
    assert (world.epoch(), newborn.campaign.reigning) == (1, 0)
    world.run(LEADER_RENEW_S)
    assert newborn.campaign.reigning == 2


def test_whoever_starts_first_or_after_a_resignation_leads_at_once() -> None:
    world, leader, _ = pair()
    leader.campaign.reign_ended(1)
    leader.next_s = 0.0
    world.run(TICK_S)
    leader.frozen = True
    world.run(LEADER_RENEW_S / 2)
    assert world.epoch() == 2


@pytest.mark.parametrize("set_by_s", [-HOUR_S, -LEADER_RENEW_S, HOUR_S])
def test_a_leader_whose_clock_is_set_keeps_its_place(set_by_s: float) -> None:
    world, leader, _ = pair()
    for _ in range(10):
        leader.ahead_s += set_by_s
        world.run(1.0)
    assert world.epoch() == 1


def test_a_leader_whose_clock_stands_still_keeps_its_place_for_it_never_says_the_same_twice() -> None:
    world, leader, _ = pair()
    for _ in range(100):
        leader.ahead_s -= TICK_S
        world.run(TICK_S)
    assert world.epoch() == 1


def freeze_before_it_asks(world: World, brain: Brain) -> None:
    brain.frozen = True


def freeze_with_its_question_on_the_way(world: World, brain: Brain) -> None:
    brain.frozen = True
    brain.ask(world.true_s)


def freeze_with_the_answer_in_hand(world: World, brain: Brain) -> None:
    freeze_with_its_question_on_the_way(world, brain)
    world.answer(brain)


FREEZES = [freeze_before_it_asks, freeze_with_its_question_on_the_way, freeze_with_the_answer_in_hand]


@pytest.mark.parametrize("freeze", FREEZES)
@pytest.mark.parametrize("set_by_s", [0.0, -HOUR_S])
def test_a_follower_that_stood_still_takes_no_place_of_one_that_spoke_meanwhile(
    freeze: Callable[[World, Brain], None], set_by_s: float
) -> None:
    world, leader, other = pair()
    freeze(world, other)
    world.run(30.0)
    leader.ahead_s += set_by_s
    world.run(30.0)
    other.frozen, other.awake_since_s = False, world.true_s
    world.run(30.0)
    assert world.epoch() == 1


def test_a_question_that_was_on_its_way_for_long_finds_the_word_that_came_meanwhile() -> None:
    """The follower saw a whole lease of silence and asks; before that arrives, the leader speaks again."""
    world, leader, other = pair()
    leader.frozen = True
    world.run(LEADER_LEASE_S - LEADER_RENEW_S / 2)
    other.frozen = True
    world.true_s += LEADER_RENEW_S
    other.ask(world.true_s)
    assert isinstance(other.asked, ops.TakeLeadership)
    assert other.asked.silent_epoch == 1
    world.step(leader)
    world.answer(other)
    world.hear(other)
    assert (world.epoch(), other.campaign.reigning) == (1, 0)


def test_replicas_that_stood_still_together_go_on_as_before() -> None:
    world, leader, other = pair()
    asleep(world, world.brains, 60.0)
    other.next_s, leader.next_s = world.true_s, world.true_s + LEADER_RENEW_S
    world.run(30.0)
    assert world.epoch() == 1


NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
ahead_s = st.sampled_from([-HOUR_S, -LEADER_RENEW_S, 0.0, HOUR_S]) | st.floats(-HOUR_S, HOUR_S)
rates = st.sampled_from([SLOWEST, 1.0, FASTEST])


class Clocks(RuleBasedStateMachine):
    """Three replicas that freeze, restart and have their clocks set."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = len(NAMES)
        self.world = World([Brain(name, life, 0.0) for life, name in enumerate(NAMES)])

    def brain(self, name: str) -> Brain:
        return self.world.brains[NAMES.index(name)]

    @rule(name=names, ahead_s=ahead_s)
    def a_clock_is_set(self, name: str, ahead_s: float) -> None:
        self.brain(name).ahead_s = ahead_s

    @rule(name=names, freeze=st.sampled_from(FREEZES))
    def one_freezes(self, name: str, freeze: Callable[[World, Brain], None]) -> None:
        if not self.brain(name).frozen:
            freeze(self.world, self.brain(name))

    @rule(name=names)
    def one_goes_on(self, name: str) -> None:
        brain = self.brain(name)
        if brain.frozen:
            brain.frozen, brain.awake_since_s = False, self.world.true_s

    @rule(name=names, ahead_s=ahead_s, rate=rates)
    def one_restarts(self, name: str, ahead_s: float, rate: float) -> None:
        self.lives += 1
        self.world.brains[NAMES.index(name)] = Brain(name, self.lives, self.world.true_s, ahead_s=ahead_s, rate=rate)

    @rule(name=names)
    def a_reign_ends(self, name: str) -> None:
        campaign = self.brain(name).campaign
        campaign.reign_ended(campaign.reigning)

    @rule(passed_s=st.floats(TICK_S, 3.0) | st.floats(3.0, 12.0))
    def time_passes(self, passed_s: float) -> None:
        self.world.run(passed_s)

    @invariant()
    def the_newest_epoch_is_in_the_row(self) -> None:
        assert max(self.world.reigned, default=0) <= self.world.epoch()


TestClocks = pytest.mark.slow(Clocks.TestCase)
TestClocks.settings = settings(settings.get_profile("property"))
