"""Waiting for what the connection's thread brings: in a plain thread, under asyncio, and under Trio."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import DeadlinePassed

if TYPE_CHECKING:
    from .ledger import Arrival

T = TypeVar("T")
Ring = Callable[[], None]


class Inbox:
    """Batches of arrivals, for one consumer. What it holds is bounded by what its owner has in flight."""

    def __init__(self) -> None:
        self._batches: queue.SimpleQueue[list[Arrival]] = queue.SimpleQueue()
        self._ring: Ring | None = None

    def deliver(self, arrivals: list[Arrival]) -> None:
        """Called by the connection."""
        self._batches.put(arrivals)
        ring = self._ring
        if ring is not None:
            ring()

    def take_ready(self) -> list[Arrival]:
        """What is there, without waiting."""
        found: list[Arrival] = []
        while True:
            try:
                found += self._batches.get_nowait()
            except queue.Empty:
                return found

    def take(self, wait_s: float | None = None) -> list[Arrival]:
        """Wait for the next batch, at most so long; nothing when none came."""
        try:
            return self._batches.get(timeout=wait_s) + self.take_ready()
        except queue.Empty:
            return []

    async def take_async(self) -> list[Arrival]:
        """Wait for the next batch without blocking the event loop."""
        found = self.take_ready()
        while not found:
            self._ring, rung = bell()
            found = self.take_ready()  # what came before the bell was hung up
            if not found:
                await rung()
                found = self.take_ready()
        self._ring = None
        return found


class Outcome:
    """One thing that arrives once, for any number of waiting threads and tasks."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._rings: list[Ring] = []
        self._arrival: Arrival | None = None

    def deliver(self, arrivals: list[Arrival]) -> None:
        """Called by the connection."""
        self._arrival = arrivals[0]
        self._gate.release()
        for ring in tuple(self._rings):
            ring()

    @property
    def arrival(self) -> Arrival | None:
        """What came, or None."""
        return self._arrival

    def wait(self, wait_s: float = -1) -> Arrival:
        """Wait for it, for so long; below zero without end. Raises `DeadlinePassed`."""
        if self._arrival is None:
            if not self._gate.acquire(timeout=wait_s):
                raise DeadlinePassed(f"There was no result within {wait_s:g} s. The call goes on.")
            self._gate.release()
        assert self._arrival is not None
        return self._arrival

    async def wait_async(self) -> Arrival:
        """Wait for it without blocking the event loop."""
        ring, rung = bell()
        self._rings.append(ring)
        try:
            while self._arrival is None:
                await rung()
        finally:
            self._rings.remove(ring)
        return self._arrival


def bell() -> tuple[Ring, Callable[[], Awaitable[None]]]:
    """A bell for the event loop that runs here: ring it from any thread, wait for it here. Raises outside of one."""
    if in_trio():
        return _trio_bell()
    return _asyncio_bell()


async def in_thread(function: Callable[[], T]) -> T:
    """Run something that blocks beside the event loop."""
    if in_trio():
        import trio

        return await trio.to_thread.run_sync(function, abandon_on_cancel=True)
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, function)


def in_trio() -> bool:
    """Whether Trio runs in this thread."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def _trio_bell() -> tuple[Ring, Callable[[], Awaitable[None]]]:
    import trio

    token, rung = trio.lowlevel.current_trio_token(), trio.Event()

    def ring() -> None:
        try:
            token.run_sync_soon(rung.set)
        except trio.RunFinishedError:
            return  # whoever waited has gone with its event loop

    return ring, rung.wait


def _asyncio_bell() -> tuple[Ring, Callable[[], Awaitable[None]]]:
    import asyncio

    loop, rung = asyncio.get_running_loop(), asyncio.Event()

    def ring() -> None:
        try:
            loop.call_soon_threadsafe(rung.set)
        except RuntimeError:
            return  # whoever waited has gone with its event loop

    async def wait() -> None:
        await rung.wait()

    return ring, wait
