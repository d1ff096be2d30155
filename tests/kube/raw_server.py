"""A server that answers each connection's first request with bytes of our choosing, and then does as it is told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import trio

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class RawServer:
    """`pieces` are sent one after the other, each in a packet of its own; then it closes, or `stalls` for ever."""

    def __init__(self, pieces: Sequence[bytes], *, stalls: bool = False) -> None:
        self._pieces = pieces
        self._stalls = stalls
        self.url = ""
        self.closed = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        task_status.started()
        await trio.serve_listeners(self._answer, listeners)

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.receive_some(65_536)
                for piece in self._pieces:
                    await stream.send_all(piece)
                if self._stalls:
                    await stream.receive_some(1)
        self.closed.set()


@contextlib.asynccontextmanager
async def a_raw_server(*pieces: bytes, stalls: bool = False) -> AsyncIterator[RawServer]:
    """It serves while the context lasts."""
    server = RawServer(pieces, stalls=stalls)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server
        nursery.cancel_scope.cancel()
