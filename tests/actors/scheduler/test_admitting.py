"""Nodes that are reserved serve the one they are reserved for, and hold nobody back who may have other room."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Request
from levers9.actors.scheduler.finding import Found
from levers9.actors.scheduler.placement import new_placement
from levers9.model.queues import Flavor, FlavorLimits, Limits, PriorityClass, Queue, Queueing, Quota, Share
from levers9.model.reasons import HoldKind, Lack, Reason
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=1000, memory_mib=1000)
WHOLE = Shape(cpu_milli=1000, memory_mib=1000)
HALF = Shape(cpu_milli=500, memory_mib=500)
HIGH = PriorityClass(name="high", value=100)
QUEUEING = Queueing(
    flavors=(Flavor(name="all"),),
    quotas=(Quota(name="few", flavors=(FlavorLimits(flavor="all", cpu=Limits(nominal=2000)),)),),
    queues=(Queue(name="q", workspace="a", quota="few"), Queue(name="q", workspace="b", quota="few")),
    shares=(Share(workspace="c", max_containers=2),),
    priorities=(HIGH,),
)
PLACES = (("a", "q"), ("b", "q"), ("a", "default"), ("b", "default"), ("c", "default"))


class Told:
    """A core with a pool; nobody is asked to yield, so that what waits for long is held back by nothing else."""

    def __init__(self, queueing: Queueing, nodes: int, pools: tuple[str, ...] = ("p",)) -> None:
        self.pools = pools
        self.core = Core(new_placement, queueing)
        self.now_s = 1000.0
        self.number = 0
        for pool in pools:
            self.tell(events.PoolSet(pool=pool))
        for number in range(nodes):
            self.node(f"n{number}")

    def node(self, name: str, standing: Standing = Standing.OPEN) -> None:
        pool = self.pools[int(name[1:]) % len(self.pools)]
        self.tell(events.NodeSet(node_id=name, pool=pool, capacity=SIZE, standing=standing))

    def tell(self, *told: events.Event) -> list[str]:
        """Who got room."""
        decisions: list[Decision] = []
        for event in (*told, events.Planned(steps=256)):
            decisions += self.core.handle(event, self.now_s)
        assert not any(isinstance(one, events.More) for one in decisions), "so few are soon decided on"
        return [one.request_id for one in decisions if isinstance(one, events.Placed)]

    def ask(
        self, workspace: str, shape: Shape = WHOLE, members: int = 1, function: str = "f", **more: object
    ) -> list[str]:
        self.number += 1
        name = f"{workspace}{self.number}"
        asked = Request(
            request_id=name,
            group=f"{workspace}-{function}-{more}-{shape}-{members}",
            workspace=workspace,
            members=tuple(f"{name}/{rank}" for rank in range(members)),
            shape=shape,
            requested_at_s=self.now_s,
            **more,  # type: ignore[arg-type]
        )
        return self.tell(events.Requested(requests=(asked,)))

    def wait(self, seconds: float) -> list[str]:
        self.now_s += seconds
        return [*self.tell(events.Ticked()), *self.tell(events.Ticked())]

    @property
    def reserved(self) -> tuple[str, ...]:
        return self.core.reservations.holders()

    def end_on(self, node_id: str) -> list[str]:
        return self.tell(*(events.Ended(member=member) for member in tuple(self.core.fleet.nodes[node_id].uses)))


def test_a_node_that_is_reserved_is_used_by_the_one_it_is_reserved_for_though_another_goes_first() -> None:
    told = Told(Queueing(), nodes=4)
    for _ in range(6):
        told.ask("a")
    told.now_s += 5
    told.ask("b")
    told.core.queues.yields = lambda *_: ()  # type: ignore[method-assign]
    told.wait(70)
    assert told.reserved == ("a5",)
    (node_id,) = told.core.reservations.without(told.core.waiting["b7"], told.now_s)
    assert told.end_on(node_id) == ["a5"]


def test_one_of_a_higher_priority_that_comes_later_may_use_what_is_reserved() -> None:
    told = Told(Queueing(priorities=(HIGH,)), nodes=3)
    for _ in range(3):
        told.ask("a")
    told.ask("g", members=2)
    told.wait(70)
    told.ask("b")
    (first, _) = told.core.reservations.without(told.core.waiting["b5"], told.now_s)
    assert told.end_on(first) == []
    assert told.ask("b") == []
    assert told.ask("c", priority="high") == ["c7"]


def test_that_is_so_where_its_workspace_has_a_pool_of_its_own_and_others_of_it_wait_already() -> None:
    told = Told(Queueing(priorities=(HIGH,)), nodes=3)
    told.tell(events.PoolSet(pool="own", serves="b"))
    for _ in range(3):
        told.ask("a")
    told.ask("g", members=2)
    told.wait(70)
    told.ask("b")
    (first, _) = told.core.reservations.without(told.core.waiting["b5"], told.now_s)
    assert told.end_on(first) == []
    assert told.ask("b", priority="high") == ["b6"]


def test_one_at_its_limit_gets_what_is_reserved_for_it_once_it_may_although_others_left_it_alone() -> None:
    told = Told(Queueing(shares=(Share(workspace="c", max_containers=1),)), nodes=3)
    for _ in range(3):
        told.ask("a")
    told.ask("c")
    told.wait(70)
    assert told.reserved == ("c4",)
    told.ask("b")
    (node_id,) = told.core.reservations.without(told.core.waiting["b5"], told.now_s)
    small = Capacity(cpu_milli=500, memory_mib=500)
    told.tell(events.NodeSet(node_id="small", pool="p", capacity=small, standing=Standing.OPEN))
    assert told.ask("c", HALF) == ["c6"]
    assert told.end_on(node_id) == []
    assert told.tell(events.Ended(member="c6/0")) == ["c4"]


def test_two_alike_for_whom_nodes_of_two_pools_are_reserved_are_each_looked_at_once() -> None:
    """Each must leave the other's nodes alone: by turns they would be looked at without end."""
    told = Told(Queueing(), nodes=2, pools=("p", "other"))
    for function in ("f", "f", "f", "g"):
        told.ask("a", function=function)
    told.wait(70)
    assert told.reserved == ("a3", "a4")
    told.tell(events.PoolSet(pool="other", max_workers=5))
    (node_id,) = told.core.reservations.nodes_of("a4")
    assert told.end_on(node_id) == ["a4"]


def test_a_member_that_is_replaced_gets_no_more_quota_than_there_is_and_is_told_so() -> None:
    told = Told(QUEUEING, nodes=4)
    told.ask("a", members=2, queue="q")
    told.ask("a", queue="q")
    assert told.tell(events.Ended(member="a1/1")) == ["a2"]
    lost = events.Replacement(request_id="a1", rank=1, member="new")
    decisions = (*told.core.handle(lost, told.now_s), *told.core.handle(events.Planned(), told.now_s))
    (held,) = [one for one in decisions if isinstance(one, events.Held)]
    assert (held.reasons[0].kind, held.reasons[0].lacks) == (HoldKind.QUOTA, (Lack("cpu", 1000),))
    assert not any(isinstance(one, events.Replaced) for one in decisions)
    told.core.handle(events.Ended(member="a2/0"), told.now_s)
    decisions = told.core.handle(events.Planned(), told.now_s)
    assert [one.member for one in decisions if isinstance(one, events.Replaced)] == ["new"]


class Reserving(RuleBasedStateMachine):
    """Few nodes that are full for long, so that somebody has some reserved nearly always."""

    @initialize(nodes=st.integers(2, 4), apart=st.booleans(), pools=st.sampled_from((("p",), ("p", "other"))))
    def begin(self, nodes: int, apart: bool, pools: tuple[str, ...]) -> None:
        self.told = Told(QUEUEING, nodes, pools)
        self.told.core.queues.yields = lambda *_: ()  # type: ignore[method-assign]
        if apart:
            self.told.tell(events.PoolSet(pool="own", serves="c"))
        self.told.ask("a", members=2, queue="q")
        self.told.ask("b", queue="q")
        for number in range(nodes + 2):
            self.told.ask("a", function="fg"[number % 2])
        self.told.wait(70)

    @rule(
        place=st.sampled_from(PLACES),
        shape=st.sampled_from((WHOLE, WHOLE, HALF)),
        members=st.sampled_from((1, 1, 2)),
        priority=st.sampled_from(("default", "default", "high")),
        limit_s=st.sampled_from((0.0, 0.0, 30.0, 600.0)),
        function=st.sampled_from("fg"),
    )
    def ask(
        self, place: tuple[str, str], shape: Shape, members: int, priority: str, limit_s: float, function: str
    ) -> None:
        self.told.ask(place[0], shape, members, function, queue=place[1], priority=priority, limit_s=limit_s)

    @rule(number=st.integers(0, 4))
    def end(self, number: int) -> None:
        if f"n{number}" in self.told.core.fleet.nodes:
            self.told.end_on(f"n{number}")

    @rule(place=st.integers(0, 50))
    def withdraw(self, place: int) -> None:
        waiting = tuple(self.told.core.waiting.values())
        if waiting:
            self.told.tell(events.Ended(member=waiting[place % len(waiting)].members[0]))

    @rule(number=st.integers(0, 4), standing=st.sampled_from((Standing.OPEN, Standing.CLOSED)))
    def set_node(self, number: int, standing: Standing) -> None:
        self.told.node(f"n{number}", standing)

    @rule(most=st.integers(0, 3))
    def the_pools_terms_change(self, most: int) -> None:
        """All are looked at again, without room that is new."""
        for pool in self.told.pools:
            self.told.tell(events.PoolSet(pool=pool, max_workers=most))

    @rule(place=st.integers(0, 50))
    def replace(self, place: int) -> None:
        """A member of a gang is lost, and what it used is anybody's before another one is to take its place."""
        gangs = [live for live in self.told.core.tenants.by_request.values() if all(live.members) and live.members[1:]]
        if gangs:
            live = gangs[place % len(gangs)]
            name = live.request.request_id
            self.told.tell(events.Ended(member=live.members[1]))
            self.told.number += 1
            self.told.tell(events.Replacement(request_id=name, rank=1, member=f"{name}/new{self.told.number}"))

    @rule(seconds=st.sampled_from((0.5, 2.0, 11.0, 61.0, 299.5, 300.0)))
    def wait(self, seconds: float) -> None:
        self.told.wait(seconds)

    @invariant()
    def nobody_uses_more_than_the_quota(self) -> None:
        _, quotas = self.told.core.queues.standing()
        assert all(one.used.cpu_milli <= 2000 for one in quotas if one.name == "few")

    @invariant()
    def nobody_waits_who_has_quota_and_room(self) -> None:
        core = self.told.core
        for asked in core.waiting.values():
            fits = core.queues.check(asked, core.now_s)
            if not isinstance(fits, Reason):
                without = core.reservations.without(asked, core.now_s)
                assert not isinstance(core.finder.now(asked, fits, without), Found), asked.request_id


TestReserving = Reserving.TestCase
TestReserving.settings = settings.get_profile("property")
TestReserving = pytest.mark.slow(TestReserving)
