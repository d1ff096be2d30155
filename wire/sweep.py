"""One task that looks after all sessions of an end: heartbeats, silence, and what has been gone for too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Protocol

import trio

from ..model.figures import OWN_OUTAGE_S, SWEEP_S


class Swept(Protocol):
    """What a sweep looks after."""

    def due_at(self, now: float) -> float:
        """When to look next; `inf` for never."""
        ...

    def look(self, now: float) -> None:
        """Do what is due."""
        ...

    def forgive(self, now: float) -> None:
        """Our own loop stood still until now."""
        ...


class Sweep:
    """Sleeps until the earliest thing is due. Waking over a second late is our own outage: nobody is blamed for it."""

    def __init__(self, swept: Collection[Swept], clock: Callable[[], float]) -> None:
        self._swept = swept
        self._clock = clock
        self._changed = trio.Event()

    def changed(self) -> None:
        """Something is due earlier than it was."""
        self._changed.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            self._changed = trio.Event()
            now = self._clock()
            planned = min((one.due_at(now) for one in self._swept), default=math.inf)
            with trio.move_on_after(max(0.0, planned - now)):
                await self._changed.wait()
            self._look(planned)

    def _look(self, planned: float) -> None:
        now = self._clock()
        stood_still = now - planned > OWN_OUTAGE_S
        for one in tuple(self._swept):
            if stood_still:
                one.forgive(now)
            one.look(now)


def next_tick(now: float) -> float:
    """When a carrier that needs heartbeats is looked at again."""
    return now + SWEEP_S
