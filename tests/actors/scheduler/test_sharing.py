"""Clusters that are shared and taken back: whose work a worker takes is settled when it starts."""

from __future__ import annotations

import msgspec
import pytest

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Request
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.reservations import RESERVE_AFTER_S
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.queues import Queueing, Topology
from levers9.model.reasons import HoldKind, Reason
from levers9.model.resources import Capacity, Shape
from levers9.model.sentences import sentence

TRAY = Capacity(cpu_milli=8000, memory_mib=16_000, gpu_count=4, gpu_type="GB200")
CARD = Shape(cpu_milli=100, memory_mib=100, gpu_count=1)
WHOLE = msgspec.structs.replace(CARD, gpu_count=4)
RACK = Together(mode=TopologyMode.REQUIRED, level="rack")
ANYWHERE = Together()
POOL = "lab-1a2b3c"


class Lab:
    """A cluster of workspace a, in a core of its own."""

    def __init__(self, serves: str = "a") -> None:
        self.core = Core(new_placement, Queueing(topologies=(Topology(name="t", levels=("rack",)),)))
        self.now_s = 1000.0
        self.serves = serves
        self.made = 0
        self.share(serves)

    def plan(self, *told: events.Event) -> list[Decision]:
        return [one for event in (*told, events.Planned()) for one in self.core.handle(event, self.now_s)]

    def share(self, serves: str) -> list[Decision]:
        self.serves = serves
        return self.plan(
            events.PoolSet(pool=POOL, serves=serves, owner="a", known_as="lab", gpu_type="GB200", max_workers=9)
        )

    def offer(self, state: NodeState = NodeState.READY, since_s: float = 0.0, **racks: str) -> list[Decision]:
        offers = tuple(
            NodeOffer(capacity=TRAY, traits=traits(name, rack, self.serves), state=state, since_s=since_s)
            for name, rack in racks.items()
        )
        return self.plan(events.NodesOffered(pool=POOL, offers=offers))

    def worker(self, name: str, rack: str = "r", standing: Standing = Standing.OPEN) -> list[Decision]:
        """One that starts now has a token for whom its cluster serves now."""
        known = self.core.fleet.nodes.get(f"worker-{name}")
        serves = self.serves if known is None else known.serves
        return self.plan(
            events.NodeSet(
                node_id=f"worker-{name}",
                pool=POOL,
                capacity=TRAY,
                traits=traits(name, rack, serves),
                standing=standing,
                why_closed="cordoned" if standing is Standing.CLOSED else "",
            )
        )

    def request(
        self,
        workspace: str,
        shape: Shape = CARD,
        members: int = 1,
        together: Together = ANYWHERE,
        limit_s: float = 0.0,
    ) -> Request:
        self.made += 1
        name = f"{workspace}{self.made}"
        names = (name,) if members == 1 else tuple(f"{name}/{rank}" for rank in range(members))
        return Request(
            request_id=name,
            group=name,
            label=name,
            workspace=workspace,
            members=names,
            shape=shape,
            together=together,
            limit_s=limit_s,
            requested_at_s=self.now_s,
        )

    def ask(
        self, workspace: str, shape: Shape = CARD, members: int = 1, together: Together = ANYWHERE
    ) -> list[Decision]:
        asked = self.request(workspace, shape, members, together)
        return self.plan(events.Requested(requests=(asked,)))

    def end_all(self) -> list[Decision]:
        return self.plan(*(events.Ended(member=member) for member in tuple(self.core.tenants.by_member)))


def traits(name: str, rack: str = "r", serves: str = "") -> Traits:
    return Traits(node=name, labels=(("rack", rack),), serves=serves)


def placed(decisions: list[Decision]) -> list[str]:
    return [node for one in decisions if isinstance(one, events.Placed) for node, _ in one.spots]


def reasons(decisions: list[Decision]) -> list[Reason]:
    return [reason for one in decisions if isinstance(one, events.Held) for reason in one.reasons]


def told(decisions: list[Decision], now_s: float = 1000.0) -> str:
    return " ".join(sentence(reason, now_s) for reason in reasons(decisions))


class TestSharing:
    @pytest.mark.parametrize("members", [1, 2, 4])
    def test_a_worker_from_before_takes_nothing_of_others_and_one_from_after_does(self, members: int) -> None:
        lab = Lab()
        lab.worker("old")
        lab.share("")
        assert placed(lab.ask("b", members=members)) == []
        assert placed(lab.worker("new")) == ["worker-new"] * members

    def test_its_owner_goes_on_using_both(self) -> None:
        lab = Lab()
        lab.worker("old")
        lab.share("")
        lab.worker("new")
        assert sorted({*placed(lab.ask("a", WHOLE)), *placed(lab.ask("a", WHOLE))}) == ["worker-new", "worker-old"]

    def test_a_gang_of_its_owner_may_stand_on_both_and_one_of_others_may_not(self) -> None:
        lab = Lab()
        lab.worker("old")
        lab.share("")
        lab.worker("new")
        assert placed(lab.ask("b", members=8, together=RACK)) == []
        assert len(placed(lab.ask("a", members=8, together=RACK))) == 8

    def test_after_it_was_taken_back_and_shared_again_each_worker_still_has_the_token_that_it_started_with(
        self,
    ) -> None:
        lab = Lab(serves="")
        lab.worker("first")
        lab.share("a")
        lab.worker("second")
        lab.share("")
        lab.worker("third")
        assert set(placed(lab.ask("b", WHOLE)) + placed(lab.ask("b", WHOLE))) == {"worker-first", "worker-third"}
        assert placed(lab.ask("b", WHOLE)) == []
        assert placed(lab.ask("a", WHOLE)) == ["worker-second"]

    def test_what_is_free_on_a_worker_of_its_owner_wakes_its_owner_though_others_wait_before(self) -> None:
        lab = Lab()
        lab.worker("old")
        lab.ask("a", WHOLE)
        lab.share("")
        assert placed(lab.ask("b", WHOLE)) == []
        assert placed(lab.ask("a", WHOLE)) == []
        assert placed(lab.end_all()) == ["worker-old"]
        assert lab.core.tenants.by_request.keys() == {"a3"}

    def test_a_node_on_offer_for_its_owner_only_is_ordered_for_nobody_else(self) -> None:
        lab = Lab()
        lab.offer(x="r")
        lab.share("")  # its nodes are told anew in a moment
        for members in (1, 4):
            assert not any(isinstance(one, events.RoomWanted) for one in lab.ask("b", members=members))
        assert [one.shapes for one in lab.ask("a") if isinstance(one, events.RoomWanted)] == [((CARD, 1),)]
        decisions = lab.offer(x="r")
        assert any(isinstance(one, events.RoomWanted) and one.gangs for one in decisions)

    def test_a_worker_on_its_way_counts_for_its_owner_only(self) -> None:
        lab = Lab()
        lab.worker("old", standing=Standing.COMING)
        lab.share("")
        lab.offer(y="r")
        assert [reason.kind for reason in reasons(lab.ask("b"))] == [HoldKind.ROOM]
        assert [reason.kind for reason in reasons(lab.ask("a"))] == [HoldKind.STARTING]

    def test_nothing_is_kept_on_a_worker_of_its_owner_for_others_who_wait_long(self) -> None:
        lab = Lab()
        lab.worker("old")
        lab.worker("other")
        lab.share("")
        for shape in (CARD, CARD):
            lab.ask("a", shape)
        lab.ask("b", WHOLE, members=1)
        lab.now_s += RESERVE_AFTER_S + 1
        lab.plan(events.Ticked())
        assert lab.core.reservations.holders() == ()

    def test_nobody_stops_for_room_that_is_no_good_to_him(self) -> None:
        lab = Lab()
        lab.worker("old")
        asked = [lab.request("a") for _ in range(4)]
        lab.plan(events.Requested(requests=tuple(asked)))
        lab.plan(*(events.Started(member=one.request_id) for one in asked))
        lab.share("")
        lab.ask("b")
        lab.now_s += 1000.0
        assert not any(isinstance(one, events.Yielded) for one in lab.plan(events.Ticked()))

    def test_but_for_room_that_is(self) -> None:
        lab = Lab(serves="")
        lab.worker("old")
        asked = [lab.request("a") for _ in range(4)]
        lab.plan(events.Requested(requests=tuple(asked)))
        lab.plan(*(events.Started(member=one.request_id) for one in asked))
        lab.ask("b")
        lab.now_s += 1000.0
        assert any(isinstance(one, events.Yielded) for one in lab.plan(events.Ticked()))

    def test_who_holds_a_worker_that_is_no_good_to_the_asker_is_no_holder_to_him(self) -> None:
        lab = Lab()
        lab.worker("old")
        lab.ask("a", WHOLE)
        lab.share("")
        assert [reason.holders for reason in reasons(lab.ask("b", WHOLE))] == [()]

    def test_another_core_that_is_told_a_snapshot_keeps_to_it(self) -> None:
        lab, other = Lab(), Lab()
        lab.worker("old")
        lab.share("")
        other.plan(*lab.core.snapshot())
        assert placed(other.ask("b")) == []
        assert placed(other.ask("a")) == ["worker-old"]

    def test_and_so_it_does_where_that_begins_only_later(self) -> None:
        lab, other = Lab(), Lab()
        lab.worker("old")
        other.plan(*lab.core.snapshot())
        other.share("")
        assert placed(other.ask("b")) == []


class TestTakingBack:
    def test_others_get_nothing_new_there(self) -> None:
        lab = Lab(serves="")
        lab.worker("one")
        lab.share("a")
        for members in (1, 4):
            assert placed(lab.ask("b", members=members)) == []
        assert placed(lab.ask("a")) == ["worker-one"]

    def test_what_was_promised_to_a_gang_of_others_is_given_back_at_once(self) -> None:
        lab = Lab(serves="")
        lab.worker("one")
        lab.offer(x="r")
        lab.ask("b", members=8)
        assert list(lab.core.promises.live) == ["b1"]
        assert [one.request_id for one in lab.share("a") if isinstance(one, events.GangGivenBack)] == ["b1"]
        assert lab.core.promises.live == {}

    def test_a_member_that_a_gang_of_others_lost_is_not_replaced_there(self) -> None:
        lab = Lab(serves="")
        lab.worker("one")
        lab.worker("two")
        lab.ask("b", members=8)
        lab.share("a")
        lab.plan(events.Ended(member="b1/7"))
        decisions = lab.plan(events.Replacement(request_id="b1", rank=7, member="new"))
        assert not any(isinstance(one, events.Replaced) for one in decisions)
        assert [reason.kind for reason in reasons(decisions)] == [HoldKind.NO_POOL]

    def test_nodes_that_were_kept_for_others_are_kept_no_more(self) -> None:
        lab = Lab(serves="")
        lab.worker("one")
        lab.ask("b")
        lab.ask("b", WHOLE)
        lab.now_s += RESERVE_AFTER_S + 1
        lab.plan(events.Ticked())
        assert lab.core.reservations.holders() == ("b2",)
        lab.share("a")
        lab.now_s += 1.0
        lab.plan(events.Ticked())
        assert lab.core.reservations.holders() == ()


class TestNodes:
    @pytest.mark.parametrize("state", [NodeState.STALE, NodeState.FULL])
    def test_one_that_gets_no_new_worker_keeps_the_one_that_it_has_open(self, state: NodeState) -> None:
        lab = Lab()
        lab.offer(x="r", y="r")
        lab.worker("x")
        lab.offer(state, x="r", y="r")
        assert placed(lab.ask("a", WHOLE)) == ["worker-x"]
        assert not any(isinstance(one, events.RoomWanted) for one in lab.ask("a", WHOLE))

    @pytest.mark.parametrize("state", [NodeState.CORDONED, NodeState.TAINTED, NodeState.NOT_READY])
    def test_one_that_may_not_be_used_takes_nothing_new(self, state: NodeState) -> None:
        lab = Lab()
        lab.offer(x="r")
        lab.worker("x")
        lab.offer(state, x="r")
        assert placed(lab.ask("a")) == []
        assert placed(lab.offer(x="r")) == ["worker-x"]

    @pytest.mark.parametrize("state", list(NodeState))
    def test_one_that_is_named_no_more_keeps_its_worker(self, state: NodeState) -> None:
        lab = Lab()
        lab.offer(x="r")
        lab.worker("x")
        lab.offer(state, x="r")
        lab.offer()
        assert placed(lab.ask("a")) == ["worker-x"]


class TestWords:
    def test_a_cluster_that_does_not_report_is_told_with_the_age_of_its_last_word(self) -> None:
        lab = Lab()
        lab.offer(NodeState.STALE, 1000.0, x="r", y="r")
        lab.now_s = 1150.0
        words = told(lab.ask("a"), lab.now_s)
        assert "the last report of cluster lab is 2 min old" in words
        assert "stale" not in words

    def test_nodes_of_which_others_have_all_cards_are_named_to_their_owner(self) -> None:
        lab = Lab()
        lab.offer(NodeState.FULL, x="r", y="r")
        assert "others have all cards of x and y" in told(lab.ask("a"))

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            (NodeState.FULL, "others have all cards of 2 nodes of lab"),
            (NodeState.CORDONED, "2 nodes of lab are cordoned"),
            (NodeState.STALE, "the last report of cluster lab is 90 s old"),
        ],
    )
    @pytest.mark.parametrize("together", [Together(), RACK])
    def test_others_are_told_how_many_of_a_shared_cluster_and_not_which(
        self, state: NodeState, words: str, together: Together
    ) -> None:
        lab = Lab(serves="")
        lab.offer(state, 1000.0, secret1="r", secret2="r")
        lab.now_s = 1090.0
        said = told(lab.ask("b", members=1 if together == Together() else 2, together=together), lab.now_s)
        assert words in said
        assert "secret" not in said

    def test_nobody_else_is_told_of_the_nodes_of_a_private_cluster(self) -> None:
        lab = Lab()
        lab.offer(NodeState.CORDONED, secret="r")
        lab.worker("hidden", standing=Standing.CLOSED)
        lab.plan(events.PoolSet(pool="default", size=TRAY, max_workers=1), events.PoolHolds(pool="default"))
        for members in (1, 2):
            said = lab.ask("b", members=members)
            words = repr(reasons(said)) + told(said)
            assert reasons(said)
            assert not [secret for secret in ("secret", "hidden", POOL, "lab") if secret in words]

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            (HoldKind.BACK_OFF, "Pool lab: its last workers ended early"),
            (HoldKind.CLUSTER, "Pool lab: its workers do not start now; its owner can see why."),
        ],
    )
    def test_what_the_pool_of_others_says_itself_is_told_in_general(self, kind: HoldKind, words: str) -> None:
        lab = Lab(serves="")
        lab.offer(x="r")
        detail = "node x can't pull registry.of.a/worker:1."
        hold = Reason(kind=kind, pool=POOL, detail=detail)
        lab.plan(events.PoolHolds(pool=POOL, reason=hold))
        theirs, own = lab.ask("b"), lab.ask("a")
        assert "registry" not in repr(reasons(theirs)) + told(theirs)
        assert words in told(theirs)
        assert "Pool lab: node x can't pull" in told(own)

    def test_a_shared_cluster_whose_name_one_has_oneself_is_told_by_the_name_of_its_pool(self) -> None:
        lab = Lab(serves="")
        lab.plan(events.PoolSet(pool="lab-ffffff", serves="b", owner="b", known_as="lab"))
        hold = Reason(kind=HoldKind.BACK_OFF, pool=POOL)
        lab.offer(x="r")
        lab.plan(events.PoolHolds(pool=POOL, reason=hold))
        assert f"pool {POOL}" in told(lab.ask("b"))

    def test_a_cluster_that_never_reported_is_said_to_be_unknown(self) -> None:
        lab = Lab()
        said = lab.ask("a")
        assert [(reason.kind, reason.pool) for reason in reasons(said)] == [(HoldKind.UNREPORTED, "lab")]
        assert "Nothing is known yet of the nodes of cluster lab" in told(said)
        wrong = msgspec.structs.replace(CARD, gpu_types=("T4",))
        assert [reason.kind for reason in reasons(lab.ask("a", wrong))] == [HoldKind.ROOM]
        assert [reason.kind for reason in reasons(lab.offer())][:1] == [HoldKind.ROOM]

    def test_beside_nodes_that_could_do_it_nothing_is_unknown(self) -> None:
        lab = Lab()
        lab.plan(events.PoolSet(pool="default", size=TRAY, max_workers=1))
        lab.plan(events.NodeSet(node_id="w", pool="default", capacity=TRAY, standing=Standing.OPEN))
        lab.ask("a", WHOLE)
        assert [reason.kind for reason in reasons(lab.ask("a", WHOLE))] == [HoldKind.ROOM]
