"""Tasks and attempts in SQL: arrays in, one row of ids out. Rows are touched in the order of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec

from ...model.states import End, TaskState
from ...wire.message import Failure, Payload
from ..operations import (
    AcceptTasks,
    AttemptRow,
    CancelTasks,
    EndAttempts,
    ListAttempts,
    ListTasks,
    LoadUnfinished,
    MarkTaken,
    Operation,
    PruneTasks,
    ReadTasks,
    StartAttempts,
    TaskRow,
)
from ..text import encodable, storable
from .plans import Arguments, Record, read, short, write

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_payload: Final = msgspec.msgpack.Decoder(Payload).decode
_decode_failure: Final = msgspec.msgpack.Decoder(Failure).decode
_by_id: Final = attrgetter("task_id")


def _packed(value: Payload | Failure | None) -> bytes | None:
    return None if value is None else _encode(encodable(value))


def _task_ids(operation: AcceptTasks) -> list[str]:
    return [task.task_id for task in operation.tasks]


def _accept_arguments(operation: AcceptTasks) -> Arguments:
    tasks = sorted(operation.tasks, key=_by_id)
    return (
        [task.task_id for task in tasks],
        [_encode(task.arguments) for task in tasks],
        [task.container_id for task in tasks],
        [task.worker_id for task in tasks],
        operation.workspace_id,
        operation.stub_id,
        operation.now_s,
    )


write(
    AcceptTasks,
    """
    done AS (
        INSERT INTO tasks (task_id, arguments, container_id, worker_id, workspace_id, stub_id, state, finished,
            attempt, accepted_at_s, started_at_s)
        SELECT g.task_id, g.arguments, g.container_id, g.worker_id, $6, $7,
            CASE g.container_id WHEN '' THEN 'PENDING' ELSE 'RUNNING' END, false,
            CASE g.container_id WHEN '' THEN 0 ELSE 1 END, $8::float8,
            CASE g.container_id WHEN '' THEN 0 ELSE $8::float8 END
        FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[])
            AS g(task_id, arguments, container_id, worker_id)
        WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING task_id
    )
    """,
    _accept_arguments,
    ids="task_id",
    given=_task_ids,
)


def _accept_one(operation: AcceptTasks) -> Arguments | None:
    if len(operation.tasks) != 1:
        return None
    (task,) = operation.tasks
    runs = bool(task.container_id)
    return (
        task.task_id,
        _encode(task.arguments),
        task.container_id,
        task.worker_id,
        operation.workspace_id,
        operation.stub_id,
        operation.now_s,
        "RUNNING" if runs else "PENDING",
        int(runs),
        operation.now_s if runs else 0.0,
    )


short(
    AcceptTasks,
    """
    INSERT INTO tasks (task_id, arguments, container_id, worker_id, workspace_id, stub_id, accepted_at_s, state,
        attempt, started_at_s, finished)
    SELECT $2, $3::bytea, $4, $5, $6, $7, $8::float8, $9, $10::int, $11::float8, false WHERE {lead}
    ON CONFLICT DO NOTHING RETURNING 1
    """,
    _accept_one,
)


def _start_arguments(operation: StartAttempts) -> Arguments:
    starts = sorted(operation.starts, key=_by_id)
    return (
        [start.task_id for start in starts],
        [start.attempt for start in starts],
        [start.container_id for start in starts],
        [start.worker_id for start in starts],
        operation.now_s,
    )


write(
    StartAttempts,
    """
    done AS (
        UPDATE tasks t SET state = 'RUNNING', attempt = g.attempt, container_id = g.container_id,
            worker_id = g.worker_id, started_at_s = $6::float8, retry_at_s = 0
        FROM unnest($2::text[], $3::int[], $4::text[], $5::text[]) AS g(task_id, attempt, container_id, worker_id)
        WHERE t.task_id = g.task_id AND t.attempt = g.attempt - 1 AND t.state IN ('PENDING', 'RETRY')
            AND (SELECT yes FROM allowed)
        RETURNING t.task_id
    )
    """,
    _start_arguments,
    ids="task_id",
    given=lambda o: [start.task_id for start in o.starts],
)


def _end_arguments(operation: EndAttempts) -> Arguments:
    ends = sorted(operation.ends, key=_by_id)
    return (
        [end.task_id for end in ends],
        [end.attempt for end in ends],
        [end.state.value for end in ends],
        [end.end.value for end in ends],
        [_packed(end.result) for end in ends],
        [_packed(end.failure) for end in ends],
        [storable(end.failure.what_and_why) if end.failure else "" for end in ends],
        [end.last_log_line for end in ends],
        [end.retry_at_s for end in ends],
        operation.now_s,
        [end.uses_retry for end in ends],
    )


write(
    EndAttempts,
    """
    ended AS (
        UPDATE tasks t SET
            state = CASE WHEN t.state = 'CANCELLING' AND g.state <> 'COMPLETE' THEN 'CANCELLED' ELSE g.state END,
            finished = t.state = 'CANCELLING' OR g.state <> 'RETRY',
            ended_at_s = CASE WHEN t.state = 'CANCELLING' OR g.state <> 'RETRY' THEN $11::float8 ELSE 0 END,
            retry_at_s = CASE WHEN t.state = 'CANCELLING' OR g.state <> 'RETRY' THEN 0 ELSE g.retry_at_s END,
            result = g.result, failure = g.failure, last_log_line = g.last_log_line,
            retries_used = t.retries_used + g.uses_retry::int
        FROM unnest($2::text[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::text[], $9::int[],
            $10::float8[], $12::bool[])
            AS g(task_id, attempt, state, how, result, failure, why, last_log_line, retry_at_s, uses_retry)
        WHERE t.task_id = g.task_id AND (SELECT yes FROM allowed) AND (
            g.attempt > 0 AND t.attempt = g.attempt AND t.state IN ('RUNNING', 'CANCELLING')
            OR g.attempt = 0 AND t.state IN ('PENDING', 'RETRY'))
        RETURNING t.task_id, t.container_id, t.worker_id, g.attempt, g.how, g.why
    ),
    history AS (
        INSERT INTO attempts (task_id, attempt, container_id, worker_id, how, ended_at_s, why)
        SELECT task_id, attempt, container_id, worker_id, how, $11::float8, why
        FROM ended WHERE how <> 'ok' AND attempt > 0
    ),
    done AS (SELECT task_id FROM ended)
    """,
    _end_arguments,
    ids="task_id",
    given=lambda o: [end.task_id for end in o.ends],
)


def _end_one(operation: EndAttempts) -> Arguments | None:
    """One that ended well: it leaves no history, and ends COMPLETE also where it was to be cancelled."""
    if len(operation.ends) != 1:
        return None
    (end,) = operation.ends
    if end.state is not TaskState.COMPLETE or end.end is not End.OK or end.attempt == 0 or end.uses_retry:
        return None
    return (end.task_id, end.attempt, _packed(end.result), _packed(end.failure), end.last_log_line, operation.now_s)


short(
    EndAttempts,
    """
    UPDATE tasks SET state = 'COMPLETE', finished = true, ended_at_s = $7::float8, retry_at_s = 0,
        result = $4::bytea, failure = $5::bytea, last_log_line = $6::int
    WHERE task_id = $2 AND attempt = $3::int AND state IN ('RUNNING', 'CANCELLING') AND {lead}
    RETURNING 1
    """,
    _end_one,
)

_BARE: Final = """
SELECT task_id, workspace_id, stub_id, state, attempt, container_id, worker_id, accepted_at_s, started_at_s,
    ended_at_s, retry_at_s, taken_at_s, failure, last_log_line, NULL::bytea AS arguments, NULL::bytea AS result,
    retries_used
FROM tasks
"""
_WHOLE: Final = _BARE.replace("NULL::bytea AS ", "")


def _task(row: Record) -> TaskRow:
    return TaskRow(
        task_id=row[0],
        workspace_id=row[1],
        stub_id=row[2],
        state=TaskState(row[3]),
        attempt=row[4],
        container_id=row[5],
        worker_id=row[6],
        accepted_at_s=row[7],
        started_at_s=row[8],
        ended_at_s=row[9],
        retry_at_s=row[10],
        taken_at_s=row[11],
        failure=None if row[12] is None else _decode_failure(row[12]),
        last_log_line=row[13],
        arguments=None if row[14] is None else _decode_payload(row[14]),
        result=None if row[15] is None else _decode_payload(row[15]),
        retries_used=row[16],
    )


def _tasks(_: Operation, rows: Sequence[Record]) -> tuple[TaskRow, ...]:
    return tuple([_task(row) for row in rows])


def _asked_for(operation: CancelTasks | ReadTasks, rows: Sequence[Record]) -> tuple[TaskRow, ...]:
    found = {row[0]: row for row in rows}
    return tuple([_task(found[task_id]) for task_id in dict.fromkeys(operation.task_ids) if task_id in found])


_OF_IDS: Final = "WHERE task_id = ANY($1::text[]) AND ($2::text IS NULL OR workspace_id = $2)"

read(
    CancelTasks,
    _BARE + _OF_IDS,
    lambda o: (o.task_ids, o.workspace_id),
    _asked_for,
    after=(
        f"""
        UPDATE tasks SET
            state = CASE state WHEN 'RUNNING' THEN 'CANCELLING' ELSE 'CANCELLED' END,
            finished = state <> 'RUNNING',
            ended_at_s = CASE state WHEN 'RUNNING' THEN 0 ELSE $3::float8 END,
            retry_at_s = 0
        {_OF_IDS} AND state IN ('PENDING', 'RETRY', 'RUNNING')
        """,
        lambda o: (sorted(o.task_ids), o.workspace_id, o.now_s),
    ),
)
read(ReadTasks, _WHOLE + _OF_IDS, lambda o: (o.task_ids, o.workspace_id), _asked_for)
read(
    ListTasks,
    _BARE
    + """
    WHERE ($1::text IS NULL OR workspace_id = $1) AND (cardinality($2::text[]) = 0 OR state = ANY($2))
        AND ($3 = '' OR stub_id = $3) AND ($4::float8 <= 0 OR accepted_at_s < $4)
    ORDER BY accepted_at_s DESC, task_id DESC LIMIT $5
    """,
    lambda o: (o.workspace_id, [state.value for state in o.states], o.stub_id, o.before_s, o.limit),
    _tasks,
)
read(
    LoadUnfinished,
    _WHOLE
    + """
    WHERE NOT finished AND (accepted_at_s, task_id) > ($1::float8, $2::text)
    ORDER BY accepted_at_s, task_id LIMIT $3
    """,
    lambda o: (*o.after, o.limit),
    _tasks,
)

write(
    MarkTaken,
    """
    done AS (
        UPDATE tasks SET taken_at_s = $3::float8
        WHERE task_id = ANY($2::text[]) AND finished AND taken_at_s = 0 AND (SELECT yes FROM allowed)
        RETURNING task_id
    )
    """,
    lambda o: (sorted(o.task_ids), o.now_s),
    ids="task_id",
    given=lambda o: o.task_ids,
)
write(
    PruneTasks,
    """
    old AS MATERIALIZED (
        SELECT task_id FROM tasks
        WHERE finished AND (taken_at_s > 0 AND taken_at_s < $2::float8 OR ended_at_s < $3::float8)
            AND (SELECT yes FROM allowed)
        ORDER BY ended_at_s, task_id LIMIT $4::int
    ),
    history AS (DELETE FROM attempts WHERE task_id IN (SELECT task_id FROM old)),
    done AS (DELETE FROM tasks WHERE task_id IN (SELECT task_id FROM old) RETURNING task_id, ended_at_s)
    """,
    lambda o: (o.taken_before_s, o.ended_before_s, o.limit),
    ids="task_id",
    order="ended_at_s, task_id",
)


def _attempt(row: Record) -> AttemptRow:
    return AttemptRow(
        task_id=row[0],
        attempt=row[1],
        container_id=row[2],
        worker_id=row[3],
        end=End(row[4]),
        ended_at_s=row[5],
        why=row[6],
    )


read(
    ListAttempts,
    """
    SELECT task_id, attempt, container_id, worker_id, how, ended_at_s, why FROM attempts
    WHERE task_id = $1 ORDER BY attempt
    """,
    lambda o: (o.task_id,),
    lambda _, rows: tuple([_attempt(row) for row in rows]),
)
