"""Tasks: each transition is a condition, and a lost one is an answer."""

import pytest
from msgspec.structs import replace

from levers9.model.states import End, TaskState
from levers9.store.face import Store
from levers9.store.operations import (
    AcceptTasks,
    Applied,
    AttemptEnd,
    AttemptRow,
    AttemptStart,
    CancelTasks,
    EndAttempts,
    ListAttempts,
    ListTasks,
    LoadUnfinished,
    MarkTaken,
    PruneTasks,
    ReadTasks,
    StartAttempts,
    TaskRow,
    TaskToAccept,
)
from levers9.wire.message import Failure, Payload

ARGUMENTS = Payload("msgpack", b"\x01\x00\x02", "", 3)
RESULT = Payload("pickle", b"result", "", 6)
LARGE = Payload("pickle", b"", "blob/abc", 5_000_000)
FAILURE = Failure("error", "it broke\0 badly", "because", "mend it", b"\x80pickle\0", "Traceback…")


def accepting(*task_ids: str, container_id: str = "", now_s: float = 10.0, **changes: str) -> AcceptTasks:
    worker_id = "worker-1" if container_id else ""
    tasks = tuple(
        TaskToAccept(task_id=task_id, arguments=ARGUMENTS, container_id=container_id, worker_id=worker_id)
        for task_id in task_ids
    )
    operation = AcceptTasks(workspace_id="workspace-1", stub_id="stub-1", tasks=tasks, now_s=now_s)
    return replace(operation, **changes)


def starting(*starts: tuple[str, int], now_s: float = 20.0) -> StartAttempts:
    each = tuple(
        AttemptStart(task_id=task_id, attempt=attempt, container_id="container-1", worker_id="worker-1")
        for task_id, attempt in starts
    )
    return StartAttempts(starts=each, now_s=now_s)


def ending(task_id: str, attempt: int, state: TaskState, end: End = End.OK, **rest: object) -> EndAttempts:
    one = AttemptEnd(task_id=task_id, attempt=attempt, state=state, end=end)
    return EndAttempts(ends=(replace(one, **rest),), now_s=30.0)


def pending(task_id: str) -> TaskRow:
    return TaskRow(
        task_id=task_id,
        workspace_id="workspace-1",
        stub_id="stub-1",
        state=TaskState.PENDING,
        attempt=0,
        arguments=ARGUMENTS,
        accepted_at_s=10.0,
    )


def running(task_id: str, attempt: int = 1) -> TaskRow:
    return replace(
        pending(task_id),
        state=TaskState.RUNNING,
        attempt=attempt,
        container_id="container-1",
        worker_id="worker-1",
        started_at_s=20.0,
    )


async def read(store: Store, *task_ids: str) -> tuple[TaskRow, ...]:
    (rows,) = await store.apply(ReadTasks(task_ids=task_ids))
    assert isinstance(rows, tuple)
    return rows


async def test_a_call_is_committed_as_pending(store: Store) -> None:
    assert await store.apply(accepting("b", "a")) == (Applied(ids=("b", "a")),)
    assert await read(store, "a", "b") == (pending("a"), pending("b"))


async def test_a_call_with_a_container_is_committed_as_its_first_attempt(store: Store) -> None:
    await store.apply(accepting("a", container_id="container-1", now_s=10.0))
    assert await read(store, "a") == (replace(running("a"), started_at_s=10.0),)


async def test_known_and_repeated_calls_are_left_as_they_are(store: Store) -> None:
    await store.apply(accepting("a"))
    again = accepting("a", "c", "b", "c", container_id="container-1", now_s=11.0)
    assert await store.apply(again) == (Applied(ids=("c", "b")),)
    assert await read(store, "a") == (pending("a"),)


async def test_an_attempt_starts_only_as_the_next_one_of_a_waiting_task(store: Store) -> None:
    await store.apply(accepting("a", "b", "c"))
    assert await store.apply(starting(("c", 1), ("a", 1), ("b", 2), ("none", 1))) == (Applied(ids=("c", "a")),)
    assert await store.apply(starting(("a", 1), ("a", 2))) == (Applied(),)
    assert await read(store, "a", "b") == (running("a"), pending("b"))


async def test_a_result_is_committed_once(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    end = ending("a", 1, TaskState.COMPLETE, result=RESULT, last_log_line=7)
    assert await store.apply(end) == (Applied(ids=("a",)),)
    assert await store.apply(end) == (Applied(),)
    complete = replace(running("a"), state=TaskState.COMPLETE, ended_at_s=30.0, result=RESULT, last_log_line=7)
    assert await read(store, "a") == (complete,)


async def test_the_result_of_another_attempt_is_refused(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    for attempt in (0, 2):
        assert await store.apply(ending("a", attempt, TaskState.COMPLETE)) == (Applied(),)
    assert await read(store, "a") == (running("a"),)


async def test_a_failure_keeps_every_byte_and_a_large_result_its_key(store: Store) -> None:
    await store.apply(accepting("a", "b"), starting(("a", 1), ("b", 1)))
    await store.apply(ending("a", 1, TaskState.ERROR, End.ERROR, failure=FAILURE))
    await store.apply(ending("b", 1, TaskState.COMPLETE, result=LARGE))
    a, b = await read(store, "a", "b")
    assert (a.failure, a.result, b.result) == (FAILURE, None, LARGE)


async def test_of_what_a_failure_says_only_halves_of_surrogate_pairs_are_lost(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    said = replace(FAILURE, what="caf\ud800 \x1b[2J", why="\udcff", traceback="é\n\ud800")
    await store.apply(ending("a", 1, TaskState.ERROR, End.ERROR, failure=said))
    (row,) = await read(store, "a")
    assert row.failure == replace(said, what="caf? \x1b[2J", why="?", traceback="é\n?")


async def test_a_retry_waits_and_runs_as_the_second_attempt(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    await store.apply(ending("a", 1, TaskState.RETRY, End.DISCONNECTED, retry_at_s=35.0, failure=FAILURE))
    waiting = replace(running("a"), state=TaskState.RETRY, retry_at_s=35.0, failure=FAILURE)
    assert await read(store, "a") == (waiting,)
    assert await store.apply(starting(("a", 1)), starting(("a", 2))) == (Applied(), Applied(ids=("a",)))
    assert await read(store, "a") == (replace(running("a", 2), failure=FAILURE),)


async def test_the_retries_used_are_counted_apart_from_the_attempts(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    await store.apply(ending("a", 1, TaskState.RETRY, End.ERROR, uses_retry=True), starting(("a", 2)))
    await store.apply(ending("a", 2, TaskState.RETRY, End.KILLED), starting(("a", 3)))
    await store.apply(ending("a", 2, TaskState.RETRY, End.ERROR, uses_retry=True))
    assert [(row.attempt, row.retries_used) for row in await read(store, "a")] == [(3, 1)]


async def test_the_history_has_each_attempt_that_ended_otherwise_than_well(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    await store.apply(ending("a", 1, TaskState.RETRY, End.DISCONNECTED, failure=FAILURE), starting(("a", 2)))
    await store.apply(ending("a", 2, TaskState.RETRY, End.KILLED), starting(("a", 3)))
    await store.apply(ending("a", 3, TaskState.COMPLETE))
    first = AttemptRow(
        task_id="a",
        attempt=1,
        container_id="container-1",
        worker_id="worker-1",
        end=End.DISCONNECTED,
        ended_at_s=30.0,
        why="it broke� badly because",
    )
    assert await store.apply(ListAttempts(task_id="a")) == ((first, replace(first, attempt=2, end=End.KILLED, why="")),)
    assert await store.apply(ListAttempts(task_id="b")) == ((),)


async def test_attempt_zero_ends_a_waiting_task_without_a_history(store: Store) -> None:
    await store.apply(accepting("a"))
    end = ending("a", 0, TaskState.EXPIRED, End.REFUSED, failure=FAILURE)
    assert await store.apply(end, end) == (Applied(ids=("a",)), Applied())
    assert await read(store, "a") == (replace(pending("a"), state=TaskState.EXPIRED, ended_at_s=30.0, failure=FAILURE),)
    assert await store.apply(ListAttempts(task_id="a")) == ((),)


async def test_a_retry_that_is_used_is_counted_and_stays_counted(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    await store.apply(ending("a", 1, TaskState.RETRY, End.KILLED, uses_retry=True), starting(("a", 2)))
    await store.apply(ending("a", 2, TaskState.RETRY, End.DISCONNECTED), starting(("a", 3)))
    await store.apply(ending("a", 3, TaskState.RETRY, End.KILLED, uses_retry=True))
    assert [(row.attempt, row.retries_used) for row in await read(store, "a")] == [(3, 2)]


async def test_ends_of_one_operation_are_judged_on_the_rows_before_it(store: Store) -> None:
    await store.apply(accepting("a"), starting(("a", 1)))
    retry = ending("a", 1, TaskState.RETRY, End.ERROR).ends
    expiry = ending("a", 0, TaskState.EXPIRED, End.REFUSED).ends
    assert await store.apply(EndAttempts(ends=(*expiry, *retry, *expiry), now_s=30.0)) == (Applied(ids=("a",)),)
    assert [row.state for row in await read(store, "a")] == [TaskState.RETRY]


async def test_cancel_ends_what_waits_and_marks_what_runs(store: Store) -> None:
    await store.apply(accepting("waits", "runs", "retries", "done", "elsewhere-not"))
    await store.apply(starting(("runs", 1), ("retries", 1), ("done", 1)))
    await store.apply(ending("retries", 1, TaskState.RETRY, End.ERROR, retry_at_s=99.0))
    await store.apply(ending("done", 1, TaskState.COMPLETE, result=RESULT))
    cancel = CancelTasks(task_ids=("done", "none", "runs", "waits", "retries", "runs"), now_s=40.0)
    (rows,) = await store.apply(cancel)
    assert isinstance(rows, tuple)
    assert [(row.task_id, row.state, row.ended_at_s, row.arguments, row.result) for row in rows] == [
        ("done", TaskState.COMPLETE, 30.0, None, None),
        ("runs", TaskState.CANCELLING, 0.0, None, None),
        ("waits", TaskState.CANCELLED, 40.0, None, None),
        ("retries", TaskState.CANCELLED, 40.0, None, None),
    ]
    assert (await store.apply(cancel))[0] == rows
    assert [row.retry_at_s for row in await read(store, "retries")] == [0.0]


async def test_cancel_does_not_reach_into_another_workspace(store: Store) -> None:
    await store.apply(accepting("a"))
    assert await store.apply(CancelTasks(task_ids=("a",), now_s=40.0, workspace_id="workspace-2")) == ((),)
    assert await read(store, "a") == (pending("a"),)


async def test_nothing_starts_after_a_cancel(store: Store) -> None:
    await store.apply(accepting("a"), CancelTasks(task_ids=("a",), now_s=40.0))
    assert await store.apply(starting(("a", 1))) == (Applied(),)


@pytest.mark.parametrize(
    ("asked", "becomes"),
    [
        (TaskState.COMPLETE, TaskState.COMPLETE),
        (TaskState.RETRY, TaskState.CANCELLED),
        (TaskState.ERROR, TaskState.CANCELLED),
        (TaskState.TIMEOUT, TaskState.CANCELLED),
        (TaskState.CANCELLED, TaskState.CANCELLED),
    ],
)
async def test_what_a_cancelled_attempt_ends_as(store: Store, asked: TaskState, becomes: TaskState) -> None:
    await store.apply(accepting("a"), starting(("a", 1)), CancelTasks(task_ids=("a",), now_s=40.0))
    assert await store.apply(ending("a", 1, asked, End.ERROR, retry_at_s=50.0)) == (Applied(ids=("a",)),)
    assert [(row.state, row.ended_at_s, row.retry_at_s) for row in await read(store, "a")] == [(becomes, 30.0, 0.0)]


async def test_tasks_are_read_in_the_order_asked_and_within_the_workspace(store: Store) -> None:
    await store.apply(accepting("a", "b"), accepting("c", workspace_id="workspace-2"))
    (rows,) = await store.apply(ReadTasks(task_ids=("b", "c", "none", "a", "b"), workspace_id="workspace-1"))
    assert rows == (pending("b"), pending("a"))
    assert [row.task_id for row in await read(store, "c", "a")] == ["c", "a"]


async def test_tasks_are_listed_newest_first_without_payloads(store: Store) -> None:
    for number in range(4):
        await store.apply(accepting(f"a{number}", f"b{number}", now_s=10.0 + number))
    (rows,) = await store.apply(ListTasks(limit=3))
    assert isinstance(rows, tuple)
    assert [(row.task_id, row.arguments) for row in rows] == [("b3", None), ("a3", None), ("b2", None)]
    (rows,) = await store.apply(ListTasks(before_s=11.0))
    assert [row.task_id for row in rows or ()] == ["b0", "a0"]


async def test_the_list_can_be_narrowed(store: Store) -> None:
    await store.apply(accepting("a", "b"), accepting("c", workspace_id="workspace-2"), accepting("d", stub_id="stub-2"))
    await store.apply(starting(("b", 1)), ending("b", 1, TaskState.COMPLETE))

    async def listed(operation: ListTasks) -> list[str]:
        (rows,) = await store.apply(operation)
        assert isinstance(rows, tuple)
        return [row.task_id for row in rows]

    assert await listed(ListTasks(workspace_id="workspace-1")) == ["d", "b", "a"]
    assert await listed(ListTasks(states=(TaskState.COMPLETE, TaskState.ERROR))) == ["b"]
    assert await listed(ListTasks(stub_id="stub-1", workspace_id="workspace-1")) == ["b", "a"]
    assert await listed(ListTasks(states=(TaskState.PENDING,), stub_id="stub-2")) == ["d"]


async def test_the_unfinished_are_loaded_page_by_page(store: Store) -> None:
    await store.apply(accepting("b", "a", now_s=10.0), accepting("c", "d", now_s=9.0))
    await store.apply(starting(("c", 1)), ending("c", 1, TaskState.ERROR, End.ERROR), starting(("a", 1)))
    (first,) = await store.apply(LoadUnfinished(limit=2))
    assert first == (replace(pending("d"), accepted_at_s=9.0), running("a"))
    (second,) = await store.apply(LoadUnfinished(after=(10.0, "a"), limit=2))
    assert second == (pending("b"),)


async def test_only_ended_tasks_are_taken_and_once(store: Store) -> None:
    await store.apply(accepting("a", "b"), starting(("a", 1)), ending("a", 1, TaskState.COMPLETE))
    assert await store.apply(MarkTaken(task_ids=("b", "a", "none"), now_s=50.0)) == (Applied(ids=("a",)),)
    assert await store.apply(MarkTaken(task_ids=("a",), now_s=51.0)) == (Applied(),)
    assert [row.taken_at_s for row in await read(store, "a", "b")] == [50.0, 0.0]


async def test_pruning_takes_what_was_read_or_is_old_and_its_history(store: Store) -> None:
    await store.apply(accepting("taken", "old", "unread", "running"))
    for number, task_id in enumerate(("taken", "old", "unread")):
        await store.apply(starting((task_id, 1)))
        end = replace(ending(task_id, 1, TaskState.ERROR, End.ERROR), now_s=30.0 - number)
        await store.apply(end)
    await store.apply(starting(("running", 1)), MarkTaken(task_ids=("taken",), now_s=50.0))
    prune = PruneTasks(taken_before_s=50.0, ended_before_s=28.0)
    assert await store.apply(prune) == (Applied(),)
    assert await store.apply(replace(prune, taken_before_s=50.5, ended_before_s=28.5)) == (
        Applied(ids=("unread", "taken")),
    )
    assert await store.apply(replace(prune, ended_before_s=99.0, limit=1)) == (Applied(ids=("old",)),)
    assert [row.task_id for row in await read(store, "taken", "old", "unread", "running")] == ["running"]
    assert await store.apply(ListAttempts(task_id="taken")) == ((),)


async def test_empty_operations_answer_nothing(store: Store) -> None:
    operations = (accepting(), starting(), EndAttempts(ends=(), now_s=1.0), MarkTaken(task_ids=(), now_s=1.0))
    assert await store.apply(*operations) == (Applied(),) * 4
    assert await store.apply(ReadTasks(task_ids=()), CancelTasks(task_ids=(), now_s=1.0)) == ((), ())
    assert await store.apply() == ()
