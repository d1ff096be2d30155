"""Ends a process whose event loop stands still, so that whoever started it starts it anew: a probe in its own process.

A command that is run in a pod every few seconds would cost more than the agent itself.
"""

from __future__ import annotations

import faulthandler
from typing import Final

import trio

STILL_S: Final = 120.0  # far longer than any turn: a list of 50,000 pods is told in seconds
BEAT_S: Final = 10.0
_STDERR: Final = 2


async def end_when_still(still_s: float = STILL_S, beat_s: float = BEAT_S) -> None:
    """Until cancelled. A loop that stood still so long ends its process with status 1, after where each thread was."""
    try:
        while True:
            faulthandler.dump_traceback_later(still_s, exit=True, file=_STDERR)
            await trio.sleep(beat_s)
    finally:
        faulthandler.cancel_dump_traceback_later()
