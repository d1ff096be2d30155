"""Serving HTTP on a socket, by anycorn; sizes and times are bounded.

Loaded once streams are served: half of what a gateway loads is for HTTP, and peers need not wait for it.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Final, cast

import trio
from anycorn.config import Config, Sockets
from anycorn.run import worker_serve
from anycorn.typing import ASGIFramework
from anycorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from ...model.figures import FRAME_MAX_BYTES
from .server import Tls

HEADERS_MAX_BYTES: Final = 32 << 10
IDLE_S: Final = 75.0  # longer than the 60 s of common proxies, so that they close first


async def serve_http(
    app: Starlette,
    listener: socket.socket,
    tls: Tls | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application on a listening socket until cancelled."""
    config = Config()
    config.errorlog = None
    config.accesslog = None
    config.h11_max_incomplete_size = HEADERS_MAX_BYTES
    config.h2_max_header_list_size = HEADERS_MAX_BYTES
    config.keep_alive_timeout = IDLE_S
    config.include_server_header = False
    config.websocket_max_message_size = FRAME_MAX_BYTES
    config.websocket_permessage_deflate = False
    config.graceful_timeout = 1.0
    if tls is not None:
        config.certfile, config.keyfile = tls.certificate, tls.key
    sockets = Sockets([listener], [], []) if tls is not None else Sockets([], [listener], [])
    wrapped = wrap_app(cast(ASGIFramework, _Lifeless(app)), config.wsgi_max_body_size, "asgi")
    serve = partial(worker_serve, wrapped, config, sockets=sockets)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        task_status.started()


class _Lifeless:
    """An application whose lifespan is ours: Starlette's own reports its cancellation as a failed shutdown."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
