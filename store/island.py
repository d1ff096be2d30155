"""An asyncio loop in a thread of its own, for clients that know only asyncio, and the way there and back for Trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

import outcome
import trio

from ..errors import ClosedByUs

T = TypeVar("T")

_CLOSE_S: Final = 10.0
_FAREWELL_S: Final = 0.002


class Reply(Generic[T]):
    """One answer, given on the island, awaited in Trio. A waiter that is cancelled leaves; the work goes on."""

    def __init__(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._given: outcome.Outcome[T] | None = None

    async def wait(self) -> T:
        """The answer, or the error it was given as."""
        if self._given is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        assert self._given is not None
        return self._given.unwrap()

    def _leave(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def give(self, given: outcome.Outcome[T]) -> None:
        """Answer. In Trio's thread."""
        self._given = given
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None


def give_all(replies: Sequence[tuple[Reply[T], outcome.Outcome[T]]]) -> None:
    """Answer several, which belong to one run of Trio, by one wake-up. On the island."""
    if not replies:
        return
    try:
        replies[0][0].token.run_sync_soon(_give_each, replies)
    except trio.RunFinishedError:
        pass  # nobody is left to hear it


def _give_each(replies: Sequence[tuple[Reply[T], outcome.Outcome[T]]]) -> None:
    for reply, given in replies:
        reply.give(given)


class Island:
    """The loop. `open_island` makes one."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()` on the island. A cancelled caller leaves at once, and the call goes on to its end."""
        if self._closed:
            raise ClosedByUs("the connection to the store was closed by us")
        reply: Reply[T] = Reply()
        self.loop.call_soon_threadsafe(self._start, reply, function)
        return await reply.wait()

    def _start(self, reply: Reply[T], function: Callable[[], Awaitable[T]]) -> None:
        self.start(_answer(reply, function))

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run work that belongs to the island until it closes. On the island."""
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End what still runs, and the thread."""
        self._closed = True
        with trio.CancelScope(shield=True), trio.move_on_after(_CLOSE_S):
            asyncio.run_coroutine_threadsafe(self._end(), self.loop)
            await trio.to_thread.run_sync(self._thread.join, abandon_on_cancel=True)

    async def _end(self) -> None:
        this = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not this]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_FAREWELL_S)  # dropped connections close their sockets in the next turns of the loop
        self.loop.stop()


async def _answer(reply: Reply[T], function: Callable[[], Awaitable[T]]) -> None:
    try:
        given: outcome.Outcome[T] = outcome.Value(await function())
    except asyncio.CancelledError:
        give_all([(reply, outcome.Error(ClosedByUs("the connection to the store was closed by us")))])
        raise
    except Exception as error:  # the edge between two worlds: the error goes to whoever asked
        given = outcome.Error(error)
    give_all([(reply, given)])


@asynccontextmanager
async def open_island(name: str) -> AsyncIterator[Island]:
    """An island for as long as the block lasts."""
    island = Island(name)
    try:
        yield island
    finally:
        await island.close()
