"""What must be true of the lifecycles whatever their rows are."""

import pytest

from levers9.model.states import (
    CONTAINER_TRANSITIONS,
    TASK_TRANSITIONS,
    TERMINAL_TASK_STATES,
    WORKER_TRANSITIONS,
    ContainerEvent,
    ContainerState,
    TaskEvent,
    TaskState,
    WorkerEvent,
    WorkerState,
)


def test_nothing_follows_a_terminal_state() -> None:
    assert not any(state.terminal for state, _ in TASK_TRANSITIONS)
    assert not any(state is ContainerState.ENDED for state, _ in CONTAINER_TRANSITIONS)
    assert not any(state is WorkerState.GONE for state, _ in WORKER_TRANSITIONS)


def test_each_state_leads_to_a_terminal_one() -> None:
    for start in set(TaskState) - TERMINAL_TASK_STATES:
        reached, before = {start}, set[TaskState]()
        while reached != before:
            before = set(reached)
            reached |= {after for (state, _), after in TASK_TRANSITIONS.items() if state in before}
        assert reached & TERMINAL_TASK_STATES


def test_a_cancelled_task_never_starts_or_waits_again() -> None:
    for (state, event), after in TASK_TRANSITIONS.items():
        if state is TaskState.CANCELLING:
            assert after in (TaskState.CANCELLING, TaskState.CANCELLED, TaskState.COMPLETE)
        assert event is not TaskEvent.CANCEL_ASKED or after in (TaskState.CANCELLING, TaskState.CANCELLED)


@pytest.mark.parametrize("state", [state for state in TaskState if not state.terminal])
def test_every_unfinished_task_can_be_cancelled(state: TaskState) -> None:
    assert (state, TaskEvent.CANCEL_ASKED) in TASK_TRANSITIONS


def test_only_evidence_or_the_end_of_a_lease_makes_a_worker_gone() -> None:
    ends = {event for (_, event), after in WORKER_TRANSITIONS.items() if after is WorkerState.GONE}
    assert ends == {WorkerEvent.EVIDENCE_OF_END, WorkerEvent.LEASE_RAN_OUT}
    for state in set(WorkerState) - {WorkerState.GONE}:
        assert WORKER_TRANSITIONS[state, WorkerEvent.EVIDENCE_OF_END] is WorkerState.GONE


def test_a_lease_runs_out_in_silence_only() -> None:
    assert [state for state, event in WORKER_TRANSITIONS if event is WorkerEvent.LEASE_RAN_OUT] == [WorkerState.UNKNOWN]


def test_a_container_that_was_told_to_stop_only_ends() -> None:
    after = {after for (state, _), after in CONTAINER_TRANSITIONS.items() if state is ContainerState.STOPPING}
    assert after == {ContainerState.STOPPING, ContainerState.ENDED}


def test_a_request_that_nobody_placed_has_no_worker_to_lose() -> None:
    assert (ContainerState.REQUESTED, ContainerEvent.WORKER_LOST) not in CONTAINER_TRANSITIONS
