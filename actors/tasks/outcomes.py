"""What an attempt's end means for its task: done, failed, or once more."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.states import End, TaskEvent, TaskState
from ...wire.message import Failure
from ...wire.work import AttemptResult
from .ledger import Call

# The call itself did nothing wrong: it may run again.
LOSSES: Final = frozenset({End.DISCONNECTED, End.KILLED, End.HANDED_BACK})

_FINAL: Final = {
    End.OK: TaskEvent.SUCCEEDED,
    End.ERROR: TaskEvent.FAILED,
    End.APP_FAILED_TO_LOAD: TaskEvent.FAILED,
    End.OUT_OF_MEMORY: TaskEvent.FAILED,
    End.IMAGE_INVALID: TaskEvent.FAILED,
    End.REFUSED: TaskEvent.FAILED,
    End.TIMED_OUT: TaskEvent.TIMED_OUT,
}

CANCELLED: Final = Failure("cancelled", "The task was cancelled.")


class Verdict(msgspec.Struct, frozen=True):
    """What follows. `uses_retry` when the task goes on and one of its retries is spent."""

    event: TaskEvent
    uses_retry: bool = False


def judge_end(call: Call, result: AttemptResult, retries: int) -> Verdict:
    """A raised exception, a timeout and too much memory are answers; only a loss runs again, while retries are left.

    An attempt of which no line ran uses no retry, and none whose container made room for others. CANCELLED without a
    cancel of the task is a loss: its container was told to stop.
    """
    end = result.end
    if call.state is TaskState.CANCELLING:
        return Verdict(TaskEvent.SUCCEEDED if end is End.OK else TaskEvent.STOPPED)
    if end not in LOSSES and end is not End.CANCELLED:
        return Verdict(_FINAL[end])
    if not result.started or result.preempted:
        return Verdict(TaskEvent.RETRIED)
    if call.retries_used < retries:
        return Verdict(TaskEvent.RETRIED, uses_retry=True)
    return Verdict(TaskEvent.FAILED)


def lost_with(end: End) -> End:
    """What a container's end is to calls whose own end its worker never told: a kill stays one, the rest is a loss.

    Too much memory is a kill to them: the worker says itself which call it was that ran out of it.
    """
    return End.KILLED if end in (End.OUT_OF_MEMORY, End.KILLED) else End.DISCONNECTED


def loss_failure(end: End, why: str, retries_used: int) -> Failure:
    """The words for work that was lost once too often."""
    killed = end is End.KILLED
    what = "The process of this call was killed." if killed else "The worker that ran this call was lost."
    tried = "It was tried once" if not retries_used else f"It was tried {retries_used + 1} times"
    return Failure(end.value, what, why, f"{tried}; raise `retries` if that happens often.")
