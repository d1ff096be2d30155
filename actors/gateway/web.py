"""Serving HTTP on a socket, by anycorn; sizes and times are bounded.

Loaded once streams are served: half of what a gateway loads is for HTTP, and peers need not wait for it.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

import anyio
import structlog
import trio
from anycorn.config import Config
from anycorn.events import Event, Updated
from anycorn.tcp_server import TCPServer
from anycorn.typing import ASGIFramework
from anycorn.utils import wrap_app
from anycorn.worker_context import WorkerContext
from anyio.abc import SocketListener, SocketStream, TaskGroup
from anyio.streams.tls import TLSListener, TLSStream
from starlette.applications import Starlette

from ...model.figures import FRAME_MAX_BYTES, STREAMS_MAX
from .server import BUSY_ANSWER, REFUSAL_S, Tls

HEADERS_MAX_BYTES: Final = 32 << 10
IDLE_S: Final = 75.0  # longer than the 60 s of common proxies, so that they close first


CONNECTIONS_MAX: Final = STREAMS_MAX + 4_000  # streams may come by HTTP's port as well
METRICS_CONNECTIONS_MAX: Final = 64  # a few that scrape
_log: Final = structlog.get_logger("gateway.web")


async def serve_http(
    app: Starlette,
    listener: socket.socket,
    tls: Tls | None,
    most: int = CONNECTIONS_MAX,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application on a listening socket until cancelled, over `most` connections at a time."""
    config = _config()
    wrapped = wrap_app(cast(ASGIFramework, app), config.wsgi_max_body_size, "asgi")
    context = WorkerContext(None)

    async def handler(stream: SocketStream | TLSStream) -> None:
        await _Connection(wrapped, config, context, {}, cast(SocketStream, stream)).run()

    capped = _Capped(await SocketListener.from_socket(listener), most, plain=tls is None)
    async with capped, anyio.create_task_group() as connections:
        task_status.started()
        if tls is None:
            await capped.serve(handler, connections)
        else:
            config.certfile, config.keyfile = tls.certificate, tls.key
            secrets = config.create_ssl_context()
            assert secrets is not None
            await TLSListener(capped, secrets, True, config.ssl_handshake_timeout).serve(handler, connections)


def _config() -> Config:
    config = Config()
    config.errorlog = None
    config.accesslog = None
    config.h11_max_incomplete_size = HEADERS_MAX_BYTES
    config.h2_max_header_list_size = HEADERS_MAX_BYTES
    config.keep_alive_timeout = IDLE_S
    config.include_server_header = False
    config.websocket_max_message_size = FRAME_MAX_BYTES
    config.websocket_permessage_deflate = False
    return config


class _Connection(TCPServer):
    """A connection that ends when its peer does: anycorn alone would hold it until its idle time is over."""

    _peer_gone = False

    async def _read_data(self) -> None:
        await super()._read_data()
        self._peer_gone = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        """Take what the protocol wants done; whose peer is gone, no next request is waited for."""
        if not (self._peer_gone and isinstance(event, Updated)):
            await super().protocol_send(event)


class _Capped(anyio.abc.Listener[SocketStream]):
    """Connections of a listener, so many at a time; those beyond are told 503, under TLS just closed."""

    def __init__(self, listener: SocketListener, most: int, *, plain: bool) -> None:
        self._listener = listener
        self._places = trio.CapacityLimiter(most)
        self._plain = plain

    async def serve(
        self, handler: Callable[[SocketStream], Awaitable[None]], task_group: TaskGroup | None = None
    ) -> None:
        """Accept until cancelled."""

        async def serve_one(stream: SocketStream) -> None:
            try:
                self._places.acquire_nowait()
            except trio.WouldBlock:
                await self._refuse(stream)
                return
            try:
                await handler(stream)
            except Exception:  # an edge: a defect that one peer finds must not end everybody's connections
                _log.exception("a connection ended by a defect of ours")
            finally:
                self._places.release()

        await self._listener.serve(serve_one, task_group)

    async def _refuse(self, stream: SocketStream) -> None:
        try:
            with trio.move_on_after(REFUSAL_S if self._plain else 0.0):  # who speaks TLS could not read it
                await stream.send(BUSY_ANSWER)
                await stream.receive()  # a request that nobody has read would take the answer back
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass  # it has gone already
        finally:
            await anyio.aclose_forcefully(stream)

    async def aclose(self) -> None:
        """Accept no more."""
        await self._listener.aclose()
