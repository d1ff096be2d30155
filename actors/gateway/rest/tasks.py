"""Tasks: list, show, stop, why. What is decided is decided by the leader; reading goes to the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio
from starlette.responses import Response

from ....errors import INVALID, NOT_FOUND, LeversError, Refused
from ....model.holds import Hold, hold_of
from ....model.states import End, TaskState
from ....store.operations import AttemptRow, ListAttempts, ListTasks, ReadStubs, StubRow, TaskRow
from ....wire.client import CancelAccepted, CancelTasks, ExplainTask, TaskExplained
from ....wire.message import Failure
from .answers import Answer, json_answer
from .desk import Call

LISTED_AT_MOST: Final = 1_000
LISTED: Final = 100
_STUBS_OF_A_NAME: Final = 16
KEPT_WITHIN_S: Final = 1.0  # `submit` returns before its call is kept: who names it at once is not told that it is none
_LOOKED_EVERY_S: Final = 0.05


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task as people see it. Times are Unix seconds, 0 for what has not happened."""

    task_id: str
    workspace_id: str
    stub_id: str
    name: str
    state: TaskState
    attempt: int
    container_id: str
    worker_id: str
    accepted_at_s: float
    started_at_s: float
    ended_at_s: float
    failure: str = ""
    failure_code: str = ""
    fix: str = ""
    traceback: str = ""
    last_log_line: int = 0


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier attempt, and how it ended."""

    attempt: int
    container_id: str
    worker_id: str
    end: End
    ended_at_s: float
    why: str


class TaskList(Answer, frozen=True, kw_only=True):
    """Tasks, newest first."""

    tasks: tuple[TaskView, ...]


class TaskDetail(TaskView, frozen=True, kw_only=True):
    """One task, with the attempts that failed."""

    ok: bool = True
    attempts: tuple[AttemptView, ...]


class TaskStopped(Answer, frozen=True, kw_only=True):
    """The state after the cancel: CANCELLING while code may still run."""

    task_id: str
    state: TaskState


class TaskWhy(Answer, frozen=True, kw_only=True):
    """Why a task stands where it stands, outermost reason first; `holds` is data on what its containers wait for."""

    task_id: str
    state: TaskState
    reasons: tuple[str, ...]
    holds: tuple[Hold, ...] = ()


async def list_tasks(call: Call) -> Response:
    """The newest tasks, by state and by stub (its id, its name, or app/name)."""
    stubs = await _stubs(call)
    states = _states(call.query("state"))
    limit = _limit(call.query("limit", str(LISTED)))
    rows: list[TaskRow] = []
    for stub_id in _stub_ids(stubs, call.query("stub")):
        rows += await _listed(call, states, stub_id, limit)
    rows.sort(key=lambda row: (-row.accepted_at_s, row.task_id))
    names = names_of(stubs)
    return json_answer(TaskList(tasks=tuple(_view(row, names) for row in rows[:limit])))


async def show(call: Call) -> Response:
    """One task."""
    row = await _task(call)
    (attempts,) = await call.desk.store.apply(ListAttempts(task_id=row.task_id))
    shown = (
        tuple(_attempt(one) for one in attempts if isinstance(one, AttemptRow)) if isinstance(attempts, tuple) else ()
    )
    view = _view(row, names_of(await _stubs(call)))
    return json_answer(TaskDetail(**msgspec.structs.asdict(view), attempts=shown))


async def stop(call: Call) -> Response:
    """Cancel one task: durable once answered."""
    row = await soon(lambda: _task(call))
    question = CancelTasks(task_ids=(row.task_id,))
    answer = await call.desk.questions.ask(question, call.speaking_for(row.workspace_id))
    standings = answer.standings if isinstance(answer, CancelAccepted) else ()
    for standing in standings:
        if standing.task_id == row.task_id:
            return json_answer(TaskStopped(task_id=row.task_id, state=standing.state))
    raise LeversError(f"the control plane answered a cancel of {row.task_id} without its state")


async def why(call: Call) -> Response:
    """Why one task waits, or how it ended."""
    row = await soon(lambda: _task(call))
    if row.state.terminal:
        return json_answer(TaskWhy(task_id=row.task_id, state=row.state, reasons=how_it_ended(row)))
    try:
        answer = await call.desk.questions.ask(ExplainTask(task_id=row.task_id), call.speaking_for(row.workspace_id))
    except Refused as refused:
        row = await _task(call)
        if refused.code != NOT_FOUND or not row.state.terminal:
            raise
        return json_answer(TaskWhy(task_id=row.task_id, state=row.state, reasons=how_it_ended(row)))
    if not isinstance(answer, TaskExplained):
        raise LeversError(f"the control plane answered a why with {type(answer).__name__}")
    holds = tuple(hold_of(each) for each in answer.holds)
    return json_answer(TaskWhy(task_id=answer.task_id, state=answer.state, reasons=answer.reasons, holds=holds))


def how_it_ended(row: TaskRow) -> tuple[str, ...]:
    """The sentences about a task that has ended."""
    ran = f"attempt {row.attempt}" if row.attempt else "no attempt"
    took = f" after {row.ended_at_s - row.started_at_s:.1f} s" if row.started_at_s else ""
    sentences = {
        TaskState.COMPLETE: f"It has a result: {ran} ended{took}.",
        TaskState.ERROR: f"It failed: {ran} was the last one, and ended{took}.",
        TaskState.CANCELLED: f"It was cancelled{took}: {ran} had begun.",
        TaskState.TIMEOUT: f"It ran for longer than its timeout: {ran} was ended{took}.",
        TaskState.EXPIRED: f"It waited for longer than it may: {ran} had begun.",
    }
    failure = row.failure or Failure("", "")
    return tuple(words for words in (sentences[row.state], failure.what_and_why, failure.fix) if words)


async def _task(call: Call) -> TaskRow:
    return await call.desk.logs.task(call.parameter("task_id"), call.scope)


async def soon(look: Callable[[], Awaitable[TaskRow]]) -> TaskRow:
    """A task that may be about to be kept. Raises `Refused` as `look` does, where it still is not after a moment."""
    until_s = trio.current_time() + KEPT_WITHIN_S
    while True:
        try:
            return await look()
        except Refused as refused:
            if refused.code != NOT_FOUND or trio.current_time() >= until_s:
                raise
        await trio.sleep(_LOOKED_EVERY_S)


async def _listed(call: Call, states: tuple[TaskState, ...], stub_id: str, limit: int) -> list[TaskRow]:
    question = ListTasks(workspace_id=call.scope, states=states, stub_id=stub_id, limit=limit)
    (rows,) = await call.desk.store.apply(question)
    return [row for row in rows if isinstance(row, TaskRow)] if isinstance(rows, tuple) else []


async def _stubs(call: Call) -> tuple[StubRow, ...]:
    (rows,) = await call.desk.store.apply(ReadStubs(workspace_id=call.scope))
    return tuple(row for row in rows if isinstance(row, StubRow)) if isinstance(rows, tuple) else ()


def _stub_ids(stubs: tuple[StubRow, ...], asked: str) -> tuple[str, ...]:
    if not asked:
        return ("",)
    found = tuple(row.stub_id for row in stubs if asked in (row.stub_id, row.spec.name, _name(row)))
    if not found:
        names = ", ".join(sorted({_name(row) for row in stubs})[:20]) or "none yet"
        raise Refused(f"There is no stub {asked!r}.", f"Stubs you may see: {names}.", code=NOT_FOUND)
    return found[-_STUBS_OF_A_NAME:]


def _states(asked: str) -> tuple[TaskState, ...]:
    try:
        return tuple(TaskState(one.strip().upper()) for one in asked.split(",") if one.strip())
    except ValueError as error:
        known = ", ".join(TaskState)
        raise Refused(f"state={asked!r} is not a state.", f"States are {known}.", code=INVALID) from error


def _limit(asked: str) -> int:
    if not asked.isdigit() or not 0 < int(asked) <= LISTED_AT_MOST:
        raise Refused(f"limit={asked!r} is not a number from 1 to {LISTED_AT_MOST}.", code=INVALID)
    return int(asked)


def _name(stub: StubRow) -> str:
    return f"{stub.spec.app}/{stub.spec.name}" if stub.spec.app else stub.spec.name


def names_of(stubs: tuple[StubRow, ...]) -> dict[str, str]:
    """What people call a function: app/name, by the id of its stub."""
    return {stub.stub_id: _name(stub) for stub in stubs}


def _view(row: TaskRow, names: dict[str, str]) -> TaskView:
    failure = row.failure or Failure("", "")
    return TaskView(
        task_id=row.task_id,
        workspace_id=row.workspace_id,
        stub_id=row.stub_id,
        name=names.get(row.stub_id, ""),
        state=row.state,
        attempt=row.attempt,
        container_id=row.container_id,
        worker_id=row.worker_id,
        accepted_at_s=row.accepted_at_s,
        started_at_s=row.started_at_s,
        ended_at_s=row.ended_at_s,
        failure=failure.what_and_why,
        failure_code=failure.code,
        fix=failure.fix,
        traceback=failure.traceback,
        last_log_line=row.last_log_line,
    )


def _attempt(row: AttemptRow) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        container_id=row.container_id,
        worker_id=row.worker_id,
        end=row.end,
        ended_at_s=row.ended_at_s,
        why=row.why,
    )
