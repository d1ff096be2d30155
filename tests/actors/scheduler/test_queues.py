"""The face of the queues, against a plain model that sorts everything that waits and adds up everything that runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.queues import Parked, Queues
from levers9.model.queues import FairShare, Queue, Queueing, Share
from levers9.model.reasons import HoldKind, Lack, Reason
from levers9.model.resources import Amount, Shape, amount_of

from .queueing_words import TOTAL, configuration, new_queues, place, quota, request, shares_of, waiting_groups

PATIENT = FairShare(ageing_s=100.0, ageing_step=100, patience_s=1e8)
VALUES = {"default": 0, "low": -100, "high": 200}
QUOTA_OF = {("a", "default"): "qa", ("b", "default"): "qb", ("b", "second"): "qb", ("c", "default"): "qc"}


def machine_configuration(kind: int) -> Queueing:
    """A cohort of two, one alone, a workspace with limits, and one without any quota."""
    lending = (None, None, 2)[kind]
    borrowing = (None, 3, 3)[kind]
    return configuration(
        quota("qa", 6, cohort="c", borrowing=borrowing, lending=lending),
        quota("qb", 4, cohort="c"),
        quota("qc", 5),
        queues=tuple(
            Queue(name=name, workspace=workspace, quota=held, weight=1 + (name == "second"))
            for (workspace, name), held in QUOTA_OF.items()
        ),
        shares=(Share(workspace="a", weight=2), Share(workspace="d", max_containers=3, max_cpu_milli=5000)),
        fair_share=PATIENT,
    )


@dataclass
class Model:
    """What waits, what runs, how much room there is."""

    kind: int
    room: int = 12
    now_s: float = 1000.0
    waiting: dict[str, Request] = field(default_factory=dict)
    running: dict[str, tuple[Request, int]] = field(default_factory=dict)

    def used(self, *quotas: str) -> int:
        """CPUs of these quotas' requests."""
        return sum(
            request.shape.cpu_milli * left
            for request, left in self.running.values()
            if QUOTA_OF.get((request.workspace, request.queue)) in quotas
        )

    def has_quota(self, request: Request) -> bool:
        """Whether sums stay below limits."""
        wanted = request.shape.cpu_milli * len(request.members)
        match QUOTA_OF.get((request.workspace, request.queue)):
            case "qa":
                used, other = self.used("qa") + wanted, self.used("qb")
                return (self.kind == 0 or used <= 9000) and max(0, used - self.kept) + other <= 10_000 - self.kept
            case "qb":
                return max(0, self.used("qa") - self.kept) + self.used("qb") + wanted <= 10_000 - self.kept
            case "qc":
                return self.used("qc") + wanted <= 5000
        mine = [(found, left) for found, left in self.running.values() if found.workspace == "d"]
        containers = sum(left for _, left in mine) + len(request.members)
        return containers <= 3 and sum(found.shape.cpu_milli * left for found, left in mine) + wanted <= 5000

    @property
    def kept(self) -> int:
        """What the first quota does not lend."""
        return 4000 if self.kind == 2 else 0

    @property
    def free(self) -> int:
        """Room in thousandths of CPUs."""
        return self.room * 1000 - sum(request.shape.cpu_milli * left for request, left in self.running.values())

    def has_room(self, request: Request) -> bool:
        """Whether all members fit."""
        return request.shape.cpu_milli * len(request.members) <= self.free


class QueuesMachine(RuleBasedStateMachine):
    """Whatever comes and goes: who is placed, in which order, is what sorting everything each time would give."""

    @initialize(kind=st.integers(0, 2))
    def build(self, kind: int) -> None:
        """One of three configurations."""
        self.model = Model(kind)
        self.queues = new_queues(machine_configuration(kind))
        self.made = 0
        self.changed = True

    @rule(
        where=st.sampled_from((*QUOTA_OF, ("d", "default"))),
        cpu=st.sampled_from((1, 2, 3, 7)),
        members=st.sampled_from((1, 1, 1, 2)),
        priority=st.sampled_from(tuple(VALUES)),
        group=st.sampled_from(("", "other")),
    )
    def ask(self, where: tuple[str, str], cpu: int, members: int, priority: str, group: str) -> None:
        """A request, or a gang."""
        self.made += 1
        made = request(
            f"r{self.made}",
            where[0],
            cpu,
            queue=where[1],
            priority=priority,
            members=members,
            at_s=self.model.now_s,
            group=group and f"{group}{where}{cpu}{members}{priority}",
        )
        self.model.waiting[made.request_id] = made
        self.queues.add(made, self.model.now_s)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """Somebody changes their mind."""
        name = data.draw(st.sampled_from(list(self.model.waiting)))
        del self.model.waiting[name]
        self.queues.withdraw(name)

    @precondition(lambda self: self.model.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A member ends."""
        name = data.draw(st.sampled_from(list(self.model.running)))
        found, left = self.model.running.pop(name)
        if left > 1:
            self.model.running[name] = (found, left - 1)
        assert self.queues.end_member(name, self.model.now_s)
        self.changed = True
        self._wake()

    def _wake(self) -> None:
        free = self.model.free
        self.queues.wake_room(lambda shape: shape.cpu_milli <= free)

    @rule(room=st.integers(0, 20))
    def nodes(self, room: int) -> None:
        """Nodes come or go."""
        self.model.room = room
        self._wake()

    @rule(seconds=st.sampled_from((0.1, 1.0, 50.0, 130.0, -40.0)))
    def wait(self, seconds: float) -> None:
        """Time goes on, or a clock goes back."""
        self.model.now_s += seconds
        self.queues.next(self.model.now_s)
        self.model.now_s = max(self.model.now_s, self.model.now_s - seconds)

    @rule()
    def configure(self) -> None:
        """The same again: nothing is lost and nothing is forgotten."""
        self.changed = True
        self.queues.configure(machine_configuration(self.model.kind), self.model.now_s)

    @rule()
    def take_over(self) -> None:
        """Somebody else goes on from what is remembered."""
        self.changed = True
        memory, self.queues = self.queues.remember(), new_queues(machine_configuration(self.model.kind))
        for found, left in self.model.running.values():
            self.queues.restore(found, "any" if found.workspace != "d" else "", self.model.now_s, left)
        for found in self.model.waiting.values():
            self.queues.add(found, self.model.now_s)
        self.queues.recall(memory)

    @rule()
    def place(self) -> None:
        """All that can be placed is, in order."""
        self.changed = True
        placed: list[str] = []
        while (found := self.queues.next(self.model.now_s)) is not None:
            ways = self.queues.check(found, self.model.now_s)
            assert isinstance(ways, Reason) != self.model.has_quota(found)
            if isinstance(ways, Reason):
                self.queues.park(found.request_id, Parked.QUOTA)
            elif not self.model.has_room(found):
                self.queues.park(found.request_id, Parked.ROOM)
            else:
                assert found.request_id == self._expected(), placed
                self.queues.admit(found, ways[0][0], self.model.now_s)
                self.model.running[found.request_id] = (self.model.waiting.pop(found.request_id), len(found.members))
                placed.append(found.request_id)
        assert self._expected() is None

    def _expected(self) -> str | None:
        """The first in order that has quota and room."""
        able = [
            found for found in self.model.waiting.values() if self.model.has_quota(found) and self.model.has_room(found)
        ]
        return min(able, key=self._order).request_id if able else None

    def _order(self, found: Request) -> tuple[int, int, int, float, str]:
        level = VALUES[found.priority] + 100 * (int((self.model.now_s - found.requested_at_s) * 1000) // 100_000)
        space, row = shares_of(self.queues, found.workspace, found.queue)
        return -level, space, row, found.requested_at_s, found.request_id

    @invariant()
    def used_is_what_runs(self) -> None:
        """I4; and I9: what does not run still waits."""
        if not self.changed:
            return
        self.changed = False
        rows, quotas = self.queues.standing()
        for standing in quotas:
            assert standing.used.cpu_milli == (
                self.model.used(standing.name)
                if standing.name != "default"
                else sum(
                    found.shape.cpu_milli * left
                    for found, left in self.model.running.values()
                    if found.workspace == "d"
                )
            )
            assert standing.borrowed.cpu_milli == max(0, standing.used.cpu_milli - standing.nominal.cpu_milli) * (
                standing.name != "default"
            )
        assert sum(row.pending for row in rows) == len(self.model.waiting)
        assert sum(row.admitted for row in rows) == len(self.model.running)


TestQueuesMachine = QueuesMachine.TestCase
TestQueuesMachine.settings = settings(settings.get_profile("property"))
TestQueuesMachine.pytestmark = [pytest.mark.slow]


class TestOrder:
    def test_a_higher_priority_goes_first(self) -> None:
        queues = new_queues(configuration())
        queues.add(request("low", priority="low"), 0.0)
        queues.add(request("none"), 0.0)
        queues.add(request("high", priority="high", at_s=9.0), 9.0)
        assert place(queues, 9.0) == ["high", "none", "low"]

    def test_the_workspace_with_the_smaller_share_by_weight_goes_first(self) -> None:
        queues = new_queues(configuration(shares=(Share(workspace="heavy", weight=2),)))
        for number in range(6):
            queues.add(request(f"h{number}", "heavy"), 0.0)
            queues.add(request(f"l{number}", "light"), 0.0)
        assert [name[0] for name in place(queues, room=9)].count("h") == 6

    def test_within_a_workspace_the_queue_with_the_smaller_share_goes_first(self) -> None:
        lines = tuple(Queue(name=name, workspace="w") for name in ("one", "two"))
        queues = new_queues(configuration(queues=lines))
        for number in range(4):
            queues.add(request(f"a{number}", queue="one"), 0.0)
        queues.add(request("b", queue="two", at_s=5.0), 5.0)
        assert place(queues, 5.0)[:2] == ["a0", "b"]

    def test_who_waits_longest_goes_before_any_priority_in_the_end(self) -> None:
        fair = FairShare(ageing_s=10.0, ageing_step=100)
        queues = new_queues(configuration(fair_share=fair))
        queues.add(request("old", priority="low"), 0.0)
        bound_s = 10.0 * (3 + 1)  # three steps from low to high
        queues.add(request("early", priority="high", at_s=bound_s - 20.0), bound_s)
        queues.add(request("late", priority="high", at_s=bound_s), bound_s)
        assert place(queues, 1000.0) == ["early", "old", "late"]

    def test_a_clock_that_goes_back_makes_no_waiting_negative(self) -> None:
        fair = FairShare(ageing_s=10.0, ageing_step=100)
        queues = new_queues(configuration(fair_share=fair))
        queues.add(request("a", at_s=100.0), 100.0)
        queues.add(request("b", priority="high", at_s=100.0), 50.0)
        assert place(queues, 20.0) == ["b", "a"]


class TestReasons:
    def test_what_is_lacking_is_told_exactly(self) -> None:
        queues = new_queues(configuration(quota("w", 4)))
        queues.add(request("a", cpu=3), 0.0)
        place(queues)
        assert queues.check(request("b", cpu=2), 0.0) == Reason(
            kind=HoldKind.QUOTA, quota="w", flavor="any", lacks=(Lack("cpu", 1000),)
        )

    def test_a_workspace_at_its_limit_is_told_of_it(self) -> None:
        queues = new_queues(configuration(shares=(Share(workspace="w", max_gpus=2),)))
        cards = Shape(cpu_milli=1, memory_mib=1, gpu_count=2)
        queues.add(request("a", shape=cards), 0.0)
        place(queues)
        why = queues.check(request("b", shape=cards), 0.0)
        assert why == Reason(kind=HoldKind.CONCURRENCY, lacks=(Lack("gpu", 2000),), wanted=2000)
        assert not isinstance(queues.check(request("c", cpu=1), 0.0), Reason)

    def test_whoever_waits_at_its_workspaces_limit_goes_when_something_of_it_has_ended(self) -> None:
        queues = new_queues(configuration(shares=(Share(workspace="w", max_containers=1),)))
        for name in "ab":
            queues.add(request(name), 0.0)
        assert place(queues) == ["a"]
        queues.end_member("a", 1.0)
        assert place(queues, 1.0) == ["b"]

    def test_a_held_quota_admits_nothing_and_keeps_what_runs(self) -> None:
        queues = new_queues(configuration(quota("w", 4)))
        queues.add(request("a"), 0.0)
        assert place(queues) == ["a"]
        queues.configure(configuration(quota("w", 4, held=True)), 0.0)
        queues.add(request("b"), 0.0)
        assert place(queues) == []
        assert queues.check(request("b"), 0.0) == Reason(kind=HoldKind.QUEUE_HELD, quota="w")
        assert queues.standing()[0][0].admitted == 1
        queues.configure(configuration(quota("w", 4)), 0.0)
        assert place(queues) == ["b"]

    def test_a_queue_that_is_not_there_holds_and_never_fails(self) -> None:
        queues = new_queues(configuration())
        queues.add(request("a", queue="gone"), 0.0)
        assert place(queues) == []
        reason = queues.check(request("b", queue="gone"), 0.0)
        assert isinstance(reason, Reason)
        assert reason.kind is HoldKind.QUEUE_HELD

    def test_who_is_ahead_is_counted_within_the_queue_only(self) -> None:
        queues = new_queues(configuration())
        for number in range(3):
            queues.add(request(f"w{number}", at_s=float(number)), 3.0)
            queues.add(request(f"v{number}", "v", at_s=float(number)), 3.0)
        queues.add(request("high", priority="high", at_s=3.0), 3.0)
        assert [queues.ahead(name) for name in ("high", "w0", "w2", "nobody")] == [0, 1, 3, 0]

    def test_groups_behind_others_like_them_are_seen_once(self) -> None:
        queues = new_queues(configuration())
        for group in ("one", "two", "three"):
            queues.add(request(group, group=group), 0.0)
        assert place(queues, room=0) == []
        seen = [found.request_id for _ in range(3) if (found := queues.unseen()) is not None]
        assert sorted(seen) == ["three", "two"]
        assert {parked for _, _, parked in waiting_groups(queues)} == {Parked.ROOM}


def test_nothing_bypasses_quota_without_a_queue() -> None:
    queues = new_queues(configuration(quota("default", 2), queues=()))
    for number in range(4):
        queues.add(request(f"r{number}", workspace=f"w{number}"), 0.0)
    assert len(place(queues)) == 2


def test_nothing_is_admitted_without_quota() -> None:
    queues = new_queues(configuration(quota("w", 1)))
    one, other = request("a"), request("b")
    queues.add(one, 0.0)
    queues.add(other, 0.0)
    queues.admit(one, "any", 0.0)
    with pytest.raises(ValueError, match="no quota"):
        queues.admit(other, "any", 0.0)
    with pytest.raises(ValueError, match="does not wait"):
        queues.admit(one, "any", 0.0)


def test_a_gang_gives_back_its_quota_member_by_member() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    queues.add(request("gang", members=4), 0.0)
    queues.add(request("next", cpu=2), 0.0)
    assert place(queues) == ["gang"]
    queues.end_member("gang", 1.0)
    assert place(queues, 1.0) == []
    queues.end_member("gang", 2.0)
    assert place(queues, 2.0) == ["next"]
    assert queues.standing()[1][1].used == Amount(cpu_milli=4000, memory_mib=192)


def test_a_replaced_member_is_charged_again() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    queues.add(request("gang", members=4), 0.0)
    place(queues)
    queues.end_member("gang", 1.0)
    queues.readmit_member("gang", 1.0)
    assert queues.standing()[1][1].used.cpu_milli == 4000


def test_who_was_admitted_under_another_configuration_is_counted_under_the_new_one() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    queues.add(request("a", cpu=4), 0.0)
    place(queues)
    queues.configure(configuration(quota("w", 2)), 1.0)
    standing = queues.standing()[1][1]
    assert (standing.used.cpu_milli, standing.borrowed.cpu_milli) == (4000, 2000)
    queues.add(request("b"), 1.0)
    assert place(queues, 1.0) == []
    queues.end_member("a", 2.0)
    assert place(queues, 2.0) == ["b"]


def test_a_workspace_apart_may_have_room_where_others_have_none() -> None:
    queues = Queues(configuration())
    queues.set_total(TOTAL)
    queues.set_apart(frozenset({"private"}))
    queues.add(request("a", "common"), 0.0)
    queues.add(request("b", "private"), 1.0)
    first = queues.next(1.0)
    assert first is not None
    queues.park(first.request_id, Parked.ROOM)
    second = queues.next(1.0)
    assert second is not None
    assert {first.request_id, second.request_id} == {"a", "b"}
    queues.park(second.request_id, Parked.ROOM)
    queues.wake_room(lambda _: True, serves="private")
    woken = queues.next(1.0)
    assert woken is not None
    assert woken.request_id == "b"
    assert amount_of(woken.shape).cpu_milli == 1000


def test_who_comes_back_after_others_took_over_still_has_the_share_of_what_it_used() -> None:
    queues = new_queues(configuration())
    queues.add(request("long", "used", 500), 0.0)
    place(queues)
    queues.next(5000.0)
    queues.end_member("long", 5000.0)
    other = new_queues(configuration())
    other.recall(queues.remember())
    for name in ("used", "new"):
        other.add(request(f"of {name}", name, at_s=5000.0 + (name == "new")), 5001.0)
    assert place(other, 5001.0) == ["of new", "of used"]
