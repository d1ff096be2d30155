"""The core as a whole: what always holds of it, whatever it is told, and what follows from single events."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Node, Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Request
from levers9.actors.scheduler.fleet import offered_id
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.reservations import RESERVE_AFTER_S
from levers9.model.figures import GANG_READY_S, GANG_RETRY_S
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.queues import (
    Cohort,
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Reclaim,
    Share,
    Topology,
    Within,
)
from levers9.model.reasons import HoldKind, Reason
from levers9.model.resources import CARD_MILLI, NOTHING, Amount, Capacity, Shape, amount_of

TRAY = Capacity(cpu_milli=8000, memory_mib=16_000, gpu_count=4, gpu_type="GB200")
PLAIN = Capacity(cpu_milli=4000, memory_mib=8000)
CARD = Shape(cpu_milli=250, memory_mib=128, gpu_count=1, gpu_types=("GB200",))
SHAPES = (
    CARD,
    Shape(cpu_milli=500, memory_mib=500),
    Shape(cpu_milli=250, memory_mib=128, gpu_count=1, gpu_milli=300),
    Shape(cpu_milli=1000, memory_mib=128, gpu_count=4),
    Shape(cpu_milli=100, memory_mib=100, pool="plain"),
)
QUEUEING = Queueing(
    flavors=(Flavor(name="gb200", gpu_type="GB200", topology="nvl"),),
    cohorts=(Cohort(name="all"),),
    quotas=(
        Quota(
            name="gpu",
            cohort="all",
            flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=4000, borrowing=4000)),),
            preempt=Within.LOWER_PRIORITY,
            reclaim=Reclaim.ANY,
        ),
        Quota(name="rest", cohort="all", flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=4000)),)),
    ),
    queues=(Queue(name="q", workspace="a", quota="gpu"), Queue(name="q", workspace="b", quota="rest")),
    shares=(Share(workspace="c", max_containers=3),),
    priorities=(PriorityClass(name="high", value=100),),
    topologies=(Topology(name="nvl", levels=("rack",)),),
)

RANKED = Queueing(
    flavors=(Flavor(name="f"),),
    quotas=(
        Quota(
            name="ranked",
            flavors=(FlavorLimits(flavor="f", cpu=Limits(nominal=8000)),),
            preempt=Within.LOWER_PRIORITY,
        ),
    ),
    queues=(Queue(name="default", workspace="w", quota="ranked"),),
    priorities=(PriorityClass(name="high", value=100),),
)


def request(name: str, shape: Shape = CARD, members: int = 1, workspace: str = "w", **more: object) -> Request:
    names = (name,) if members == 1 else tuple(f"{name}/{rank}" for rank in range(members))
    group = f"{workspace}-{more.get('queue', '')}-{more.get('priority', '')}-{shape}-{members}"
    return Request(request_id=name, group=group, workspace=workspace, members=names, shape=shape, **more)  # type: ignore[arg-type]


class Told:
    """A core, and all that it decided. `plan` goes on until there is no more."""

    def __init__(self, queueing: Queueing = Queueing()) -> None:  # noqa: B008 (frozen)
        self.core = Core(new_placement, queueing)
        self.now_s = 1000.0

    def tell(self, *told: events.Event) -> list[Decision]:
        decisions: list[Decision] = []
        for event in told:
            decisions += self.core.handle(event, self.now_s)
        return decisions

    def plan(self, *told: events.Event, steps: int = 256) -> list[Decision]:
        decisions = self.tell(*told)
        while True:
            decisions += self.tell(events.Planned(steps=steps))
            if not decisions or not isinstance(decisions[-1], events.More):
                return decisions
            decisions.pop()

    def pool(self, name: str = "p", size: Capacity | None = None, **more: object) -> None:
        self.tell(events.PoolSet(pool=name, size=size, **more))  # type: ignore[arg-type]

    def node(
        self, name: str, standing: Standing = Standing.OPEN, pool: str = "p", size: Capacity = TRAY, rack: str = ""
    ) -> list[Decision]:
        labels = (("rack", rack),) if rack else ()
        traits = Traits(labels=labels, gpu_sharing=True)
        return self.plan(
            events.NodeSet(node_id=name, pool=pool, capacity=size, traits=traits, standing=standing, why_closed="shut")
        )

    def offer(self, pool: str, *names: str) -> None:
        offers = tuple(NodeOffer(capacity=TRAY, traits=Traits(node=name)) for name in names)
        self.tell(events.NodesOffered(pool=pool, offers=offers))

    def ask(self, *requests: Request) -> list[Decision]:
        return self.plan(events.Requested(requests=requests))


def placed(decisions: list[Decision]) -> dict[str, list[str]]:
    return {one.request_id: [node for node, _ in one.spots] for one in decisions if isinstance(one, events.Placed)}


def wishes(decisions: list[Decision]) -> list[events.RoomWanted]:
    return [one for one in decisions if isinstance(one, events.RoomWanted)]


def held(decisions: list[Decision]) -> list[tuple[Reason, ...]]:
    return [one.reasons for one in decisions if isinstance(one, events.Held)]


class TestGangs:
    @pytest.mark.parametrize("named", [True, False])
    def test_a_gang_has_a_worker_ordered_in_place_of_one_that_is_no_more(self, named: bool) -> None:
        told = Told()
        traits = Traits(node="tray" if named else "")
        told.pool(size=None if named else TRAY, max_workers=1)
        if named:
            told.tell(events.NodesOffered(pool="p", offers=(NodeOffer(capacity=TRAY, traits=traits),)))
        told.tell(events.NodeSet(node_id="w", pool="p", capacity=TRAY, traits=traits, standing=Standing.OPEN))
        told.ask(request("runs", members=4))
        assert not placed(told.ask(request("waits", members=4)))

        lost = [events.Ended(member=f"runs/{rank}") for rank in range(4)]
        wishes = [one for one in told.plan(events.NodeGone(node_id="w"), *lost) if isinstance(one, events.RoomWanted)]

        nodes, workers = (("tray",), 0) if named else ((), 1)
        assert [wish.gangs for wish in wishes] == [(events.GangWanted("waits", nodes, workers),)]

    def test_a_gang_gets_all_its_room_or_none(self) -> None:
        told = Told()
        told.pool()
        told.node("one")
        assert placed(told.ask(request("g", members=8))) == {}
        assert told.core.fleet.nodes["one"].uses == {}
        assert placed(told.node("two")) == {"g": ["one"] * 4 + ["two"] * 4}

    def test_workers_are_ordered_for_all_of_it_and_what_is_there_is_promised(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=3)
        told.node("one")
        decisions = told.ask(request("g", members=8))
        (wanted,) = [one for one in decisions if isinstance(one, events.RoomWanted)]
        assert wanted.gangs == (events.GangWanted("g", (), 1),)
        assert [reason.kind for reason in held(decisions)[-1]] == [HoldKind.GANG]
        assert placed(told.ask(request("small"))) == {}
        told.node("two", Standing.COMING)
        assert placed(told.node("two"))["g"] == ["one"] * 4 + ["two"] * 4

    def test_what_a_pool_may_never_start_is_not_ordered(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=1)
        decisions = told.ask(request("g", members=8))
        assert not any(isinstance(one, events.RoomWanted) for one in decisions)
        assert told.core.promises.live == {}

    def test_at_the_deadline_everything_is_given_back_and_nothing_is_ordered_for_a_while(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=3)
        told.node("one")
        told.ask(request("g", members=8))
        told.now_s += GANG_READY_S
        decisions = told.plan(events.Ticked())
        (back,) = [one for one in decisions if isinstance(one, events.GangGivenBack)]
        assert (back.request_id, back.pool, back.nodes) == ("g", "p", ("one",))
        assert told.core.fleet.nodes["one"].uses == {}
        assert "g" in told.core.waiting
        (reason, *_) = held(decisions)[-1]
        assert (reason.kind, reason.pool, reason.machines_only) == (HoldKind.GANG, "p", True)
        assert "not all of its workers came within 300 s; it asks again" in reason.detail
        told.now_s += GANG_RETRY_S - 1
        assert not any(isinstance(one, events.RoomWanted) and one.gangs for one in told.plan(events.Ticked()))
        told.now_s += 1
        assert any(isinstance(one, events.RoomWanted) and one.gangs for one in told.plan(events.Ticked()))

    def test_at_the_deadline_everything_is_given_back_although_more_workers_are_just_ordered(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=3)
        told.node("one")
        told.ask(request("g", members=8))
        told.now_s += GANG_READY_S
        decisions = told.node("two", Standing.COMING)
        assert [one.request_id for one in decisions if isinstance(one, events.GangGivenBack)] == ["g"]
        assert told.core.promises.live == {}

    def test_a_gang_that_only_has_a_promise_makes_room_at_once_and_waits_again(self) -> None:
        told = Told(RANKED)
        told.pool(size=PLAIN, max_workers=4)
        told.node("one", size=PLAIN)
        told.ask(request("g", SHAPES[1], members=16))
        assert list(told.core.promises.live) == ["g"]
        decisions = told.ask(request("urgent", SHAPES[1], priority="high"))
        assert placed(decisions) == {"urgent": ["one"]}
        (back,) = [one for one in decisions if isinstance(one, events.GangGivenBack)]
        assert (back.request_id, back.pool) == ("g", "p")
        assert not any(isinstance(one, events.Preempted) for one in decisions)
        assert list(told.core.waiting) == ["g"]
        assert told.core.admitting.remember() == ()

    def test_a_promise_that_is_looked_at_again_leaves_reserved_nodes_alone(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=4)
        told.node("kept")
        told.ask(request("runs", limit_s=900.0))
        whole = msgspec.structs.replace(CARD, gpu_count=4)
        told.ask(request("long", whole, requested_at_s=told.now_s - RESERVE_AFTER_S))
        told.tell(events.Ticked())
        told.ask(request("g", members=8, requested_at_s=told.now_s))
        assert "kept" not in told.core.promises.live["g"].nodes
        told.node("two", Standing.COMING)
        assert "two" in told.core.promises.live["g"].nodes
        assert "kept" not in told.core.promises.live["g"].nodes

    def test_named_nodes_are_ordered_by_name(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        offers = [
            NodeOffer(capacity=TRAY, traits=Traits(node=name, labels=(("rack", rack),)))
            for name, rack in (("tray1", "r1"), ("tray2", "r1"), ("tray3", "r2"))
        ]
        told.tell(events.NodesOffered(pool="p", offers=tuple(offers)))
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        decisions = told.ask(request("g", members=8, together=near))
        (wanted,) = [one for one in decisions if isinstance(one, events.RoomWanted)]
        assert wanted.gangs == (events.GangWanted("g", ("tray1", "tray2"), 0),)
        for name in ("tray1", "tray2"):
            traits = Traits(node=name, labels=(("rack", "r1"),))
            decisions = told.plan(
                events.NodeSet(node_id=f"w-{name}", pool="p", capacity=TRAY, traits=traits, standing=Standing.OPEN)
            )
        assert set(placed(decisions)["g"]) == {"w-tray1", "w-tray2"}

    def test_a_cordoned_node_is_named_where_it_would_have_made_a_gang_fit(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        told.node("one", rack="r")
        told.node("two", Standing.CLOSED, rack="r")
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        (reasons,) = held(told.ask(request("g", members=8, together=near)))
        assert (reasons[0].kind, reasons[0].fits, reasons[0].wanted) == (HoldKind.TOPOLOGY, 4, 8)
        assert [(one.node, one.why) for one in reasons[0].excluded] == [("two", "shut")]
        assert set(placed(told.node("two", rack="r"))) == {"g"}

    def test_nodes_where_a_worker_could_be_started_count_in_what_keeps_a_gang_out(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        states = (NodeState.READY, NodeState.READY, NodeState.CORDONED)
        offers = tuple(
            NodeOffer(capacity=TRAY, traits=Traits(node=f"tray{number}", labels=(("rack", "r"),)), state=state)
            for number, state in enumerate(states)
        )
        told.tell(events.NodesOffered(pool="p", offers=offers))
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        (reasons,) = held(told.ask(request("g", members=12, together=near)))
        assert (reasons[0].kind, reasons[0].fits, reasons[0].wanted) == (HoldKind.TOPOLOGY, 8, 12)
        assert [(one.node, one.why) for one in reasons[0].excluded] == [("tray2", "cordoned")]

    def test_a_promise_that_a_split_domain_has_ended_is_made_again_as_soon_as_that_is_whole(self) -> None:
        told = Told(QUEUEING)
        told.pool()

        def offers(*racks: str) -> events.Event:
            places = enumerate(racks)
            traits = [Traits(node=f"tray{number}", labels=(("rack", rack),)) for number, rack in places]
            return events.NodesOffered(pool="p", offers=tuple(NodeOffer(capacity=TRAY, traits=each) for each in traits))

        told.tell(offers("r", "r"))
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        told.ask(request("g", members=8, together=near))
        (back,) = [one for one in told.plan(offers("r", "s")) if isinstance(one, events.GangGivenBack)]
        assert (back.request_id, back.why) == ("g", "there is room for it no more")
        wanted = [one for one in told.plan(offers("r", "r")) if isinstance(one, events.RoomWanted)]
        assert [gang.nodes for one in wanted for gang in one.gangs] == [("tray0", "tray1")]

    def test_a_lost_member_is_replaced_near_the_others(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        for name in ("one", "two"):
            told.node(name, rack="r")
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        told.ask(request("g", members=8, together=near))
        told.plan(events.NodeGone(node_id="two"), *(events.Ended(member=f"g/{rank}") for rank in range(4, 8)))
        lost = [events.Replacement(request_id="g", rank=rank, member=f"new/{rank}") for rank in range(4, 8)]
        ((reason,),) = held(told.plan(*lost))
        assert (reason.kind, reason.fits, reason.wanted) == (HoldKind.TOPOLOGY, 0, 4)
        assert told.node("elsewhere", rack="s") == []
        decisions = told.node("three", rack="r")
        replaced = [one for one in decisions if isinstance(one, events.Replaced)]
        assert [(one.rank, one.member, one.node_id) for one in replaced] == [
            (rank, f"new/{rank}", "three") for rank in range(4, 8)
        ]

    def test_a_worker_is_ordered_for_a_lost_member_and_why_it_waits_is_told(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=3)
        told.pool("other", TRAY, max_workers=3)
        for name in ("one", "two"):
            told.node(name)
        told.ask(request("g", members=8))
        told.plan(events.NodeGone(node_id="two"), *(events.Ended(member=f"g/{rank}") for rank in (4, 5, 6, 7)))
        lost = [events.Replacement(request_id="g", rank=rank, member=f"new/{rank}") for rank in (4, 5, 6, 7)]
        decisions = told.plan(*lost)
        (wish,) = [one for one in decisions if isinstance(one, events.RoomWanted)]
        assert (wish.pool, [number for _, number in wish.shapes]) == ("p", [4])
        ((reason,),) = held(decisions)
        assert (reason.kind, reason.fits, reason.wanted) == (HoldKind.ROOM, 0, 4)
        decisions = told.node("three", Standing.COMING)
        assert [reason.kind for reason in held(decisions)[-1]] == [HoldKind.STARTING]
        assert [one.shapes for one in decisions if isinstance(one, events.RoomWanted)] == [()]
        decisions = told.node("three")
        assert [one.node_id for one in decisions if isinstance(one, events.Replaced)] == ["three"] * 4
        assert held(decisions) == [()]

    def test_the_time_limit_of_a_gang_that_has_not_started_tells_nobody_when_its_room_is_free(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=3)
        told.node("one")
        told.ask(request("g", members=8, limit_s=60.0, label="gang"))
        (reasons,) = held(told.ask(request("waits", label="other")))
        assert [(holder.who, holder.frees_by_s) for holder in reasons[0].holders] == [("gang", 0.0)]

    def test_a_gang_that_another_core_knows_stays_in_its_pool(self) -> None:
        told, other = Told(), Told()
        told.pool()
        for name in ("one", "two"):
            told.node(name)
        told.ask(request("g", members=8))
        other.plan(*told.core.snapshot())
        other.pool("before it", rank=-1)
        other.node("elsewhere", pool="before it")
        other.plan(events.NodeGone(node_id="one"), events.NodeGone(node_id="two"), events.Ended(member="g/7"))
        decisions = other.plan(events.Replacement(request_id="g", rank=7, member="new"))
        assert not any(isinstance(one, events.Replaced) for one in decisions)
        decisions = other.node("three")
        assert [one.node_id for one in decisions if isinstance(one, events.Replaced)] == ["three"]

    def test_for_a_lost_member_a_named_node_of_the_domain_of_its_gang_is_ordered(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        places = {"a1": "r1", "b1": "r2", "b2": "r2", "b3": "r2"}
        offers = [
            NodeOffer(capacity=TRAY, traits=Traits(node=name, labels=(("rack", rack),)))
            for name, rack in places.items()
        ]
        told.tell(events.NodesOffered(pool="p", offers=tuple(offers)))
        for name in ("b1", "b2"):
            traits = Traits(node=name, labels=(("rack", "r2"),))
            told.tell(events.NodeSet(node_id=name, pool="p", capacity=TRAY, traits=traits, standing=Standing.OPEN))
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        assert set(placed(told.ask(request("g", members=8, together=near)))["g"]) == {"b1", "b2"}
        told.tell(events.NodesOffered(pool="p", offers=tuple(offers[:2] + offers[3:])))
        told.plan(events.NodeGone(node_id="b2"), *(events.Ended(member=f"g/{rank}") for rank in (4, 5, 6, 7)))
        lost = [events.Replacement(request_id="g", rank=rank, member=f"new/{rank}") for rank in (4, 5, 6, 7)]
        (wish,) = [one for one in told.plan(*lost) if isinstance(one, events.RoomWanted)]
        assert (wish.shapes, wish.gangs) == ((), (events.GangWanted("g", ("b3",)),))

    def test_a_replacement_for_whom_there_is_no_place_is_told_to_end(self) -> None:
        told = Told()
        told.pool()
        told.node("one")
        told.ask(request("g", members=2))
        early = events.Replacement(request_id="g", rank=1, member="early")
        assert [one.member for one in told.plan(early) if isinstance(one, events.NotReplaced)] == ["early"]
        told.plan(events.NodeGone(node_id="one"), events.Ended(member="g/1"))
        first, second = (events.Replacement(request_id="g", rank=1, member=member) for member in ("first", "second"))
        assert [one.member for one in told.plan(first, first, second) if isinstance(one, events.NotReplaced)] == [
            "second"
        ]
        decisions = told.plan(events.Ended(member="g/0"))
        assert [one.member for one in decisions if isinstance(one, events.NotReplaced)] == ["first"]
        assert told.core.lost == {}


class TestPreemption:
    def test_who_has_others_stop_takes_room_that_comes_elsewhere_before_they_have(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        told.node("one")
        told.ask(request("small", workspace="a", queue="q"))
        whole = SHAPES[3]
        decisions = told.ask(request("large", whole, workspace="a", queue="q", priority="high"))
        assert [one.request_id for one in decisions if isinstance(one, events.Preempted)] == ["small"]
        assert placed(told.node("two")) == {"large": ["two"]}


class TestPools:
    def test_when_the_first_pool_is_at_its_maximum_the_next_one_is_asked(self) -> None:
        told = Told()
        told.pool("first", TRAY, rank=0)
        told.pool("second", TRAY, rank=1)
        assert [one.pool for one in told.ask(request("a")) if isinstance(one, events.RoomWanted)] == ["first"]
        hold = events.PoolHolds(pool="first", reason=Reason(kind=HoldKind.MAXIMUM))
        decisions = [one for one in told.plan(hold) if isinstance(one, events.RoomWanted)]
        assert {one.pool: len(one.shapes) for one in decisions} == {"first": 0, "second": 1}

    @pytest.mark.parametrize("of", ["", "g"])
    def test_a_gang_asks_the_next_pool_while_the_first_one_can_start_nothing(self, of: str) -> None:
        told = Told()
        told.pool("first", TRAY, rank=0, max_workers=2)
        told.pool("second", TRAY, rank=1, max_workers=2)
        told.plan(events.PoolHolds(pool="first", reason=Reason(kind=HoldKind.BACK_OFF), request_id=of))
        decisions = told.ask(request("g", members=8), request("other", members=8))
        wishes = [one for one in decisions if isinstance(one, events.RoomWanted)]
        asked = {gang.request_id: wish.pool for wish in wishes for gang in wish.gangs}
        assert asked == {"g": "second", "other": "first" if of else "second"}

    def test_a_gang_whose_workers_did_not_come_asks_the_next_pool_also_under_another_core(self) -> None:
        told, other = Told(), Told()
        told.pool("first", TRAY, rank=0, max_workers=2)
        told.pool("second", TRAY, rank=1, max_workers=2)
        told.ask(request("g", members=8))
        told.now_s += GANG_READY_S
        told.plan(events.Ticked())
        other.now_s = told.now_s
        other.plan(*told.core.snapshot())
        for each in (told, other):
            each.now_s += GANG_RETRY_S
            wishes = [one for one in each.plan(events.Ticked()) if isinstance(one, events.RoomWanted)]
            assert [wish.pool for wish in wishes if wish.gangs] == ["second"]

    @pytest.mark.parametrize(("most", "asked"), [(1, "second"), (2, "first")])
    def test_a_gang_asks_no_pool_that_may_not_have_all_its_workers_though_nodes_of_it_are_free(
        self, most: int, asked: str
    ) -> None:
        told = Told()
        told.pool("first", rank=0, max_workers=most)
        told.offer("first", "a", "b")
        told.pool("second", TRAY, rank=1, max_workers=2)
        assert [wish.pool for wish in wishes(told.ask(request("g", members=8))) if wish.gangs] == [asked]

    def test_where_none_may_have_them_nothing_is_promised_to_it_and_one_that_may_be_there_is(self) -> None:
        told = Told()
        told.pool(max_workers=1)
        told.offer("p", "a", "b")
        decisions = told.ask(request("g", members=8), request("other"))
        ((reason,),) = [reasons for reasons in held(decisions) if reasons[0].kind is HoldKind.MAXIMUM]
        assert reason.detail == "a gang lacks 2 workers, and it may have 1 more."
        assert reason.machines_only
        assert [(wish.gangs, len(wish.shapes)) for wish in wishes(decisions)] == [((), 1)]

    def test_it_is_looked_at_again_once_its_pool_may_have_so_many_more_whatever_the_one_was_that_left(self) -> None:
        told = Told()
        told.pool(max_workers=2)
        told.offer("p", "a", "b", "c")
        told.node("worker", size=PLAIN)
        told.ask(request("g", members=8))
        decisions = told.plan(events.NodeGone(node_id="worker"))
        assert [gang.nodes for wish in wishes(decisions) for gang in wish.gangs] == [("a", "b")]

    def test_a_gang_whose_workers_did_not_come_on_named_nodes_asks_a_pool_without_such(self) -> None:
        told = Told()
        told.pool("first", rank=0, max_workers=2)
        told.offer("first", "a", "b")
        told.pool("second", TRAY, rank=1, max_workers=2)
        told.ask(request("g", members=8))
        told.now_s += GANG_READY_S
        told.plan(events.Ticked())
        told.now_s += GANG_RETRY_S
        assert [wish.pool for wish in wishes(told.plan(events.Ticked())) if wish.gangs] == ["second"]

    def test_a_preference_list_is_tried_in_order_whatever_the_order_of_pools(self) -> None:
        told = Told()
        for rank, (name, kind) in enumerate((("t4", "T4"), ("a100", "A100"))):
            told.pool(name, rank=rank)
            size = Capacity(cpu_milli=1000, memory_mib=1000, gpu_count=1, gpu_type=kind)
            told.node(f"node-{name}", pool=name, size=size)
        shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("A100", "T4"))
        assert placed(told.ask(request("a", shape))) == {"a": ["node-a100"]}
        assert placed(told.ask(request("b", shape))) == {"b": ["node-t4"]}

    def test_work_without_cards_goes_to_workers_without_cards(self) -> None:
        told = Told()
        told.pool("cards")
        told.pool("plain")
        told.node("c", pool="cards")
        told.node("p", pool="plain", size=PLAIN)
        assert placed(told.ask(request("a", SHAPES[1]))) == {"a": ["p"]}

    def test_a_node_that_is_cordoned_by_its_cluster_takes_nothing_new(self) -> None:
        told = Told()
        told.pool()
        offer = NodeOffer(capacity=TRAY, traits=Traits(node="tray"))
        told.tell(events.NodesOffered(pool="p", offers=(offer,)))
        node = events.NodeSet(node_id="w", pool="p", capacity=TRAY, traits=Traits(node="tray"), standing=Standing.OPEN)
        told.plan(node)
        cordoned = NodeOffer(capacity=TRAY, traits=Traits(node="tray"), state=NodeState.CORDONED)
        told.plan(events.NodesOffered(pool="p", offers=(cordoned,)))
        assert placed(told.ask(request("a"))) == {}
        assert placed(told.plan(events.NodesOffered(pool="p", offers=(offer,)))) == {"a": ["w"]}

    def test_a_node_that_is_listed_twice_is_one_node(self) -> None:
        told = Told()
        told.pool()
        offer = NodeOffer(capacity=TRAY, traits=Traits(node="tray"))
        told.tell(events.NodesOffered(pool="p", offers=(offer, offer)))
        assert [node.name for node in told.core.fleet.nodes.values()] == ["tray"]


class TestMissingMachines:
    """What counts towards `wait_s`."""

    def counts(self, decisions: list[Decision]) -> list[tuple[HoldKind, bool]]:
        return [(reason.kind, reason.machines_only) for reason in held(decisions)[-1]]

    def test_the_wait_of_a_gang_for_machines_counts(self) -> None:
        told = Told(QUEUEING)
        told.pool()
        told.node("one", rack="r")
        assert self.counts(told.ask(request("g", members=8))) == [(HoldKind.ROOM, True)]
        near = Together(mode=TopologyMode.REQUIRED, level="rack")
        told.node("two", rack="s")
        assert self.counts(told.ask(request("near", members=7, together=near))) == [(HoldKind.TOPOLOGY, True)]

    def test_the_wait_of_a_gang_for_its_own_workers_does_not_count(self) -> None:
        told = Told()
        told.pool(size=TRAY, max_workers=2)
        maximum = Reason(kind=HoldKind.MAXIMUM, machines_only=True)
        told.plan(events.PoolHolds(pool="p", reason=maximum))
        assert self.counts(told.ask(request("g", members=8))) == [(HoldKind.GANG, False), (HoldKind.MAXIMUM, False)]

    def test_a_guard_holds_whatever_other_pools_have_reached(self) -> None:
        told = Told()
        for name, kind in (("first", HoldKind.MAXIMUM), ("second", HoldKind.GUARD)):
            told.pool(name, TRAY, max_workers=1)
            told.plan(events.PoolHolds(pool=name, reason=Reason(kind=kind, machines_only=kind is HoldKind.MAXIMUM)))
        assert [counts for _, counts in self.counts(told.ask(request("a")))] == [False] * 3
        told.plan(events.PoolHolds(pool="second"))
        told.now_s += 60.0
        told.tell(events.Ticked())
        assert self.counts(told.plan()) == [(HoldKind.ROOM, True), (HoldKind.MAXIMUM, False)]


class TestTime:
    def test_a_new_leader_places_nothing_before_its_time(self) -> None:
        told = Told()
        told.pool()
        told.node("one")
        told.tell(events.PlacementsFrom(at_s=told.now_s + 15))
        decisions = told.ask(request("a"))
        assert [[reason.kind for reason in reasons] for reasons in held(decisions)] == [[HoldKind.LEADER]]
        told.now_s += 15
        assert placed(told.plan(events.Ticked())) == {"a": ["one"]}

    def test_a_clock_that_goes_back_stands_still(self) -> None:
        told = Told()
        told.pool()
        told.now_s -= 900
        told.node("one")
        assert placed(told.ask(request("a"))) == {"a": ["one"]}
        assert told.core.now_s == 1000.0

    def test_what_is_no_event_is_an_error(self) -> None:
        with pytest.raises(TypeError):
            Told().tell(events.Event())


class Machine(RuleBasedStateMachine):
    """Anything may happen in any order; after each step all rooms, quotas and requests are accounted for."""

    @initialize()
    def begin(self) -> None:
        self.told = Told(QUEUEING)
        self.told.pool("p", None)
        self.told.pool("plain", PLAIN, max_workers=3)
        self.requests: dict[str, Request] = {}
        self.ended: set[str] = set()
        self.tokens: dict[str, str] = {}  # for whom the worker of a node is, for as long as it lives
        self.serves = self.owner = ""
        self.numbers = 0
        self.replayed = Core(new_placement, QUEUEING)

    def tell(self, *told: events.Event) -> None:
        decisions = self.told.plan(*told)
        nodes = self.told.core.fleet.nodes
        for one in decisions:
            if isinstance(one, events.Placed):
                asked = self.requests[one.request_id]
                assert all(nodes[node].standing is Standing.OPEN for node, _ in one.spots)
                assert len(one.spots) == len(asked.members)
                assert all(self.takes(nodes[node], asked.workspace) for node, _ in one.spots)
            if isinstance(one, events.RoomWanted):
                for gang in one.gangs:
                    named = [nodes[offered_id(one.pool, name)] for name in gang.nodes]
                    assert all(self.takes(node, self.requests[gang.request_id].workspace) for node in named)
            if isinstance(one, events.Held) and not one.group.startswith("a-"):
                told_of = [each for reason in one.reasons for each in reason.excluded]
                assert not any(each.node for each in told_of if self.owner == "a" and each.node != "n5")

    def takes(self, node: Node, workspace: str) -> bool:
        """By what was told of it, whatever the core makes of that."""
        of_pool = self.serves if node.kind.pool == "p" else ""
        return of_pool in ("", workspace) and self.tokens.get(node.node_id, "") in ("", workspace)

    @rule(
        shape=st.sampled_from(SHAPES),
        members=st.sampled_from((1, 1, 1, 2, 4, 8)),
        where=st.sampled_from((("a", "q"), ("b", "q"), ("a", "default"), ("c", "default"))),
        priority=st.sampled_from(("default", "high")),
        mode=st.sampled_from(TopologyMode),
    )
    def ask(self, shape: Shape, members: int, where: tuple[str, str], priority: str, mode: TopologyMode) -> None:
        self.numbers += 1
        together = Together() if mode is TopologyMode.NONE else Together(mode=mode, level="rack")
        asked = request(
            f"r{self.numbers}",
            shape,
            members,
            where[0],
            queue=where[1],
            priority=priority,
            together=together,
            requested_at_s=self.told.now_s,
        )
        self.requests[asked.request_id] = asked
        self.tell(events.Requested(requests=(asked, asked)))

    @rule(
        number=st.integers(0, 5),
        standing=st.sampled_from((Standing.OPEN, Standing.OPEN, Standing.COMING, Standing.CLOSED)),
        cards=st.sampled_from((4, 4, 3, 0)),
    )
    def set_node(self, number: int, standing: Standing, cards: int) -> None:
        pool = "plain" if number == 5 else "p"
        size = PLAIN if number == 5 else Capacity(cpu_milli=8000, memory_mib=16_000, gpu_count=cards, gpu_type="GB200")
        serves = self.tokens.setdefault(f"n{number}", self.serves if pool == "p" else "")
        traits = Traits(labels=(("rack", f"rack{number // 2}"),), gpu_sharing=number % 2 == 0, serves=serves)
        self.tell(events.NodeSet(node_id=f"n{number}", pool=pool, capacity=size, traits=traits, standing=standing))

    @rule(serves=st.sampled_from(("", "a", "b")), owner=st.sampled_from(("", "a", "a")))
    def share(self, serves: str, owner: str) -> None:
        """A pool serves everybody, or one workspace again: its workers keep the token that they have."""
        self.serves, self.owner = serves, owner
        self.tell(events.PoolSet(pool="p", serves=serves, owner=owner))

    @rule(states=st.lists(st.sampled_from(NodeState), max_size=3))
    def offer(self, states: list[NodeState]) -> None:
        """What a new worker there would be good for is as the pool is now."""
        offers = [
            NodeOffer(
                capacity=TRAY,
                traits=Traits(node=f"tray{number}", labels=(("rack", "rack0"),), serves=self.serves),
                state=state,
            )
            for number, state in enumerate(states)
        ]
        self.tokens.update((offered_id("p", f"tray{number}"), self.serves) for number in range(len(states)))
        self.tell(events.NodesOffered(pool="p", offers=tuple(offers)))

    @rule(number=st.integers(0, 5))
    def lose_node(self, number: int) -> None:
        self.tokens.pop(f"n{number}", None)
        node = self.told.core.fleet.nodes.get(f"n{number}")
        members = [] if node is None else [member for member, use in node.uses.items() if not use.promised]
        self.tell(events.NodeGone(node_id=f"n{number}"), *(events.Ended(member=member) for member in members))
        self.ended.update(members)

    @rule(place=st.integers(0, 200))
    def end(self, place: int) -> None:
        members = [member for asked in self.requests.values() for member in asked.members]
        if members:
            member = members[place % len(members)]
            self.tell(events.Ended(member=member))
            self.ended.add(member)

    @rule(place=st.integers(0, 200))
    def start(self, place: int) -> None:
        running = sorted(self.told.core.tenants.by_member)
        if running:
            self.tell(events.Started(member=running[place % len(running)]))

    @rule(seconds=st.sampled_from((0.0, 0.3, 5.0, 61.0, 301.0)))
    def time_passes(self, seconds: float) -> None:
        self.told.now_s += seconds
        self.tell(events.Ticked())

    @invariant()
    def room_is_accounted_for(self) -> None:
        """Free + used + promised = total, and nothing is below zero; a card has one owner, or sharers of it (I2)."""
        core = self.told.core
        for node in core.fleet.nodes.values():
            _check_room(node)
            assert all(core.tenants.by_member[member] for member in node.uses)

    @invariant()
    def nothing_of_another_workspace_is_on_a_node_that_takes_one_ones_work(self) -> None:
        core = self.told.core
        for node in core.fleet.nodes.values():
            token = self.tokens.get(node.node_id, "")
            for member, use in node.uses.items():
                workspace = self.requests[core.tenants.by_member[member][0]].workspace
                assert token in ("", workspace)
                assert not use.promised or self.takes(node, workspace)

    @invariant()
    def what_is_kept_for_one_is_on_nodes_that_may_take_it(self) -> None:
        core = self.told.core
        for request_id in core.reservations.holders():
            workspace = self.requests[request_id].workspace
            kept = core.reservations.nodes_of(request_id)
            assert all(self.tokens.get(node, "") in ("", workspace) for node in kept)

    @invariant()
    def quota_used_is_the_sum_of_who_has_room(self) -> None:
        """I4."""
        core = self.told.core
        used: dict[tuple[str, str], Amount] = {}
        for live in core.tenants.by_request.values():
            key = (live.request.workspace, live.request.queue)
            count = sum(bool(member) for member in live.members)
            used[key] = used.get(key, NOTHING).plus(amount_of(live.request.shape, count))
        queues, _ = core.queues.standing()
        assert {(row.workspace, row.name): row.used for row in queues if row.used != NOTHING} == used

    @invariant()
    def each_request_waits_or_has_room(self) -> None:
        """I9: what has not ended is never dropped; what waits holds nothing."""
        core = self.told.core
        for asked in self.requests.values():
            waits = asked.request_id in core.waiting
            live = core.tenants.by_request.get(asked.request_id)
            if waits:
                assert live is None
            elif not self.ended.intersection(asked.members):
                assert live is not None
                assert all(live.members)

    @invariant()
    def a_gang_that_runs_has_all_its_nodes(self) -> None:
        for live in self.told.core.tenants.by_request.values():
            if not live.promised and not self.ended.intersection(live.request.members):
                assert all(node in self.told.core.fleet.nodes for node in live.nodes)

    @invariant()
    def nobody_waits_who_has_quota_and_room(self) -> None:
        """No request blocks another one."""
        core = self.told.core
        for asked in core.waiting.values():
            fits = core.queues.check(asked, core.now_s)
            if not isinstance(fits, Reason):
                without = core.reservations.without(asked, core.now_s)
                assert not hasattr(core.finder.now(asked, fits, without), "nodes")

    def teardown(self) -> None:
        """Whatever a core came to, another one that is told its snapshot stands there too."""
        if not hasattr(self, "told"):
            return
        snapshot = self.told.core.snapshot()
        other = Core(new_placement)
        for event in snapshot:
            other.handle(event, self.told.now_s)
        assert _standing(other.snapshot()) == _standing(snapshot)


def _standing(snapshot: tuple[events.Event, ...]) -> list[events.Event]:
    """Without what is remembered of the past, which moves on with time."""
    return [event for event in snapshot if not isinstance(event, events.Recalled)]


def _check_room(node: Node) -> None:
    used = node.used
    cards = [0] * len(node.free_cards)
    for use in node.uses.values():
        for card in use.cards:
            cards[card] += use.card_milli
    assert all(milli <= CARD_MILLI for milli in cards)
    assert used.gpu_milli == sum(cards)
    capacity = node.kind.capacity
    assert node.cpu_milli == max(0, capacity.cpu_milli - used.cpu_milli)
    assert node.memory_mib == max(0, capacity.memory_mib - used.memory_mib)
    lost = set(node.lost_cards)
    assert node.free_cards == [0 if card in lost else CARD_MILLI - milli for card, milli in enumerate(cards)]
    assert len(cards) - len(lost) == capacity.gpu_count


TestMachine = Machine.TestCase
TestMachine.settings = settings.get_profile("property")
TestMachine = pytest.mark.slow(TestMachine)
