"""The asyncio loop that is Trio's guest: answers, errors, cancelled callers, timers, files, the end."""

import asyncio
import socket

import pytest
import trio

from levers9.errors import ClosedByUs
from levers9.store.island import open_island


async def test_an_answer_comes_from_asyncio() -> None:
    async def work() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async with open_island("test") as island:
        assert await island.call(work) is island.loop


async def test_an_error_goes_to_whoever_asked() -> None:
    async def work() -> None:
        raise LookupError("nothing here")

    async with open_island("test") as island:
        with pytest.raises(LookupError, match="nothing here"):
            await island.call(work)


async def test_a_cancelled_caller_leaves_at_once_and_the_work_goes_on() -> None:
    released = asyncio.Event()
    ended = trio.Event()

    async def work() -> None:
        await released.wait()
        ended.set()

    async with open_island("test") as island:
        with trio.move_on_after(0.01) as scope:
            await island.call(work)
        assert scope.cancelled_caught
        released.set()
        island.turn()
        with trio.fail_after(5):
            await ended.wait()


async def test_a_timer_of_asyncio_rings_while_trio_sleeps() -> None:
    async def work() -> str:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            return "rang"
        return "never"

    async with open_island("test") as island:
        with trio.fail_after(5):
            assert await island.call(work) == "rang"


async def test_a_timer_that_is_set_later_may_ring_earlier() -> None:
    async with open_island("test") as island:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(island.call, lambda: asyncio.sleep(60))
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(5):
                await island.call(lambda: asyncio.sleep(0.01))
            nursery.cancel_scope.cancel()


async def test_bytes_and_threads_wake_the_loop() -> None:
    near, far = socket.socketpair()

    async def work() -> tuple[bytes, str]:
        near.setblocking(False)
        heard = await asyncio.get_running_loop().sock_recv(near, 10)
        return heard, await asyncio.to_thread(lambda: "from a thread")

    with near, far:
        async with open_island("test") as island:
            async with trio.open_nursery() as nursery:

                async def speak() -> None:
                    await trio.testing.wait_all_tasks_blocked()
                    far.send(b"hello")

                nursery.start_soon(speak)
                with trio.fail_after(5):
                    assert await island.call(work) == (b"hello", "from a thread")


async def test_a_loop_that_never_rests_leaves_trio_its_turns() -> None:
    stopped = False

    async def restless() -> str:
        while not stopped:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return "stopped"

    async def stop() -> None:
        nonlocal stopped
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        stopped = True

    async with open_island("test") as island:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            with trio.fail_after(5):
                assert await island.call(restless) == "stopped"


async def test_two_islands_do_not_disturb_each_other() -> None:
    async def work() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0.001)
        return asyncio.get_running_loop()

    async with open_island("one") as one, open_island("two") as two:
        async with trio.open_nursery() as nursery:
            for island in (one, two) * 5:

                async def ask(island: object = island, call: object = island.call) -> None:
                    assert await call(work) is island.loop  # type: ignore[operator,attr-defined]

                nursery.start_soon(ask)


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


async def test_the_loop_ends_with_the_island() -> None:
    async with open_island("short-lived") as island:
        assert not island.loop.is_closed()
    assert island.loop.is_closed()
