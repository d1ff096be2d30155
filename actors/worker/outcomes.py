"""What an attempt came to, as a result: run, not started, ended on purpose, or lost with its container. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.figures import FRAME_MAX_BYTES
from ...model.states import End
from ...wire.message import Failure
from ...wire.work import AttemptOrder, AttemptResult
from .events import ContainerExited
from .ledger import Attempt, Held

PART_BYTES: Final = FRAME_MAX_BYTES // 2 + (64 << 10)  # one inline result of the largest size fits
_RESULT_BYTES: Final = 160  # of a result without its payload, about


def parts(results: tuple[AttemptResult, ...]) -> list[tuple[AttemptResult, ...]]:
    """Results in parts, each of which is well within a frame together with its envelope."""
    parts: list[list[AttemptResult]] = [[]]
    room = PART_BYTES
    for result in results:
        size = _size(result)
        if size > room and parts[-1]:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(result)
        room -= size
    return [tuple(part) for part in parts]


def _size(result: AttemptResult) -> int:
    size = _RESULT_BYTES + (len(result.result.data) if result.result is not None else 0)
    failure = result.failure
    if failure is None:
        return size
    return size + len(failure.exception) + 4 * (len(failure.what) + len(failure.why) + len(failure.traceback))


def not_started(order: AttemptOrder, end: End, why: str) -> AttemptResult:
    """No line of the person's code ran for it."""
    failure = Failure(end.value.replace(" ", "_"), "The call was not started.", why)
    return AttemptResult(order.task_id, order.attempt, end, False, None, failure)


def handed_back(order: AttemptOrder) -> AttemptResult:
    """It has waited for long enough behind the one that runs."""
    why = "The one before it in its container takes long, and another container may be free."
    return not_started(order, End.HANDED_BACK, why)


def dropped(attempt: Attempt, stop_why: str) -> AttemptResult:
    """Its container starts it no more; `stop_why`: because that ends itself."""
    if attempt.wanted_end is not None:
        return not_started(attempt.order, attempt.wanted_end, "it was cancelled")
    return not_started(attempt.order, End.DISCONNECTED, stop_why) if stop_why else handed_back(attempt.order)


def as_wanted(attempt: Attempt, result: AttemptResult) -> AttemptResult:
    """A call that succeeded before its cancel reached it has succeeded; one that ran too long has not."""
    wanted = attempt.wanted_end
    if wanted is None or (wanted is End.CANCELLED and result.end is End.OK):
        return result
    return msgspec.structs.replace(result, end=wanted, result=None, failure=_failure(attempt, wanted, ""))


def ended_with(held: Held, attempt: Attempt, event: ContainerExited) -> AttemptResult:
    """What an attempt came to whose container ended: only the last that started was running."""
    order = attempt.order
    if attempt.key not in event.started:
        return not_started(order, attempt.wanted_end or End.DISCONNECTED, held.stop_why or event.why)
    end = End.DISCONNECTED
    if attempt.key == event.started[-1]:
        end = attempt.wanted_end or _running_end(held, event)
    failure = _failure(attempt, end, held.stop_why or event.why)
    result = AttemptResult(order.task_id, order.attempt, end, True, None, failure)
    return msgspec.structs.replace(result, preempted=held.preempted and attempt.wanted_end is None)


def _running_end(held: Held, event: ContainerExited) -> End:
    mattering = held.stop_end is None and event.end in (End.OUT_OF_MEMORY, End.KILLED)
    return event.end if mattering else End.DISCONNECTED


def _failure(attempt: Attempt, end: End, why: str) -> Failure:
    what = {
        End.CANCELLED: "The call was cancelled.",
        End.TIMED_OUT: f"The call ran longer than its limit of {attempt.order.timeout_s:g} s.",
        End.OUT_OF_MEMORY: "The call ran out of memory.",
        End.KILLED: "The process of the call was killed.",
    }.get(end, "The container ended while the call ran.")
    return Failure(end.value.replace(" ", "_"), what, why)
