"""Pools and their nodes as they change: what is known of them stays true."""

from __future__ import annotations

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.placement import new_placement
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.queues import Queueing, Topology
from levers9.model.reasons import HoldKind, Reason
from levers9.model.resources import NOTHING, Amount, Capacity, Shape

TRAY = Capacity(cpu_milli=8000, memory_mib=16_000, gpu_count=4, gpu_type="GB200")
CARD = Shape(cpu_milli=250, memory_mib=128, gpu_count=1)
RACKS = Queueing(topologies=(Topology(name="nvl", levels=("rack",)),))
NOW_S = 1000.0


def core_with(*told: events.Event, queueing: Queueing = RACKS) -> Core:
    core = Core(new_placement, queueing)
    for event in told:
        core.handle(event, NOW_S)
    return core


def traits(name: str, rack: str) -> Traits:
    return Traits(node=name, labels=(("rack", rack),))


def offers(**racks: str) -> events.NodesOffered:
    made = tuple(NodeOffer(capacity=TRAY, traits=traits(name, rack)) for name, rack in racks.items())
    return events.NodesOffered(pool="p", offers=made)


def worker(name: str, rack: str = "r1", standing: Standing = Standing.OPEN) -> events.NodeSet:
    return events.NodeSet(
        node_id=f"worker-{name}", pool="p", capacity=TRAY, traits=traits(name, rack), standing=standing
    )


def gang_of(members: int) -> events.Requested:
    names = tuple(f"g/{rank}" for rank in range(members))
    near = Together(mode=TopologyMode.REQUIRED, level="rack")
    gang = events.Request(request_id="g", group="g", workspace="w", members=names, shape=CARD, together=near)
    return events.Requested(requests=(gang,))


def is_placed(core: Core) -> bool:
    return any(isinstance(one, events.Placed) for one in core.handle(events.Planned(steps=64), NOW_S))


class TestLabels:
    def test_those_that_change_under_a_running_worker_count_at_once(self) -> None:
        core = core_with(events.PoolSet(pool="p"), offers(a="r1", b="r1"), worker("a"), worker("b"))
        core.handle(offers(a="r1", b="r2"), NOW_S)
        assert core.fleet.nodes["worker-b"].kind.traits.label("rack") == "r2"
        core.handle(gang_of(8), NOW_S)
        assert not is_placed(core), "no rack has eight cards any more"
        core.handle(offers(a="r2", b="r2"), NOW_S)
        assert is_placed(core)

    def test_a_worker_that_reports_the_labels_of_its_order_does_not_bring_them_back(self) -> None:
        core = core_with(events.PoolSet(pool="p"), offers(a="r1"), worker("a"), offers(a="r2"), worker("a", "r1"))
        assert core.fleet.nodes["worker-a"].kind.traits.label("rack") == "r2"

    def test_what_else_its_order_said_of_a_worker_stays(self) -> None:
        shared = Traits(node="a", labels=(("rack", "r1"),), gpu_sharing=True)
        event = events.NodeSet(node_id="w", pool="p", capacity=TRAY, traits=shared, standing=Standing.OPEN)
        core = core_with(events.PoolSet(pool="p"), offers(a="r1"), event, offers(a="r2"))
        found = core.fleet.nodes["w"].kind.traits
        assert (found.gpu_sharing, found.label("rack"), found.node) == (True, "r2", "")


class TestPools:
    def test_the_workers_of_a_pool_that_is_no_more_count_no_more(self) -> None:
        core = core_with(events.PoolSet(pool="p"), offers(a="r1", c="r1"), worker("a"), worker("b"))
        assert core.fleet.total == Amount(16_000, 32_000, 8000)
        core.handle(events.PoolDropped(pool="p"), NOW_S)
        assert core.fleet.total == NOTHING
        core.handle(events.NodeGone(node_id="worker-a"), NOW_S)
        assert core.fleet.total == NOTHING

    def test_another_placement_policy_changes_nothing_else_of_a_pool(self) -> None:
        hold = Reason(kind=HoldKind.BACK_OFF, pool="p")
        known = (events.PoolSet(pool="p", max_workers=2), offers(a="r1", b="r1"), worker("a"))
        core = core_with(*known, events.PoolHolds(pool="p", reason=hold))
        before = core.fleet.pools["p"]
        kept = (before.holds, before.offers, before.nodes, before.workers)
        core.handle(events.PoolSet(pool="p", placement="packing", max_workers=2), NOW_S)
        after = core.fleet.pools["p"]
        assert (after.holds, after.offers, after.nodes, after.workers) == kept
        assert (after.policy, after.holds) == ("packing", {"": hold})

    def test_it_is_full_with_its_last_worker_whatever_that_does_and_nodes_on_offer_do_not_count(self) -> None:
        core = core_with(events.PoolSet(pool="p", max_workers=2), offers(a="r1", b="r1", c="r1"), worker("a"))
        pool = core.fleet.pools["p"]
        assert (pool.workers, pool.full) == (1, False)
        core.handle(worker("b", standing=Standing.COMING), NOW_S)
        assert (pool.workers, pool.full) == (2, True)
        core.handle(worker("b", standing=Standing.CLOSED), NOW_S)
        assert pool.full
        core.handle(events.NodeGone(node_id="worker-b"), NOW_S)
        assert (pool.workers, pool.full) == (1, False)

    def test_a_pool_that_does_not_say_how_many_it_may_have_is_never_full(self) -> None:
        core = core_with(events.PoolSet(pool="p"), worker("a"))
        assert not core.fleet.pools["p"].full


def asked(core: Core, *told: events.Event) -> dict[str, int]:
    """How much each pool is asked for, where that is new."""
    decisions = [one for event in told for one in core.handle(event, NOW_S)]
    decisions += core.handle(events.Planned(steps=64), NOW_S)
    return {one.pool: len(one.shapes) for one in decisions if isinstance(one, events.RoomWanted)}


def test_a_pool_with_all_its_workers_is_passed_over_while_another_has_room_whatever_it_says() -> None:
    whole = Shape(cpu_milli=8000, memory_mib=128)
    core = core_with(
        events.PoolSet(pool="p", size=TRAY, max_workers=1, rank=0),
        events.PoolSet(pool="q", size=TRAY, max_workers=1, rank=1),
        worker("a"),
    )
    first, second = (
        events.Requested(
            requests=(events.Request(request_id=name, group=name, workspace="w", members=(name,), shape=whole),)
        )
        for name in ("first", "second")
    )
    assert asked(core, first) == {}
    assert asked(core, second) == {"q": 1}
    assert asked(core, events.PoolHolds(pool="p", reason=None)) == {}
    assert asked(core, events.NodeGone(node_id="worker-a")) == {"p": 1, "q": 0}


def test_a_hold_that_is_told_again_wakes_nobody() -> None:
    core = core_with(events.PoolSet(pool="p", size=TRAY, max_workers=1), worker("a"))
    large = Shape(cpu_milli=8000, memory_mib=128)
    for name in ("one", "two"):
        request = events.Request(request_id=name, group=name, workspace="w", members=(name,), shape=large)
        core.handle(events.Requested(requests=(request,)), NOW_S)
    hold = events.PoolHolds(pool="p", reason=Reason(kind=HoldKind.MAXIMUM, pool="p"))
    for _ in range(2):
        core.handle(hold, NOW_S)
        core.handle(events.Planned(steps=64), NOW_S)
    core.handle(hold, NOW_S)
    assert core.queues.next(NOW_S) is None


class TestReports:
    def test_one_that_says_nothing_new_has_nobody_looked_at_again(self) -> None:
        core = core_with(events.PoolSet(pool="p"), offers(a="r1", b="r1"), worker("a"))
        core.handle(gang_of(8), NOW_S)
        core.handle(events.Planned(), NOW_S)
        looked = core.queues.looked_at
        core.handle(offers(a="r1", b="r1"), NOW_S)
        core.handle(events.Planned(), NOW_S)
        assert core.queues.looked_at == looked
        core.handle(offers(a="r1", b="r2"), NOW_S)
        core.handle(events.Planned(), NOW_S)
        assert core.queues.looked_at > looked

    def test_a_first_one_without_a_node_is_news(self) -> None:
        core = core_with(events.PoolSet(pool="p", owner="w"), offers())
        assert core.fleet.pools["p"].reported

    def test_what_is_promised_on_a_node_stays_there_while_others_change(self) -> None:
        core = core_with(events.PoolSet(pool="p"), offers(a="r1", b="r1", c="r2"))
        core.handle(gang_of(8), NOW_S)
        core.handle(events.Planned(), NOW_S)
        promised = core.fleet.nodes["p/a"]
        core.handle(offers(a="r1", b="r1", c="r3"), NOW_S)
        assert core.fleet.nodes["p/a"] is promised
