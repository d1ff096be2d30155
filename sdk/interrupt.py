"""Ctrl-C: cancels what is outstanding, says so in one line, and leaves nothing running behind the person's back."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from ..errors import LeversError
from ..model.states import TaskState
from ..wire.client import TaskStanding
from .connection import Connection

_WAIT_S: Final = 3.0


def cancel_and_tell(connection: Connection, task_ids: tuple[str, ...]) -> None:
    """Cancel, wait briefly for that to be committed, and say how it stands. A second Ctrl-C ends the waiting."""
    if not task_ids:
        return
    try:
        standings = connection.cancel(task_ids, _WAIT_S)
    except LeversError as error:
        _say(f"interrupted; {_calls(len(task_ids))} could not be cancelled and may still run: {error}")
        return
    _say(_sentence(standings))


def say_cancelled(count: int) -> None:
    """Say that calls were cancelled because of the interrupt, where that was done already."""
    _say(f"interrupted; {_calls(count)} cancelled.")


def _sentence(standings: tuple[TaskStanding, ...]) -> str:
    counts = Counter(standing.state for standing in standings)
    stopping = counts.pop(TaskState.CANCELLING, 0)
    cancelled = counts.pop(TaskState.CANCELLED, 0)
    parts = [f"interrupted; {_calls(cancelled + stopping)} cancelled"]
    if stopping:
        parts.append(f"{stopping:,} of them still stopping")
    if counts:
        parts.append(f"{sum(counts.values()):,} had ended before")
    return ", ".join(parts) + "."


def _calls(count: int) -> str:
    return f"{count:,} call" if count == 1 else f"{count:,} calls"


def _say(sentence: str) -> None:
    print(f"\nlevers9: {sentence}", file=sys.stderr, flush=True)
