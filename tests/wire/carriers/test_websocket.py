"""The WebSocket carrier, over loopback."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest
import trio

from levers9.errors import UNAUTHENTICATED, BrokenByPeer, Refused
from levers9.model.ids import Chance
from levers9.wire.carriers import websocket
from levers9.wire.codec import Envelope
from levers9.wire.link import Acceptor, DialledLink, Link, Opened, Received


async def _check(info: websocket.RequestInfo) -> None:
    if info.token != "good":
        raise Refused("This token is not known.", fix="Log in again.", code=UNAUTHENTICATED)


async def _echo(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
    await carrier.send(info.path.encode() + info.query.get("peer", "").encode())
    with contextlib.suppress(BrokenByPeer):
        while True:
            await carrier.send(await carrier.receive())


@contextlib.asynccontextmanager
async def a_server(handler: websocket.Handler = _echo, check: websocket.Check = _check) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, handler, check=check))
        with trio.fail_after(5):
            yield f"ws://127.0.0.1:{port}/v1/stream?peer=client"
        nursery.cancel_scope.cancel()


async def test_frames_travel_both_ways_and_the_handler_sees_the_request() -> None:
    async with a_server() as url:
        carrier = await websocket.connect(url, token="good")
        assert await carrier.receive() == b"/v1/streamclient"
        await carrier.send(b"x" * 100_000)
        assert await carrier.receive() == b"x" * 100_000
        await carrier.aclose()


async def test_a_wrong_token_is_refused_before_the_upgrade() -> None:
    async with a_server() as url:
        with pytest.raises(Refused, match="This token is not known") as caught:
            await websocket.connect(url, token="bad")
        assert (caught.value.code, caught.value.fix) == (UNAUTHENTICATED, "Log in again.")


async def test_links_work_over_it() -> None:
    acceptor = Acceptor(chance=Chance(1))

    async def on_link(link: Link) -> None:
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                await link.send(*event.envelopes)

    async def handler(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        await acceptor.serve(carrier, name="client/1", on_link=on_link)

    async with trio.open_nursery() as nursery:
        await nursery.start(acceptor.run)
        async with a_server(handler) as url:
            link = DialledLink(name="gateway", dial=lambda: websocket.connect(url, token="good"), chance=Chance(2))
            await nursery.start(link.run)
            assert await link.next_event() == Opened(False)
            one = Envelope("1", "a", "b", msgspec.Raw(b"\xc0"))
            await link.send(one)
            assert (await link.next_event()).envelopes[0].id == "1"
            await link.aclose()
        nursery.cancel_scope.cancel()


async def test_a_refused_link_raises_at_once() -> None:
    async with a_server() as url:
        link = DialledLink(name="gateway", dial=lambda: websocket.connect(url, token="bad"), chance=Chance(2))
        with pytest.raises(Refused, match="not known"):
            await link.run()
