"""Carriers inside one process, with controls: delay, stall, cut, reorder, copies. They work in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from ...errors import BrokenByPeer, ClosedByUs
from ...model.ids import Chance
from ..carrier import CarrierStatistics, Counts

SLOTS = 64  # frames under way in one direction; a sender waits beyond


class MemoryCable:
    """Two ends, `left` and `right`, and what a test does to what is between them.

    `delay_s` holds each frame back for so long. `copies` sends each frame as a new object. `reorder` picks what
    arrives next at random among the frames under way.
    """

    def __init__(self, *, delay_s: float = 0.0, copies: bool = False, reorder: Chance | None = None) -> None:
        self.delay_s = delay_s
        self.copies = copies
        self.reorder = reorder
        self.stalled = False
        self.cut_because: str | None = None
        to_right, to_left = _Way(self), _Way(self)
        self.left = MemoryCarrier(self, out=to_right, back=to_left)
        self.right = MemoryCarrier(self, out=to_left, back=to_right)

    def stall(self) -> None:
        """From now on nothing arrives; nothing is lost either."""
        self.stalled = True
        self._changed()

    def resume(self) -> None:
        """Go on after `stall`."""
        self.stalled = False
        self._changed()

    def cut(self, why: str = "the cable was cut") -> None:
        """End it at once; frames under way are lost."""
        self.cut_because = why
        self._changed()

    def _changed(self) -> None:
        for end in (self.left, self.right):
            end.tell()


class _Way:
    """Frames under way in one direction."""

    def __init__(self, cable: MemoryCable) -> None:
        self._cable = cable
        self.frames: deque[tuple[float, bytes]] = deque()
        self.changed = trio.Event()
        self.closed = False

    def tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def put(self, frame: bytes) -> None:
        due = trio.current_time() + self._cable.delay_s
        self.frames.append((due, bytes(bytearray(frame)) if self._cable.copies else frame))
        self.tell()

    def pick(self) -> tuple[float, bytes]:
        chance = self._cable.reorder
        if chance is not None:
            self.frames.rotate(-int(chance.uniform(0, len(self.frames))))
        picked = self.frames.popleft()
        self.tell()
        return picked


class MemoryCarrier:
    """One end of a cable."""

    def __init__(self, cable: MemoryCable, *, out: _Way, back: _Way) -> None:
        self._cable = cable
        self._out = out
        self._back = back
        self._closed = False
        self._counts = Counts("memory")
        self._watcher: Callable[[], None] | None = None

    @property
    def ordered(self) -> bool:
        """Whether the cable keeps the order."""
        return self._cable.reorder is None

    async def send(self, frame: bytes) -> None:
        """Put a frame under way; waits while 64 are."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        while len(self._out.frames) >= SLOTS:
            await self._out.changed.wait()
            self._check_open()
        if self._out.closed:
            raise BrokenByPeer("the other end was closed")
        self._out.put(frame)
        self._counts.sent(frame)

    async def receive(self) -> bytes:
        """The next frame that arrives."""
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            if self._back.frames and not self._cable.stalled:
                return await self._deliver()
            if self._back.closed and not self._cable.stalled:
                raise BrokenByPeer("the other end was closed")
            await self._back.changed.wait()

    async def _deliver(self) -> bytes:
        due, frame = self._back.frames[0] if self.ordered else self._back.pick()
        if due > trio.current_time():
            await trio.sleep_until(due)
            self._check_open()
        if self.ordered:
            self._back.pick()
        self._counts.received(frame)
        return frame

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedByUs("the carrier was closed")
        if self._cable.cut_because is not None:
            raise BrokenByPeer(self._cable.cut_because)

    async def aclose(self) -> None:
        """The other end still receives what is under way."""
        self._closed = True
        self._out.closed = True
        self._back.closed = True
        self._back.frames.clear()
        self._out.tell()
        self._back.tell()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        """A stalled cable is known to be silent without waiting for heartbeats."""
        self._watcher = changed
        return True

    def peer_heard(self) -> bool:
        """Whether the cable is neither stalled nor cut."""
        return not self._cable.stalled and self._cable.cut_because is None

    def tell(self) -> None:
        """The cable changed."""
        self._out.tell()
        if self._watcher is not None:
            self._watcher()

    def statistics(self) -> CarrierStatistics:
        """Counts since the cable was made."""
        return self._counts.statistics()
