"""The two ends that bench/wire.py measures: levers9 links over each carrier, and the bare libraries beside them.

As a program it is the other process: `wire_ends.py KIND ADDRESS` serves until its standard input is closed.
"""

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import msgspec
import pynng
import trio
import trio_websocket

from levers9.errors import BrokenByPeer
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import nng, websocket
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.codec import Envelope
from levers9.wire.link import Acceptor, DialledLink, Link, Received

PAYLOAD: Final = b"x" * 200
ECHO, COUNT, HOLD = b"e" + PAYLOAD, b"c" + PAYLOAD, b"h" + PAYLOAD


class End(Protocol):
    """What a bench does with one end."""

    async def put(self, message: bytes) -> None: ...
    async def take(self) -> None: ...


# levers9


class LinkEnd:
    def __init__(self, link: Link) -> None:
        self.link = link
        self._taken = 0

    async def put(self, message: bytes) -> None:
        await self.link.send(envelope(message))

    async def take(self) -> None:
        while not self._taken:
            event = await self.link.next_event()
            if isinstance(event, Received):
                self._taken += len(event.envelopes)
        self._taken -= 1


def envelope(message: bytes) -> Envelope:
    return Envelope("task-0123456789", "client/1", message[:1].decode(), msgspec.Raw(msgspec.msgpack.encode(message)))


async def answer(link: Link) -> None:
    """Echo what asks for it; hold everything once asked to."""
    while True:
        event = await link.next_event()
        if not isinstance(event, Received):
            continue
        echoes = [one for one in event.envelopes if one.target == "e"]
        if echoes:
            await link.send(*echoes)
        if any(one.target == "h" for one in event.envelopes):
            await trio.sleep_forever()


@contextlib.asynccontextmanager
async def dialled(dial: Callable[[], Awaitable[Carrier]]) -> AsyncIterator[LinkEnd]:
    async with trio.open_nursery() as nursery:
        link = DialledLink(name="bench", dial=dial, chance=Chance(1))
        await nursery.start(link.run)
        yield LinkEnd(link)
        await link.aclose()
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def link_end(kind: str, address: str) -> AsyncIterator[LinkEnd]:
    if kind == "nng":
        async with dialled(partial(nng.dial, address)) as end:
            yield end
    elif kind == "websocket":
        async with dialled(partial(websocket.connect, address)) as end:
            yield end
    else:
        async with trio.open_nursery() as nursery:
            acceptor = Acceptor(chance=Chance(2))
            await nursery.start(acceptor.run)
            cable = MemoryCable()
            nursery.start_soon(partial(acceptor.serve, cable.right, name="bench", on_link=answer))
            left: Carrier = cable.left

            async def dial() -> Carrier:
                return left

            async with dialled(dial) as end:
                yield end
            nursery.cancel_scope.cancel()


async def serve_links(kind: str, address: str, ready: Callable[[str], None]) -> None:
    acceptor = Acceptor(chance=Chance(2))
    async with trio.open_nursery() as nursery:
        await nursery.start(acceptor.run)

        async def carrier_arrived(carrier: Carrier) -> None:
            await acceptor.serve(carrier, name="bench", on_link=answer)

        async def upgraded(_: websocket.RequestInfo, carrier: Carrier) -> None:
            await carrier_arrived(carrier)

        if kind == "nng":
            nursery.start_soon(nng.serve, address, carrier_arrived)
            ready(address)
        else:
            port = await nursery.start(websocket.serve, "127.0.0.1", 0, upgraded)
            ready(f"ws://127.0.0.1:{port}/")


# The bare libraries


class ChannelEnd:
    def __init__(self, out: trio.MemorySendChannel[bytes], back: trio.MemoryReceiveChannel[bytes]) -> None:
        self._out, self._back = out, back

    async def put(self, message: bytes) -> None:
        await self._out.send(message)

    async def take(self) -> None:
        await self._back.receive()


class PynngEnd:
    def __init__(self, socket: pynng.Pair0) -> None:
        self._socket = socket

    async def put(self, message: bytes) -> None:
        await self._socket.asend(message)

    async def take(self) -> None:
        await self._socket.arecv()


class TrioWebsocketEnd:
    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection

    async def put(self, message: bytes) -> None:
        await self._connection.send_message(message)

    async def take(self) -> None:
        await self._connection.get_message()


@contextlib.asynccontextmanager
async def bare_end(kind: str, address: str) -> AsyncIterator[End]:
    if kind == "nng":
        with pynng.Pair0(dial=address, block_on_dial=False) as socket:
            yield PynngEnd(socket)
    elif kind == "websocket":
        async with trio_websocket.open_websocket_url(address, receive_buffer_size=65_536) as connection:
            yield TrioWebsocketEnd(connection)
    else:
        async with trio.open_nursery() as nursery:
            out, theirs = trio.open_memory_channel[bytes](64)
            back, ours = trio.open_memory_channel[bytes](64)

            async def echo() -> None:
                async for message in theirs:
                    if message[:1] == b"e":
                        await back.send(message)

            nursery.start_soon(echo)
            yield ChannelEnd(out, ours)
            nursery.cancel_scope.cancel()


async def serve_bare(kind: str, address: str, ready: Callable[[str], None]) -> None:
    if kind == "nng":
        with pynng.Pair0(listen=address) as socket:
            ready(address)
            while True:
                message = await socket.arecv()
                if message[:1] == b"e":
                    await socket.asend(message)

    async def echo(request: trio_websocket.WebSocketRequest) -> None:
        connection = await request.accept()
        with contextlib.suppress(trio_websocket.ConnectionClosed):
            while True:
                message = await connection.get_message()
                if message[:1] == b"e":
                    await connection.send_message(message)

    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            partial(trio_websocket.serve_websocket, echo, "127.0.0.1", 0, None, receive_buffer_size=65_536)
        )
        ready(f"ws://127.0.0.1:{server.port}/")


async def until_stdin_closes(cancel: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    cancel()


async def main(kind: str, address: str) -> None:
    def ready(where: str) -> None:
        sys.stdout.write(f"{where}\n")
        sys.stdout.flush()

    serve = serve_bare if kind.startswith("bare-") else serve_links
    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_stdin_closes, nursery.cancel_scope.cancel)
        with contextlib.suppress(BrokenByPeer):
            await serve(kind.removeprefix("bare-"), address, ready)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
