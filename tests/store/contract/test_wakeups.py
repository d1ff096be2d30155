"""Wake-ups, routes, tails and rates: memory and a real Valkey alike."""

from collections.abc import AsyncIterator

import pytest
import trio
from levers9_test_servers import flush

from levers9.store.redis import RedisWakeups, open_redis
from levers9.store.wakeups import TAIL_LINES, MemoryWakeups

Soft = MemoryWakeups | RedisWakeups


@pytest.fixture(params=["memory", pytest.param("valkey", marks=pytest.mark.slow)])
async def soft(request: pytest.FixtureRequest) -> AsyncIterator[Soft]:
    if request.param == "memory":
        yield MemoryWakeups()
        return
    url = request.getfixturevalue("valkey_url")
    await flush(url)
    async with open_redis(url) as wakeups:
        yield wakeups


async def test_a_text_reaches_all_who_subscribed_before(soft: Soft) -> None:
    await soft.publish("logs/1", "nobody hears this")
    async with soft.subscribe("logs/1") as one, soft.subscribe("logs/1") as two, soft.subscribe("logs/2") as other:
        for number in range(3):
            await soft.publish("logs/1", f"chünk {number}")
        await soft.publish("logs/2", "another")
        with trio.fail_after(5):
            for texts in (one, two):
                assert [await anext(texts) for _ in range(3)] == ["chünk 0", "chünk 1", "chünk 2"]
            assert await anext(other) == "another"


async def test_who_left_hears_no_more_and_who_stays_does(soft: Soft) -> None:
    async with soft.subscribe("logs/1") as stays:
        async with soft.subscribe("logs/1"):
            pass
        await soft.publish("logs/1", "still there")
        with trio.fail_after(5):
            assert await anext(stays) == "still there"
    async with soft.subscribe("logs/1") as again:
        await soft.publish("logs/1", "again")
        with trio.fail_after(5):
            assert await anext(again) == "again"


async def test_a_cancelled_reader_loses_nothing(soft: Soft) -> None:
    async with soft.subscribe("logs/1") as texts:
        with trio.move_on_after(0) as scope:
            await anext(texts)
        assert scope.cancelled_caught
        await soft.publish("logs/1", "one")
        with trio.fail_after(5):
            assert await anext(texts) == "one"


async def test_a_route_is_known_until_it_is_replaced_or_forgotten(soft: Soft) -> None:
    assert await soft.get("worker-1") is None
    await soft.set("worker-1", "gateway-1", 60.0)
    await soft.set("worker-1", "gateway-é", 60.0)
    assert await soft.get("worker-1") == "gateway-é"
    assert await soft.get("worker-2") is None


async def test_a_tail_keeps_the_newest_lines(soft: Soft) -> None:
    assert await soft.tail("task-1") is None
    await soft.append("task-1", tuple(f"{number}".encode() for number in range(TAIL_LINES)))
    await soft.append("task-1", (b"new\xff", b"newer"))
    await soft.append("task-1", ())
    lines = await soft.tail("task-1")
    assert lines is not None
    assert (len(lines), lines[0], lines[-2:]) == (TAIL_LINES, b"2", (b"new\xff", b"newer"))


async def test_a_rate_counts_within_its_window(soft: Soft) -> None:
    assert [await soft.count("address", 60.0) for _ in range(3)] == [1, 2, 3]
    assert await soft.count("other", 60.0) == 1


async def test_what_was_forgotten_is_not_known_and_can_be_told_again(soft: Soft, valkey_url: str) -> None:
    await soft.set("worker-1", "gateway-1", 60.0)
    await soft.append("task-1", (b"line",))
    await soft.count("address", 60.0)
    async with soft.subscribe("logs/1") as texts:
        if isinstance(soft, MemoryWakeups):
            soft.forget()
        else:
            await flush(valkey_url)
        assert await soft.get("worker-1") is None
        assert await soft.tail("task-1") is None
        assert await soft.count("address", 60.0) == 1
        await soft.publish("logs/1", "still heard")
        with trio.fail_after(5):
            assert await anext(texts) == "still heard"


async def test_memory_forgets_a_route_and_a_window_in_time(autojump_clock: trio.testing.MockClock) -> None:
    soft = MemoryWakeups()
    await soft.set("worker-1", "gateway-1", 5.0)
    assert await soft.count("address", 5.0) == 1
    await trio.sleep(4.9)
    assert (await soft.get("worker-1"), await soft.count("address", 5.0)) == ("gateway-1", 2)
    await trio.sleep(0.2)
    assert (await soft.get("worker-1"), await soft.count("address", 5.0)) == (None, 1)
