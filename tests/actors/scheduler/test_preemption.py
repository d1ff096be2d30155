"""Who must stop for whom: as few as will do, nobody in circles, and nobody where quotas do not say so."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.preemption import PREEMPTED_MAX
from levers9.actors.scheduler.queues import Parked, Queues
from levers9.model.queues import FairShare, Quota, Reclaim, Within
from levers9.model.reasons import Reason

from .queueing_words import configuration, new_queues, place, quota, request

PATIENT = FairShare(ageing_step=0, patience_s=1e8)


def filled(*quotas: Quota, **cpus: tuple[int, ...]) -> Queues:
    """Queues in which these workspaces run requests of so many CPUs: w0, w1 and so on."""
    queues = new_queues(configuration(*quotas, fair_share=PATIENT))
    for workspace, sizes in cpus.items():
        for number, cpu in enumerate(sizes):
            queues.add(request(f"{workspace}{number}", workspace, cpu, at_s=float(number)), float(number))
    assert len(place(queues, 10.0)) == sum(len(sizes) for sizes in cpus.values())
    return queues


def victims(queues: Queues, asked: Request, now_s: float = 20.0) -> tuple[str, ...]:
    """Of a request that waits for quota only."""
    queues.add(asked, now_s)
    assert place(queues, now_s) == []
    return queues.victims(asked, "any", lambda _: True, now_s)


def test_nobody_stops_where_a_quota_does_not_say_so() -> None:
    queues = filled(quota("a", 4), a=(4,))
    assert victims(queues, request("x", "a", priority="high")) == ()


def test_within_a_quota_the_lower_priority_stops() -> None:
    queues = filled(quota("a", 4, preempt=Within.LOWER_PRIORITY), a=(2, 2))
    assert victims(queues, request("x", "a", 2, priority="high")) == ("a1",)
    assert victims(queues, request("y", "a", 2)) == ()


def test_of_the_same_priority_only_newer_ones_stop_and_only_where_that_is_said() -> None:
    queues = filled(quota("a", 4, preempt=Within.LOWER_OR_NEWER_EQUAL), a=(2, 2))
    assert victims(queues, request("x", "a", 2, at_s=0.5)) == ("a1",)
    assert victims(queues, request("y", "a", 2, at_s=15.0)) == ()


def test_nobody_stops_who_turns_out_not_to_be_needed() -> None:
    queues = filled(quota("a", 7, preempt=Within.LOWER_PRIORITY), a=(1, 1, 4, 1))
    assert victims(queues, request("x", "a", 4, priority="high")) == ("a2",)


def test_nobody_stops_where_all_that_may_stop_are_not_enough() -> None:
    queues = filled(quota("a", 4, preempt=Within.LOWER_PRIORITY), a=(2,))
    queues.add(request("h", "a", 2, priority="high"), 10.0)
    assert place(queues, 10.0) == ["h"]
    assert victims(queues, request("x", "a", 4, priority="high")) == ()


def test_room_counts_as_well_as_quota() -> None:
    queues = filled(quota("a", 4, preempt=Within.LOWER_PRIORITY), a=(1, 1, 1, 1))
    asked = request("x", "a", priority="high")
    queues.add(asked, 20.0)
    assert place(queues, 20.0) == []
    assert queues.victims(asked, "any", lambda without: "a1" in without, 20.0) == ("a1",)
    assert queues.victims(asked, "any", lambda _: False, 20.0) == ()


def test_what_was_lent_is_taken_back_from_who_borrows() -> None:
    lender = quota("a", 4, cohort="c", reclaim=Reclaim.ANY)
    queues = filled(lender, quota("b", 4, cohort="c"), b=(4, 2, 2))
    assert victims(queues, request("x", "a", 2)) == ("b2",)


def test_what_others_have_of_their_own_is_never_taken() -> None:
    lender = quota("a", 4, cohort="c", reclaim=Reclaim.ANY)
    queues = filled(lender, quota("b", 4, cohort="c"), a=(4,), b=(2, 2))
    assert victims(queues, request("x", "a", 2)) == ()


def test_nobody_borrows_by_stopping_others() -> None:
    lender = quota("a", 1, cohort="c", reclaim=Reclaim.ANY)
    queues = filled(lender, quota("b", 1, cohort="c"), quota("idle", 4, cohort="c"), b=(2, 2, 2))
    assert victims(queues, request("x", "a", 2)) == ()
    assert victims(queues, request("y", "a", 1)) == ("b2",)


def test_of_the_same_priority_nothing_is_taken_back_where_it_has_to_be_lower() -> None:
    lender = quota("a", 4, cohort="c", reclaim=Reclaim.LOWER_PRIORITY)
    queues = filled(lender, quota("b", 4, cohort="c"), b=(4, 4))
    assert victims(queues, request("x", "a", 2)) == ()
    assert victims(queues, request("y", "a", 2, priority="high")) == ("b1",)


def test_what_a_victim_gives_back_is_saved_for_whom_it_stopped() -> None:
    queues = filled(quota("a", 4, preempt=Within.LOWER_PRIORITY), a=(2, 2))
    assert victims(queues, request("x", "a", 4, priority="high")) == ("a1", "a0")
    queues.add(request("small", "a", 1, priority="high", at_s=0.0), 21.0)
    queues.end_member("a1", 22.0)
    queues.add(request("a1", "a", 2, at_s=1.0), 22.0)
    assert place(queues, 22.0) == []
    queues.end_member("a0", 23.0)
    assert place(queues, 23.0)[0] == "x"


def test_each_first_of_a_group_is_seen_once_to_find_out_whom_it_may_stop() -> None:
    queues = filled(quota("a", 2, preempt=Within.LOWER_PRIORITY), a=(1, 1))
    for number in range(2):
        queues.add(request(f"x{number}", "a", priority="high", at_s=20.0 + number), 21.0)
    assert place(queues, 21.0) == []
    queues.withdraw("x0")
    assert queues.next(22.0) is None
    seen = queues.unseen()
    assert seen is not None
    assert seen.request_id == "x1"
    assert queues.unseen() is None


def test_one_request_is_stopped_a_few_times_only() -> None:
    queues = filled(quota("a", 1, preempt=Within.LOWER_PRIORITY), a=(1,))
    for number in range(PREEMPTED_MAX):
        asked = request(f"x{number}", "a", priority="high", at_s=20.0 + number)
        assert victims(queues, asked, 20.0 + number) == ("a0",)
        queues.end_member("a0", 30.0)
        assert place(queues, 30.0) == [asked.request_id]
        queues.end_member(asked.request_id, 30.0)
        queues.add(request("a0", "a"), 30.0)
        assert place(queues, 30.0) == ["a0"]
    assert victims(queues, request("last", "a", priority="high", at_s=40.0), 40.0) == ()


RULES = st.tuples(st.sampled_from(Reclaim), st.sampled_from(Within))


class PreemptionMachine(RuleBasedStateMachine):
    """Everybody stops whom they may. Nobody is stopped more often than a few times, and limits are kept."""

    @initialize(rules=st.tuples(RULES, RULES, RULES))
    def build(self, rules: tuple[tuple[Reclaim, Within], ...]) -> None:
        """Three quotas of a cohort, each with any rules."""
        quotas = tuple(
            quota(name, 3, cohort="c", reclaim=reclaim, preempt=preempt)
            for name, (reclaim, preempt) in zip("abc", rules)
        )
        self.config = {one.name: one for one in quotas}
        self.queues = new_queues(configuration(*quotas, fair_share=PATIENT))
        self.requests: dict[str, Request] = {}
        self.running: dict[str, None] = {}
        self.stopped: dict[str, int] = {}
        self.now_s = 0.0

    @rule(where=st.sampled_from("abc"), cpu=st.integers(1, 4), priority=st.sampled_from(("low", "default", "high")))
    def ask(self, where: str, cpu: int, priority: str) -> None:
        """A request, and all that follows from it until nothing does."""
        self.now_s += 1.0
        made = request(f"r{len(self.requests)}", where, cpu, priority=priority, at_s=self.now_s)
        self.requests[made.request_id] = made
        self.queues.add(made, self.now_s)
        self._settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Something ends."""
        name = data.draw(st.sampled_from(list(self.running)))
        del self.running[name]
        self.queues.end_member(name, self.now_s)
        self._settle()

    def _settle(self) -> None:
        """Each round somebody stops; there are not more rounds than anybody may be stopped."""
        for _ in range(PREEMPTED_MAX * len(self.requests) + 2):
            stopped = self._plan()
            if not stopped:
                return
            for name in stopped:
                del self.running[name]
                self.stopped[name] = self.stopped.get(name, 0) + 1
                assert self.queues.end_member(name, self.now_s)
            for name in stopped:
                self.queues.add(self.requests[name], self.now_s)
        raise AssertionError("it never ends")

    def _plan(self) -> tuple[str, ...]:
        while (found := self.queues.next(self.now_s)) is not None:
            ways = self.queues.check(found, self.now_s)
            if not isinstance(ways, Reason):
                self.queues.admit(found, "any", self.now_s)
                self.running[found.request_id] = None
                continue
            stopped = self.queues.victims(found, "any", lambda _: True, self.now_s)
            self.queues.park(found.request_id, Parked.QUOTA)
            if stopped:
                self._judge(found, stopped)
                return stopped
        return ()

    def _used(self, name: str, without: tuple[str, ...] = ()) -> int:
        running = [self.requests[found] for found in self.running if found not in without]
        return sum(found.shape.cpu_milli for found in running if found.workspace == name)

    def _judge(self, asked: Request, stopped: tuple[str, ...]) -> None:
        """Each of them may be stopped, all are needed, and together they are enough."""
        whole = sum(self._used(name, stopped) for name in "abc") + asked.shape.cpu_milli
        assert whole <= 9000
        values = {"low": -100, "default": 0, "high": 200}
        for name in stopped:
            victim = self.requests[name]
            assert whole + victim.shape.cpu_milli > 9000
            assert self.stopped.get(name, 0) < PREEMPTED_MAX
            lower = values[victim.priority] < values[asked.priority]
            if victim.workspace == asked.workspace:
                newer = victim.priority == asked.priority and victim.requested_at_s > asked.requested_at_s
                equal = self.config[asked.workspace].preempt is Within.LOWER_OR_NEWER_EQUAL
                assert lower or (newer and equal)
            else:
                assert lower or self.config[asked.workspace].reclaim is Reclaim.ANY
                assert self._used(asked.workspace, stopped) + asked.shape.cpu_milli <= 3000
                assert self._used(victim.workspace) > 3000


TestPreemptionMachine = PreemptionMachine.TestCase
TestPreemptionMachine.settings = settings(settings.get_profile("property"))
TestPreemptionMachine.pytestmark = [pytest.mark.slow]
