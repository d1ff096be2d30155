"""What is on its way to one peer: straight into its session while that has room, else a bounded queue of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import trio

from ...errors import BrokenByPeer, ClosedByUs, WouldBlock
from ...wire.codec import Envelope

QUEUE_ENVELOPES: Final = 16_384  # four resend windows: what a burst of results may run ahead of a peer
QUEUE_BYTES: Final = 32 << 20  # four resend windows
_BATCH: Final = 512


class Line(Protocol):
    """What an outlet and a relay need of a session's link."""

    async def send(self, *envelopes: Envelope) -> None:
        """Wait while the window is full. Raises `BrokenByPeer` once closed for good."""
        ...

    def send_nowait(self, *envelopes: Envelope) -> None:
        """Raises `WouldBlock` while the window is full."""
        ...

    async def aclose(self) -> None:
        """End the session."""
        ...


class OutletStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What went through an outlet so far, and what waits in it."""

    sent: int
    dropped: int
    waiting: int
    waiting_bytes: int


class Outlet:
    """Never blocks whoever puts something in. A peer that is too slow for its queue is cut off, and resynchronises."""

    def __init__(self, line: Line, envelopes: int = QUEUE_ENVELOPES, size_bytes: int = QUEUE_BYTES) -> None:
        self._line = line
        self._most_envelopes = envelopes
        self._most_bytes = size_bytes
        self._queue: deque[Envelope] = deque()
        self._queued_bytes = 0
        self._sending = False
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._sent = self._dropped = 0
        self.over = False

    def statistics(self) -> OutletStatistics:
        """What went through so far."""
        return OutletStatistics(
            sent=self._sent, dropped=self._dropped, waiting=len(self._queue), waiting_bytes=self._queued_bytes
        )

    def put(self, envelopes: Sequence[Envelope]) -> int:
        """Send now or soon; answers how many were dropped, because the queue overflowed or the peer is gone."""
        if self.over:
            self._dropped += len(envelopes)
            return len(envelopes)
        if not self._queue and not self._sending and self._sent_at_once(envelopes):
            return 0
        return self._enqueue(envelopes)

    def _sent_at_once(self, envelopes: Sequence[Envelope]) -> bool:
        try:
            self._line.send_nowait(*envelopes)
        except (WouldBlock, BrokenByPeer, ClosedByUs):
            return False
        self._sent += len(envelopes)
        return True

    def _enqueue(self, envelopes: Sequence[Envelope]) -> int:
        self._queue.extend(envelopes)
        self._queued_bytes += sum(len(memoryview(one.payload)) for one in envelopes)
        self._wake.set()
        if len(self._queue) <= self._most_envelopes and self._queued_bytes <= self._most_bytes:
            return 0
        self._end("too slow")
        return self._discard()

    def _end(self, why: str) -> None:
        self.over = True
        self._scope.cancel(reason=why)

    def _discard(self) -> int:
        lost = len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._dropped += lost
        return lost

    async def run(self) -> None:
        """Move what waits into the session; ends when the peer is gone for good, or was too slow."""
        with self._scope:
            try:
                while not self.over:
                    await self._send_when_there_is()
            except (BrokenByPeer, ClosedByUs):
                self.over = True
        self._discard()

    async def _send_when_there_is(self) -> None:
        if self._queue:
            await self._send_some()
            return
        self._wake = trio.Event()
        await self._wake.wait()

    async def _send_some(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
        self._queued_bytes -= sum(len(memoryview(one.payload)) for one in batch)
        self._sending = True
        try:
            await self._line.send(*batch)
        finally:
            self._sending = False
        self._sent += len(batch)
