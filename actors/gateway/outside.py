"""What a gateway needs of the world outside: an object store and wake-ups; and the wake-ups of a single process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import trio


class Objects(Protocol):
    """Bytes under keys. A key is `WORKSPACE/blob/SHA256` or `WORKSPACE/logs/CONTAINER/CHUNK`."""

    async def get(self, key: str) -> bytes | None:
        """The whole object, or None."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Keep an object; a known key is replaced."""
        ...

    async def missing(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Those of `keys` that the store lacks."""
        ...

    async def keys_under(self, prefix: str, after: str = "") -> tuple[str, ...]:
        """Whole keys that begin with `prefix` and sort after `after`, sorted."""
        ...

    async def write(self, key: str, chunks: AsyncIterable[bytes]) -> None:
        """Keep a large object; nothing is kept when `chunks` raises."""
        ...

    async def size_bytes(self, key: str) -> int | None:
        """How large an object is, or None without one."""
        ...

    def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """The object in pieces."""
        ...


class Bell:
    """Rings when its channel is published; a ring while nobody waits is kept, several are one."""

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake whoever waits."""
        self._rung.set()

    async def wait(self, at_most_s: float) -> bool:
        """Wait for the next ring, and answer whether there was one."""
        with trio.move_on_after(at_most_s):
            await self._rung.wait()
        rung = self._rung.is_set()
        self._rung = trio.Event()
        return rung


class Broadcast(Protocol):
    """Carries wake-ups to other processes; they may be lost."""

    async def publish(self, channel: str) -> None:
        """Tell everybody who listens to this channel."""
        ...


class Wakeups:
    """Wake-ups in this process, and to others where a broadcast is given. They may be lost: whoever waits looks too."""

    def __init__(self, broadcast: Broadcast | None = None) -> None:
        self._bells: dict[str, dict[Bell, None]] = {}
        self._broadcast = broadcast

    def arrived(self, channel: str) -> None:
        """Ring the bells of a channel."""
        for bell in self._bells.get(channel, ()):
            bell.ring()

    async def publish(self, channel: str) -> None:
        """Ring here, and everywhere else."""
        self.arrived(channel)
        if self._broadcast is not None:
            await self._broadcast.publish(channel)

    @contextmanager
    def listen(self, channel: str) -> Iterator[Bell]:
        """A bell of one's own for a channel."""
        bell = Bell()
        self._bells.setdefault(channel, {})[bell] = None
        try:
            yield bell
        finally:
            bells = self._bells[channel]
            del bells[bell]
            if not bells:
                del self._bells[channel]
