"""Tasks and their attempts in dicts. Conditions are judged on the rows as they were before the operation."""

from __future__ import annotations

from msgspec.structs import replace

from ...model.states import TERMINAL_TASK_STATES, End, TaskState
from ..operations import (
    AcceptTasks,
    Applied,
    AttemptEnd,
    AttemptRow,
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
from ..text import encodable, storable
from .tables import Tables, carries_out, in_given_order, insert_new

_WAITING = frozenset({TaskState.PENDING, TaskState.RETRY})
_ACTIVE = frozenset({TaskState.RUNNING, TaskState.CANCELLING})


@carries_out(AcceptTasks)
def _accept(tables: Tables, operation: AcceptTasks) -> Applied:
    rows = [(task.task_id, _accepted(operation, task)) for task in operation.tasks]
    return Applied(ids=insert_new(tables.tasks, rows))


def _accepted(operation: AcceptTasks, task: TaskToAccept) -> TaskRow:
    started = bool(task.container_id)
    return TaskRow(
        task_id=task.task_id,
        workspace_id=operation.workspace_id,
        stub_id=operation.stub_id,
        state=TaskState.RUNNING if started else TaskState.PENDING,
        attempt=1 if started else 0,
        arguments=task.arguments,
        container_id=task.container_id,
        worker_id=task.worker_id,
        accepted_at_s=operation.now_s,
        started_at_s=operation.now_s if started else 0.0,
    )


@carries_out(StartAttempts)
def _start(tables: Tables, operation: StartAttempts) -> Applied:
    applied: set[str] = set()
    for start in operation.starts:
        row = tables.tasks.get(start.task_id)
        if row is not None and row.state in _WAITING and row.attempt == start.attempt - 1:
            tables.tasks[row.task_id] = replace(
                row,
                state=TaskState.RUNNING,
                attempt=start.attempt,
                container_id=start.container_id,
                worker_id=start.worker_id,
                started_at_s=operation.now_s,
                retry_at_s=0.0,
            )
            applied.add(row.task_id)
    return Applied(ids=in_given_order([start.task_id for start in operation.starts], applied))


@carries_out(EndAttempts)
def _end(tables: Tables, operation: EndAttempts) -> Applied:
    hits: dict[str, AttemptEnd] = {}
    for end in operation.ends:
        row = tables.tasks.get(end.task_id)
        if row is not None and end.task_id not in hits and _ends(row, end):
            hits[end.task_id] = end
    for end in hits.values():
        row = tables.tasks[end.task_id]
        if end.attempt and end.end is not End.OK:
            tables.attempts.setdefault(row.task_id, []).append(_history(row, end, operation.now_s))
        tables.tasks[row.task_id] = _ended(row, end, operation.now_s)
    return Applied(ids=in_given_order([end.task_id for end in operation.ends], hits))


def _ends(row: TaskRow, end: AttemptEnd) -> bool:
    if end.attempt == 0:
        return row.state in _WAITING
    return row.state in _ACTIVE and row.attempt == end.attempt


def _ended(row: TaskRow, end: AttemptEnd, now_s: float) -> TaskRow:
    overruled = row.state is TaskState.CANCELLING and end.state is not TaskState.COMPLETE
    state = TaskState.CANCELLED if overruled else end.state
    return replace(
        row,
        state=state,
        ended_at_s=now_s if state.terminal else 0.0,
        retry_at_s=0.0 if state.terminal else end.retry_at_s,
        result=encodable(end.result) if end.result else None,
        failure=encodable(end.failure) if end.failure else None,
        last_log_line=end.last_log_line,
        retries_used=row.retries_used + end.uses_retry,
    )


def _history(row: TaskRow, end: AttemptEnd, now_s: float) -> AttemptRow:
    return AttemptRow(
        task_id=row.task_id,
        attempt=row.attempt,
        container_id=row.container_id,
        worker_id=row.worker_id,
        end=end.end,
        ended_at_s=now_s,
        why=storable(end.failure.what_and_why) if end.failure else "",
    )


@carries_out(CancelTasks)
def _cancel(tables: Tables, operation: CancelTasks) -> tuple[TaskRow, ...]:
    answer: list[TaskRow] = []
    for row in _known(tables, operation.task_ids, operation.workspace_id):
        if row.state in _WAITING:
            row = replace(row, state=TaskState.CANCELLED, ended_at_s=operation.now_s, retry_at_s=0.0)
        elif row.state is TaskState.RUNNING:
            row = replace(row, state=TaskState.CANCELLING)
        tables.tasks[row.task_id] = row
        answer.append(_bare(row))
    return tuple(answer)


def _known(tables: Tables, task_ids: tuple[str, ...], workspace_id: str | None) -> list[TaskRow]:
    rows = (tables.tasks.get(task_id) for task_id in dict.fromkeys(task_ids))
    return [row for row in rows if row is not None and workspace_id in (None, row.workspace_id)]


def _bare(row: TaskRow) -> TaskRow:
    return replace(row, arguments=None, result=None)


@carries_out(ReadTasks)
def _read(tables: Tables, operation: ReadTasks) -> tuple[TaskRow, ...]:
    return tuple(_known(tables, operation.task_ids, operation.workspace_id))


@carries_out(ListTasks)
def _list(tables: Tables, operation: ListTasks) -> tuple[TaskRow, ...]:
    rows = [
        row
        for row in tables.tasks.values()
        if operation.workspace_id in (None, row.workspace_id)
        and (not operation.states or row.state in operation.states)
        and operation.stub_id in ("", row.stub_id)
        and (operation.before_s <= 0 or row.accepted_at_s < operation.before_s)
    ]
    rows.sort(key=_age, reverse=True)
    return tuple(_bare(row) for row in rows[: operation.limit])


def _age(row: TaskRow) -> tuple[float, str]:
    return row.accepted_at_s, row.task_id


@carries_out(LoadUnfinished)
def _load_unfinished(tables: Tables, operation: LoadUnfinished) -> tuple[TaskRow, ...]:
    rows = [row for row in tables.tasks.values() if not row.state.terminal and _age(row) > operation.after]
    return tuple(sorted(rows, key=_age)[: operation.limit])


@carries_out(MarkTaken)
def _mark_taken(tables: Tables, operation: MarkTaken) -> Applied:
    rows = [row for row in _known(tables, operation.task_ids, None) if row.state.terminal and not row.taken_at_s]
    for row in rows:
        tables.tasks[row.task_id] = replace(row, taken_at_s=operation.now_s)
    return Applied(ids=tuple(row.task_id for row in rows))


@carries_out(PruneTasks)
def _prune(tables: Tables, operation: PruneTasks) -> Applied:
    rows = [row for row in tables.tasks.values() if row.state in TERMINAL_TASK_STATES and _stale(row, operation)]
    rows.sort(key=lambda row: (row.ended_at_s, row.task_id))
    ids = tuple(row.task_id for row in rows[: operation.limit])
    for task_id in ids:
        del tables.tasks[task_id]
        tables.attempts.pop(task_id, None)
    return Applied(ids=ids)


def _stale(row: TaskRow, operation: PruneTasks) -> bool:
    return 0 < row.taken_at_s < operation.taken_before_s or row.ended_at_s < operation.ended_before_s


@carries_out(ListAttempts)
def _list_attempts(tables: Tables, operation: ListAttempts) -> tuple[AttemptRow, ...]:
    return tuple(tables.attempts.get(operation.task_id, ()))
