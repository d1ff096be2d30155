"""The nng carrier, over sockets in a temporary folder."""

from functools import partial
from pathlib import Path

import pytest
import trio

from levers9.errors import BrokenByPeer, ClosedByUs
from levers9.wire.carriers import nng


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/n"


async def a_pair(url: str) -> tuple[nng.NngCarrier, nng.NngCarrier]:
    ends: dict[str, nng.NngCarrier] = {}

    async def listen() -> None:
        ends["listened"] = await nng.listen(url)

    async def dial() -> None:
        ends["dialled"] = await nng.dial(url)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dial)
            nursery.start_soon(listen)
    return ends["listened"], ends["dialled"]


async def test_frames_travel_both_ways(url: str) -> None:
    listened, dialled = await a_pair(url)
    with trio.fail_after(5):
        await dialled.send(b"one")
        await dialled.send(b"two")
        assert [await listened.receive(), await listened.receive()] == [b"one", b"two"]
        await listened.send(b"x" * (1 << 20))
        assert await dialled.receive() == b"x" * (1 << 20)
        await listened.aclose()
        await dialled.aclose()


async def test_what_arrived_before_the_end_is_received(url: str) -> None:
    listened, dialled = await a_pair(url)
    with trio.fail_after(5):
        await dialled.send(b"last words")
        assert await listened.receive() == b"last words"
        await dialled.aclose()
        with pytest.raises(BrokenByPeer):
            await listened.receive()
        with pytest.raises(BrokenByPeer):
            await listened.send(b"x")
        await listened.aclose()
        with pytest.raises(ClosedByUs):
            await listened.send(b"x")


async def test_a_server_takes_one_peer_after_the_other(url: str) -> None:
    async def echo(carrier: nng.NngCarrier) -> None:
        try:
            while True:
                await carrier.send(await carrier.receive())
        except BrokenByPeer:
            pass

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(nng.serve, url, echo))
            for text in (b"first", b"second", b"third"):
                carrier = await nng.dial(url)
                await carrier.send(text)
                assert await carrier.receive() == text
                await carrier.aclose()
            nursery.cancel_scope.cancel()
