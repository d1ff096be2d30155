"""A big gang among small requests that never stop coming: it starts in time, and the small ones go around it."""

from __future__ import annotations

import heapq

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Node, Standing, new_node
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.forecast import NEVER_S
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.reservations import (
    EASY_FROM,
    FORECAST_EVERY_S,
    LOOKED_AGAIN_AFTER_S,
    NODES_LOOKED_AT,
    PER_POOL_MAX,
    RENEW_EVERY_S,
    RESERVE_AFTER_S,
    Reservations,
)
from levers9.actors.scheduler.topology import Assignment, Topologies
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import Traits
from levers9.model.queues import FairShare, PriorityClass, Queueing, Topology
from levers9.model.resources import Capacity, Shape

OPEN = frozenset({Standing.OPEN})
ANYWHERE = Together()
CARD = Shape(cpu_milli=1000, memory_mib=1, gpu_count=1, pool="p")
WHOLE = Shape(cpu_milli=1000, memory_mib=1, gpu_count=4, pool="p")


class World:
    """Nodes of four cards in racks of two, and a clock; what has a limit ends by it."""

    def __init__(self, nodes: int = 4) -> None:
        self.topologies = Topologies()
        self.topologies.configure((Topology(name="racks", levels=("rack",)),), ())
        for place in range(nodes):
            self.put(node_of(f"n{place}", f"r{place // 2}"))
        self.ends: dict[str, float] = {}
        self.at: dict[str, str] = {}
        self.reservations = Reservations(self.topologies, lambda member: self.ends.get(member, 0.0))

    def put(self, node: Node) -> None:
        self.topologies.put(node)

    def run(self, member: str, node_id: str, ends_s: float = 0.0, shape: Shape = CARD) -> None:
        node = self.topologies.nodes[node_id]
        assert node.fits(shape)
        node.take(member, shape, node.pick_cards(shape))
        self.put(node)
        self.ends[member], self.at[member] = ends_s, node_id

    def end(self, member: str) -> None:
        node = self.topologies.nodes[self.at.pop(member)]
        node.give_back(member)
        self.put(node)

    def fill(self, node_id: str, ends_s: float = 0.0) -> None:
        for card in range(4):
            self.run(f"{node_id}-{card}", node_id, ends_s)

    def place(self, request: Request, now_s: float, limit_s: float = 0.0) -> bool:
        """As the core does: everybody is asked to leave alone what is kept for others."""
        shape = msgspec.structs.replace(request.shape, pool="p")
        without = self.reservations.without(request, now_s)
        answer = self.topologies.assign(len(request.members), shape, request.together, OPEN, without)
        if not isinstance(answer, Assignment):
            return False
        for member, node_id in zip(request.members, answer.nodes):
            self.run(member, node_id, now_s + limit_s if limit_s else 0.0, shape)
        self.reservations.release(request.request_id)
        return True


def node_of(name: str, rack: str, pool: str = "p", standing: Standing = Standing.OPEN) -> Node:
    capacity = Capacity(cpu_milli=64_000, memory_mib=1 << 20, gpu_count=4, gpu_type="GB200")
    return new_node(name, pool, capacity, Traits(node=name, labels=(("rack", rack),)), standing)


def request_of(
    name: str,
    members: int = 1,
    shape: Shape = CARD,
    together: Together = ANYWHERE,
    limit_s: float = 0.0,
    requested_at_s: float = 0.0,
) -> Request:
    return Request(
        request_id=name,
        group=name,
        workspace="w",
        members=tuple(f"{name}-{rank}" for rank in range(members)),
        shape=shape,
        together=together,
        limit_s=limit_s,
        requested_at_s=requested_at_s,
    )


def gang_of(members: int = 8, name: str = "gang") -> Request:
    return request_of(name, members, together=Together(TopologyMode.REQUIRED, "rack"))


def busy_racks() -> World:
    """Rack r0 is full until 300 s, r1 until 200 s."""
    world = World()
    for node_id, ends_s in (("n0", 100.0), ("n1", 300.0), ("n2", 200.0), ("n3", 150.0)):
        world.fill(node_id, ends_s)
    return world


def test_the_domain_that_is_free_first_is_kept() -> None:
    reserved = busy_racks().reservations.reserve(gang_of(), CARD, RESERVE_AFTER_S)
    assert reserved is not None
    assert (reserved.nodes, reserved.at_s) == (("n2", "n3"), 200.0)


def test_nothing_is_kept_for_who_has_not_waited_long() -> None:
    world = busy_racks()
    assert world.reservations.reserve(gang_of(), CARD, RESERVE_AFTER_S - 1) is None
    assert world.reservations.without(request_of("other"), RESERVE_AFTER_S) == frozenset()


def test_nothing_is_kept_for_what_can_not_fit() -> None:
    world = busy_racks()
    assert world.reservations.reserve(gang_of(members=9), CARD, RESERVE_AFTER_S) is None
    assert world.reservations.without(request_of("other"), RESERVE_AFTER_S) == frozenset()


def test_a_small_request_goes_around_if_it_ends_before_the_room_is_needed() -> None:
    world = busy_racks()
    world.reservations.reserve(gang_of(), CARD, 60.0)
    closed = frozenset({"n2", "n3"})
    assert world.reservations.without(request_of("unlimited"), 60.0) == closed
    assert world.reservations.without(request_of("long", limit_s=141.0), 60.0) == closed
    assert world.reservations.without(request_of("short", limit_s=140.0), 60.0) == frozenset()
    assert world.reservations.without(gang_of(), 60.0) == frozenset()


def test_one_of_a_higher_priority_need_not_leave_room_alone() -> None:
    world = busy_racks()
    world.reservations.configure(Queueing(priorities=(PriorityClass(name="high", value=150),)))
    world.reservations.reserve(gang_of(), CARD, 60.0)
    urgent = msgspec.structs.replace(request_of("urgent", requested_at_s=50.0), priority="high")
    assert world.reservations.without(urgent, 60.0) == frozenset()
    assert world.reservations.without(msgspec.structs.replace(urgent, priority="default"), 60.0)
    late = msgspec.structs.replace(urgent, requested_at_s=590.0)
    assert world.reservations.without(late, 600.0) == frozenset({"n2", "n3"})  # the gang has aged twice by then


def test_where_no_end_is_known_the_freest_domain_is_kept_and_nobody_goes_around() -> None:
    world = World()
    for node_id in ("n0", "n1", "n2"):
        world.fill(node_id)
    world.run("one", "n3")
    reserved = world.reservations.reserve(gang_of(), CARD, 60.0)
    assert reserved is not None
    assert (reserved.nodes, reserved.at_s) == (("n2", "n3"), NEVER_S)
    assert world.reservations.without(request_of("short", limit_s=1.0), 60.0) == frozenset({"n2", "n3"})


def test_where_no_end_is_known_the_node_that_waits_for_least_is_kept() -> None:
    world = World()
    for node_id in ("n0", "n1", "n2"):
        world.fill(node_id)
    for card in range(4):
        world.run(f"n3-{card}", "n3", 100.0 if card else 0.0)
    reserved = world.reservations.reserve(request_of("whole", shape=WHOLE), WHOLE, 60.0)
    assert reserved is not None
    assert (reserved.nodes, reserved.at_s) == (("n3",), NEVER_S)


def test_what_is_over_its_time_limit_is_about_to_end() -> None:
    world = World(nodes=2)
    world.fill("n0", 100.0)
    world.fill("n1", 150.0)
    reserved = world.reservations.reserve(gang_of(), CARD, 200.0)
    assert reserved is not None
    assert reserved.at_s == 200.0


def test_one_of_a_pool_at_a_time_and_the_next_when_it_has_started() -> None:
    world = busy_racks()
    assert PER_POOL_MAX == 1
    assert world.reservations.reserve(gang_of(), CARD, 60.0) is not None
    other = request_of("second", 8)
    assert world.reservations.reserve(other, CARD, 61.0) is None
    assert (
        world.reservations.reserve(other, msgspec.structs.replace(CARD, pool="q"), 61.0) is None
    )  # nothing fits there
    world.reservations.release("gang")
    assert world.reservations.reserve(other, CARD, 62.0) is not None


def test_what_is_small_is_overtaken_by_nobody_and_gets_nothing_kept() -> None:
    world = World()
    small = Shape(cpu_milli=64_000 // EASY_FROM, memory_mib=1, pool="p")
    big = msgspec.structs.replace(small, cpu_milli=64_000 // EASY_FROM + 1)
    assert world.reservations.reserve(request_of("small", shape=small), small, 60.0) is None
    assert world.reservations.reserve(request_of("big", shape=big), big, 60.0) is not None


def test_those_who_get_nothing_do_not_stand_in_the_way_of_those_behind() -> None:
    world = busy_racks()
    hopeless = [gang_of(members=9, name=f"h{place}") for place in range(200)]
    behind = gang_of()
    at_s = 60.0
    while world.reservations.reserve(behind, CARD, at_s) is None:
        at_s += RENEW_EVERY_S
        for request in hopeless:
            world.reservations.reserve(request, CARD, at_s)
        assert at_s < 70.0


def test_a_node_that_vanishes_is_made_up_for() -> None:
    world = busy_racks()
    world.reservations.reserve(gang_of(), CARD, 60.0)
    world.topologies.drop("n3")
    world.at = {member: node for member, node in world.at.items() if node != "n3"}
    assert world.reservations.without(request_of("other"), 62.0) == frozenset({"n0", "n1"})
    world.topologies.drop("n0")
    assert world.reservations.without(request_of("other"), 64.0) == frozenset()


def test_a_cordoned_node_is_kept_no_more() -> None:
    world = busy_racks()
    world.reservations.reserve(gang_of(), CARD, 60.0)
    node = world.topologies.nodes["n2"]
    node.standing = Standing.CLOSED
    world.put(node)
    assert world.reservations.without(request_of("other"), 62.0) == frozenset({"n0", "n1"})


def test_what_ends_early_makes_the_start_sooner_and_nothing_makes_it_later() -> None:
    world = busy_racks()
    world.reservations.reserve(gang_of(), CARD, 60.0)
    for card in range(4):
        world.end(f"n2-{card}")
    short = request_of("short", limit_s=100.0)
    assert world.reservations.without(short, 62.0) == frozenset()  # it starts at 200, as far as is known
    later_s = 60.0 + FORECAST_EVERY_S
    assert world.reservations.without(short, later_s) == frozenset({"n2", "n3"})  # it starts at 150 now
    for card in range(4):
        world.run(f"late-{card}", "n2", 1000.0)  # of higher rank
    assert world.reservations.without(short, later_s + FORECAST_EVERY_S) == frozenset({"n2", "n3"})


def test_another_one_who_is_told_what_this_one_knows_keeps_the_same() -> None:
    world = busy_racks()
    world.reservations.reserve(gang_of(), CARD, 60.0)
    other = Reservations(world.topologies, lambda member: world.ends.get(member, 0.0))
    other.recall(world.reservations.remember())
    assert other.without(request_of("other"), 60.0) == frozenset({"n2", "n3"})
    assert other.remember() == world.reservations.remember()
    other.recall(b"")
    assert other.without(request_of("other"), 60.0) == frozenset()


def test_who_got_nothing_is_not_looked_at_again_at_once() -> None:
    world = World()
    world.put(node_of("odd", "r9", standing=Standing.CLOSED))
    big = gang_of(members=9)
    assert world.reservations.reserve(big, CARD, 60.0) is None
    world.put(node_of("new", "r0"))
    assert world.reservations.reserve(big, CARD, 61.0) is None
    assert world.reservations.reserve(big, CARD, 60.0 + LOOKED_AGAIN_AFTER_S) is not None


def test_without_ageing_priorities_stay_as_they_are() -> None:
    world = busy_racks()
    ageing = FairShare(ageing_s=0.0)
    world.reservations.configure(Queueing(priorities=(PriorityClass(name="high", value=1),), fair_share=ageing))
    world.reservations.reserve(gang_of(), CARD, 60.0)
    late = msgspec.structs.replace(request_of("late", requested_at_s=5000.0), priority="high")
    assert world.reservations.without(late, 5000.0) == frozenset()


def test_cards_that_were_lost_in_use_are_not_counted_on() -> None:
    world = World(nodes=2)
    world.fill("n0", 100.0)
    world.fill("n1", 100.0)
    node = world.topologies.nodes["n0"]
    node.resize(msgspec.structs.replace(node.kind.capacity, gpu_count=2))
    world.put(node)
    assert world.reservations.reserve(gang_of(), CARD, 60.0) is None
    reserved = world.reservations.reserve(gang_of(members=6, name="less"), CARD, 60.0)
    assert reserved is not None
    assert reserved.at_s == 100.0


def test_where_the_freest_nodes_do_not_do_all_are_looked_at() -> None:
    """Slices of two, and more racks with room for one than are looked at first."""
    world = World(nodes=2)
    for node_id in ("n0", "n1"):
        world.fill(node_id, 100.0)
    for place in range(NODES_LOOKED_AT + 5):
        node = node_of(f"small{place}", f"s{place}")
        node.resize(msgspec.structs.replace(node.kind.capacity, gpu_count=1))
        world.put(node)
    pairs = request_of("pairs", 8, together=Together(TopologyMode.PREFERRED, "rack", 2))
    reserved = world.reservations.reserve(pairs, CARD, 60.0)
    assert reserved is not None
    assert reserved.nodes == ("n0", "n1")
    spread = request_of("spread", 8, together=Together(TopologyMode.NONE, "rack", 2))
    world.reservations.release("pairs")
    assert world.reservations.reserve(spread, CARD, 60.0) == msgspec.structs.replace(reserved, request=spread)


def simulate(reserving: bool, limit_s: float, until_s: float) -> tuple[float | None, int]:
    """Small requests keep every card busy: as soon as one ends, two more wait. A gang of a whole rack waits among them.

    Returns when the gang started, and how many small ones were placed until then or until the end.
    """
    world = World()
    gang = gang_of()
    ends: list[tuple[float, str]] = []
    now_s, placed, queue = 0.0, 0, 16
    while now_s < until_s:
        while ends and ends[0][0] <= now_s:
            world.end(heapq.heappop(ends)[1])
            queue += 2
        if reserving:
            world.reservations.reserve(gang, CARD, now_s)
        if placed and world.place(gang, now_s):
            return now_s, placed
        while queue:
            small = request_of(f"s{placed}", limit_s=limit_s + placed % 7)
            if not world.place(small, now_s, small.limit_s):
                break
            heapq.heappush(ends, (now_s + small.limit_s, small.members[0]))
            placed, queue = placed + 1, queue - 1
        now_s += 1.0
    return None, placed


@pytest.mark.parametrize("limit_s", [5.0, 30.0, 200.0])
def test_a_big_gang_starts_within_the_bound_although_small_requests_keep_coming(limit_s: float) -> None:
    bound_s = RESERVE_AFTER_S + limit_s + 7
    started_s, placed = simulate(reserving=True, limit_s=limit_s, until_s=bound_s + 1)
    assert started_s is not None
    assert started_s <= bound_s
    assert placed >= 16
    assert simulate(reserving=False, limit_s=limit_s, until_s=3 * bound_s)[0] is None


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(ends=st.lists(st.integers(7, 40), min_size=16, max_size=16), short=st.integers(1, 40))
def test_who_goes_around_never_delays_the_start_that_was_promised(ends: list[int], short: int) -> None:
    """Times are in tens of seconds."""
    world, short_s = World(), short * 10.0
    for place, end in enumerate(ends):
        world.run(f"m{place}", f"n{place // 4}", end * 10.0)
    running = {f"m{place}": end * 10.0 for place, end in enumerate(ends)}
    reserved = world.reservations.reserve(gang_of(), CARD, 60.0)
    assert reserved is not None
    now_s, count = 60.0, 0
    while now_s < reserved.at_s:
        now_s += 10.0
        for member in sorted(member for member, end_s in running.items() if end_s <= now_s):
            del running[member]
            world.end(member)
        short_one = request_of(f"short{count}", limit_s=short_s)
        while now_s < reserved.at_s and world.place(short_one, now_s, short_s):
            running[short_one.members[0]] = now_s + short_s
            count += 1
            short_one = request_of(f"short{count}", limit_s=short_s)
    assert world.place(gang_of(), now_s)


class Cluster:
    """A core with four nodes, at a clock that ticks each second; everything ends by its limit."""

    def __init__(self) -> None:
        self.core = Core(new_placement)
        self.now_s = 0.0
        self.placed: dict[str, float] = {}
        self.ends: list[tuple[float, str]] = []
        self.requests: dict[str, Request] = {}
        racks = Queueing(topologies=(Topology(name="racks", levels=("rack",)),))
        self.take(events.QueueingSet(queueing=racks))
        self.take(events.PoolSet(pool="p"))
        for place in range(4):
            self.take(set_of(f"n{place}", f"r{place // 2}"))

    def take(self, event: events.Event) -> None:
        for decision in self.core.handle(event, self.now_s):
            if isinstance(decision, events.Placed):
                self.placed[decision.request_id] = self.now_s
                request = self.requests[decision.request_id]
                for member in request.members:
                    heapq.heappush(self.ends, (self.now_s + request.limit_s, member))

    def ask(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.take(events.Requested(requests=(request,)))

    def tick(self) -> int:
        """A second passes; returns how many containers have ended."""
        self.now_s += 1.0
        ended = 0
        while self.ends and self.ends[0][0] <= self.now_s:
            self.take(events.Ended(member=heapq.heappop(self.ends)[1]))
            ended += 1
        self.take(events.Ticked())
        self.take(events.Planned(steps=1000))
        return ended


def set_of(name: str, rack: str) -> events.NodeSet:
    node = node_of(name, rack)
    return events.NodeSet(
        node_id=name, pool="p", capacity=node.kind.capacity, traits=node.kind.traits, standing=Standing.OPEN
    )


def test_in_the_core_a_gang_starts_within_the_bound_and_small_requests_go_on_afterwards() -> None:
    """Two more of a small function are wanted for each that ends; the gang's room is kept although theirs is short."""
    cluster, count, wanted = Cluster(), 0, 20
    started_s = 0.0
    while cluster.now_s < 200.0:
        for _ in range(wanted):
            shape = msgspec.structs.replace(CARD, pool="")
            small = request_of(f"s{count}", shape=shape, limit_s=20.0 + count % 7, requested_at_s=cluster.now_s)
            cluster.ask(msgspec.structs.replace(small, group="small"))
            count += 1
        wanted = 2 * cluster.tick()
        if cluster.now_s == 1.0:
            gang = gang_of()
            shape = msgspec.structs.replace(CARD, pool="")
            cluster.ask(msgspec.structs.replace(gang, shape=shape, limit_s=10.0, requested_at_s=1.0))
        started_s = started_s or cluster.placed.get("gang", 0.0)
    assert 0.0 < started_s <= 1.0 + RESERVE_AFTER_S + 26.0 + 1.0
    later = [at_s for request_id, at_s in cluster.placed.items() if request_id != "gang" and at_s > started_s + 10.0]
    assert len(later) > 16


def test_in_the_core_a_short_request_goes_around_while_a_long_one_of_the_same_shape_waits() -> None:
    cluster = Cluster()
    shape = msgspec.structs.replace(CARD, pool="")
    for place in range(16):
        cluster.ask(request_of(f"m{place}", shape=shape, limit_s=100.0 + 10 * place))
    cluster.tick()
    cluster.ask(msgspec.structs.replace(gang_of(16), shape=shape, together=ANYWHERE, limit_s=10.0, requested_at_s=1.0))
    while cluster.now_s < 106.0:
        cluster.tick()
    cluster.ask(request_of("long", shape=shape, requested_at_s=cluster.now_s))
    cluster.tick()
    cluster.ask(request_of("short", shape=shape, limit_s=5.0, requested_at_s=cluster.now_s))
    cluster.tick()
    assert "short" in cluster.placed
    assert "long" not in cluster.placed


def test_a_core_that_is_rebuilt_from_a_snapshot_keeps_the_same_room() -> None:
    cluster = Cluster()
    shape = msgspec.structs.replace(CARD, pool="")
    for place in range(16):
        cluster.ask(request_of(f"m{place}", shape=shape, limit_s=100.0 + 10 * place))
    cluster.tick()
    cluster.ask(msgspec.structs.replace(gang_of(), shape=shape, requested_at_s=1.0))
    while cluster.now_s < 70.0:
        cluster.tick()
    other = Core(new_placement)
    for event in cluster.core.snapshot():
        other.handle(event, cluster.now_s)
    small = request_of("small", shape=shape, requested_at_s=70.0)
    assert other.reservations.without(small, 70.0) == cluster.core.reservations.without(small, 70.0)
    assert len(other.reservations.without(small, 70.0)) == 2
    assert other.reservations.remember() == cluster.core.reservations.remember()


def test_in_the_core_whoever_left_room_alone_gets_it_when_it_is_wanted_no_more() -> None:
    """Nothing ends, and no worker says anything: the one who waits for longest has just given up."""
    cluster = Cluster()
    shape = msgspec.structs.replace(CARD, pool="")
    cluster.ask(request_of("one", shape=shape, limit_s=1000.0))
    cluster.tick()
    cluster.ask(msgspec.structs.replace(gang_of(16), shape=shape, together=ANYWHERE, requested_at_s=1.0))
    while cluster.now_s < 70.0:
        cluster.tick()
    cluster.ask(request_of("small", shape=shape, requested_at_s=70.0))
    cluster.tick()
    assert "small" not in cluster.placed
    cluster.take(events.Ended(member="gang-0"))
    cluster.take(events.Planned())
    assert "small" in cluster.placed
