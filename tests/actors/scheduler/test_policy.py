"""What the scheduler promises."""

import pytest
from levers9_test_deciding import SHAPE, SIZE, Sent, decide
from levers9_test_scheduler import Stage, gone, held, placed

from levers9.actors.scheduler.events import Planned
from levers9.actors.scheduler.ledger import Host
from levers9.actors.scheduler.wants import WANTED_MAX
from levers9.errors import OutcomeUnknown
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.reasons import HoldKind, Lack, Reason
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, End, WorkerEvent, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Send

GPU = Shape(cpu_milli=100, memory_mib=10, gpu_count=1, gpu_types=("T4",))


def kinds(sent: Sent) -> list[list[HoldKind]]:
    """Of each word about what waits, the kinds of its reasons."""
    return [[reason.kind for reason in message.reasons] for message in sent.of(scheduling.ContainerHeld)]


class TestPlacement:
    def test_a_request_gets_room_and_its_start_is_committed_before_it_is_sent(self) -> None:
        stage = Stage()
        stage.worker()
        sent = stage.say(stage.request("a"))
        assert placed(sent) == [("a", "one")]
        start = sent.only(scheduling.StartContainer)
        row = stage.truth.tables.containers["a"]
        assert (row.state, row.worker_id) == (ContainerState.PLACED, "one")
        tokens = rows_of(stage.truth.ask(ops.ListTokens()), ops.TokenRow)
        assert [(token.subject, token.created_at_s, token.active) for token in tokens] == [("a", 1000.0, True)]
        assert start.token not in str(tokens)

    def test_a_request_that_comes_twice_gets_room_once(self) -> None:
        stage = Stage()
        stage.worker()
        letter = stage.request("a")
        assert placed(stage.say(letter, letter)) == [("a", "one")]

    def test_a_pool_that_serves_one_workspace_takes_no_work_of_another(self) -> None:
        stage = Stage(serves={"default": "somebody else's"})
        stage.worker()
        sent = stage.say(stage.request("a"))
        assert placed(sent) == []
        assert kinds(sent) == [[HoldKind.NO_POOL]]
        assert sent.to("pool/default", scheduling.RoomWanted) == []
        stage.say(stage.order("two"))
        assert kinds(stage.tick(5.0)) == [[HoldKind.NO_POOL]]

    def test_a_pool_that_serves_this_workspace_takes_its_work(self) -> None:
        stage = Stage(serves={"default": "w"})
        stage.worker()
        assert placed(stage.say(stage.request("a"))) == [("a", "one")]

    def test_free_and_used_are_the_capacity(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a", "b", "c"))
        host, node = stage.policy.ledger.hosts["one"], stage.policy.core.fleet.nodes["one"]
        assert (node.cpu_milli, sorted(host.rooms), sorted(node.uses)) == (0, ["a", "b"], ["a", "b"])
        stage.say(stage.ended("a"))
        assert (node.cpu_milli, sorted(host.rooms), sorted(node.uses)) == (0, ["b", "c"], ["b", "c"])

    def test_what_has_no_room_waits_and_the_pool_hears_for_how_many(self) -> None:
        stage = Stage()
        sent = stage.say(stage.request("a", "b", "c"))
        wanted = sent.to("pool/default", scheduling.RoomWanted)
        assert wanted == [scheduling.RoomWanted(pool="default", shapes=(SHAPE,) * 3, orders_seen=0)]
        assert kinds(sent) == [[HoldKind.ROOM]]
        sent = stage.say(stage.order("one"))
        assert sent.only(scheduling.RoomWanted) == scheduling.RoomWanted(pool="default", shapes=(SHAPE,), orders_seen=1)
        sent = stage.say(stage.order("two"))
        assert sent.only(scheduling.RoomWanted).shapes == ()
        assert kinds(sent) == [[HoldKind.STARTING]]
        sent = stage.say(stage.report(), stage.report(worker_id="two"))
        assert len(placed(sent)) == 3
        assert kinds(sent) == [[]]

    def test_the_pools_own_reason_is_told_as_well(self) -> None:
        stage = Stage()
        stage.say(stage.request("a"))
        maximum = Reason(kind=HoldKind.MAXIMUM, wanted=4)
        message = scheduling.PoolHeld(pool="default", why="it has four already", reason=maximum)
        (told,) = stage.say(Letter(message, source="pool/default")).of(scheduling.ContainerHeld)
        assert [reason.kind for reason in told.reasons] == [HoldKind.ROOM, HoldKind.MAXIMUM]
        assert told.reasons[1].pool == "default"
        assert "max_workers" in told.why

    def test_only_missing_machines_count_as_such(self) -> None:
        """Not what a pool that backs off lacks, and not while a container of the same stub loads its code."""
        stage = Stage()
        stage.worker()
        (told,) = stage.say(stage.request("a", "b", "c")).of(scheduling.ContainerHeld)
        assert not told.machines_only
        (told,) = stage.say(stage.ready("a"), stage.ready("b")).of(scheduling.ContainerHeld)
        assert told.machines_only
        reason = Reason(kind=HoldKind.BACK_OFF)
        backs_off = scheduling.PoolHeld(pool="default", why="its workers end early.", reason=reason)
        (told,) = stage.say(Letter(backs_off, source="pool/default")).of(scheduling.ContainerHeld)
        assert not told.machines_only

    def test_only_a_pool_whose_workers_are_large_enough_is_asked(self) -> None:
        cards = Capacity(cpu_milli=4000, memory_mib=1000, gpu_count=2, gpu_type="T4")
        stage = Stage(("small", "cards"), sizes={"small": SIZE, "cards": cards})
        sent = stage.say(stage.request("a", shape=GPU))
        assert sent.to("pool/small", scheduling.RoomWanted) == []
        assert sent.to("pool/cards", scheduling.RoomWanted)[0].shapes == (GPU,)
        stage.say(stage.order("s", "small"))
        assert stage.policy.core.in_group == {"f": 1}

    def test_a_pool_that_is_named_is_the_only_one_asked_and_used(self) -> None:
        stage = Stage(("default", "other"))
        stage.worker("one")
        shape = Shape(cpu_milli=100, memory_mib=10, pool="other")
        sent = stage.say(stage.request("a", shape=shape))
        assert placed(sent) == []
        assert sent.to("pool/other", scheduling.RoomWanted)[0].shapes == (shape,)
        stage.say(stage.order("x", "default"))
        sent = stage.say(stage.order("y", "other"))
        assert sent.to("pool/other", scheduling.RoomWanted)[0].shapes == ()

    def test_room_in_a_pool_that_nobody_has_is_asked_of_no_one(self) -> None:
        stage = Stage()
        sent = stage.say(stage.request("a", shape=Shape(cpu_milli=1, memory_mib=1, pool="nowhere")))
        assert sent.of(scheduling.RoomWanted) == []
        assert kinds(sent) == [[HoldKind.NO_POOL]]

    def test_a_pool_hears_of_so_many_at_a_time(self) -> None:
        stage = Stage()
        sent = stage.say(stage.request(*(f"c{number}" for number in range(WANTED_MAX + 10))))
        assert len(sent.only(scheduling.RoomWanted).shapes) == WANTED_MAX

    def test_a_wish_that_got_lost_is_made_again(self) -> None:
        stage = Stage()
        stage.say(stage.request("a"))
        sent = stage.tick(1.0)
        assert len(sent.only(scheduling.RoomWanted).shapes) == 1
        assert kinds(sent) == [[HoldKind.ROOM]]
        assert stage.tick(1.0) == []
        assert len(stage.tick(5.0).of(scheduling.RoomWanted)) == 1

    def test_a_large_request_does_not_block_smaller_ones_of_others(self) -> None:
        stage = Stage()
        stage.worker()
        large = Shape(cpu_milli=9000, memory_mib=10)
        sent = stage.say(stage.request("large", stub="g", shape=large), stage.request("small"))
        assert placed(sent) == [("small", "one")]
        (told,) = sent.of(scheduling.ContainerHeld)
        assert told.reasons[0].lacks == (Lack("cpu", 8000),)


class TestSlices:
    @pytest.mark.slow
    def test_five_thousand_requests_are_placed_over_several_plans_and_none_is_forgotten(self) -> None:
        stage = Stage()
        stage.worker(size=Capacity(cpu_milli=3_000_000, memory_mib=1_000_000))
        stage.worker("two", size=Capacity(cpu_milli=3_000_000, memory_mib=1_000_000))
        asked = [stage.request(*(f"{stub}-{n}" for n in range(50)), stub=stub) for stub in map(str, range(100))]
        placed_by_plan = [len(placed(Sent(sends))) for _, sends in decide(stage.policy, stage.truth, asked, 1000.0)]
        assert sum(placed_by_plan) == 5_000
        assert max(placed_by_plan) <= Planned().steps
        assert stage.policy.core.waiting == {}
        assert set(stage.truth.container_states().values()) == {ContainerState.PLACED}

    def test_what_comes_in_between_is_placed_after_it_and_what_ends_is_left_out(self) -> None:
        stage = Stage()
        stage.worker(size=Capacity(cpu_milli=3_000_000, memory_mib=1_000_000))
        stage.policy.handle(stage.request(*(f"f-{n}" for n in range(500))), 1000.0)
        first = stage.policy.plan(1000.0)
        stage.policy.settle(first, stage.truth.commit(first.operations))
        stage.policy.handle(stage.request("late", stub="g"), 1000.0)
        sent = stage.say(stage.release("f-499"))
        names = [container_id for container_id, _ in placed(sent)]
        assert len(names) + len(placed(Sent(first.sends))) == 500
        assert names[-1] == "late"
        assert "f-499" not in names

    def test_a_worker_that_is_gone_in_between_gets_nothing_more(self) -> None:
        stage = Stage()
        stage.worker(size=Capacity(cpu_milli=3_000_000, memory_mib=1_000_000))
        stage.say(stage.order("coming"))
        stage.policy.handle(stage.request(*(f"f-{n}" for n in range(500))), 1000.0)
        first = stage.policy.plan(1000.0)
        stage.policy.settle(first, stage.truth.commit(first.operations))
        assert placed(stage.say(stage.evidence(), stage.evidence("coming"))) == []
        assert stage.policy.core.in_group["f"] == 500 - len(placed(Sent(first.sends)))

    def test_a_pool_hears_with_a_wish_of_the_orders_that_the_wish_counts_on(self) -> None:
        stage = Stage()
        asked = [stage.request(f"{stub}-a", stub=stub) for stub in map(str, range(300))]
        (wish,) = stage.say(*asked).of(scheduling.RoomWanted)
        assert (wish.orders_seen, len(wish.shapes)) == (0, WANTED_MAX)
        stage.say(stage.order())
        assert [message.orders_seen for message in stage.tick(1.0).of(scheduling.RoomWanted)] == [1]


class TestContainers:
    def test_a_container_that_is_ready_grants_its_credits(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a"))
        sent = stage.say(stage.ready("a", window=3))
        assert sent.only(scheduling.ContainerAvailable) == scheduling.ContainerAvailable(
            container_id="a", stub_id="f", worker_id="one", window=3
        )
        assert stage.truth.container_states() == {"a": ContainerState.READY}
        sent = stage.say(stage.ready("a", window=5))
        assert sent.only(scheduling.ContainerAvailable).window == 5

    def test_only_its_own_worker_speaks_for_a_container(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.worker("two")
        assert stage.say(stage.ready("a", "two"), stage.ended("a", "two")) == []
        assert stage.say(stage.ready("nobody")) == []
        assert stage.truth.container_states() == {"a": ContainerState.READY}

    def test_an_end_is_committed_then_told_and_acknowledged_each_time(self) -> None:
        stage = Stage()
        stage.running("a")
        sent = stage.say(stage.ended("a", end=End.OUT_OF_MEMORY))
        assert gone(sent) == {"a": End.OUT_OF_MEMORY}
        assert len(sent.to("worker/one", scheduling.ContainerForgotten)) == 1
        row = stage.truth.tables.containers["a"]
        assert (row.state, row.end, row.why) == (ContainerState.ENDED, End.OUT_OF_MEMORY, "it fell over")
        tokens = rows_of(stage.truth.ask(ops.ListTokens()), ops.TokenRow)
        assert [token.active for token in tokens] == [False]
        sent = stage.say(stage.ended("a"))
        assert gone(sent) == {}
        assert len(sent.of(scheduling.ContainerForgotten)) == 1

    def test_ready_and_ended_in_one_group_leave_no_ghost(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a"))
        stage.say(stage.ready("a"), stage.ended("a"))
        assert stage.truth.container_states() == {"a": ContainerState.ENDED}

    def test_placed_and_ended_in_one_group_leave_no_ghost(self) -> None:
        stage = Stage()
        stage.worker()
        stage.policy.handle(stage.request("a"), stage.now_s)
        stage.say(stage.release("a"))
        stage.say(stage.request("b"), stage.evidence())
        assert stage.truth.container_states() == {"a": ContainerState.ENDED, "b": ContainerState.REQUESTED}

    def test_a_request_that_is_given_back_is_forgotten(self) -> None:
        stage = Stage()
        stage.say(stage.request("a", "b"))
        sent = stage.say(stage.release("a", "nobody"))
        assert gone(sent) == {"a": End.CANCELLED}
        assert sent.of(scheduling.StopContainer) == []
        assert stage.truth.container_states() == {"a": ContainerState.ENDED, "b": ContainerState.REQUESTED}
        stage.worker()
        assert sorted(stage.policy.ledger.hosts["one"].rooms) == ["b"]
        sent = stage.say(stage.request("c", stub="g"), stage.request("d", stub="g"), stage.request("e", stub="g"))
        assert kinds(stage.say(stage.release("c", "d", "e"))) == [[]]

    def test_a_container_that_is_given_back_is_stopped_and_holds_its_room_until_it_has_ended(self) -> None:
        stage = Stage()
        stage.running("a", "b")
        sent = stage.say(stage.release("a"))
        assert len(sent.to("worker/one", scheduling.StopContainer)) == 1
        assert stage.truth.container_states()["a"] is ContainerState.STOPPING
        assert placed(stage.say(stage.request("c"))) == []
        assert len(stage.say(stage.release("a")).of(scheduling.StopContainer)) == 1
        assert placed(stage.say(stage.ended("a", end=End.OK))) == [("c", "one")]

    def test_a_container_that_gets_ready_while_it_is_being_stopped_gets_no_call(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a"))
        stage.say(stage.release("a"))
        assert stage.say(stage.ready("a")) == []
        assert stage.truth.container_states() == {"a": ContainerState.STOPPING}


class TestReports:
    def test_an_unknown_worker_must_leave(self) -> None:
        stage = Stage()
        sent = stage.say(stage.report())
        assert sent.only(scheduling.StopWorker).worker_id == "one"
        stage.worker()
        letter = stage.report(worker_id="one")
        forged = Letter(letter.message, source="worker/two")
        assert [send.target for send in stage.say(forged)] == ["worker/two"]

    def test_a_report_makes_a_worker_available_and_its_size_known(self) -> None:
        stage = Stage()
        larger = Capacity(cpu_milli=8000, memory_mib=1000)
        stage.say(stage.order())
        sent = stage.say(stage.report(size=larger))
        assert sent.only(scheduling.WorkerAccepted).stop == ()
        row = stage.truth.tables.workers["one"]
        assert (row.state, row.epoch, row.capacity) == (WorkerState.AVAILABLE, 1, larger)
        assert rows_of(stage.truth.ask(ops.ListPools()), ops.PoolRecord)[0].largest == larger

    def test_what_it_holds_and_nobody_knows_is_stopped(self) -> None:
        stage = Stage()
        stage.say(stage.order())
        assert stage.say(stage.report(held("stray"))).only(scheduling.WorkerAccepted).stop == ("stray",)

    def test_what_it_never_heard_of_is_started_again_and_what_it_lost_has_ended(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a", "b"))
        stage.say(stage.ready("a"))
        sent = stage.say(stage.report())
        assert gone(sent) == {"a": End.DISCONNECTED}
        assert placed(sent) == [("b", "one")]

    def test_what_it_still_has_to_stop_is_said_again(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.release("a"))
        sent = stage.say(stage.report(held("a")))
        assert len(sent.of(scheduling.StopContainer)) == 1
        assert sent.of(scheduling.ContainerAvailable) == []

    def test_what_is_ready_grants_its_credits_again(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.request("a", "b"))
        sent = stage.say(stage.report(held("a", window=4), held("b", ContainerState.PLACED)))
        assert sent.only(scheduling.ContainerAvailable).window == 4
        assert stage.truth.container_states() == {"a": ContainerState.READY, "b": ContainerState.PLACED}

    def test_an_older_life_of_a_worker_is_not_believed(self) -> None:
        stage = Stage()
        stage.say(stage.order())
        stage.say(stage.report(epoch=5))
        assert stage.say(stage.report(epoch=4, size=Capacity(cpu_milli=1, memory_mib=1))) == []
        assert stage.policy.ledger.hosts["one"].capacity == SIZE

    def test_a_new_life_of_a_worker_has_lost_what_ran_in_the_old_one(self) -> None:
        stage = Stage()
        stage.running("a")
        assert gone(stage.say(stage.report(epoch=2))) == {"a": End.DISCONNECTED}

    def test_a_worker_that_lost_cards_still_serves_those_who_want_none(self) -> None:
        stage = Stage()
        two = Capacity(cpu_milli=4000, memory_mib=1000, gpu_count=2, gpu_type="T4")
        stage.worker(size=two)
        stage.say(stage.request("a", "b", shape=GPU))
        one = Capacity(cpu_milli=4000, memory_mib=1000, gpu_count=1, gpu_type="T4")
        stage.say(stage.report(held("a"), held("b"), size=one))
        node = stage.policy.core.fleet.nodes["one"]
        assert (node.free.gpu_milli, node.used.gpu_milli, len(node.lost_cards)) == (0, 2000, 1)
        assert placed(stage.say(stage.request("c", stub="g"))) == [("c", "one")]
        assert placed(stage.say(stage.request("d", stub="h", shape=GPU))) == []
        stage.say(stage.report(held("a"), held("b"), held("c"), size=two))
        assert placed(stage.say(stage.ended("a"))) == [("d", "one")]


class TestSilence:
    def test_it_is_not_death(self) -> None:
        stage = Stage()
        stage.running("a")
        sent = stage.say(stage.quiet())
        assert gone(sent) == {}
        assert sent.only(scheduling.ContainerAvailable).window == 0
        assert stage.truth.worker_states() == {"one": WorkerState.UNKNOWN}
        assert placed(stage.say(stage.request("b"))) == []
        assert gone(stage.tick(299.0)) == {}
        sent = stage.say(stage.report(held("a", window=2)))
        assert sent.only(scheduling.ContainerAvailable).window == 2
        assert placed(sent) == [("b", "one")]

    def test_when_the_lease_has_run_out_its_work_runs_elsewhere(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.quiet())
        assert gone(stage.tick(300.0)) == {"a": End.DISCONNECTED}
        assert stage.truth.worker_states() == {"one": WorkerState.GONE}
        assert stage.say(stage.report(held("a"))).only(scheduling.StopWorker).worker_id == "one"

    def test_heard_twice_the_lease_runs_from_the_first(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.quiet())
        stage.tick(200.0)
        stage.say(stage.quiet())
        assert gone(stage.tick(100.0)) == {"a": End.DISCONNECTED}

    def test_each_time_it_comes_back_the_next_lease_is_whole(self) -> None:
        stage = Stage()
        stage.running("a")
        for _ in range(25):
            stage.say(stage.quiet())
            assert gone(stage.tick(200.0)) == {}
            stage.say(stage.report(held("a")))
        assert stage.truth.container_states() == {"a": ContainerState.READY}

    def test_after_our_own_outage_all_leases_begin_anew(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.quiet())
        stage.tick(200.0)
        stage.now_s += 3000.0  # the laptop slept
        stage.policy.tick(stage.now_s)
        assert gone(stage.say()) == {}
        assert gone(stage.tick(299.0)) == {}
        assert gone(stage.tick(1.0)) == {"a": End.DISCONNECTED}

    def test_a_worker_that_is_only_on_its_way_and_one_that_nobody_knows_cannot_be_silent(self) -> None:
        stage = Stage()
        stage.say(stage.order())
        stage.say(stage.quiet(), stage.quiet("nobody"))
        letter = Letter(stage.quiet().message.__class__(peer="client/one", closed=True), source="gateway/g")
        stage.say(letter)
        assert stage.truth.worker_states() == {"one": WorkerState.ORDERED}

    def test_silent_and_back_and_gone_in_one_group_is_gone(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.report(held("a")), stage.quiet(), stage.evidence())
        assert stage.truth.worker_states() == {"one": WorkerState.GONE}
        assert stage.truth.container_states() == {"a": ContainerState.ENDED}


class TestEvidence:
    def test_the_pool_hears_that_a_worker_is_gone_once_its_row_says_so(self) -> None:
        stage = Stage()
        stage.running("a")
        sent = stage.say(stage.evidence())
        assert stage.truth.tables.workers["one"].state is WorkerState.GONE
        assert sent.to("pool/default", scheduling.WorkerForgotten) == [scheduling.WorkerForgotten(worker_id="one")]

    def test_it_ends_all_that_ran_there_and_revokes_its_tokens(self) -> None:
        stage = Stage()
        stage.running("a", "b")
        sent = stage.say(stage.evidence())
        assert gone(sent) == {"a": End.DISCONNECTED, "b": End.DISCONNECTED}
        assert sent.of(scheduling.ContainerGone)[0].why == "worker one is gone: its process exited with 1"
        assert stage.policy.ledger.hosts == stage.policy.ledger.rooms == {}

    def test_of_one_that_was_gone_before_the_pool_hears_the_same_and_nothing_else_comes_of_it(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.evidence())
        forgotten = scheduling.WorkerForgotten(worker_id="one")
        assert stage.say(stage.evidence()) == [Send("pool/default", forgotten)]

    def test_a_goodbye_is_evidence_if_it_is_its_own(self) -> None:
        stage = Stage()
        stage.running("a")
        message = scheduling.WorkerLeaving(worker_id="one", why="SIGTERM")
        assert gone(stage.say(Letter(message, source="worker/two"))) == {}
        assert gone(stage.say(Letter(message, source="worker/one"))) == {"a": End.DISCONNECTED}
        assert stage.truth.tables.workers["one"].why == "it said goodbye: SIGTERM"

    def test_an_order_that_is_heard_twice_is_one_worker(self) -> None:
        stage = Stage()
        stage.say(stage.order(), stage.order())
        assert stage.policy.ledger.orders == {"default": 1}


def _offered(size: Capacity) -> Letter:
    offer = NodeOffer(capacity=size, traits=Traits(node="one"))
    return Letter(scheduling.PoolNodes(pool="default", offers=(offer,)), source="pool/default", target="scheduler")


class TestWindingDown:
    def test_an_idle_worker_leaves_after_five_minutes(self) -> None:
        stage = Stage()
        stage.worker()
        assert stage.tick(299.0).of(scheduling.StopWorker) == []
        sent = stage.tick(1.0)
        assert sent.only(scheduling.StopWorker).why == "idle"
        assert stage.truth.worker_states() == {"one": WorkerState.DRAINING}
        assert placed(stage.say(stage.request("a"))) == []

    def test_it_is_told_again_when_it_reports_instead_and_stays_draining_after_a_silence(self) -> None:
        stage = Stage()
        stage.worker()
        stage.tick(300.0)
        assert len(stage.say(stage.report()).of(scheduling.StopWorker)) == 1
        stage.say(stage.quiet())
        sent = stage.say(stage.report())
        assert len(sent.of(scheduling.StopWorker)) == 1
        assert stage.truth.worker_states() == {"one": WorkerState.DRAINING}

    def test_one_that_took_what_others_had_left_leaves_at_once_when_its_node_has_cards_for_who_waits(self) -> None:
        stage = Stage()
        small, large = (
            Capacity(cpu_milli=8000, memory_mib=8000, gpu_count=count, gpu_type="GB200") for count in (2, 4)
        )
        shape = Shape(cpu_milli=100, memory_mib=100, gpu_count=4)
        stage.worker(size=small)
        stage.say(_offered(small), stage.request("a", shape=shape))
        assert stage.tick(1.0).of(scheduling.StopWorker) == []
        stage.say(_offered(large))
        assert stage.tick(1.0).only(scheduling.StopWorker).worker_id == "one"

    def test_one_that_has_lost_cards_or_that_nobody_wants_larger_stays(self) -> None:
        stage = Stage()
        whole, hurt = (Capacity(cpu_milli=8000, memory_mib=8000, gpu_count=count, gpu_type="GB200") for count in (4, 2))
        stage.worker(size=whole)
        stage.say(stage.report(size=hurt), _offered(whole))
        assert stage.tick(1.0).of(scheduling.StopWorker) == []
        stage.say(stage.request("a", shape=Shape(cpu_milli=100, memory_mib=100, gpu_count=4)))
        assert stage.tick(1.0).of(scheduling.StopWorker) == []

    def test_some_are_kept(self) -> None:
        stage = Stage(keep={"default": 1})
        stage.worker("one")
        stage.worker("two")
        assert len(stage.tick(300.0).of(scheduling.StopWorker)) == 1
        assert stage.tick(300.0).of(scheduling.StopWorker) == []

    def test_a_worker_with_work_stays(self) -> None:
        stage = Stage()
        stage.running("a")
        assert stage.tick(900.0).of(scheduling.StopWorker) == []


class TestRecovery:
    def test_nothing_is_placed_before_known_workers_have_reported(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.restart()
        assert placed(stage.say(stage.request("b"))) == []
        assert placed(stage.say(stage.report(held("a")))) == [("b", "one")]

    def test_or_fifteen_seconds_have_passed(self) -> None:
        stage = Stage()
        stage.worker("one")
        stage.worker("two")
        stage.restart()
        stage.say(stage.report(worker_id="two"))
        stage.say(stage.request("b"))
        assert placed(stage.tick(14.0)) == []
        assert placed(stage.tick(1.0)) == [("b", "two")]

    def test_requests_containers_and_room_are_as_before(self) -> None:
        stage = Stage()
        stage.running("a", "b")
        stage.say(stage.request("c"))
        before = stage.policy.core
        stage.restart()
        core = stage.policy.core
        assert core.fleet.nodes["one"].uses == before.fleet.nodes["one"].uses
        assert list(core.waiting) == ["c"]
        assert sorted(stage.policy.ledger.rooms) == ["a", "b", "c"]

    def test_a_worker_that_does_not_come_back_has_its_lease_from_the_beginning_of_the_reign(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.now_s += 3000.0
        stage.restart()
        assert gone(stage.tick(299.0)) == {}
        assert gone(stage.tick(1.0)) == {"a": End.DISCONNECTED}

    def test_a_worker_that_was_draining_is_told_to_stop_again_and_gets_nothing_new(self) -> None:
        stage = Stage()
        stage.worker()
        stage.tick(300.0)
        stage.restart()
        sent = stage.say(stage.report(), stage.request("a"))
        assert sent.only(scheduling.StopWorker).worker_id == "one"
        assert placed(sent) == []
        assert stage.truth.worker_states() == {"one": WorkerState.DRAINING}

    def test_what_ran_on_a_worker_that_is_gone_has_ended(self) -> None:
        stage = Stage()
        stage.running("a")
        move = ops.WorkerMove(worker_id="one", sources=(), state=WorkerState.GONE)
        stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=0.0))
        row = stage.truth.tables.workers["one"]
        stage.restart()
        stage.policy.load((row,), (), {}, stage.now_s)
        assert gone(stage.say()) == {"a": End.DISCONNECTED}
        assert stage.policy.ledger.hosts == {}

    def test_an_ended_container_is_history(self) -> None:
        stage = Stage()
        stage.running("a")
        stage.say(stage.ended("a"))
        row = stage.truth.tables.containers["a"]
        stage.restart()
        stage.policy.load((), (row,), {}, stage.now_s)
        assert stage.policy.ledger.rooms == {}


class TestSenders:
    def test_nobody_brings_the_scheduler_down_by_what_they_say(self) -> None:
        stage = Stage()
        message = scheduling.WorkerGone(worker_id="one", evidence="I say so")
        stage.running("a")
        for source in ("worker/two", "client/me", "gateway/g"):
            assert stage.say(Letter(message, source=source)) == []
        question = Letter(client.ExplainTask(task_id="t"), source="client/me", id="q")
        assert stage.say(question).only(client.RequestRefused).failure.code == "invalid"

    def test_actors_of_our_own_that_say_nonsense_are_a_bug(self) -> None:
        stage = Stage()
        for source in ("tasks", "pool/default"):
            with pytest.raises(TypeError):
                stage.policy.handle(Letter(client.ExplainTask(task_id="t"), source=source), 0.0)

    @pytest.mark.parametrize("table", ["containers", "workers"])
    def test_a_row_that_did_not_move_ends_the_reign(self, table: str) -> None:
        stage = Stage()
        stage.running("a")
        getattr(stage.truth.tables, table).clear()
        with pytest.raises(OutcomeUnknown):
            stage.say(stage.evidence())

    def test_what_a_table_does_not_know_is_an_error(self) -> None:
        host = Host(worker_id="w", pool="p", capacity=SIZE)
        with pytest.raises(KeyError):
            host.move(WorkerEvent.SILENT)
