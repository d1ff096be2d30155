"""A line to an API server that can fall silent: connections stay, and what comes back over them gets lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import trio

from .api_server import HOST, ApiServer


class SilentLine:
    """Connections to `url` reach the API server, until they are swallowed; later ones reach it again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._swallowed = 0
        self.url = ""

    def swallow(self) -> None:
        """What the API server says over the connections there are is lost from now on."""
        self._swallowed += 1

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        self.url = f"https://{HOST}:{listeners[0].socket.getsockname()[1]}"
        task_status.started()
        await trio.serve_listeners(self._relay, listeners)

    async def _relay(self, near: trio.SocketStream) -> None:
        swallowed = self._swallowed
        async with near, await trio.open_tcp_stream(HOST, self._port) as far, trio.open_nursery() as nursery:
            nursery.start_soon(self._back, far, near, swallowed)
            with contextlib.suppress(trio.BrokenResourceError):
                async for data in near:
                    await far.send_all(data)
            nursery.cancel_scope.cancel()

    async def _back(self, far: trio.SocketStream, near: trio.SocketStream, swallowed: int) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in far:
                if swallowed == self._swallowed:
                    await near.send_all(data)


@contextlib.asynccontextmanager
async def a_line_to(server: ApiServer) -> AsyncIterator[SilentLine]:
    """It is there while the context lasts."""
    port = urlsplit(server.server).port
    assert port is not None
    line = SilentLine(port)
    async with trio.open_nursery() as nursery:
        await nursery.start(line.serve)
        yield line
        nursery.cancel_scope.cancel()
