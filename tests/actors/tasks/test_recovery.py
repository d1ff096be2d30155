"""How a new reign begins, and what a commit that went otherwise than expected means."""

from collections.abc import Callable

import msgspec
import pytest
from levers9_test_deciding import Truth
from levers9_test_tasks import Stage, delivered, told

from levers9.actors.applied import applied_to, require_all
from levers9.errors import OutcomeUnknown
from levers9.model.states import ContainerState, End, TaskState
from levers9.store import operations as ops
from levers9.wire import client, scheduling, work


def test_what_waited_waits_and_what_ran_is_held_by_its_container() -> None:
    stage = Stage()
    stage.submit("a", "b")
    container_id, _ = stage.warm()
    stage.restart()
    assert list(stage.policy.ledger.containers[container_id].holding) == ["a"]
    assert list(stage.policy.ledger.stubs[stage.stub].waiting) == ["b"]
    sent = stage.say(stage.available(container_id, 2))
    assert delivered(sent) == [("b", 1)]


def test_a_result_that_was_on_its_way_counts_in_the_next_reign() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.restart()
    stage.watch("a")
    assert told(stage.say(stage.finished(container_id, "a"))) == {"a": "COMPLETE"}


def test_until_its_worker_reports_a_container_gets_no_call() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a"))
    stage.restart()
    assert delivered(stage.submit("b")) == []
    assert delivered(stage.say(stage.holds(container_id))) == [("b", 1)]


def test_what_ran_in_a_container_that_ended_meanwhile_uses_a_retry() -> None:
    stage = Stage(retries=1)
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.gone(container_id)  # committed, never heard
    stage.restart()
    stage.say()
    assert (stage.truth.state("a"), stage.truth.task("a").retries_used) == (TaskState.RETRY, 1)
    container_id, sent = stage.warm()
    assert delivered(sent) == [("a", 2)]
    stage.gone(container_id)
    stage.restart()
    stage.say()
    assert stage.truth.state("a") is TaskState.ERROR


def test_what_was_being_cancelled_there_is_cancelled() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.cancellation("a"))
    stage.gone(container_id)
    stage.restart()
    stage.say()
    assert stage.truth.state("a") is TaskState.CANCELLED


def test_the_last_word_of_a_container_whose_call_waits_again_is_history() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a", End.KILLED, window=0))
    assert stage.truth.state("a") is TaskState.RETRY
    stage.restart()
    assert told(stage.say(stage.finished(container_id, "a", window=0))) == {}
    assert stage.truth.state("a") is TaskState.RETRY


def test_containers_that_are_stopping_get_no_call_and_ended_ones_are_forgotten() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a"))
    stage.move(container_id, ContainerState.STOPPING)
    stage.restart()
    assert delivered(stage.submit("b")) == []
    stage.move(container_id, ContainerState.ENDED)
    stage.restart()
    assert container_id not in stage.policy.ledger.containers


def test_a_container_row_that_ended_is_not_known_even_when_it_is_listed() -> None:
    stage = Stage()
    row = ops.ContainerRow(
        container_id="c", stub_id=stage.stub, workspace_id="w", state=ContainerState.ENDED, worker_id="one"
    )
    stranger = msgspec.structs.replace(row, container_id="d", stub_id="stub-nobody", state=ContainerState.READY)
    stage.policy.load((), (row, stranger), (), stage.now_s)
    assert stage.policy.ledger.containers == {}


def test_a_long_running_call_still_brings_more_containers_after_a_restart() -> None:
    stage = Stage()
    stage.submit(*(f"t{number}" for number in range(10)))
    stage.warm()
    stage.restart()
    stage.tick(30.0)
    assert len(stage.requested()) == 9


def test_requests_are_not_made_again() -> None:
    stage = Stage()
    stage.submit("a")
    before = stage.requested()
    stage.restart()
    assert stage.say().of(scheduling.RequestContainers) == []
    assert stage.requested() == before


def lose_rows(stage: Stage, kind: type[ops.Operation]) -> None:
    """From now on the store applies operations of this kind to nothing."""
    commit = stage.truth.commit

    def forgetful(operations: list[ops.Operation], how: str = "well") -> tuple[ops.Answer, ...]:
        answers = commit(operations, how)
        return tuple(
            ops.Applied() if isinstance(operation, kind) else answer for operation, answer in zip(operations, answers)
        )

    stage.truth.commit = forgetful  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize(
    ("kind", "provoke"),
    [
        (ops.StartAttempts, lambda stage, container_id: stage.say(stage.available(container_id, 9))),
        (ops.EndAttempts, lambda stage, container_id: stage.say(stage.finished(container_id, "a", window=0))),
        (ops.PutContainers, lambda stage, container_id: stage.tick(2.0)),
    ],
)
def test_a_row_that_did_not_move_ends_the_reign(
    kind: type[ops.Operation], provoke: Callable[[Stage, str], object]
) -> None:
    stage = Stage()
    stage.submit("a", "b")
    container_id, _ = stage.warm()
    lose_rows(stage, kind)
    with pytest.raises(OutcomeUnknown, match=kind.__name__):
        provoke(stage, container_id)


def test_a_commit_that_happened_although_it_failed_is_read_again() -> None:
    stage = Stage()
    stage.submit("a")
    (container_id,) = stage.requested()
    stage.policy.handle(stage.available(container_id), stage.now_s)
    plan = stage.policy.plan(stage.now_s)
    assert plan is not None
    with pytest.raises(OutcomeUnknown):
        stage.truth.commit(plan.operations, "after")
    stage.restart()
    assert stage.policy.ledger.calls["a"].attempt == 1
    assert delivered(stage.say(stage.holds(container_id))) == [("a", 1)]


def test_a_cancel_right_before_the_end_of_a_reign_reaches_the_worker_in_the_next() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.policy.handle(stage.cancellation("a"), stage.now_s)
    plan = stage.policy.plan(stage.now_s)
    assert plan is not None
    stage.truth.commit(plan.operations)  # and then nothing was sent
    stage.restart()
    sent = stage.say(stage.holds(container_id, ("a", 1)))
    assert sent.only(work.CancelAttempts).attempts == (work.AttemptKey("a", 1),)
    sent = stage.say(stage.cancellation("a"))
    assert sent.only(client.CancelAccepted).standings == (client.TaskStanding("a", TaskState.CANCELLING),)


def test_only_an_answer_that_says_what_it_applied_to_is_taken_for_one() -> None:
    assert applied_to(ops.Applied(ids=("a",))) == {"a"}
    with pytest.raises(TypeError):
        applied_to(None)
    operation = ops.MarkTaken(task_ids=("a", "b"), now_s=0.0)
    require_all(operation, {"a"}, ops.Applied(ids=("a", "b")))
    with pytest.raises(OutcomeUnknown, match="MarkTaken did not apply to 1 of its rows: b"):
        require_all(operation, {"a", "b"}, ops.Applied(ids=("a",)))


def test_a_truth_without_faults_answers_each_operation() -> None:
    assert len(Truth().commit([ops.ReadStubs(), ops.ListPools()])) == 2
