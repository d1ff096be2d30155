"""What the guard promises: the limits, the order, one answer to one question, and a way through for large gangs."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_deciding import SIZE

from levers9.actors.pool.guard import Admitted, GuardPolicy, GuardSettings, Held, ProvisioningGuard, ProvisioningRequest
from levers9.model.figures import GUARD_WINDOW_S
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message

NOW_S = 1000.0


def request(key: str, workers: int = 1, pool: str = "p") -> ProvisioningRequest:
    return ProvisioningRequest(pool=pool, key=key, workers=workers)


def guard(pending: int = 20, per_minute: int = 30) -> ProvisioningGuard:
    return ProvisioningGuard(GuardSettings(pending=pending, per_minute=per_minute))


def admitted(one: ProvisioningGuard, count: int, now_s: float = NOW_S, pool: str = "p") -> int:
    """How many of so many single requests go at once."""
    names = [f"{now_s}-{number}" for number in range(count)]
    return sum(isinstance(one.admit(request(name, pool=pool), now_s), Admitted) for name in names)


def test_twenty_may_be_pending_and_not_one_more() -> None:
    one = guard()
    assert admitted(one, 25) == 20
    held = one.admit(request("more"), NOW_S)
    assert held == Held("20 of its workers are pending, and the limit is 20")


def test_thirty_may_be_added_within_a_minute_though_none_is_pending() -> None:
    one = guard()
    assert admitted(one, 20) == 20
    for number in range(20):
        one.forget("p", f"{NOW_S}-{number}")
    assert admitted(one, 20, NOW_S + 30.0) == 10
    assert one.admit(request("more"), NOW_S + 30.0) == Held(
        "30 workers were added within a minute, and the limit is 30"
    )


def test_a_held_order_goes_out_once_the_minute_has_passed() -> None:
    one = guard(pending=-1, per_minute=2)
    assert admitted(one, 3) == 2
    assert one.release(NOW_S + GUARD_WINDOW_S - 0.1) == ()
    assert [released.key for released in one.release(NOW_S + GUARD_WINDOW_S)] == [f"{NOW_S}-2"]


def test_a_held_order_goes_out_once_fewer_are_pending() -> None:
    one = guard(pending=2, per_minute=-1)
    admitted(one, 3)
    one.count_pending("p", 2)
    one.forget("p", f"{NOW_S}-0")
    one.forget("p", f"{NOW_S}-1")
    assert one.release(NOW_S) == ()
    one.count_pending("p", 1)
    assert [released.key for released in one.release(NOW_S)] == [f"{NOW_S}-2"]


def test_a_limit_below_zero_is_no_limit_and_zero_holds_everything() -> None:
    assert admitted(guard(-1, -1), 500) == 500
    assert admitted(guard(0, -1), 5) == 0
    assert admitted(guard(-1, 0), 5) == 0


def test_pools_do_not_wait_for_each_other() -> None:
    one = guard(pending=1)
    assert (admitted(one, 2, pool="p"), admitted(one, 2, pool="q")) == (1, 1)


def test_a_question_that_is_asked_twice_is_answered_alike_and_counted_once() -> None:
    one = guard(pending=2)
    for _ in range(5):
        assert one.admit(request("a"), NOW_S) == Admitted()
    assert one.admit(request("b"), NOW_S) == Admitted()
    for _ in range(5):
        assert isinstance(one.admit(request("c"), NOW_S), Held)
    one.forget("p", "a")
    assert [released.key for released in one.release(NOW_S)] == ["c"]


def test_a_gang_is_judged_as_one() -> None:
    one = guard(pending=10)
    assert admitted(one, 4) == 4
    assert isinstance(one.admit(request("gang", 8), NOW_S), Held)
    one.forget("p", f"{NOW_S}-0")
    one.forget("p", f"{NOW_S}-1")
    assert one.release(NOW_S) == (request("gang", 8),)


def test_a_gang_larger_than_the_limits_goes_when_nothing_else_is_counted_and_alone() -> None:
    one = guard()
    assert one.admit(request("gang", 100), NOW_S) == Admitted()
    assert isinstance(one.admit(request("a"), NOW_S), Held)
    one.forget("p", "gang")
    assert one.release(NOW_S + 1.0) == ()  # a hundred were added within this minute
    assert [released.key for released in one.release(NOW_S + 60.0)] == ["a"]


def test_a_large_gang_waits_for_what_is_pending_and_then_nobody_goes_before_it() -> None:
    one = guard(per_minute=-1)
    assert admitted(one, 3) == 3
    assert isinstance(one.admit(request("gang", 40), NOW_S), Held)
    assert one.admit(request("late"), NOW_S) == Held("3 of its workers are pending, and the limit is 20")
    for number in range(3):
        one.forget("p", f"{NOW_S}-{number}")
    assert [released.key for released in one.release(NOW_S)] == ["gang"]


def test_a_clock_that_goes_back_lets_nothing_through() -> None:
    one = guard(pending=-1, per_minute=1)
    admitted(one, 2)
    assert one.release(NOW_S - 500.0) == ()
    assert one.release(NOW_S + 59.0) == ()
    assert len(one.release(NOW_S + 60.0)) == 1


def test_nothing_is_counted_for_less_than_a_minute_by_a_clock_that_went_back() -> None:
    one = guard(pending=-1, per_minute=1)
    one.release(NOW_S)
    assert one.admit(request("a"), NOW_S - 50.0) == Admitted()
    assert isinstance(one.admit(request("b"), NOW_S + 30.0), Held)


def test_what_is_no_longer_asked_frees_its_place() -> None:
    one = guard(pending=1)
    admitted(one, 3)
    one.forget("p", "")
    assert one.admit(request("a"), NOW_S) == Admitted()


def row(number: int, state: WorkerState, ordered_at_s: float) -> ops.WorkerRow:
    return ops.WorkerRow(worker_id=f"w{number}", pool="p", state=state, capacity=SIZE, ordered_at_s=ordered_at_s)


def test_a_new_leader_counts_from_the_rows() -> None:
    states = [WorkerState.ORDERED, WorkerState.PENDING, WorkerState.AVAILABLE, WorkerState.GONE]
    rows = [row(number, state, NOW_S - 10.0) for number, state in enumerate(states)]
    pending, added = guard(pending=3, per_minute=-1), guard(pending=-1, per_minute=5)
    for one in (pending, added):
        one.load([*rows, row(9, WorkerState.AVAILABLE, NOW_S - 60.0)], NOW_S)
    assert (admitted(pending, 9), admitted(added, 9)) == (1, 1)


class TestLetters:
    @staticmethod
    def asked(policy: GuardPolicy, *messages: Message, now_s: float = NOW_S) -> list[Message]:
        for message in messages:
            policy.handle(Letter(message, source="pool/p", target="guard"), now_s)
        plan = policy.plan(now_s)
        return [] if plan is None else [send.message for send in policy.settle(plan, ())]

    def test_each_question_is_answered_and_a_held_one_again_when_it_may_go(self) -> None:
        policy = GuardPolicy(GuardSettings(pending=1))
        questions = [scheduling.AskGuard(pool="p", key=key, workers=1) for key in ("a", "b")]
        first, second = self.asked(policy, *questions)
        assert first == scheduling.GuardAdmits(key="a")
        assert isinstance(second, scheduling.GuardHolds)
        pending, forgets = scheduling.WorkersPending(pool="p", pending=1), scheduling.GuardForgets(pool="p", key="a")
        assert self.asked(policy, pending, forgets) == []
        pending = scheduling.WorkersPending(pool="p", pending=0)
        assert self.asked(policy, pending) == [scheduling.GuardAdmits(key="b")]

    def test_nobody_but_pools_is_listened_to(self) -> None:
        policy = GuardPolicy(GuardSettings())
        question = scheduling.AskGuard(pool="p", key="a", workers=1)
        policy.handle(Letter(question, source="worker/w", target="guard"), NOW_S)
        assert policy.plan(NOW_S) is None


PENDING, PER_MINUTE = 4, 6


class GuardMachine(RuleBasedStateMachine):
    """The plain model: every request that went, with its time, and every worker that is pending."""

    @initialize()
    def begin(self) -> None:
        self.guard = guard(PENDING, PER_MINUTE)
        self.now_s = NOW_S
        self.asked: dict[str, int] = {}
        self.held: list[str] = []
        self.went: list[tuple[float, str]] = []
        self.pending: dict[str, int] = {}  # by request: workers that were not counted, or are pending

    def goes(self, key: str) -> None:
        before = sum(self.pending.values())
        assert before + self.asked[key] <= PENDING or before == 0
        recent = sum(self.asked[one] for at_s, one in self.went if at_s > self.now_s - GUARD_WINDOW_S)
        assert recent + self.asked[key] <= PER_MINUTE or recent == 0
        assert key not in [one for _, one in self.went], "each goes once"
        self.went.append((self.now_s, key))
        self.pending[key] = self.asked[key]

    @rule(workers=st.sampled_from([1, 1, 1, 2, 5, 9]))
    def ask(self, workers: int) -> None:
        key = f"request-{len(self.asked)}"
        self.asked[key] = workers
        if isinstance(self.guard.admit(request(key, workers), self.now_s), Admitted):
            assert self.held == [], "nobody goes before one that was held"
            self.goes(key)
        else:
            self.held.append(key)

    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        known = [*self.held, *[key for _, key in self.went if key in self.pending]]
        if known:
            key = data.draw(st.sampled_from(known))
            answer = self.guard.admit(request(key, self.asked[key]), self.now_s)
            if isinstance(answer, Admitted) and key in self.held:
                assert self.held[0] == key
                self.held.remove(key)
                self.goes(key)

    @rule(seconds=st.sampled_from([0.0, 0.1, 7.0, 31.0, 60.0, -20.0]))
    def time_passes(self, seconds: float) -> None:
        """A clock that goes back is one that stands still, for the guard."""
        self.now_s += max(0.0, seconds)
        for one in self.guard.release(self.now_s + min(0.0, seconds)):
            assert one.key == self.held.pop(0)
            self.goes(one.key)

    @rule(data=st.data())
    def workers_arrive_or_end(self, data: st.DataObject) -> None:
        if self.pending:
            key = data.draw(st.sampled_from(sorted(self.pending)))
            del self.pending[key]
            self.guard.count_pending("p", 0)
            self.guard.forget("p", key)

    @rule(data=st.data())
    def one_is_not_asked_any_more(self, data: st.DataObject) -> None:
        if self.held:
            key = data.draw(st.sampled_from(self.held))
            self.held.remove(key)
            self.guard.forget("p", key)

    @invariant()
    def more_than_the_limit_only_where_a_large_one_is_alone(self) -> None:
        if hasattr(self, "pending") and sum(self.pending.values()) > PENDING:
            assert len(self.pending) == 1

    def teardown(self) -> None:
        """Whatever is held goes at last, in its order."""
        for _ in range(2 * len(getattr(self, "held", ()))):
            for key in tuple(self.pending):
                del self.pending[key]
                self.guard.forget("p", key)
            self.time_passes(60.0)
        assert getattr(self, "held", []) == []


TestGuardMachine = GuardMachine.TestCase
TestGuardMachine.settings = settings(settings.get_profile("property"))
TestGuardMachine = pytest.mark.slow(TestGuardMachine)
