"""What carries frames between two ends: the face that memory, nng and WebSocket share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class CarrierStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What went through a carrier. `kind` is "memory", "nng" or "websocket"."""

    kind: str
    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int


class Carrier(Protocol):
    """Whole frames, each at most once. One task sends, one receives. A cancelled `send` leaves only `aclose`."""

    @property
    def ordered(self) -> bool:
        """Whether frames arrive in the order in which they were sent."""
        ...

    async def send(self, frame: bytes) -> None:
        """Raises `BrokenByPeer` once the other side is gone, `ClosedByUs` after `aclose`."""
        ...

    async def receive(self) -> bytes:
        """Raises `BrokenByPeer` once the other side is gone, `ClosedByUs` after `aclose`."""
        ...

    async def aclose(self) -> None:
        """Give everything back; bounded in time, and again does nothing."""
        ...

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        """Have `changed` called when the other end can be heard no longer, or again. False: only heartbeats tell."""
        ...

    def peer_heard(self) -> bool:
        """Whether the other end can be heard now, for carriers that know it by themselves."""
        ...

    def statistics(self) -> CarrierStatistics:
        """Counts since the carrier was made."""
        ...


class Counts:
    """The counters behind `CarrierStatistics`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._frames_sent = self._frames_received = self._bytes_sent = self._bytes_received = 0

    def sent(self, frame: bytes) -> None:
        """A frame left."""
        self._frames_sent += 1
        self._bytes_sent += len(frame)

    def received(self, frame: bytes) -> None:
        """A frame arrived."""
        self._frames_received += 1
        self._bytes_received += len(frame)

    def statistics(self) -> CarrierStatistics:
        """The counts now."""
        return CarrierStatistics(
            kind=self._kind,
            frames_sent=self._frames_sent,
            frames_received=self._frames_received,
            bytes_sent=self._bytes_sent,
            bytes_received=self._bytes_received,
        )
