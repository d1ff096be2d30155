"""What may be lost at any moment: wake-ups, routes, log tails and rates. The faces, and the twin in memory.

Whoever uses these has another place from which what is lost is rebuilt: a wake-up only says "look now".
An answer of None means "not known", also when the server is away; no call here raises for that.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Final, Protocol, Self

import trio

QUEUE_MAX: Final = 256  # wake-ups of a slow reader; the newest ones are kept, since one look finds all that came before
TAIL_LINES: Final = 1000
TAIL_TTL_S: Final = 3600.0
TOKENS_CHANNEL: Final = "tokens"  # a token was revoked


class Subscription(Protocol):
    """The texts published on a channel from now on. A context manager: leaving it unsubscribes."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> str:
        """The next text. An empty one means: the connection was lost in between, so look for yourself."""
        ...


class Wakeups(Protocol):
    """Publish and subscribe. A text reaches those who are subscribed at that moment, as a rule once."""

    async def publish(self, channel: str, text: str) -> None:
        """Tell subscribers; lost without a word when the server is away."""
        ...

    def subscribe(self, channel: str) -> Subscription:
        """Use as `async with … as texts`; subscribed once entered."""
        ...


class Routes(Protocol):
    """Where something can be reached, for a while."""

    async def set(self, key: str, value: str, ttl_s: float) -> None:
        """Remember for `ttl_s`; forgotten earlier when the server is."""
        ...

    async def get(self, key: str) -> str | None:
        """The value, or None when it is not known."""
        ...


class Tails(Protocol):
    """The newest lines of logs, for readers that came late; the whole log is in the object store."""

    async def append(self, key: str, lines: tuple[bytes, ...]) -> None:
        """Keep lines; the newest `TAIL_LINES` for `TAIL_TTL_S`."""
        ...

    async def tail(self, key: str) -> tuple[bytes, ...] | None:
        """Those kept, oldest first, or None when they are not known."""
        ...


class Rates(Protocol):
    """Counters of a window of time."""

    async def count(self, key: str, window_s: float) -> int | None:
        """Count one more, and answer how many there were in the window that began with the first; None: not known."""
        ...


class MemorySubscription:
    """A subscription in memory."""

    def __init__(self, wakeups: MemoryWakeups, channel: str) -> None:
        self._wakeups = wakeups
        self._channel = channel
        self.texts = NewestTexts()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        self._wakeups.subscribers.setdefault(self._channel, []).append(self.texts)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wakeups.subscribers[self._channel].remove(self.texts)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        return await self.texts.next()


class NewestTexts:
    """A queue that forgets the oldest rather than hold up whoever tells. In Trio's thread."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=QUEUE_MAX)
        self._arrived = trio.Event()

    def put(self, text: str) -> None:
        """Add one."""
        self._texts.append(text)
        self._arrived.set()

    async def next(self) -> str:
        """The oldest one kept, as soon as there is one."""
        await trio.lowlevel.checkpoint()
        while not self._texts:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._texts.popleft()


class MemoryWakeups:
    """All four faces in memory. It can forget everything, as the real one may: `forget`."""

    def __init__(self) -> None:
        self.subscribers: dict[str, list[NewestTexts]] = {}
        self._routes: dict[str, tuple[float, str]] = {}
        self._tails: dict[str, tuple[float, deque[bytes]]] = {}
        self._counts: dict[str, tuple[float, int]] = {}

    async def publish(self, channel: str, text: str) -> None:
        """See `Wakeups.publish`."""
        await trio.lowlevel.checkpoint()
        for texts in self.subscribers.get(channel, ()):
            texts.put(text)

    def subscribe(self, channel: str) -> MemorySubscription:
        """See `Wakeups.subscribe`."""
        return MemorySubscription(self, channel)

    async def set(self, key: str, value: str, ttl_s: float) -> None:
        """See `Routes.set`."""
        await trio.lowlevel.checkpoint()
        self._routes[key] = (trio.current_time() + ttl_s, value)

    async def get(self, key: str) -> str | None:
        """See `Routes.get`."""
        await trio.lowlevel.checkpoint()
        until, value = self._routes.get(key, (0.0, ""))
        return value if trio.current_time() < until else None

    async def append(self, key: str, lines: tuple[bytes, ...]) -> None:
        """See `Tails.append`."""
        await trio.lowlevel.checkpoint()
        _, kept = self._tails.get(key, (0.0, deque(maxlen=TAIL_LINES)))
        kept.extend(lines)
        self._tails[key] = (trio.current_time() + TAIL_TTL_S, kept)

    async def tail(self, key: str) -> tuple[bytes, ...] | None:
        """See `Tails.tail`."""
        await trio.lowlevel.checkpoint()
        until, kept = self._tails.get(key, (0.0, deque[bytes]()))
        return tuple(kept) if trio.current_time() < until else None

    async def count(self, key: str, window_s: float) -> int | None:
        """See `Rates.count`."""
        await trio.lowlevel.checkpoint()
        until, count = self._counts.get(key, (0.0, 0))
        if trio.current_time() >= until:
            until, count = trio.current_time() + window_s, 0
        self._counts[key] = (until, count + 1)
        return count + 1

    def forget(self) -> None:
        """Lose everything but the subscriptions."""
        self._routes.clear()
        self._tails.clear()
        self._counts.clear()
