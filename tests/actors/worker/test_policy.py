"""The worker's rules, one at a time."""

import msgspec
from levers9_test_worker import a_spec, an_order

from levers9.actors.worker import events
from levers9.actors.worker.events import Send
from levers9.actors.worker.policy import GOODBYE_S, WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.model.figures import (
    CONTAINER_START_LIMIT_S,
    FRAME_MAX_BYTES,
    HAND_BACK_AFTER_S,
    INLINE_MAX_BYTES,
    STARTING_STOP_GRACE_S,
    STOP_GRACE_S,
)
from levers9.model.resources import Capacity
from levers9.model.states import ContainerState, End
from levers9.wire.control import ReportAgain
from levers9.wire.message import Failure, Message, Payload
from levers9.wire.scheduling import (
    ContainerEnded,
    ContainerForgotten,
    ContainerReady,
    ContainerReport,
    StartContainer,
    StopContainer,
    StopWorker,
    WorkerAccepted,
    WorkerLeaving,
    WorkerReported,
)
from levers9.wire.work import (
    AttemptKey,
    AttemptOrder,
    AttemptResult,
    AttemptsFinished,
    AttemptsHeld,
    CancelAttempts,
    ResultsCommitted,
    RunAttempts,
)

CAPACITY = Capacity(cpu_milli=1000, memory_mib=1000)


def a_policy() -> WorkerPolicy:
    return WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=CAPACITY))


def said(policy: WorkerPolicy, message: Message, now_s: float = 0.0) -> list[events.Decision]:
    return policy.handle(events.MessageArrived(message), now_s)


def ready(policy: WorkerPolicy, container_id: str = "c1") -> None:
    said(policy, StartContainer(container_id=container_id, stub_id="s", workspace_id="ws", spec=a_spec()))
    policy.handle(events.ContainerLoaded(container_id), 0.0)


def run(policy: WorkerPolicy, *orders: AttemptOrder, now_s: float = 0.0) -> list[events.Decision]:
    return said(policy, RunAttempts(container_id="c1", attempts=orders), now_s)


def done(number: int, duration_s: float = 0.001, size: int = 1) -> AttemptResult:
    payload = Payload("msgpack", b"x" * min(size, INLINE_MAX_BYTES), "", size)
    return AttemptResult(f"task-{number}", 1, End.OK, True, payload, None, duration_s)


def results(decisions: list[events.Decision]) -> list[tuple[str, End, bool]]:
    sent = [one.message for one in decisions if isinstance(one, Send)]
    finished = [result for message in sent if isinstance(message, AttemptsFinished) for result in message.results]
    return [(one.task_id, one.end, one.started) for one in finished]


def test_a_ready_container_grants_one_credit_at_first() -> None:
    policy = a_policy()
    said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec(), token="t"))
    assert policy.handle(events.ContainerLoaded("c1"), 0.0) == [Send(ContainerReady(container_id="c1", window=1))]


def test_starting_twice_is_starting_once() -> None:
    policy = a_policy()
    message = StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec())
    assert len(said(policy, message)) == 1
    assert said(policy, message) == []


def test_a_start_that_comes_again_after_the_end_is_answered_with_the_end() -> None:
    policy = a_policy()
    ready(policy)
    ended = policy.handle(events.ContainerExited("c1", End.ERROR, "so"), 1.0)
    again = said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec()))
    assert again == ended == [Send(ContainerEnded(container_id="c1", end=End.ERROR, why="so"))]


def test_an_attempt_delivered_twice_runs_once_and_its_result_is_told_again() -> None:
    policy = a_policy()
    ready(policy)
    order = an_order(1)
    assert run(policy, order) == [events.Give("c1", (order,))]
    assert run(policy, order) == []
    told = policy.handle(events.AttemptsReturned("c1", (done(1),)), 1.0)
    assert results(told) == results(run(policy, order)) == [("task-1", End.OK, True)]


def test_a_committed_attempt_never_runs_again() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.AttemptsReturned("c1", (done(1),)), 1.0)
    said(policy, ResultsCommitted(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
    assert run(policy, an_order(1)) == []
    assert len(policy.results) == 0


def test_results_that_are_ready_together_leave_together() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1), an_order(2))
    told = policy.handle(events.AttemptsReturned("c1", (done(1), done(2))), 1.0)
    assert [type(one) for one in told] == [Send]


class TestHandingBack:
    def behind_one_that_runs(self) -> WorkerPolicy:
        policy = a_policy()
        ready(policy)
        run(policy, an_order(1))
        policy.handle(events.AttemptsReturned("c1", (done(1),)), 5.0)
        run(policy, an_order(2), an_order(3), an_order(4), now_s=10.0)
        return policy

    def keys(self, *numbers: int) -> tuple[AttemptKey, ...]:
        return tuple(AttemptKey(f"task-{number}", 1) for number in numbers)

    def test_calls_behind_one_that_takes_long_go_back_in_their_order(self) -> None:
        policy = self.behind_one_that_runs()
        at_s = 10.0 + HAND_BACK_AFTER_S
        assert policy.next_deadline_s() == at_s
        asked = policy.handle(events.TimePassed(), at_s)
        assert asked == [events.Revoke("c1", frozenset(self.keys(3, 4)))]
        told = policy.handle(events.AttemptsRevoked("c1", self.keys(3, 4), self.keys(2)), at_s)
        assert results(told) == [("task-4", End.HANDED_BACK, False), ("task-3", End.HANDED_BACK, False)]
        (message,) = [one.message for one in told if isinstance(one, Send)]
        assert isinstance(message, AttemptsFinished)
        assert message.window == 1
        assert policy.next_deadline_s() == 10.0 + an_order(2).timeout_s

    def test_one_that_had_started_after_all_is_not_answered_twice(self) -> None:
        policy = self.behind_one_that_runs()
        at_s = 10.0 + HAND_BACK_AFTER_S
        policy.handle(events.TimePassed(), at_s)
        told = policy.handle(events.AttemptsRevoked("c1", self.keys(4), self.keys(2, 3)), at_s)
        assert results(told) == [("task-4", End.HANDED_BACK, False)]
        told = policy.handle(events.AttemptsReturned("c1", (done(2, 1.0), done(3))), at_s)
        assert results(told) == [("task-2", End.OK, True), ("task-3", End.OK, True)]

    def test_calls_that_come_one_soon_after_the_other_stay(self) -> None:
        policy = self.behind_one_that_runs()
        policy.handle(events.AttemptsReturned("c1", (done(2, 0.9),)), 10.9)
        assert policy.handle(events.TimePassed(), 11.0) == []
        assert policy.next_deadline_s() == 10.9 + HAND_BACK_AFTER_S

    def test_what_waits_for_its_arguments_goes_back_as_well(self) -> None:
        policy = self.behind_one_that_runs()
        large = msgspec.structs.replace(an_order(5), arguments=Payload("msgpack", b"", "blob/x", 1 << 20))
        run(policy, large, now_s=10.5)
        told = policy.handle(events.TimePassed(), 10.0 + HAND_BACK_AFTER_S)
        assert results(told) == [("task-5", End.HANDED_BACK, False)]


def test_large_inline_results_are_told_in_parts_that_fit_a_frame() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, *(an_order(number) for number in range(5)))
    returned = tuple(done(number, size=INLINE_MAX_BYTES) for number in range(5))
    told = policy.handle(events.AttemptsReturned("c1", returned), 1.0)
    sizes = [len(msgspec.msgpack.encode(one.message)) for one in told if isinstance(one, Send)]
    assert len(results(told)) == 5
    assert max(sizes) < FRAME_MAX_BYTES


def test_an_attempt_for_a_container_that_is_not_here_was_not_started() -> None:
    policy = a_policy()
    assert results(run(policy, an_order(1))) == [("task-1", End.DISCONNECTED, False)]


def test_a_cancel_that_overtakes_its_order_is_answered_and_the_order_never_starts() -> None:
    policy = a_policy()
    ready(policy)
    cancel = CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),))
    assert results(said(policy, cancel)) == [("task-1", End.CANCELLED, False)]
    assert results(run(policy, an_order(1))) == [("task-1", End.CANCELLED, False)]


def test_a_superseded_attempt_that_runs_is_ended_and_not_answered() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    key = AttemptKey("task-1", 1)
    asked = said(policy, CancelAttempts(container_id="c1", attempts=(key,), superseded=True))
    assert asked == [events.Revoke("c1", frozenset({key}))]
    assert events.Terminate("c1") in policy.handle(events.AttemptsRevoked("c1", (), (key,)), 1.0)
    assert results(policy.handle(events.ContainerExited("c1", End.OK, "", (key,)), 2.0)) == []


def test_a_cancelled_call_whose_result_was_on_its_way_is_not_ended() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1), an_order(2))
    first, second = AttemptKey("task-1", 1), AttemptKey("task-2", 1)
    said(policy, CancelAttempts(container_id="c1", attempts=(first,)))
    assert policy.handle(events.AttemptsRevoked("c1", (), (first, second)), 1.0) == []
    assert results(policy.handle(events.AttemptsReturned("c1", (done(1),)), 1.0)) == [("task-1", End.OK, True)]


def test_time_runs_from_the_start_of_a_call_and_not_from_its_delivery() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1, timeout_s=10.0), an_order(2, timeout_s=10.0))
    policy.handle(events.AttemptsReturned("c1", (done(1),)), 8.0)
    assert policy.next_deadline_s() == 18.0


def test_a_call_over_its_time_ends_its_container_and_the_kill_follows_the_grace() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1, timeout_s=10.0))
    assert policy.handle(events.TimePassed(), 10.0) == [events.Revoke("c1", frozenset())]
    key = AttemptKey("task-1", 1)
    assert events.Terminate("c1") in policy.handle(events.AttemptsRevoked("c1", (), (key,)), 10.0)
    assert policy.next_deadline_s() == 40.0
    assert policy.handle(events.TimePassed(), 40.0) == [events.Kill("c1")]
    ended = policy.handle(events.ContainerExited("c1", End.KILLED, "", (key,)), 41.0)
    assert results(ended) == [("task-1", End.TIMED_OUT, True)]


def test_a_stopping_container_s_calls_ring_no_alarm() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1, timeout_s=5.0))
    said(policy, StopContainer(container_id="c1", why="enough"), 1.0)
    assert policy.next_deadline_s() == 31.0


def test_a_call_that_has_not_started_in_its_time_gets_it_anew() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1, timeout_s=10.0))
    policy.handle(events.TimePassed(), 10.0)
    policy.handle(events.AttemptsRevoked("c1", (), ()), 10.0)
    assert policy.next_deadline_s() == 20.0


def test_a_container_that_does_not_get_ready_is_stopped() -> None:
    policy = a_policy()
    said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec()))
    assert policy.next_deadline_s() == CONTAINER_START_LIMIT_S
    assert policy.handle(events.TimePassed(), CONTAINER_START_LIMIT_S) == [events.Terminate("c1")]
    policy.handle(events.ContainerExited("c1", End.OK), 901.0)
    assert policy.containers["c1"].ended is not None
    assert policy.containers["c1"].ended.end is End.APP_FAILED_TO_LOAD


def test_a_container_that_is_stopped_while_it_starts_has_a_second_and_one_that_has_loaded_its_grace() -> None:
    policy = a_policy()
    said(policy, StartContainer(container_id="c2", stub_id="s", workspace_id="ws", spec=a_spec()))
    said(policy, StopContainer(container_id="c2", why="enough"))
    assert policy.next_deadline_s() == STARTING_STOP_GRACE_S
    assert policy.handle(events.TimePassed(), STARTING_STOP_GRACE_S) == [events.Kill("c2")]
    ready(policy)
    said(policy, StopContainer(container_id="c1", why="enough"), 10.0)
    assert policy.next_deadline_s() == 10.0 + STOP_GRACE_S


def test_only_the_call_that_ran_is_blamed_for_the_memory() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1), an_order(2), an_order(3))
    keys = (AttemptKey("task-1", 1), AttemptKey("task-2", 1))
    ended = policy.handle(events.ContainerExited("c1", End.OUT_OF_MEMORY, "64 MiB", keys), 1.0)
    assert results(ended) == [
        ("task-1", End.DISCONNECTED, True),
        ("task-2", End.OUT_OF_MEMORY, True),
        ("task-3", End.DISCONNECTED, False),
    ]


def test_arguments_that_cannot_be_had_fail_their_call_only() -> None:
    policy = a_policy()
    ready(policy)
    large = AttemptOrder("task-1", 1, Payload("msgpack", b"", "blob/x", 9), 0.0)
    assert run(policy, large) == [events.Fetch("c1", AttemptKey("task-1", 1), large.arguments)]
    failed = events.ArgumentsFetched("c1", AttemptKey("task-1", 1), None, Failure("not_found", "gone"))
    assert results(policy.handle(failed, 1.0)) == [("task-1", End.ERROR, False)]


def test_a_large_result_is_told_once_it_is_stored() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    large = done(1, size=INLINE_MAX_BYTES + 1)
    assert large.result is not None
    key = AttemptKey("task-1", 1)
    stored = policy.handle(events.AttemptsReturned("c1", (large,)), 1.0)
    assert stored == [events.Store("c1", key, large.result)]
    failed = policy.handle(events.ResultStored("c1", key, None, Failure("forbidden", "no")), 2.0)
    assert results(failed) == [("task-1", End.ERROR, True)]


def test_a_result_is_stored_though_its_container_has_ended_and_is_forgotten() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.AttemptsReturned("c1", (done(1, size=INLINE_MAX_BYTES + 1),)), 1.0)
    policy.handle(events.ContainerExited("c1", End.OK), 2.0)
    said(policy, ContainerForgotten(container_id="c1"))
    told = policy.handle(events.ResultStored("c1", AttemptKey("task-1", 1), Payload("msgpack", b"", "k", 9)), 3.0)
    assert results(told) == [("task-1", End.OK, True)]
    assert policy.containers == {}


def test_a_new_stream_hears_results_and_ends_before_the_report() -> None:
    policy = a_policy()
    ready(policy)
    ready(policy, "c2")
    policy.handle(events.ContainerExited("c2", End.OK), 1.0)
    run(policy, an_order(1), an_order(2))
    policy.handle(events.AttemptsReturned("c1", (done(1, 60.0),)), 2.0)
    told = [one.message for one in policy.handle(events.LinkOpened(False), 3.0) if isinstance(one, Send)]
    assert [type(one) for one in told] == [AttemptsFinished, ContainerEnded, WorkerReported, AttemptsHeld]
    report = told[2]
    assert isinstance(report, WorkerReported)
    assert (report.epoch, report.containers) == (7, (ContainerReport("c1", "s", ContainerState.READY, 1),))
    assert told[3] == AttemptsHeld(
        container_id="c1", attempts=(AttemptKey("task-2", 1), AttemptKey("task-1", 1)), window=1
    )


def test_a_stream_that_resumed_hears_nothing_twice() -> None:
    policy = a_policy()
    ready(policy)
    assert policy.handle(events.LinkOpened(True), 1.0) == []


def test_a_leader_that_was_superseded_gets_no_report() -> None:
    policy = a_policy()
    assert len(said(policy, ReportAgain(epoch=5))) == 1
    assert said(policy, ReportAgain(epoch=4)) == []
    assert len(said(policy, ReportAgain(epoch=5))) == 1


def test_a_changed_capacity_is_reported() -> None:
    policy = a_policy()
    (report,) = policy.handle(events.CapacityChanged(), 0.0)
    assert isinstance(report, Send)
    assert isinstance(report.message, WorkerReported)


def test_containers_that_the_control_plane_does_not_know_are_stopped() -> None:
    policy = a_policy()
    ready(policy)
    stopped = said(policy, WorkerAccepted(worker_id="w", stop=("c1", "c9")))
    assert stopped == [
        events.Terminate("c1"),
        Send(ContainerEnded(container_id="c9", end=End.DISCONNECTED, why="it is not here")),
    ]


def test_a_worker_that_is_to_leave_finishes_what_runs_and_takes_nothing_new() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1), an_order(2))
    first, second = AttemptKey("task-1", 1), AttemptKey("task-2", 1)
    assert said(policy, StopWorker(worker_id="w", why="idle")) == [events.Revoke("c1", None)]
    revoked = policy.handle(events.AttemptsRevoked("c1", (second,), (first,)), 1.0)
    assert results(revoked) == [("task-2", End.DISCONNECTED, False)]
    refused = said(policy, StartContainer(container_id="c2", stub_id="s", workspace_id="ws", spec=a_spec()))
    assert [type(one.message) for one in refused if isinstance(one, Send)] == [ContainerEnded]
    assert results(run(policy, an_order(3))) == [("task-3", End.DISCONNECTED, False)]
    returned = policy.handle(events.AttemptsReturned("c1", (done(1),)), 2.0)
    assert returned[0] == events.Terminate("c1")


def test_a_worker_leaves_at_once_when_all_is_committed_and_else_after_a_moment() -> None:
    policy, patient = a_policy(), a_policy()
    gone = said(policy, StopWorker(worker_id="w", why="idle"))
    assert gone == [Send(WorkerLeaving(worker_id="w", why="idle")), events.Leave("idle")]
    ready(patient)
    patient.handle(events.ContainerExited("c1", End.OK), 1.0)
    assert said(patient, StopWorker(worker_id="w", why="idle"), 2.0) == []
    assert patient.next_deadline_s() == 2.0 + GOODBYE_S
    assert events.Leave("idle") in patient.handle(events.TimePassed(), 2.0 + GOODBYE_S)


def test_a_worker_asked_to_end_stops_what_is_not_done_within_its_grace() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.LeaveAsked("SIGTERM", 5.0), 1.0)
    policy.handle(events.AttemptsRevoked("c1", (), (AttemptKey("task-1", 1),)), 1.0)
    assert policy.next_deadline_s() == 6.0
    assert events.Terminate("c1") in policy.handle(events.TimePassed(), 6.0)
    policy.handle(events.ContainerExited("c1", End.OK, "", (AttemptKey("task-1", 1),)), 7.0)
    assert policy.next_deadline_s() == 7.0 + GOODBYE_S


def test_words_about_an_attempt_that_nobody_knows_change_nothing() -> None:
    policy = a_policy()
    ready(policy)
    nobody = AttemptKey("task-9", 1)
    assert policy.handle(events.AttemptsReturned("c1", (done(9),)), 1.0) == []
    assert policy.handle(events.AttemptsRevoked("c1", (nobody,), ()), 1.0) == []
    assert policy.handle(events.ResultStored("c1", nobody, None), 1.0) == []


def test_a_superseded_attempt_of_a_container_that_is_not_here_is_no_news() -> None:
    cancel = CancelAttempts(container_id="gone", attempts=(AttemptKey("task-1", 1),), superseded=True)
    assert said(a_policy(), cancel) == []


def test_cancelling_what_is_committed_is_no_news() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.AttemptsReturned("c1", (done(1),)), 1.0)
    said(policy, ResultsCommitted(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
    assert said(policy, CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),))) == []


def test_cancelling_what_has_returned_and_is_being_stored_revokes_nothing() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.AttemptsReturned("c1", (done(1, size=INLINE_MAX_BYTES + 1),)), 1.0)
    decisions = said(policy, CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
    assert not any(isinstance(one, events.Revoke) for one in decisions)


def test_cancelling_twice_is_cancelling_once() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    cancel = CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),))
    assert said(policy, cancel) == said(policy, cancel) == [events.Revoke("c1", frozenset({AttemptKey("task-1", 1)}))]


def test_an_attempt_that_has_returned_is_not_stopped_although_it_had_started() -> None:
    policy = a_policy()
    ready(policy)
    run(policy, an_order(1))
    policy.handle(events.AttemptsReturned("c1", (done(1, size=INLINE_MAX_BYTES + 1),)), 1.0)
    assert policy.handle(events.AttemptsRevoked("c1", (), (AttemptKey("task-1", 1),)), 1.0) == []
