"""Serving on sockets: streams by trio-websocket, HTTP by anycorn. Sizes and times are bounded at both."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from typing import Final, cast

import structlog
import trio
from anycorn.config import Config, Sockets
from anycorn.run import worker_serve
from anycorn.typing import ASGIFramework
from anycorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from ...errors import BrokenByPeer, Refused, StoreUnavailable
from ...model.figures import FRAME_MAX_BYTES
from ...wire.carriers.websocket import RequestInfo, WebSocketCarrier, serve_stream
from .streams import Door, Knock, Visitor

HEADERS_MAX_BYTES: Final = 32 << 10
STREAMS_MAX: Final = 20_000  # a gateway process; beyond, peers dial another one
IDLE_S: Final = 75.0  # longer than the 60 s of common proxies, so that they close first
_log: Final = structlog.get_logger("gateway.server")


class Tls:
    """Certificate files, read once. Raises `Refused` when they cannot be used."""

    def __init__(self, certificate: str, key: str) -> None:
        self.certificate = certificate
        self.key = key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            fix = "Give --cert and --key files in PEM that belong together."
            raise Refused(f"The certificate {certificate!r} cannot be used.", f"{error}.", fix) from error


class _Arrival:
    """One accepted stream: who it is, is found once."""

    def __init__(self, door: Door, secure: bool) -> None:
        self._door = door
        self._secure = secure
        self._visitor: Visitor | None = None

    async def check(self, info: RequestInfo) -> None:
        """Raises `Refused` for whoever must not come in."""
        knock = Knock(
            path=info.path,
            query=info.query,
            headers=info.headers,
            address=info.remote.rpartition(":")[0],
            secure=self._secure,
        )
        try:
            self._visitor = await self._door.admit(knock)
        except StoreUnavailable as error:
            raise Refused("The store cannot be reached now.", str(error), code=error.code) from error

    async def handle(self, info: RequestInfo, carrier: WebSocketCarrier) -> None:
        """Run the carrier."""
        assert self._visitor is not None
        try:
            await self._door.serve(self._visitor, carrier)
        except BrokenByPeer as error:
            _log.warning("a stream broke", peer=self._visitor.address, why=str(error))


async def serve_streams(
    door: Door,
    listener: socket.socket,
    tls: Tls | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve streams on a listening socket until cancelled; those beyond `STREAMS_MAX` are closed unanswered."""

    places = trio.CapacityLimiter(STREAMS_MAX)

    async def serve_one(stream: trio.abc.Stream) -> None:
        arrival = _Arrival(door, tls is not None)
        try:
            places.acquire_nowait()
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
            return
        try:
            await serve_stream(stream, handler=arrival.handle, check=arrival.check)
        except Exception:  # an edge: a defect that one peer finds must not end everybody's streams
            _log.exception("a stream ended by a defect of ours")
        finally:
            places.release()

    plain = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    if tls is None:
        await trio.serve_listeners(serve_one, [plain], task_status=_started(task_status))
    else:
        secured = trio.SSLListener(plain, tls.context, https_compatible=True)
        await trio.serve_listeners(serve_one, [secured], task_status=_started(task_status))


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


class _Started:
    """trio.serve_listeners tells its listeners; nobody here wants them."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status = task_status

    def started(self, value: object = None) -> None:
        self._task_status.started()


def _started(task_status: trio.TaskStatus[None]) -> _Started:
    return _Started(task_status)
