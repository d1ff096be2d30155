"""Serving streams on a socket, by trio-websocket; sizes and times are bounded. HTTP is in `web.py`."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import structlog
import trio

from ...errors import BrokenByPeer, Refused, StoreUnavailable
from ...wire.carriers.websocket import RequestInfo, WebSocketCarrier, serve_stream
from .streams import Door, Knock, Visitor

REFUSAL_S: Final = 1.0  # whoever is one too many has so long to hear it
BUSY_ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
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
    """Serve streams on a listening socket until cancelled; those beyond the door's places are told 503."""

    async def serve_one(stream: trio.abc.Stream) -> None:
        arrival = _Arrival(door, tls is not None)
        try:
            door.places.acquire_nowait()
        except trio.WouldBlock:
            await _refuse(stream)
            return
        try:
            await serve_stream(stream, handler=arrival.handle, check=arrival.check)
        except Exception:  # an edge: a defect that one peer finds must not end everybody's streams
            _log.exception("a stream ended by a defect of ours")
        finally:
            door.places.release()

    plain = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    if tls is None:
        await trio.serve_listeners(serve_one, [plain], task_status=_started(task_status))
    else:
        secured = trio.SSLListener(plain, tls.context, https_compatible=True)
        await trio.serve_listeners(serve_one, [secured], task_status=_started(task_status))


async def _refuse(stream: trio.abc.Stream) -> None:
    try:
        with trio.move_on_after(REFUSAL_S):
            await stream.send_all(BUSY_ANSWER)
            await stream.receive_some()  # a request that nobody has read would take the answer back
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # it has gone already
    finally:
        await trio.aclose_forcefully(stream)


class _Started:
    """trio.serve_listeners tells its listeners; nobody here wants them."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status = task_status

    def started(self, value: object = None) -> None:
        self._task_status.started()


def _started(task_status: trio.TaskStatus[None]) -> _Started:
    return _Started(task_status)
