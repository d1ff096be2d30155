"""What an attempt's end means for its task: done, failed, or once more."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.states import End, TaskEvent, TaskState
from ...wire.message import Failure
from .ledger import Call

LOSSES: Final = frozenset({End.DISCONNECTED, End.KILLED})  # the call itself did nothing wrong: it may run again

_FINAL: Final = {
    End.OK: TaskEvent.SUCCEEDED,
    End.ERROR: TaskEvent.FAILED,
    End.APP_FAILED_TO_LOAD: TaskEvent.FAILED,
    End.OUT_OF_MEMORY: TaskEvent.FAILED,
    End.IMAGE_INVALID: TaskEvent.FAILED,
    End.REFUSED: TaskEvent.FAILED,
    End.TIMED_OUT: TaskEvent.TIMED_OUT,
    End.CANCELLED: TaskEvent.STOPPED,
}


class Verdict(msgspec.Struct, frozen=True):
    """What follows. `uses_retry` when the task goes on and one of its retries is spent."""

    event: TaskEvent
    uses_retry: bool = False


def judge_end(call: Call, end: End, started: bool, retries: int) -> Verdict:
    """A raised exception, a timeout and too much memory are answers; only a loss runs again, while retries are left.

    An attempt of which no line ran uses no retry.
    """
    if call.state is TaskState.CANCELLING:
        return Verdict(TaskEvent.SUCCEEDED if end is End.OK else TaskEvent.STOPPED)
    if end in LOSSES or (end is End.CANCELLED and call.state is TaskState.RUNNING):
        if not started:
            return Verdict(TaskEvent.RETRIED)
        if call.retries_used < retries:
            return Verdict(TaskEvent.RETRIED, uses_retry=True)
        return Verdict(TaskEvent.FAILED)
    return Verdict(_FINAL[end])


def loss_failure(end: End, why: str, retries: int) -> Failure:
    """The words for work that was lost once too often."""
    what = (
        "The worker that ran this call was lost." if end is End.DISCONNECTED else "The process of this call was killed."
    )
    return Failure(end.value, what, why, f"It was tried {retries + 1} times; raise `retries` if that happens often.")
