"""What workers may say about attempts, and what each end means."""

import math

import msgspec
import pytest
from levers9_test_tasks import Stage, delivered, told

from levers9.actors.tasks.ledger import Call
from levers9.actors.tasks.outcomes import Verdict, judge_end, loss_failure, lost_with
from levers9.model.figures import CREDIT_WINDOW_MAX
from levers9.model.hearsay import INT4_MAX
from levers9.model.states import End, TaskEvent, TaskState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, work
from levers9.wire.message import Failure, Payload


def running(**spec: object) -> tuple[Stage, str]:
    """Task a runs as attempt 1."""
    stage = Stage(**spec)
    stage.submit("a")
    container_id, sent = stage.warm()
    assert delivered(sent) == [("a", 1)]
    return stage, container_id


def result_of(stage: Stage, *letters: object) -> client.TaskResult:
    sent = stage.say(*letters)  # type: ignore[arg-type]
    (result,) = sent.only(client.TasksFinished).results
    return result


def test_a_result_is_committed_then_told_to_caller_and_worker() -> None:
    stage, container_id = running()
    sent = stage.hear(stage.finished(container_id, "a", last_log_line=7))
    (result,) = sent.only(client.TasksFinished).results
    assert result == client.TaskResult("a", TaskState.COMPLETE, 1, Payload("msgpack", b"r"), None, 7)
    row = stage.truth.task("a")
    assert (row.state, row.result, row.last_log_line) == (TaskState.COMPLETE, Payload("msgpack", b"r"), 7)
    assert sent.to("worker/one", work.ResultsCommitted) == [
        work.ResultsCommitted(container_id=container_id, attempts=(work.AttemptKey("a", 1),))
    ]


def test_numbers_that_no_row_holds_are_the_nearest_that_one_does() -> None:
    stage, container_id = running()
    stage.hear(stage.finished(container_id, "a", last_log_line=2**63, duration_s=math.nan, window=2**63))
    assert stage.truth.task("a").last_log_line == INT4_MAX
    assert stage.policy.ledger.containers[container_id].window == CREDIT_WINDOW_MAX
    assert stage.policy.ledger.stubs[stage.stub].mean_s == 0.0


def test_that_a_result_is_committed_goes_with_the_next_calls_for_its_worker() -> None:
    stage, container_id = running()
    assert stage.say(stage.finished(container_id, "a")).of(work.ResultsCommitted) == []
    sent = stage.submit("b")
    assert [type(send.message) for send in sent if send.target == "worker/one"] == [
        work.RunAttempts,
        work.ResultsCommitted,
    ]


def test_a_result_that_comes_twice_is_acknowledged_twice_and_counts_once() -> None:
    stage, container_id = running()
    letter = stage.finished(container_id, "a")
    sent = stage.hear(letter, letter)
    assert len(sent.of(client.TasksFinished)) == 1
    assert len(sent.only(work.ResultsCommitted).attempts) == 2
    sent = stage.hear(letter)
    assert sent.of(client.TasksFinished) == []
    assert len(sent.of(work.ResultsCommitted)) == 1


def test_a_result_of_a_superseded_attempt_is_acknowledged_and_counts_nothing() -> None:
    stage, first = running()
    stage.say(stage.gone(first))
    late = stage.finished(first, "a")
    sent = stage.hear(late)
    assert told(sent) == {}
    assert len(sent.of(work.ResultsCommitted)) == 1
    second, sent = stage.warm()
    assert delivered(sent) == [("a", 2)]
    assert told(stage.say(late)) == {}
    assert stage.truth.state("a") is TaskState.RUNNING
    assert told(stage.say(stage.finished(second, "a", attempt=2))) == {"a": "COMPLETE"}


def test_the_result_of_an_earlier_attempt_in_the_same_container_is_not_that_of_the_newer() -> None:
    stage, container_id = running()
    lost = stage.finished(container_id, "a", End.KILLED)
    assert delivered(stage.say(lost)) == [("a", 2)]
    assert told(stage.say(stage.finished(container_id, "a"), lost)) == {}
    assert (stage.truth.state("a"), stage.truth.task("a").attempt) == (TaskState.RUNNING, 2)


def test_a_worker_is_not_heard_about_the_container_of_another() -> None:
    stage, container_id = running()
    assert stage.say(stage.finished(container_id, "a", worker="two")) == []
    assert stage.say(stage.holds(container_id, worker="two")) == []
    assert stage.truth.state("a") is TaskState.RUNNING


def test_a_report_without_results_brings_credits_only() -> None:
    stage, container_id = running()
    stage.submit("b")
    letter = stage.finished(container_id, "a")
    message = msgspec.structs.replace(letter.message, results=(), window=2)
    sent = stage.say(msgspec.structs.replace(letter, message=message))
    assert delivered(sent) == [("b", 1)]
    assert sent.of(work.ResultsCommitted) == []


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (End.ERROR, "ERROR"),
        (End.TIMED_OUT, "TIMEOUT"),
        (End.OUT_OF_MEMORY, "ERROR"),
        (End.APP_FAILED_TO_LOAD, "ERROR"),
        (End.IMAGE_INVALID, "ERROR"),
        (End.REFUSED, "ERROR"),
    ],
)
def test_an_answer_of_the_call_itself_is_final(end: End, state: str) -> None:
    stage, container_id = running()
    failure = Failure("code", "It failed.")
    result = result_of(stage, stage.finished(container_id, "a", end, failure=failure))
    assert (result.state, result.failure) == (state, failure)
    assert stage.truth.task("a").failure == failure


@pytest.mark.parametrize("end", [End.DISCONNECTED, End.KILLED, End.CANCELLED])
def test_a_loss_runs_again_and_uses_a_retry_if_it_had_started(end: End) -> None:
    stage, container_id = running()
    sent = stage.say(stage.finished(container_id, "a", end, window=1))
    assert delivered(sent) == [("a", 2)]
    assert stage.truth.task("a").retries_used == 1
    sent = stage.say(stage.finished(container_id, "a", end, attempt=2, started=False))
    assert delivered(sent) == [("a", 3)]
    assert stage.truth.task("a").retries_used == 1


def test_without_retries_left_a_loss_is_an_error_that_says_how_often_it_was_tried() -> None:
    stage, container_id = running(retries=1)
    stage.say(stage.finished(container_id, "a", End.KILLED))
    result = result_of(stage, stage.finished(container_id, "a", End.KILLED, attempt=2))
    assert result.state is TaskState.ERROR
    assert result.failure is not None
    assert result.failure.code == "killed"
    assert "tried 2 times" in result.failure.fix
    history = rows_of(stage.truth.ask(ops.ListAttempts(task_id="a")), ops.AttemptRow)
    assert [(row.attempt, row.end) for row in history] == [(1, End.KILLED), (2, End.KILLED)]


def test_an_attempt_of_which_no_line_ran_never_uses_up_a_call() -> None:
    stage, container_id = running(retries=0)
    for attempt in range(1, 6):
        sent = stage.say(stage.finished(container_id, "a", End.DISCONNECTED, attempt=attempt, started=False))
        assert delivered(sent) == [("a", attempt + 1)]


def test_every_end_has_its_verdict() -> None:
    for end in End:
        call = Call(task_id="a", stub_id="s", arguments=Payload("msgpack"), state=TaskState.RUNNING)
        result = work.AttemptResult("a", 1, end)
        assert isinstance(judge_end(call, result, retries=0), Verdict)
        call.state = TaskState.CANCELLING
        event = judge_end(call, result, retries=9).event
        assert event is (TaskEvent.SUCCEEDED if end is End.OK else TaskEvent.STOPPED)


def test_words_for_a_loss_name_the_culprit() -> None:
    assert "worker" in loss_failure(End.DISCONNECTED, "gone", 0).what
    assert loss_failure(End.DISCONNECTED, "gone", 0).fix.startswith("It was tried once;")
    assert "process" in loss_failure(End.KILLED, "", 2).what
    assert lost_with(End.OUT_OF_MEMORY) is lost_with(End.KILLED) is End.KILLED
    assert lost_with(End.OK) is lost_with(End.APP_FAILED_TO_LOAD) is End.DISCONNECTED


def test_what_comes_back_is_the_next_to_run_oldest_first() -> None:
    stage = Stage()
    stage.submit("a", "b", "c", "d")
    first, _ = stage.warm(window=3)
    sent = stage.say(stage.gone(first))
    second, sent = stage.warm(window=4)
    assert delivered(sent) == [("a", 2), ("b", 2), ("c", 2), ("d", 1)]
    assert second != first


def test_calls_are_spread_over_the_containers_that_have_credits() -> None:
    stage = Stage()
    stage.submit(*(f"t{number}" for number in range(40)))
    one, two = stage.requested()[:2]
    sent = stage.say(stage.available(one, 2), stage.available(two, 8, "two"))
    assert [(run.container_id, len(run.attempts)) for run in sent.of(work.RunAttempts)] == [(two, 8), (one, 2)]


def test_attempts_in_one_message_fit_a_frame() -> None:
    stage = Stage()
    stage.say(stage.submission("a", "b", "c", data=bytes(300_000)))
    _, sent = stage.warm(window=3)
    assert [len(run.attempts) for run in sent.of(work.RunAttempts)] == [1, 1, 1]


class TestAttemptsHeld:
    def test_what_the_worker_lost_is_sent_again_with_the_same_number(self) -> None:
        stage, container_id = running()
        sent = stage.say(stage.holds(container_id))
        assert delivered(sent) == [("a", 1)]
        assert stage.truth.task("a").attempt == 1

    def test_what_the_worker_has_is_left_alone(self) -> None:
        stage, container_id = running()
        assert stage.say(stage.holds(container_id, ("a", 1))) == []

    def test_a_worker_that_asks_hears_what_is_still_its_own_after_what_is_not(self) -> None:
        stage, container_id = running()
        held = stage.holds(container_id, ("a", 1), ("b", 4))
        question = msgspec.structs.replace(held.message, question=3)
        sent = stage.say(msgspec.structs.replace(held, message=question))
        mine, other = work.AttemptKey("a", 1), work.AttemptKey("b", 4)
        assert [one.message for one in sent] == [
            work.CancelAttempts(container_id=container_id, attempts=(other,), superseded=True),
            work.AttemptsConfirmed(container_id=container_id, attempts=(mine,), question=3),
        ]

    def test_what_is_no_longer_its_own_is_superseded(self) -> None:
        stage, container_id = running()
        stage.say(stage.gone(container_id))
        sent = stage.say(stage.holds(container_id, ("a", 1), ("b", 4)))
        assert sent.only(work.CancelAttempts) == work.CancelAttempts(
            container_id=container_id,
            attempts=(work.AttemptKey("a", 1), work.AttemptKey("b", 4)),
            superseded=True,
        )

    def test_a_cancelled_attempt_is_never_sent_again_but_its_cancel_is(self) -> None:
        stage, container_id = running()
        stage.say(stage.cancellation("a"))
        for letter in (stage.holds(container_id), stage.holds(container_id, ("a", 1))):
            sent = stage.hear(letter)
            assert delivered(sent) == []
            assert sent.only(work.CancelAttempts) == work.CancelAttempts(
                container_id=container_id, attempts=(work.AttemptKey("a", 1),)
            )

    def test_a_report_that_crossed_a_delivery_only_repeats_it(self) -> None:
        stage, container_id = running()
        stage.submit("b")
        sent = stage.say(stage.finished(container_id, "a"), stage.holds(container_id, ("a", 1)))
        assert delivered(sent) == [("b", 1)]
        assert sent.only(work.CancelAttempts).superseded
        assert delivered(stage.say(stage.holds(container_id, ("a", 1)))) == [("b", 1)]

    def test_its_window_counts(self) -> None:
        stage, container_id = running()
        stage.submit("b", "c")
        assert delivered(stage.say(stage.holds(container_id, ("a", 1), window=2))) == [("b", 1)]
