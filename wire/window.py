"""The two halves of a session: what was sent and is not acknowledged, and what arrived and was not taken. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from ..errors import PeerProtocolError
from ..model.figures import BATCH_BYTES, FRAME_MAX_BYTES, RESEND_BYTES, RESEND_ENVELOPES
from .codec import Envelope
from .frames import Data, PackedData

ACK_ENVELOPES = RESEND_ENVELOPES // 8  # an acknowledgement goes by itself once this much was taken …
ACK_BYTES = RESEND_BYTES // 8  # … or this much; less waits for data or a heartbeat to travel with


class Outgoing:
    """Packed envelopes by sequence number, kept until acknowledged, so that a resend never packs again."""

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}
        self._bytes = 0
        self.acknowledged = 0
        self.sent = 0
        self.last = 0
        self._furthest = 0
        self.resent = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """The bytes that are kept."""
        return self._bytes

    def fits(self, packed: Sequence[bytes]) -> bool:
        """Whether all of these have room in the window now."""
        return len(self._kept) + len(packed) <= RESEND_ENVELOPES and self._bytes + sum(map(len, packed)) <= RESEND_BYTES

    def put(self, packed: Sequence[bytes]) -> None:
        """Queue these, in order; the caller made sure that they fit."""
        for one in packed:
            self.last += 1
            self._kept[self.last] = one
            self._bytes += len(one)

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return self.sent < self.last

    def next_batch(self, acknowledged: int) -> PackedData:
        """What is to be sent next, up to 64 KiB, at least one envelope."""
        first = self.sent + 1
        size = 0
        batch: list[msgspec.Raw] = []
        for sequence in range(first, self.last + 1):
            one = self._kept[sequence]
            size += len(one)
            if size > BATCH_BYTES and batch:
                break
            batch.append(msgspec.Raw(one))
        self.sent += len(batch)
        self.resent += max(0, min(self._furthest, self.sent) - first + 1)
        self._furthest = max(self._furthest, self.sent)
        return PackedData(first, acknowledged, batch)

    def acknowledge(self, through: int) -> bool:
        """Forget all up to this number; says whether room came free. An older acknowledgement changes nothing."""
        if through > self._furthest:
            raise PeerProtocolError(f"the other side acknowledged {through}, but {self._furthest} is the last one sent")
        for sequence in range(self.acknowledged + 1, through + 1):
            self._bytes -= len(self._kept.pop(sequence))
        freed = through > self.acknowledged
        self.acknowledged = max(self.acknowledged, through)
        return freed

    def can_rewind(self, received: int, acknowledged: int) -> bool:
        """Whether the other side can have received and acknowledged so much."""
        return max(self.acknowledged, acknowledged) <= received <= self._furthest

    def rewind(self, received: int, acknowledged: int) -> None:
        """On a new carrier: go on after the last one that arrived. Raises `PeerProtocolError` when it can't be."""
        if not self.can_rewind(received, acknowledged):
            raise PeerProtocolError(
                f"the other side received {received} and acknowledged {acknowledged}; it had acknowledged "
                f"{self.acknowledged} of {self._furthest} sent"
            )
        self.acknowledge(acknowledged)
        self.sent = received


class Incoming:
    """Puts envelopes in order, drops those that came before, and counts what was not taken yet."""

    def __init__(self) -> None:
        self.received = 0
        self.taken = 0
        self.acknowledged = 0
        self.duplicates = 0
        self._held: dict[int, tuple[Data, int]] = {}
        self._sizes: deque[tuple[int, int]] = deque()
        self._untaken_bytes = 0
        self._unacknowledged_bytes = 0

    def accept(self, data: Data, size_bytes: int, *, ordered: bool) -> tuple[Envelope, ...]:
        """The envelopes that are next in order; none when they were here before or must wait for earlier ones."""
        if data.first > self.received + 1:
            self._hold(data, size_bytes, ordered=ordered)
            return ()
        fresh = self._advance(data, size_bytes)
        while ready := [first for first in self._held if first <= self.received + 1]:
            for first in ready:
                fresh += self._advance(*self._held.pop(first))
        return fresh

    def _hold(self, data: Data, size_bytes: int, *, ordered: bool) -> None:
        if ordered:
            raise PeerProtocolError(f"the other side sent {data.first} where {self.received + 1} comes next")
        self._bound(data.first + len(data.envelopes) - 1, size_bytes + sum(size for _, size in self._held.values()))
        known = self._held.get(data.first)
        if known is None or len(known[0].envelopes) < len(data.envelopes):
            self._held[data.first] = (data, size_bytes)

    def _advance(self, data: Data, size_bytes: int) -> tuple[Envelope, ...]:
        known = self.received + 1 - data.first
        self.duplicates += min(known, len(data.envelopes))
        fresh = data.envelopes[known:] if known else data.envelopes
        if not fresh:
            return ()
        self._bound(self.received + len(fresh), size_bytes)
        self.received += len(fresh)
        self._sizes.append((self.received, size_bytes))
        self._untaken_bytes += size_bytes
        return fresh

    def _bound(self, last: int, size_bytes: int) -> None:
        if last - self.acknowledged > RESEND_ENVELOPES:
            raise PeerProtocolError(f"the other side sent more than {RESEND_ENVELOPES} unacknowledged messages")
        if self._untaken_bytes + size_bytes > RESEND_BYTES + FRAME_MAX_BYTES:
            raise PeerProtocolError(f"the other side sent more than {RESEND_BYTES} unacknowledged bytes")

    def take(self, count: int) -> None:
        """The owner took this many envelopes; they may be acknowledged."""
        self.taken += count
        while self._sizes and self._sizes[0][0] <= self.taken:
            size = self._sizes.popleft()[1]
            self._untaken_bytes -= size
            self._unacknowledged_bytes += size

    @property
    def ack_due(self) -> bool:
        """Whether so much was taken that the acknowledgement waits no longer for something to travel with."""
        return self.taken - self.acknowledged >= ACK_ENVELOPES or self._unacknowledged_bytes >= ACK_BYTES

    def acknowledge(self) -> int:
        """The number to acknowledge now."""
        self.acknowledged = self.taken
        self._unacknowledged_bytes = 0
        return self.taken


def window_fulls(packed: list[bytes]) -> list[list[bytes]]:
    """Cut a long list into parts that each fit an empty window."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for one in packed:
        if len(parts[-1]) == RESEND_ENVELOPES or size + len(one) > RESEND_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += len(one)
    return parts
