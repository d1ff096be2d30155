"""Calls that run on a gang: asked for as one, given a call when whole, and what becomes of it when a rank falls."""

import msgspec
import pytest
from levers9_test_deciding import Sent, spec_of
from levers9_test_tasks import Stage, delivered, told

from levers9.actors.tasks.ranks import RANKS_SETTLE_S
from levers9.errors import INVALID
from levers9.model.reasons import HoldKind, Reason
from levers9.model.sentences import sentence
from levers9.model.states import ContainerState, End, TaskState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling, work
from levers9.wire.letter import Letter
from levers9.wire.message import Failure, Payload

NODES = 3


class Gangs(Stage):
    """A stage whose function runs on three nodes; its ranks are on workers w0, w1, w2."""

    def __init__(self, **spec: object) -> None:
        super().__init__(**{"nodes": NODES, **spec})
        self.members: list[str] = []

    def asked(self, sent: Sent) -> list[scheduling.RequestContainers]:
        requests = sent.of(scheduling.RequestContainers)
        for request in requests:
            for rank, container_id in zip(request.ranks or range(NODES), request.container_ids, strict=True):
                self.members[rank : rank + 1] = [container_id]
        return requests

    def warm_rank(self, rank: int) -> Letter:
        return self.available(self.members[rank], worker=f"w{rank}", address=f"host-{rank}:700{rank}")

    def warm_all(self) -> Sent:
        return self.say(*(self.warm_rank(rank) for rank in range(NODES)))

    def ended(self, rank: int, task_id: str = "a", end: End = End.OK, **result: object) -> Letter:
        return self.finished(self.members[rank], task_id, end, worker=f"w{rank}", **result)  # type: ignore[arg-type]

    def lost(self, rank: int, end: End = End.DISCONNECTED, **how: bool) -> Letter:
        return self.gone(self.members[rank], end, **how)


def running(**spec: object) -> Gangs:
    """Call `a` runs on a gang."""
    stage = Gangs(**spec)
    stage.asked(stage.submit("a"))
    stage.warm_all()
    assert stage.truth.state("a") is TaskState.RUNNING
    return stage


def released(sent: Sent) -> list[str]:
    return [container_id for message in sent.of(scheduling.ReleaseContainers) for container_id in message.container_ids]


def result_of(sent: Sent) -> client.TaskResult:
    (result,) = sent.only(client.TasksFinished).results
    return result


class TestRequests:
    def test_a_gang_is_asked_for_as_one_in_the_order_of_its_ranks_and_rows_say_so(self) -> None:
        stage = Gangs()
        (request,) = stage.asked(stage.submit("a"))
        assert request.gang_id.startswith("gang-")
        assert request.ranks == ()
        rows = rows_of(stage.truth.ask(ops.LoadContainers()), ops.ContainerRow)
        assert [(row.container_id, row.gang_id, row.rank) for row in rows] == [
            (container_id, request.gang_id, rank) for rank, container_id in enumerate(request.container_ids)
        ]

    def test_each_call_that_takes_long_gets_a_gang_of_its_own_as_far_as_the_limit_goes(self) -> None:
        stage = Gangs(max_containers=2 * NODES + 1)
        stage.asked(stage.submit("a", "b", "c"))
        stage.warm_all()
        assert len(stage.tick(60.0).of(scheduling.RequestContainers)) == 1

    def test_it_gets_a_call_only_when_all_of_it_is_warm_and_each_rank_hears_where_they_meet(self) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        assert delivered(stage.say(stage.warm_rank(1))) == []
        assert delivered(stage.say(stage.warm_rank(0))) == []
        sent = stage.say(stage.warm_rank(2))
        assert [(send.target, send.message.container_id) for send in sent] == [  # type: ignore[attr-defined]
            (f"worker/w{rank}", stage.members[rank]) for rank in range(NODES)
        ]
        assert {order.rank0 for run in sent.of(work.RunAttempts) for order in run.attempts} == {"host-0:7000"}
        assert stage.truth.task("a").container_id == stage.members[0]

    def test_a_member_whose_worker_is_silent_holds_the_next_call_back(self) -> None:
        stage = running()
        stage.submit("b")
        stage.say(*(stage.ended(rank, window=int(rank != 1)) for rank in range(NODES)))
        assert stage.truth.state("b") is TaskState.PENDING
        assert delivered(stage.say(stage.warm_rank(1))) == [("b", 1)] * NODES

    @pytest.mark.parametrize("address", ["", "a" * 301, "host\0:1", "h\u00f6st:1"])
    def test_a_place_that_no_environment_can_hold_is_none(self, address: str) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        odd = stage.available(stage.members[0], worker="w0", address=address)
        assert delivered(stage.say(odd, stage.warm_rank(1), stage.warm_rank(2))) == []
        assert delivered(stage.say(stage.warm_rank(0))) == [("a", 1)] * NODES

    def test_a_function_that_may_have_fewer_containers_than_a_call_needs_is_refused(self) -> None:
        stage = Gangs()
        sent = stage.say(stage.letter(client.RegisterStub(spec=spec_of(nodes=4, max_containers=3))))
        assert sent.only(client.RequestRefused).failure.code == INVALID

    def test_why_speaks_of_the_containers_of_one_call(self) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        stage.say(stage.warm_rank(0))
        assert "waits for 3 free containers of f: 0 are warm, 3 on their way" in stage.why("a")
        stage.say(stage.warm_rank(1), stage.warm_rank(2))
        assert f"in {stage.members[0]}, rank 0 of 3" in stage.why("a")


class TestResults:
    def test_the_result_is_that_of_rank_0_once_all_ranks_have_ended(self) -> None:
        stage = running()
        assert told(stage.say(stage.ended(0, result=Payload("msgpack", b"zero")))) == {}
        assert told(stage.say(stage.ended(2))) == {}
        result = result_of(stage.say(stage.ended(1)))
        assert (result.state, result.result) == (TaskState.COMPLETE, Payload("msgpack", b"zero"))

    def test_ranks_are_acknowledged_only_when_the_attempt_is_over(self) -> None:
        stage = running()
        assert stage.hear(stage.ended(0), stage.ended(1)).of(work.ResultsCommitted) == []
        assert len(stage.hear(stage.ended(2)).of(work.ResultsCommitted)) == NODES
        assert len(stage.hear(stage.ended(1)).of(work.ResultsCommitted)) == 1

    def test_a_gang_takes_the_next_call_with_the_containers_that_it_has(self) -> None:
        stage = running()
        stage.submit("b")
        sent = stage.say(*(stage.ended(rank) for rank in range(NODES)))
        assert delivered(sent) == [("b", 1)] * NODES

    def test_a_rank_that_fails_is_named_when_all_ranks_have_ended(self) -> None:
        stage = running()
        stage.say(stage.ended(0))
        failure = Failure("error", "ValueError: no", traceback="Traceback: no")
        stage.say(stage.ended(1, end=End.ERROR, failure=failure, last_log_line=7))
        result = result_of(stage.say(stage.ended(2)))
        assert result.failure is not None
        assert result.failure.what == "Rank 1 of 3: ValueError: no"
        assert result.failure.traceback.startswith("Rank 1 of 3")
        assert (result.state, result.last_log_line) == (TaskState.ERROR, 0)

    def test_where_others_go_on_after_a_failure_it_ends_a_little_later_and_they_are_stopped(self) -> None:
        stage = running()
        stage.submit("b")
        stage.say(stage.ended(1, end=End.ERROR, failure=Failure("error", "no")))
        assert released(stage.tick(RANKS_SETTLE_S - 0.1)) == []
        assert released(stage.tick(0.1)) == [stage.members[0], stage.members[2]]
        assert told(stage.say(stage.ended(0, end=End.DISCONNECTED, window=0))) == {}
        assert told(stage.say(stage.lost(2, End.CANCELLED))) == {"a": "ERROR"}

    def test_what_brought_the_others_down_counts_and_not_what_was_heard_first(self) -> None:
        stage = running()
        stage.say(stage.ended(0, end=End.ERROR, failure=Failure("error", "connection reset")))
        stage.say(stage.ended(2, end=End.OUT_OF_MEMORY, window=0))
        result = result_of(stage.say(stage.ended(1, end=End.ERROR, failure=Failure("error", "connection reset"))))
        assert result.failure is not None
        assert result.failure.code == "out of memory"

    def test_a_loss_runs_again_although_another_rank_failed_first(self) -> None:
        stage = running()
        stage.say(stage.ended(0, end=End.ERROR, failure=Failure("error", "connection reset")))
        assert released(stage.say(stage.lost(1))) == [stage.members[2]]
        stage.say(stage.lost(2))
        assert (stage.truth.state("a"), stage.truth.task("a").retries_used) == (TaskState.RETRY, 1)


class TestLosses:
    def test_a_lost_member_is_replaced_beside_those_that_stay(self) -> None:
        stage = running()
        stage.submit("b")
        stage.say(stage.ended(0))
        sent = stage.say(stage.lost(1))
        assert released(sent) == [stage.members[2]]
        assert stage.asked(sent) == []
        (request,) = stage.asked(stage.say(stage.ended(2, end=End.DISCONNECTED, window=0)))
        assert (request.ranks, request.container_ids) == ((1,), (stage.members[1],))
        assert delivered(stage.say(stage.warm_rank(1))) == []
        (request,) = stage.asked(stage.say(stage.lost(2, End.CANCELLED)))
        assert request.ranks == (2,)
        assert delivered(stage.warm_all()) == [("a", 2)] * NODES
        assert stage.truth.task("a").retries_used == 1

    def test_where_all_others_still_run_they_are_stopped_and_a_new_gang_is_asked_for(self) -> None:
        stage = running()
        old = list(stage.members)
        sent = stage.say(stage.lost(1))
        assert released(sent) == [old[0], old[2]]
        (request,) = stage.asked(sent)
        assert request.ranks == ()
        stage.warm_all()
        assert stage.truth.state("a") is TaskState.RUNNING
        sent = stage.say(stage.gone(old[0], End.CANCELLED), stage.gone(old[2], End.CANCELLED))
        assert delivered(sent) == [("a", 2)] * NODES
        assert stage.truth.task("a").retries_used == 1

    def test_replacements_of_whom_nobody_is_left_are_given_back_for_a_new_gang(self) -> None:
        stage = running()
        stage.say(*(stage.ended(rank) for rank in range(NODES)))
        stage.submit("b", "c")
        stage.say(*(stage.ended(rank, "b") for rank in range(NODES)))
        stage.say(*(stage.ended(rank, "c") for rank in range(NODES)), stage.lost(1), stage.lost(2))
        (request,) = stage.asked(stage.submit("d"))
        assert request.ranks == (1, 2)
        waiting = stage.members[1:]
        sent = stage.say(stage.lost(0))
        assert released(sent) == waiting
        assert [one.ranks for one in stage.asked(sent)] == [()]

    def test_it_runs_again_only_when_no_rank_of_it_runs_any_more(self) -> None:
        stage = running()
        stage.say(stage.lost(1))
        stage.tick(60.0)
        assert stage.truth.state("a") is TaskState.RUNNING
        stage.say(stage.lost(0))
        assert stage.truth.state("a") is TaskState.RUNNING
        stage.say(stage.lost(2))
        assert stage.truth.state("a") is TaskState.RETRY

    def test_a_rank_that_had_done_its_part_is_no_loss(self) -> None:
        stage = running()
        stage.say(stage.ended(1))
        assert stage.asked(stage.say(stage.lost(1, End.KILLED))) == []
        assert told(stage.say(stage.ended(0), stage.ended(2))) == {"a": "COMPLETE"}

    def test_without_retries_left_the_rank_that_was_lost_is_named(self) -> None:
        stage = running(retries=0)
        stage.say(stage.lost(2))
        result = result_of(stage.say(stage.lost(0), stage.lost(1)))
        assert result.state is TaskState.ERROR
        assert result.failure is not None
        assert result.failure.why == "Rank 2 of 3: it fell over"

    def test_when_all_members_are_lost_a_new_gang_is_asked_for(self) -> None:
        stage = running()
        stage.submit("b")
        gang_id = next(iter(stage.policy.ledger.stubs[stage.stub].gangs))
        (request,) = stage.asked(stage.say(*(stage.lost(rank) for rank in range(NODES))))
        assert request.ranks == ()
        assert request.gang_id != gang_id

    def test_a_broken_gang_that_nobody_needs_is_given_back_whole(self) -> None:
        stage = running(retries=0)
        sent = stage.say(stage.ended(0), stage.ended(1))
        sent = stage.say(stage.lost(2))
        assert stage.asked(sent) == []
        assert released(stage.tick()) == stage.members[:2]
        stage.say(stage.lost(0), stage.lost(1))
        assert stage.policy.ledger.stubs[stage.stub].gangs == {}

    def test_a_gang_of_which_one_never_starts_is_given_back_whole_and_counts_once(self) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        first = list(stage.members)
        stage.say(stage.warm_rank(0))
        sent = stage.say(stage.lost(1, End.APP_FAILED_TO_LOAD))
        assert released(sent) == [first[0], first[2]]
        assert stage.policy.ledger.stubs[stage.stub].failed_starts == 1
        (request,) = stage.asked(sent)
        assert request.ranks == ()
        stage.say(stage.gone(first[0]), stage.gone(first[2], End.APP_FAILED_TO_LOAD))
        assert stage.policy.ledger.stubs[stage.stub].failed_starts == 1

    def test_a_member_whose_worker_is_lost_before_it_was_warm_is_replaced(self) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        (request,) = stage.asked(stage.say(stage.lost(2)))
        assert request.ranks == (2,)
        assert delivered(stage.warm_all()) == [("a", 1)] * NODES

    def test_the_last_word_of_a_rank_that_was_replaced_counts_nothing(self) -> None:
        stage = running()
        before = stage.members[1]
        stage.say(stage.lost(1))
        late = stage.finished(before, "a", worker="w1")
        assert len(stage.hear(late).of(work.ResultsCommitted)) == 1
        assert stage.truth.state("a") is TaskState.RUNNING


class TestCancels:
    def test_every_rank_hears_of_it_and_it_ends_when_none_runs(self) -> None:
        stage = running()
        sent = stage.say(stage.cancellation("a"))
        assert sorted(send.target for send in sent if isinstance(send.message, work.CancelAttempts)) == [
            "worker/w0",
            "worker/w1",
            "worker/w2",
        ]
        assert released(stage.say(stage.ended(0, end=End.CANCELLED, window=0))) == []
        stage.say(stage.lost(0, End.CANCELLED), stage.ended(1))
        stage.tick(60.0)
        assert stage.truth.state("a") is TaskState.CANCELLING
        assert told(stage.say(stage.lost(2))) == {"a": "CANCELLED"}

    def test_one_whose_ranks_all_succeeded_before_has_succeeded(self) -> None:
        stage = running()
        stage.say(stage.cancellation("a"))
        assert told(stage.say(*(stage.ended(rank) for rank in range(NODES)))) == {"a": "COMPLETE"}

    def test_a_rank_that_runs_too_long_ends_the_call_and_stops_the_others(self) -> None:
        stage = running()
        stage.submit("b")
        stage.say(stage.ended(1, end=End.TIMED_OUT, window=0))
        assert released(stage.tick(RANKS_SETTLE_S)) == [stage.members[0], stage.members[2]]
        assert told(stage.say(stage.lost(0), stage.lost(2))) == {"a": "TIMEOUT"}


class TestRoomForOthers:
    def test_jobset_1117_a_preempted_gang_uses_no_retry_and_is_asked_for_anew(self) -> None:
        stage = running(retries=0)
        old = list(stage.members)
        sent = stage.say(stage.lost(1, preempted=True))
        assert released(sent) == [old[0], old[2]]
        (request,) = stage.asked(sent)
        assert request.ranks == ()
        stage.say(stage.gone(old[0], preempted=True), stage.gone(old[2], preempted=True))
        assert (stage.truth.state("a"), stage.truth.task("a").retries_used) == (TaskState.RETRY, 0)
        stage.warm_all()
        assert stage.truth.task("a").attempt == 2

    def test_what_a_worker_says_of_a_preempted_call_uses_no_retry_either(self) -> None:
        stage = running(retries=0)
        stage.say(*(stage.ended(rank, end=End.DISCONNECTED, window=0, preempted=True) for rank in range(NODES)))
        assert (stage.truth.state("a"), stage.truth.task("a").retries_used) == (TaskState.RETRY, 0)

    def test_a_preempted_container_on_its_own_uses_no_retry(self) -> None:
        stage = Stage(retries=0)
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.gone(container_id, End.KILLED, preempted=True))
        assert (stage.truth.state("a"), stage.truth.task("a").retries_used) == (TaskState.RETRY, 0)
        assert stage.policy.ledger.stubs[stage.stub].failed_starts == 0

    def test_a_container_that_yields_finishes_its_calls_takes_no_more_and_is_released(self) -> None:
        stage = Stage()
        stage.submit("a", "b")
        container_id, _ = stage.warm()
        letter = Letter(scheduling.YieldContainers(container_ids=(container_id, "nobody")), source="scheduler")
        sent = stage.say(letter)
        assert released(sent) == []
        assert len(sent.of(scheduling.RequestContainers)) == 1
        sent = stage.say(stage.finished(container_id, "a"))
        assert delivered(sent) == []
        assert released(sent) == [container_id]
        assert released(stage.tick(60.0)) == []

    def test_one_that_has_not_started_is_released_at_once_for_the_reason_that_was_told(self) -> None:
        stage = Stage()
        stage.submit("a")
        (container_id,) = stage.truth.tables.containers
        message = scheduling.YieldContainers(container_ids=(container_id,), why="its pool is taken back")
        sent = stage.say(Letter(message, source="scheduler"))
        release = sent.only(scheduling.ReleaseContainers)
        assert (release.container_ids, release.why) == ((container_id,), "its pool is taken back")
        assert len(sent.of(scheduling.RequestContainers)) == 1

    def test_a_gang_yields_as_one(self) -> None:
        stage = running()
        stage.submit("b")
        letter = Letter(scheduling.YieldContainers(container_ids=(stage.members[2],)), source="scheduler")
        old = list(stage.members)
        assert len(stage.asked(stage.say(letter))) == 1
        new, stage.members = stage.members, old
        sent = stage.say(*(stage.ended(rank) for rank in range(NODES)))
        assert delivered(sent) == []
        assert released(sent) == old
        stage.members = new
        assert delivered(stage.warm_all()) == [("b", 1)] * NODES

    def test_an_idle_gang_is_given_back_as_one(self) -> None:
        stage = running(keep_warm_s=10.0)
        stage.say(*(stage.ended(rank) for rank in range(NODES)))
        assert released(stage.tick(9.0)) == []
        assert released(stage.tick(1.0)) == stage.members


class TestRecovery:
    def test_a_gang_that_ran_goes_on_in_the_next_reign(self) -> None:
        stage = running()
        stage.say(stage.ended(1))
        stage.restart()
        assert told(stage.say(stage.ended(0), stage.ended(1))) == {}
        stage.watch("a")
        assert told(stage.say(stage.ended(2))) == {"a": "COMPLETE"}

    def test_an_order_that_was_lost_is_sent_again_when_it_is_known_where_the_ranks_meet(self) -> None:
        stage = running()
        stage.restart()
        letter = stage.holds(stage.members[1], worker="w1")
        assert stage.say(letter).of(work.RunAttempts) == []
        (run,) = stage.say(stage.warm_rank(0)).of(work.RunAttempts)
        assert (run.container_id, run.attempts[0].rank0) == (stage.members[1], "host-0:7000")
        assert stage.say(stage.warm_rank(0)).of(work.RunAttempts) == []
        (run,) = stage.say(letter).of(work.RunAttempts)
        assert run.attempts[0].rank0 == "host-0:7000"

    @pytest.mark.parametrize("lost", [0, 2])
    def test_one_that_lost_a_rank_meanwhile_runs_again_and_its_other_ranks_are_stopped(self, lost: int) -> None:
        stage = running()
        stage.lost(lost)
        stage.restart()
        others = [rank for rank in range(NODES) if rank != lost]
        sent = stage.say(*(stage.holds(stage.members[rank], ("a", 1), worker=f"w{rank}") for rank in others))
        old = list(stage.members)
        assert released(sent) == [old[rank] for rank in others]
        assert sent.of(work.CancelAttempts) == []
        (request,) = stage.asked(sent)
        assert request.ranks == ()
        stage.say(*(stage.finished(old[rank], "a", End.DISCONNECTED, window=0, worker=f"w{rank}") for rank in others))
        assert stage.truth.state("a") is TaskState.RETRY
        assert delivered(stage.warm_all()) == [("a", 2)] * NODES

    @pytest.mark.parametrize("lost", [0, 2])
    def test_a_cancel_in_the_next_reign_waits_for_the_ranks_that_are_left(self, lost: int) -> None:
        stage = running()
        stage.lost(lost)
        stage.say(stage.cancellation("a"))
        stage.restart()
        one, other = (rank for rank in range(NODES) if rank != lost)
        stage.say(stage.ended(one, end=End.CANCELLED))
        assert stage.truth.state("a") is TaskState.CANCELLING
        stage.say(stage.ended(other, end=End.CANCELLED))
        assert stage.truth.state("a") is TaskState.CANCELLED

    def test_one_that_lost_all_its_ranks_meanwhile_runs_again_on_a_new_gang(self) -> None:
        stage = running()
        for rank in range(NODES):
            stage.lost(rank)
        stage.restart()
        (request,) = stage.asked(stage.say())
        assert (stage.truth.state("a"), request.ranks) == (TaskState.RETRY, ())

    def test_replacements_wait_on_in_the_next_reign_as_long_as_somebody_is_left(self) -> None:
        stage = running()
        stage.say(*(stage.ended(rank) for rank in range(NODES)))
        stage.say(stage.lost(1))
        stage.asked(stage.submit("b"))
        waits = stage.members[1]
        stage.restart()
        assert released(stage.say()) == []
        stage.lost(2)
        stage.lost(0)
        stage.restart()
        sent = stage.say()
        assert released(sent) == [waits]
        assert [one.ranks for one in stage.asked(sent)] == [()]

    def test_a_gang_that_was_given_back_is_not_mended(self) -> None:
        stage = running()
        stage.say(*(stage.ended(rank) for rank in range(NODES)))
        for member in stage.members:
            stage.move(member, ContainerState.STOPPING)
        stage.lost(0)
        stage.restart()
        (request,) = stage.asked(stage.submit("b"))
        assert request.ranks == ()

    def test_a_restart_asks_for_nothing_twice_and_does_not_deliver_before_workers_report(self) -> None:
        stage = Gangs()
        stage.asked(stage.submit("a"))
        stage.restart()
        assert stage.say().of(scheduling.RequestContainers) == []
        assert delivered(stage.warm_all()) == [("a", 1)] * NODES


def test_reasons_are_told_as_data_beside_the_words() -> None:
    stage = Stage()
    stage.submit("a")
    reason = Reason(kind=HoldKind.QUOTA, quota="gpu")
    letter = stage.held("quota gpu is used up")
    message = msgspec.structs.replace(letter.message, reasons=(reason,))
    stage.say(msgspec.structs.replace(letter, message=message))
    explained = stage.say(stage.letter(client.ExplainTask(task_id="a"))).only(client.TaskExplained)
    assert explained.holds == (reason,)
    stage.warm()
    explained = stage.say(stage.letter(client.ExplainTask(task_id="a"))).only(client.TaskExplained)
    assert explained.holds == ()


def test_each_hold_has_its_own_words() -> None:
    stage = Stage()
    stage.submit("a")
    holds = (Reason(kind=HoldKind.QUEUE_HELD, quota="gpu"), Reason(kind=HoldKind.PREEMPTING))
    letter = stage.held("both, in one text")
    message = msgspec.structs.replace(letter.message, reasons=holds)
    stage.say(msgspec.structs.replace(letter, message=message))
    explained = stage.say(stage.letter(client.ExplainTask(task_id="a"))).only(client.TaskExplained)
    assert explained.reasons[1:] == tuple(map(sentence, holds))


def test_an_identity_is_made_of_what_a_spec_says_beyond_its_defaults() -> None:
    stage = Stage()
    plain = stage.register(spec_of("g"))
    assert stage.register(spec_of("g", nodes=1, queue="default", priority="default")) == plain
    assert stage.register(spec_of("g", nodes=2)) != plain
    assert plain == "stub-26817de162af13502cd5f773"  # a new field with a default leaves it as it is
