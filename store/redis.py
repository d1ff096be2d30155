"""Wake-ups, routes, tails and rates in Redis or Valkey. Everything there may vanish at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import msgspec
import redis.asyncio
import redis.backoff
import redis.exceptions
import redis.retry
import trio

from ..errors import INVALID, Refused
from .island import Island, open_island
from .wakeups import TAIL_LINES, TAIL_TTL_S, NewestTexts

T = TypeVar("T")

_ANSWER_S: Final = 2.0
_CONNECTIONS: Final = 8
_LISTEN_S: Final = 1.0
_FIRST_DELAY_S: Final = 0.05
_MAX_DELAY_S: Final = 1.0
_AWAY: Final = (redis.exceptions.RedisError, OSError, TimeoutError)

Client = redis.asyncio.Redis


class RedisStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and how often the server did not answer."""

    commands: int
    failures: int
    subscriptions: int


class RedisWakeups:
    """All four faces of `wakeups`, in Redis. `open_redis` makes one.

    Commands run on the island to their own end or deadline; a cancelled caller only stops waiting.
    """

    def __init__(self, island: Island, url: str) -> None:
        self._island = island
        self._url = url
        self._client: Client | None = None
        self._listener: _Listener | None = None
        self._slots = asyncio.Semaphore(_CONNECTIONS)
        self._commands = self._failures = 0

    async def start(self) -> None:
        """Make the clients; neither connects yet. Raises `Refused` for an address that cannot be read."""

        async def make() -> None:
            self._client = _client(self._url)
            self._listener = _Listener(_client(self._url))
            self._island.start(self._listener.run())

        await self._island.call(make)

    async def stop(self) -> None:
        """Close the connections."""

        async def close() -> None:
            assert self._client is not None
            await self._client.aclose()

        await self._island.call(close)

    async def publish(self, channel: str, text: str) -> None:
        """See `Wakeups.publish`."""
        await self._ask(lambda client: client.publish(channel, text))

    def subscribe(self, channel: str) -> RedisSubscription:
        """See `Wakeups.subscribe`."""
        assert self._listener is not None
        return RedisSubscription(self._island, self._listener, channel)

    async def set(self, key: str, value: str, ttl_s: float) -> None:
        """See `Routes.set`."""
        await self._ask(lambda client: client.set(f"route:{key}", value, px=max(1, round(ttl_s * 1000))))

    async def get(self, key: str) -> str | None:
        """See `Routes.get`."""
        value = await self._ask(lambda client: client.get(f"route:{key}"))
        return cast("bytes", value).decode() if value is not None else None

    async def append(self, key: str, lines: tuple[bytes, ...]) -> None:
        """See `Tails.append`."""

        async def push(client: Client) -> object:
            async with client.pipeline(transaction=True) as pipe:
                pipe.rpush(f"tail:{key}", *lines)
                pipe.ltrim(f"tail:{key}", -TAIL_LINES, -1)
                pipe.expire(f"tail:{key}", round(TAIL_TTL_S))
                return await pipe.execute()

        if lines:
            await self._ask(push)

    async def tail(self, key: str) -> tuple[bytes, ...] | None:
        """See `Tails.tail`."""
        lines = await self._ask(lambda client: cast("Awaitable[list[bytes]]", client.lrange(f"tail:{key}", 0, -1)))
        return tuple(lines) if lines else None

    async def count(self, key: str, window_s: float) -> int | None:
        """See `Rates.count`."""

        async def add(client: Client) -> list[int]:
            async with client.pipeline(transaction=True) as pipe:
                pipe.incr(f"rate:{key}")
                pipe.pexpire(f"rate:{key}", max(1, round(window_s * 1000)), nx=True)
                return cast("list[int]", await pipe.execute())

        counted = await self._ask(add)
        return counted[0] if counted is not None else None

    def statistics(self) -> RedisStatistics:
        """What it did so far."""
        open_now = self._listener.open_now if self._listener is not None else 0
        return RedisStatistics(commands=self._commands, failures=self._failures, subscriptions=open_now)

    async def _in_turn(self, command: Callable[[Client], Awaitable[T]], client: Client) -> T:
        """The pool raises when all its connections are in use: whoever comes then waits here."""
        async with self._slots:
            return await command(client)

    async def _ask(self, command: Callable[[Client], Awaitable[T]]) -> T | None:
        """The answer, or None when there is none."""
        client = self._client
        assert client is not None
        self._commands += 1
        try:
            return await self._island.call(lambda: self._in_turn(command, client))
        except _AWAY:
            self._failures += 1
            return None


def _client(url: str) -> Client:
    """Redis' own retries: one, at once, since a connection that broke while idle is found out only by using it."""
    try:
        return redis.asyncio.from_url(
            url,
            socket_timeout=_ANSWER_S,
            socket_connect_timeout=_ANSWER_S,
            max_connections=_CONNECTIONS,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 1),
        )
    except ValueError as error:
        fix = "Give redis://… or unix://…"
        raise Refused("The address of Redis cannot be read.", str(error), fix, INVALID) from error


class _Listener:
    """One connection that hears every channel somebody here subscribed to. On the island."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard: dict[str, list[NewestTexts]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._pubsub = client.pubsub()

    @property
    def open_now(self) -> int:
        """How many subscriptions there are."""
        return sum(len(each) for each in self._heard.values())

    async def add(self, channel: str, texts: NewestTexts) -> None:
        """Hear a channel, from the return on if the server is there, else once it is back."""
        known = channel in self._heard
        self._heard.setdefault(channel, []).append(texts)
        confirmed = self._confirmed.setdefault(channel, asyncio.Event())
        try:
            if not known:
                await self._pubsub.subscribe(channel)
            self._changed.set()
            await asyncio.wait_for(confirmed.wait(), _ANSWER_S)
        except _AWAY:
            self._changed.set()  # `run` meets the same fault, subscribes to all, and tells everybody to look

    async def remove(self, channel: str, texts: NewestTexts) -> None:
        """Hear it no more, once nobody does."""
        left = [each for each in self._heard[channel] if each is not texts]
        if left:
            self._heard[channel] = left
            return
        del self._heard[channel]
        del self._confirmed[channel]
        try:
            await self._pubsub.unsubscribe(channel)
        except _AWAY:
            pass  # the next connection does not subscribe to it

    async def run(self) -> None:
        """Hear for ever; after a loss, subscribe again and tell everybody to look."""
        delay_s = _FIRST_DELAY_S
        try:
            while True:
                try:
                    await self._hear()
                    delay_s = _FIRST_DELAY_S
                except _AWAY:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, _MAX_DELAY_S)
                    await self._again()
        finally:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
            await self._client.aclose()

    async def _hear(self) -> None:
        if not self._heard:
            self._changed.clear()
            await self._changed.wait()
        if cast("object", self._pubsub.connection) is None:  # its own annotation says that it never is anything else
            raise redis.exceptions.ConnectionError("not connected yet, or no more")
        message = await self._pubsub.get_message(timeout=_LISTEN_S)
        if message is None:
            return
        channel = message["channel"].decode()
        if message["type"] == "message":
            self._spread(channel, message["data"].decode())
        elif message["type"] == "subscribe" and channel in self._confirmed:
            self._subscribed(channel)

    def _subscribed(self, channel: str) -> None:
        """A second confirmation means that the connection is another one: something may have been missed."""
        if self._confirmed[channel].is_set():
            self._spread(channel, "")
        self._confirmed[channel].set()

    async def _again(self) -> None:
        try:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
            self._pubsub = self._client.pubsub()
            if self._heard:
                await self._pubsub.subscribe(*self._heard)
        except _AWAY:
            pass  # `run` meets it again, and waits longer

    def _spread(self, channel: str, text: str) -> None:
        for texts in self._heard.get(channel, ()):
            texts.put(text)


class RedisSubscription:
    """A subscription in Redis."""

    def __init__(self, island: Island, listener: _Listener, channel: str) -> None:
        self._island = island
        self._listener = listener
        self._channel = channel
        self._texts = NewestTexts()

    async def __aenter__(self) -> Self:
        try:
            await self._island.call(lambda: self._listener.add(self._channel, self._texts))
        except trio.Cancelled:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        with trio.move_on_after(_ANSWER_S) as scope:
            scope.shield = True
            await self._island.call(lambda: self._listener.remove(self._channel, self._texts))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        return await self._texts.next()


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator[RedisWakeups]:
    """Use the server at `redis://…` or `unix://…` while the block lasts, whether it is there at the moment or not."""
    async with open_island("redis") as island:
        wakeups = RedisWakeups(island, url)
        await wakeups.start()
        try:
            yield wakeups
        finally:
            with trio.move_on_after(_ANSWER_S) as scope:
                scope.shield = True
                await wakeups.stop()
