"""An asyncio loop that runs as a guest of Trio, in the same thread, for clients that know only asyncio.

The loop never sleeps: where it would, it returns to Trio, and Trio waits for its files and its next timer. Calls into
it and answers from it are plain function calls, so the way there and back costs no switch between threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

import outcome
import trio

from ..errors import ClosedByUs

T = TypeVar("T")

_CLOSE_S: Final = 10.0
_TURN_STEPS: Final = 100  # then Trio has its turn, whatever the loop has left to do
_FAREWELL_S: Final = 0.002
_CLOSED: Final = "the connection to the store was closed by us"


class Reply(Generic[T]):
    """One answer, given on the island, awaited in Trio. A waiter that is cancelled leaves; the work goes on."""

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._given: outcome.Outcome[T] | None = None

    async def wait(self) -> T:
        """The answer, or the error it was given as."""
        if self._given is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        assert self._given is not None
        return self._given.unwrap()

    def _leave(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def give(self, given: outcome.Outcome[T]) -> None:
        """Answer."""
        self._given = given
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None


def give_all(replies: Sequence[tuple[Reply[T], outcome.Outcome[T]]]) -> None:
    """Answer several."""
    for reply, given in replies:
        reply.give(given)


class _Glance(selectors.DefaultSelector):
    """What the loop polls: it looks once a turn, if at all, and never waits. Where the loop would sleep, it returns."""

    def __init__(self, would_sleep: Callable[[], None]) -> None:
        super().__init__()
        self._would_sleep = would_sleep
        self._steps_left = 0
        self._looks = False
        self.sleep_s: float | None = None

    def begin(self, *, looks: bool) -> None:
        """A turn of the loop begins, in which it looks at its files or only goes on with what it knows."""
        self._looks = looks
        self._steps_left = _TURN_STEPS

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.sleep_s = timeout
        self._steps_left -= 1
        if self._looks:
            self._looks = False
            if found := super().select(0):
                return found
        if timeout != 0 or self._steps_left <= 0:
            self._would_sleep()
        return []


class Island:
    """The loop. `open_island` makes one."""

    def __init__(self, name: str) -> None:
        self._glance = _Glance(self._would_sleep)
        self.loop = asyncio.SelectorEventLoop(self._glance)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._waits = trio.CancelScope()
        self._ended = trio.Event()
        trio.lowlevel.spawn_system_task(self._run, name=f"island {name}")

    def _would_sleep(self) -> None:
        self.loop.stop()

    async def _run(self) -> None:
        """Give the loop its turn whenever one of its files or timers is ready."""
        files = self._glance.fileno()
        while not self._closed:
            with trio.CancelScope() as self._waits:
                while True:
                    self._turn(looks=True)
                    await trio.lowlevel.wait_readable(files)
        self._ended.set()

    @trio.lowlevel.enable_ki_protection
    def turn(self) -> None:
        """Let the loop run with what it was given until it would sleep. In Trio's thread, outside of the loop."""
        self._turn(looks=False)

    def _turn(self, *, looks: bool) -> None:
        self._glance.begin(looks=looks)
        self.loop.run_forever()
        sleep_s = self._glance.sleep_s
        if sleep_s is not None:
            until = trio.current_time() + sleep_s
            if until < self._waits.deadline:
                self._waits.deadline = until

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()` on the island. A cancelled caller leaves at once, and the call goes on to its end."""
        if self._closed:
            raise ClosedByUs(_CLOSED)
        reply: Reply[T] = Reply()
        self.loop.call_soon(self._start, reply, function)
        self.turn()
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
        """End what still runs, and the loop."""
        with trio.CancelScope(shield=True), trio.move_on_after(_CLOSE_S):
            await self.call(self._end)
        self._closed = True
        self._waits.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
        self.loop.close()

    async def _end(self) -> None:
        this = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not this]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_FAREWELL_S)  # dropped connections close their sockets in the next turns of the loop


async def _answer(reply: Reply[T], function: Callable[[], Awaitable[T]]) -> None:
    try:
        given: outcome.Outcome[T] = outcome.Value(await function())
    except asyncio.CancelledError:
        reply.give(outcome.Error(ClosedByUs(_CLOSED)))
        raise
    except Exception as error:  # the edge between two worlds: the error goes to whoever asked
        given = outcome.Error(error)
    reply.give(given)


@asynccontextmanager
async def open_island(name: str) -> AsyncIterator[Island]:
    """An island for as long as the block lasts."""
    island = Island(name)
    try:
        yield island
    finally:
        await island.close()
