"""Carriers between hosts: WebSocket by trio-websocket, dialled out, with a bearer token in the upgrade."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, cast

import msgspec
import trio
import trio_websocket
from wsproto.utilities import ProtocolError

from ...errors import (
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    RATE_LIMITED,
    UNAUTHENTICATED,
    BrokenByPeer,
    Busy,
    ClosedByUs,
    ConfigError,
    PeerProtocolError,
    Refused,
    StoreUnavailable,
)
from ...model.figures import DIAL_LIMIT_S, FRAME_MAX_BYTES, GOODBYE_WAIT_S, HANDSHAKE_LIMIT_S
from ...model.loopback import is_loopback
from ..carrier import CarrierStatistics, Counts
from .reaching import ClientStream, open_stream
from .trust import why_untrusted

RECEIVE_BUFFER_BYTES: Final = 64 << 10  # the library's 4 KiB halve its speed
CANCELLED_WAIT_S: Final = 0.1
QUEUED_MESSAGES: Final = 4  # of up to 1 MiB each, between the library's reader and ours

_STATUS_OF: Final = {
    UNAUTHENTICATED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    StoreUnavailable.code: 503,
    Busy.code: 503,
    RATE_LIMITED: 429,
}
_PASSING: Final = frozenset({429, *range(500, 600)})  # what is so now may be otherwise at the next dial

_FOREIGN: Final = (
    trio_websocket.HandshakeError,
    trio_websocket.ConnectionClosed,
    ProtocolError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    OSError,  # ssl.SSLError is one
)


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the upgrade said. Header names are lower case; of several equal ones the last counts."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    remote: str

    @property
    def token(self) -> str:
        """The bearer token, or an empty text."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


class _Refusal(msgspec.Struct, frozen=True):
    """The body of a refused upgrade, as of every refused HTTP request."""

    code: str
    what: str
    why: str = ""
    fix: str = ""
    ok: bool = False
    err_msg: str = ""


class WebSocketCarrier:
    """Frames as binary messages."""

    ordered: Final = True

    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection
        self._counts = Counts("websocket")
        self._closed = False
        self._torn = False
        self.gone = trio.Event()

    async def send(self, frame: bytes) -> None:
        """Send one message. When cancelled, the stream may be torn within it: nothing can be sent any more."""
        if self._closed or self._torn:
            raise ClosedByUs("the WebSocket was closed, or a send was cancelled")
        self._torn = True
        try:
            await self._connection.send_message(frame)
        except _FOREIGN as error:
            raise BrokenByPeer(self._why(error)) from error
        self._torn = False
        self._counts.sent(frame)

    async def receive(self) -> bytes:
        """The next message."""
        if self._closed:
            raise ClosedByUs("the WebSocket was closed")
        try:
            message = await self._connection.get_message()
        except _FOREIGN as error:
            raise BrokenByPeer(self._why(error)) from error
        if isinstance(message, str):
            raise PeerProtocolError("the other side sent text where frames are expected")
        self._counts.received(message)
        return message

    def _why(self, error: BaseException) -> str:
        return f"the WebSocket was closed: {self._connection.closed or error!r}"

    async def aclose(self) -> None:
        """Close with the handshake, for two seconds at most; without it when a send was torn.

        Where the closing task is cancelled, the close is said, and hardly waited for: nobody reads the answer any more.
        """
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        limit_s = 0.0 if self._torn else GOODBYE_WAIT_S
        if trio.current_effective_deadline() == -math.inf:  # so may be the reader of the answer
            limit_s = min(limit_s, CANCELLED_WAIT_S)
        with trio.move_on_after(limit_s, shield=True):
            await self._connection.aclose()
        self.gone.set()

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        """Only heartbeats tell whether the other end is there."""
        return False

    def peer_heard(self) -> bool:
        """Not known."""
        return False

    def statistics(self) -> CarrierStatistics:
        """Counts since the upgrade."""
        return self._counts.statistics()


async def connect(
    url: str,
    *,
    token: str = "",
    ssl_context: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    proxy: str = "",
) -> WebSocketCarrier:
    """Dial `ws://` or `wss://`, through `proxy` if there is one (`proxy_for` finds it).

    Raises `Refused` when the server refuses for good (its code: `unauthenticated`, `forbidden` …) or when the token
    would travel in the clear, and `BrokenByPeer` when there is no server or it fails, with what to do about a
    certificate or a proxy.
    """
    check_token_is_safe(url, token)
    parts = urllib.parse.urlsplit(url)
    secure = parts.scheme != "ws"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    opening = partial(open_stream, host, port, secure=secure, ssl_context=ssl_context, proxy=proxy)
    sent = {**(headers or {}), **bearer(token)}
    return await connect_over(url, opening, lambda _: sent)


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token; none without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


async def connect_over(
    url: str, opening: Callable[[], Awaitable[ClientStream]], headers_on: Callable[[ClientStream], dict[str, str]]
) -> WebSocketCarrier:
    """Dial over the stream that `opening` opens, with what `headers_on` says on it. Raises as `connect` does."""
    hold = _Hold()
    # The library's reader lives in a nursery. A carrier outlives the call that makes it, so the nursery is a system
    # task's, which ends when the carrier is closed or the run is over.
    trio.lowlevel.spawn_system_task(hold.run, url, opening, headers_on, name=f"websocket to {url}")
    try:
        with trio.move_on_after(DIAL_LIMIT_S):
            await hold.ready.wait()
    finally:
        if hold.carrier is None:
            hold.scope.cancel()
    if hold.carrier is None:
        raise _translate(url, hold.error) from hold.error
    return hold.carrier


class _Hold:
    """Holds one connection's nursery until its carrier is closed."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ready = trio.Event()
        self.carrier: WebSocketCarrier | None = None
        self.error: BaseException | None = None

    async def run(
        self,
        url: str,
        opening: Callable[[], Awaitable[ClientStream]],
        headers_on: Callable[[ClientStream], dict[str, str]],
    ) -> None:
        """Connect, set `ready`, and stay until the carrier is gone. Never raises: it is a system task."""
        with self.scope:
            try:
                stream = await opening()
                try:
                    await self._hold(stream, urllib.parse.urlsplit(url), headers_on(stream))
                finally:
                    await trio.aclose_forcefully(stream)
            except* Exception as group:  # an edge: what escapes a system task ends the whole process
                self.error = _first(group)
        self.ready.set()

    async def _hold(self, stream: ClientStream, parts: urllib.parse.SplitResult, headers: dict[str, str]) -> None:
        async with trio.open_nursery() as nursery:
            connection = await trio_websocket.wrap_client_stream(
                cast(trio.Nursery, _Readers(nursery, self._reader_ended)),
                stream,
                parts.netloc,
                parts._replace(scheme="", netloc="", fragment="").geturl() or "/",
                extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=FRAME_MAX_BYTES,
                receive_buffer_size=RECEIVE_BUFFER_BYTES,
            )
            self.carrier = WebSocketCarrier(connection)
            self.ready.set()
            await self.carrier.gone.wait()
            nursery.cancel_scope.cancel()

    def _reader_ended(self) -> None:
        if self.carrier is None:
            self.error = ConnectionResetError("the connection ended before the upgrade was answered")
            self.scope.cancel()


class _Readers:
    """The nursery for the library's reader, whose end is the only sign that no answer to the upgrade will come."""

    def __init__(self, nursery: trio.Nursery, ended: Callable[[], None]) -> None:
        self._nursery = nursery
        self._ended = ended

    def start_soon(self, reader: Callable[[], Awaitable[object]]) -> None:
        """Run the reader, and tell when it has ended."""
        self._nursery.start_soon(self._run, reader)

    async def _run(self, reader: Callable[[], Awaitable[object]]) -> None:
        await reader()
        self._ended()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def check_token_is_safe(url: str, token: str) -> None:
    """Raises `Refused` when a token would travel unencrypted to another machine, by WebSocket or by HTTP."""
    parts = urllib.parse.urlsplit(url)
    if token and parts.scheme in ("ws", "http") and not is_loopback(parts.hostname or ""):
        raise Refused(
            f"A token would travel to {parts.hostname} in the clear.",
            "Anyone on the way could read it.",
            f"Use {parts.scheme}s://{parts.netloc}, or set tls = true in the configuration.",
            INVALID,
        )


def _translate(url: str, error: BaseException | None) -> Exception:
    if isinstance(error, BrokenByPeer | ConfigError):  # of a proxy
        return error
    if not isinstance(error, trio_websocket.ConnectionRejected):
        untrusted = why_untrusted(error, urllib.parse.urlsplit(url).hostname or "")
        return BrokenByPeer(untrusted or f"{url} cannot be reached: {_reason(error)}")
    if error.status_code in _PASSING:
        return BrokenByPeer(f"{url} answered with HTTP status {error.status_code}.")
    try:
        refusal = msgspec.json.decode(error.body or b"", type=_Refusal)
    except msgspec.MsgspecError:  # a proxy's own answer, say: it is not the control plane that does not want us
        return BrokenByPeer(f"{url} answered with HTTP status {error.status_code}, and not as a control plane does.")
    return Refused(refusal.what, refusal.why, refusal.fix, refusal.code)


def _reason(error: BaseException | None) -> str:
    """The system's word for it, such as "Connection refused"; of several addresses that of the first."""
    if error is None:
        return f"no answer within {DIAL_LIMIT_S:g} s"
    first = _first(error.__cause__ or error)
    if not isinstance(first, OSError):
        return repr(first)
    own_numbers = isinstance(first, ssl.SSLError | socket.gaierror)
    return os.strerror(first.errno) if first.errno and not own_numbers else first.strerror or repr(first)


Handler = Callable[[RequestInfo, WebSocketCarrier], Awaitable[None]]
Check = Callable[[RequestInfo], Awaitable[None]]


async def serve(
    host: str,
    port: int,
    handler: Handler,
    *,
    check: Check | None = None,
    ssl_context: ssl.SSLContext | None = None,
    places: trio.CapacityLimiter | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; started with the port. The carrier is closed when `handler` returns.

    Streams beyond `places` are closed as they come.

    `check` runs before the upgrade is accepted and raises `Refused` with `unauthenticated` (HTTP 401), `forbidden`
    (403), `not_found` (404) or another code (400). Raises `OSError` when the port is taken.
    """
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]]
    if ssl_context is None:
        listeners = await trio.open_tcp_listeners(port, host=host)
    else:
        listeners = await trio.open_ssl_over_tcp_listeners(port, ssl_context, host=host, https_compatible=True)
    async with trio.open_nursery() as nursery:
        each = partial(serve_stream, handler=handler, check=check, places=places)
        await nursery.start(trio.serve_listeners, each, listeners)
        task_status.started(_port(listeners[0]))


def _port(listener: trio.abc.Listener[trio.abc.Stream]) -> int:
    inner = cast("trio.SocketListener", getattr(listener, "transport_listener", listener))
    port: int = inner.socket.getsockname()[1]
    return port


async def serve_stream(
    stream: trio.abc.Stream,
    *,
    handler: Handler,
    check: Check | None = None,
    places: trio.CapacityLimiter | None = None,
) -> None:
    """Serve one accepted stream: whatever the other side does wrong ends this stream only."""
    with contextlib.ExitStack() as stack:
        try:
            if places is not None:
                places.acquire_on_behalf_of_nowait(stream)
                stack.callback(places.release_on_behalf_of, stream)
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
        else:
            await _serve_stream(stream, handler, check)


async def _serve_stream(stream: trio.abc.Stream, handler: Handler, check: Check | None) -> None:
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            failure = await _upgrade(nursery, stream, handler, check)
            nursery.cancel_scope.cancel()
    except* Exception:  # an edge: of the library's reader, for anything at all may arrive here
        pass
    finally:
        await trio.aclose_forcefully(stream)
    if failure is not None:
        raise failure


async def _upgrade(
    nursery: trio.Nursery, stream: trio.abc.Stream, handler: Handler, check: Check | None
) -> Exception | None:
    request: trio_websocket.WebSocketRequest | None = None
    with trio.move_on_after(HANDSHAKE_LIMIT_S):
        request = await trio_websocket.wrap_server_stream(
            nursery,
            stream,
            message_queue_size=QUEUED_MESSAGES,
            max_message_size=FRAME_MAX_BYTES,
            receive_buffer_size=RECEIVE_BUFFER_BYTES,
        )
    if request is None:
        return None
    info = _info(request)
    try:
        if check is not None:
            await check(info)
    except Refused as refused:
        await _reject(request, refused)
        return None
    except Exception as error:  # ours, and not to be taken for the other side's: it is raised by `serve_stream`
        return error
    carrier = WebSocketCarrier(await request.accept())
    try:
        await handler(info, carrier)
    except Exception as error:  # as above
        return error
    finally:
        await carrier.aclose()
    return None


def _info(request: trio_websocket.WebSocketRequest) -> RequestInfo:
    parts = urllib.parse.urlsplit(request.path)
    remote = request.remote
    return RequestInfo(
        path=parts.path,
        query=dict(urllib.parse.parse_qsl(parts.query)),
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers},
        remote=remote if isinstance(remote, str) else f"{remote.address}:{remote.port}",
    )


async def _reject(request: trio_websocket.WebSocketRequest, refused: Refused) -> None:
    refusal = _Refusal(refused.code, refused.what, refused.why, refused.fix, err_msg=str(refused))
    await request.reject(
        _STATUS_OF.get(refused.code, 400),
        extra_headers=[(b"Content-Type", b"application/json")],
        body=msgspec.json.encode(refusal),
    )
