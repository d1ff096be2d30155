"""How a task without a result becomes an exception here: itself where it can be, with its remote traceback."""

from __future__ import annotations

from typing import Final

from ..errors import (
    LeversError,
    Refused,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskLost,
    TaskOutOfMemory,
    TaskTimedOut,
)
from ..model.states import End, TaskState
from ..wire.client import TaskResult
from ..wire.message import Failure
from .packing import unpickled

_BY_STATE: Final = {
    TaskState.CANCELLED: TaskCancelled,
    TaskState.TIMEOUT: TaskTimedOut,
    TaskState.EXPIRED: TaskExpired,
}
_BY_CODE: Final = {
    "out_of_memory": TaskOutOfMemory,
    "disconnected": TaskLost,
    "timed_out": TaskTimedOut,
    "cancelled": TaskCancelled,
}


class RemoteTraceback(Exception):
    """The traceback of the remote exception, as text; the cause of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f'\n"""\n{text.rstrip()}\n"""')


def failure_of(result: TaskResult) -> Exception:
    """The exception to raise for a task that has no result."""
    failure = result.failure or Failure(str(result.state), _without_words(result.state))
    error = _original(failure)
    if error is None:
        error = _named(result, failure)
        if failure.fix:
            error.add_note(failure.fix)
    if failure.traceback:
        error.__cause__ = RemoteTraceback(failure.traceback)
    error.add_note(
        f"Raised in task {result.task_id}, attempt {result.attempt}. See: levers9 task logs {result.task_id}"
    )
    return error


def refusal_of(failure: Failure) -> LeversError:
    """The exception for a request that was refused."""
    return Refused(failure.what, failure.why, failure.fix, failure.code)


def _original(failure: Failure) -> Exception | None:
    if not failure.exception:
        return None
    try:
        error = unpickled(failure.exception)
    except Exception:  # whatever a foreign class does when it is made: its text still tells what happened
        return None
    return error if isinstance(error, Exception) else None  # never SystemExit: it would end the caller's program


def _named(result: TaskResult, failure: Failure) -> TaskFailed:
    kind = _BY_STATE.get(result.state) or _BY_CODE.get(failure.code.replace(" ", "_"), TaskFailed)
    why = " ".join(part for part in (failure.what, failure.why) if part)
    return kind(result.task_id, str(result.state), why)


def _without_words(state: TaskState) -> str:
    if state is TaskState.EXPIRED:
        return "It is not known any more: results are kept 12 hours unread, and 10 minutes after they were read."
    return f"No reason was given ({End.ERROR})." if state is TaskState.ERROR else "It was ended."
