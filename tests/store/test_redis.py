"""Valkey killed, frozen or away: nothing raises, nobody waits long, and it comes back by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from levers9_test_servers import RunningServer

from levers9.errors import Refused
from levers9.store.embedded import prepare_valkey
from levers9.store.redis import open_redis

pytestmark = pytest.mark.slow


@pytest.fixture
def own_valkey(servers_folder: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    running = RunningServer(prepare_valkey(servers_folder / f"v{abs(hash(request.node.name)) % 10_000}"))
    running.wait_until_ready()
    yield running
    running.kill()


async def test_while_it_is_away_everything_is_unknown(tmp_path: Path) -> None:
    async with open_redis(f"unix://{tmp_path}/none.sock") as soft:
        with trio.fail_after(10):
            await soft.publish("logs/1", "text")
            await soft.set("key", "value", 5.0)
            await soft.append("task-1", (b"line",))
            assert (await soft.get("key"), await soft.tail("task-1"), await soft.count("a", 5.0)) == (None, None, None)
        assert soft.statistics().failures == 6


async def test_after_a_kill_it_is_used_again_and_subscribers_are_told_to_look(own_valkey: RunningServer) -> None:
    async with open_redis(own_valkey.url) as soft:
        await soft.set("key", "value", 60.0)
        with trio.fail_after(20):
            async with soft.subscribe("logs/1") as texts:
                await trio.to_thread.run_sync(own_valkey.restart)
                assert await anext(texts) == ""
                await soft.publish("logs/1", "after")
                while (text := await anext(texts)) == "":
                    pass
                assert text == "after"
            assert await soft.get("key") is None
            await soft.set("key", "again", 60.0)
            assert await soft.get("key") == "again"


async def test_who_subscribes_while_it_is_away_hears_once_it_is_back(own_valkey: RunningServer) -> None:
    async with open_redis(own_valkey.url) as soft:
        own_valkey.kill()
        with trio.fail_after(20):
            async with soft.subscribe("logs/1") as texts:
                own_valkey.start()
                await trio.to_thread.run_sync(own_valkey.wait_until_ready)
                heard = ""
                while heard != "after":
                    await soft.publish("logs/1", "after")
                    with trio.move_on_after(0.05):
                        heard = await anext(texts)


async def test_cancelled_callers_leave_no_connection_behind(valkey_url: str) -> None:
    async with open_redis(valkey_url) as soft:
        for _ in range(200):
            with trio.move_on_after(0):
                await soft.get("key")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(soft.get, "key")
                await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await soft.set("key", "value", 5.0)
            assert await soft.get("key") == "value"
        assert soft.statistics().failures == 0


async def test_an_address_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Refused, match="address of Redis"):
        async with open_redis("http://localhost"):
            pass
