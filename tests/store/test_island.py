"""The way to the island and back: answers, errors, cancelled callers, the end."""

import asyncio
import threading

import pytest
import trio

from levers9.errors import ClosedByUs
from levers9.store.island import open_island


async def test_an_answer_comes_from_another_thread() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async with open_island("island-of-test") as island:
        assert await island.call(work) == "island-of-test"


async def test_an_error_goes_to_whoever_asked() -> None:
    async def work() -> None:
        raise LookupError("nothing here")

    async with open_island("test") as island:
        with pytest.raises(LookupError, match="nothing here"):
            await island.call(work)


async def test_a_cancelled_caller_leaves_at_once_and_the_work_goes_on() -> None:
    released = asyncio.Event()
    ended = threading.Event()

    async def work() -> None:
        await released.wait()
        ended.set()

    async with open_island("test") as island:
        with trio.move_on_after(0.01) as scope:
            await island.call(work)
        assert scope.cancelled_caught
        island.loop.call_soon_threadsafe(released.set)
        with trio.fail_after(5):
            assert await trio.to_thread.run_sync(ended.wait, 5)


async def test_callers_hear_that_the_island_closed() -> None:
    heard: list[str] = []

    async def ask() -> None:
        try:
            await island.call(asyncio.Event().wait)
        except ClosedByUs as error:
            heard.append(error.code)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            async with open_island("test") as island:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
    assert heard == ["closed"]
    with pytest.raises(ClosedByUs):
        await island.call(asyncio.Event().wait)


async def test_the_thread_ends_with_the_island() -> None:
    async with open_island("short-lived"):
        assert "short-lived" in {thread.name for thread in threading.enumerate()}
    assert "short-lived" not in {thread.name for thread in threading.enumerate()}
