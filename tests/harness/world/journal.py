"""What happened, in order, as bytes: each transaction of the store with its answers, and each frame that arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

_encoder: Final = msgspec.msgpack.Encoder()


class Journal:
    """Entries are msgpack arrays of (time, kind, what…), one after the other."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: list[bytes] = []

    def note(self, kind: str, *what: object) -> None:
        """Append an entry."""
        self._entries.append(_encoder.encode((self._clock(), kind, *what)))

    def __len__(self) -> int:
        return len(self._entries)

    def to_bytes(self) -> bytes:
        """The whole journal."""
        return b"".join(self._entries)

    def digest(self) -> str:
        """A short name of the whole journal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:16]

    def entries(self) -> list[object]:
        """All entries, decoded."""
        return [msgspec.msgpack.decode(entry) for entry in self._entries]


def seed_of(seed: int, *part: object) -> int:
    """The seed of one part of a world: parts draw independently of each other, so that one more draw moves no other."""
    text = repr((seed, *part)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
