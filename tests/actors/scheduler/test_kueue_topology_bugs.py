"""Errors about nodes and topologies that another queueing scheduler was told of most, one by one, in front of ours.

The numbers are those of its issues and pull requests.
"""

from __future__ import annotations

import pytest

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Event, Request
from levers9.actors.scheduler.placement import new_placement
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.queues import DEFAULT, Flavor, FlavorLimits, Limits, Queue, Queueing, Quota, Topology
from levers9.model.reasons import Excluded, HoldKind
from levers9.model.resources import Capacity, Shape

CARD = Shape(cpu_milli=1000, memory_mib=256, gpu_count=1)
RACK = Together(TopologyMode.REQUIRED, "rack")
RACKS = Topology(name="racks", levels=("rack",))
QUEUEING = Queueing(topologies=(RACKS,))


class Told:
    """A core with one pool, told of events at a clock that ticks by a second each time."""

    def __init__(self, queueing: Queueing = QUEUEING) -> None:
        self.core = Core(new_placement)
        self.now_s = 0.0
        self.placed: dict[str, events.Placed] = {}
        self.replaced: dict[str, events.Replaced] = {}
        self.held: dict[str, events.Held] = {}
        self.wanted: dict[str, events.RoomWanted] = {}
        self.given_back: list[str] = []
        self.tell(events.QueueingSet(queueing=queueing), events.PoolSet(pool="p"))

    def tell(self, *told: Event) -> None:
        self.now_s += 1.0
        for event in told:
            self.take(self.core.handle(event, self.now_s))
        more = True
        while more:
            decisions = self.core.handle(events.Planned(), self.now_s)
            self.take(decisions)
            more = any(isinstance(decision, events.More) for decision in decisions)

    def take(self, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            match decision:
                case events.Placed(request_id=request_id):
                    self.placed[request_id] = decision
                case events.Replaced(member=member):
                    self.replaced[member] = decision
                case events.Held(group=group):
                    self.held[group] = decision
                case events.RoomWanted(pool=pool):
                    self.wanted[pool] = decision
                case events.GangGivenBack(request_id=request_id):
                    self.given_back.append(request_id)

    def nodes_of(self, request_id: str) -> list[str]:
        return [node for node, _ in self.placed[request_id].spots]


def node(
    name: str,
    rack: str = "x",
    cards: int = 4,
    standing: Standing = Standing.OPEN,
    why: str = "",
) -> events.NodeSet:
    return events.NodeSet(
        node_id=name,
        pool="p",
        capacity=size(cards),
        traits=Traits(node=name, labels=(("rack", rack),) if rack else ()),
        standing=standing,
        why_closed=why,
    )


def size(cards: int = 4) -> Capacity:
    return Capacity(cpu_milli=64_000, memory_mib=1 << 16, gpu_count=cards, gpu_type="GB200")


def offer(name: str, state: NodeState = NodeState.READY, rack: str = "x") -> NodeOffer:
    return NodeOffer(capacity=size(), traits=Traits(node=name, labels=(("rack", rack),)), state=state)


def ask(
    name: str, members: int = 1, shape: Shape = CARD, together: Together | None = None, queue: str = DEFAULT
) -> events.Requested:
    return events.Requested(
        requests=(
            Request(
                request_id=name,
                group=name,
                workspace="w",
                members=tuple(f"{name}-{rank}" for rank in range(members)) if members > 1 else (name,),
                shape=shape,
                together=together or Together(),
                queue=queue,
            ),
        )
    )


@pytest.mark.parametrize("why", ["cordoned", "silent", "draining"])
def test_6868_4180_3401_a_worker_that_is_closed_is_no_capacity(why: str) -> None:
    """A gang that fits with it only waits, the reason names it, and it starts when the worker is open again."""
    told = Told()
    told.tell(node("n1"), node("n2", standing=Standing.CLOSED, why=why), ask("gang", 8, together=RACK))
    assert not told.placed
    reason = told.held["gang"].reasons[0]
    assert (reason.kind, reason.fits, reason.wanted) == (HoldKind.TOPOLOGY, 4, 8)
    assert reason.excluded == (Excluded("n2", why),)
    told.tell(node("n2"))
    assert told.nodes_of("gang") == ["n1"] * 4 + ["n2"] * 4


@pytest.mark.parametrize("state", [state for state in NodeState if state is not NodeState.READY])
def test_6868_4180_3401_a_node_that_is_not_ready_is_offered_to_nobody(state: NodeState) -> None:
    told = Told()
    told.tell(events.NodesOffered(pool="p", offers=(offer("n1"), offer("n2", state))), ask("gang", 8, together=RACK))
    assert not told.wanted or not told.wanted["p"].gangs
    told.tell(events.NodesOffered(pool="p", offers=(offer("n1"), offer("n2"))))
    assert set(told.wanted["p"].gangs[0].nodes) == {"n1", "n2"}


def test_4270_11287_5998_a_node_has_no_limit_but_its_resources() -> None:
    """There is no number of containers that a node may have: the pods of an attached cluster's node are one worker."""
    told = Told()
    small = Shape(cpu_milli=100, memory_mib=1)
    told.tell(node("n1"), *(ask(f"r{place}", 2, small) for place in range(321)))
    assert len(told.placed) == 320


def test_8838_12005_a_resource_that_no_quota_counts_is_still_counted_on_nodes() -> None:
    limits = FlavorLimits(flavor="gb200", cpu=Limits(nominal=64_000))
    told = Told(
        Queueing(
            topologies=(RACKS,),
            flavors=(Flavor(name="gb200", gpu_type="GB200", topology="racks"),),
            quotas=(Quota(name="q", flavors=(limits,)),),
            queues=(Queue(name=DEFAULT, workspace="w", quota="q"),),
        )
    )
    told.tell(node("n1"), *(ask(f"r{place}") for place in range(8)))
    assert len(told.placed) == 4
    cards = [card for placed in told.placed.values() for _, cards in placed.spots for card in cards]
    assert sorted(cards) == [0, 1, 2, 3]


def test_10659_a_node_that_two_flavors_match_is_full_for_both_when_it_is_full() -> None:
    told = Told(
        Queueing(
            flavors=(Flavor(name="by type", gpu_type="GB200"), Flavor(name="by label", labels={"rack": "x"})),
            quotas=(
                Quota(name="a", flavors=(FlavorLimits(flavor="by type", gpu=Limits(nominal=4000)),)),
                Quota(name="b", flavors=(FlavorLimits(flavor="by label", gpu=Limits(nominal=4000)),)),
            ),
            queues=(Queue(name="a", workspace="w", quota="a"), Queue(name="b", workspace="w", quota="b")),
        )
    )
    told.tell(node("n1"), ask("one", 3, queue="a"), ask("two", 3, queue="b"))
    assert len(told.placed) == 1


def test_14572_a_replacement_and_a_newcomer_do_not_get_the_same_room() -> None:
    told = Told()
    told.tell(node("n1"), node("n2"), ask("gang", 8, together=RACK))
    told.tell(events.NodeGone(node_id="n2"), *(events.Ended(member=f"gang-{rank}") for rank in range(4, 8)))
    swaps = [events.Replacement(request_id="gang", rank=rank, member=f"new-{rank}") for rank in range(4, 8)]
    told.tell(*swaps, ask("newcomer", 4, together=RACK), node("n3"))
    assert [told.replaced[f"new-{rank}"].node_id for rank in range(4, 8)] == ["n3"] * 4
    assert "newcomer" not in told.placed
    assert sorted(card for replaced in told.replaced.values() for card in replaced.cards) == [0, 1, 2, 3]


def test_14244_several_members_are_replaced_at_once_in_their_domain() -> None:
    told = Told()
    told.tell(node("n1"), node("n2"), node("other", rack="y"), ask("gang", 8, together=RACK))
    told.tell(events.NodeGone(node_id="n1"), *(events.Ended(member=f"gang-{rank}") for rank in range(4)))
    told.tell(*(events.Replacement(request_id="gang", rank=rank, member=f"new-{rank}") for rank in range(4)))
    assert not told.replaced  # the other rack has room, and is the wrong one
    told.tell(node("n3"))
    assert {replaced.node_id for replaced in told.replaced.values()} == {"n3"}


def test_12735_11858_room_on_a_silent_worker_stays_taken_until_its_containers_have_ended() -> None:
    told = Told()
    told.tell(node("n1"), ask("long", 4))
    told.tell(node("n1", standing=Standing.CLOSED, why="silent"), ask("next"))
    told.tell(node("n1"))
    assert "next" not in told.placed
    told.tell(events.Ended(member="long-0"))
    assert told.nodes_of("next") == ["n1"]


def test_12735_11858_a_worker_that_comes_back_has_only_what_is_placed_on_it_from_then_on() -> None:
    told = Told()
    told.tell(node("n1"), ask("gang", 4))
    told.tell(events.NodeGone(node_id="n1"))
    told.tell(node("n1"), ask("next", 4))
    assert told.nodes_of("next") == ["n1"] * 4
    told.tell(*(events.Ended(member=f"gang-{rank}") for rank in range(4)), ask("last"))
    assert "last" not in told.placed


def test_9616_a_gang_is_not_bound_to_a_node_that_is_tainted_before_its_worker_runs() -> None:
    told = Told()
    offers = (offer("n1"), offer("n2"), offer("n3"))
    told.tell(events.NodesOffered(pool="p", offers=offers), ask("gang", 8, together=RACK))
    wanted = told.wanted["p"].gangs[0].nodes
    tainted = [offer(name, NodeState.TAINTED if name == wanted[0] else NodeState.READY) for name in ("n1", "n2", "n3")]
    told.tell(events.NodesOffered(pool="p", offers=tuple(tainted)))
    again = set(told.wanted["p"].gangs[0].nodes)
    assert len(again) == 2
    assert wanted[0] not in again
    told.tell(*(node(name) for name in sorted(again)))
    assert set(told.nodes_of("gang")) == again


def test_12656_a_gang_that_lost_members_gets_new_ones_and_is_asked_for_no_second_time() -> None:
    told = Told()
    told.tell(node("n1"), ask("gang", 4, together=RACK))
    told.tell(events.Ended(member="gang-2"))
    told.tell(events.Replacement(request_id="gang", rank=2, member="new"))
    told.tell(events.Replacement(request_id="gang", rank=2, member="new"))
    assert told.replaced["new"].node_id == "n1"
    told.tell(*(events.Ended(member=member) for member in ("gang-0", "gang-1", "new", "gang-3")), ask("next", 4))
    assert told.nodes_of("next") == ["n1"] * 4


def test_12656_members_that_have_ended_well_are_not_waited_for() -> None:
    told = Told()
    told.tell(node("n1"), ask("gang", 4, together=RACK))
    told.tell(events.Ended(member="gang-0"), events.Ended(member="gang-1"), ask("other", 1), ask("another", 1))
    told.tell(events.Ended(member="gang-2"))
    told.tell(events.Replacement(request_id="gang", rank=2, member="new"))
    assert told.replaced["new"].node_id == "n1"


def test_9482_7433_a_gang_is_placed_when_all_its_workers_are_open_and_not_before() -> None:
    told = Told()
    told.tell(events.NodesOffered(pool="p", offers=(offer("n1"), offer("n2"))), ask("gang", 8, together=RACK))
    told.tell(node("n1"), node("n2", standing=Standing.COMING))
    assert not told.placed
    assert told.held["gang"].reasons
    told.tell(node("n2"))
    assert set(told.nodes_of("gang")) == {"n1", "n2"}


def test_9482_7433_what_waits_for_its_workers_too_long_is_given_back() -> None:
    told = Told()
    told.tell(events.NodesOffered(pool="p", offers=(offer("n1"), offer("n2"))), ask("gang", 8, together=RACK))
    told.tell(node("n1"), node("n2", standing=Standing.COMING))
    told.now_s += 400.0
    told.tell(events.Ticked())
    assert told.given_back == ["gang"]
    told.tell(ask("other", 4))
    assert told.nodes_of("other") == ["n1"] * 4


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (node("n2", standing=Standing.CLOSED, why="tainted"), node("n2")),
        (node("n2", rack="y"), node("n2", rack="x")),
        (node("n2", rack=""), node("n2", rack="x")),
        (node("n2", cards=3), node("n2", cards=4)),
    ],
    ids=["a taint is removed", "a label is changed", "a label appears", "a card comes back"],
)
def test_13656_13772_whoever_waits_is_looked_at_again_when_a_node_has_changed(
    before: events.NodeSet, after: events.NodeSet
) -> None:
    told = Told()
    told.tell(node("n1"), before, ask("gang", 8, together=RACK))
    assert not told.placed
    told.tell(after)
    assert set(told.nodes_of("gang")) == {"n1", "n2"}


def test_jobset_1021_a_member_of_an_older_gang_that_still_stops_misplaces_nobody_of_the_new_one() -> None:
    told = Told()
    racks = tuple(node(f"{rack}{number}", rack) for rack in "xy" for number in (1, 2))
    told.tell(*racks, ask("old", 8, together=RACK))
    (rack,) = {name[0] for name in told.nodes_of("old")}
    told.tell(*(events.Ended(member=f"old-{rank}") for rank in range(1, 8)), ask("new", 8, together=RACK))
    assert {name[0] for name in told.nodes_of("new")} == {"x", "y"} - {rack}
    told.tell(events.Replacement(request_id="old", rank=3, member="late"), events.Ended(member="old-0"))
    told.tell(events.Ended(member="new-2"), events.Replacement(request_id="new", rank=2, member="again"))
    assert told.replaced["again"].node_id in told.nodes_of("new")
    assert "late" not in told.core.lost
