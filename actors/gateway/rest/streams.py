"""Streams by path on the HTTP port, for those who have one external port only: WebSocket through ASGI."""

from __future__ import annotations

from collections.abc import Callable

import trio
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from ....errors import BrokenByPeer, ClosedByUs, LeversError, PeerProtocolError, Refused
from ....wire.carrier import CarrierStatistics, Counts
from ..questions import BUSY
from ..streams import Door, Knock
from .answers import answer_of


class AsgiCarrier:
    """Frames as binary messages of an accepted ASGI WebSocket."""

    ordered = True

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._counts = Counts("websocket")
        self._closed = False

    async def send(self, frame: bytes) -> None:
        """Send one message."""
        if self._closed:
            raise ClosedByUs("the WebSocket was closed")
        try:
            await self._socket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise BrokenByPeer(f"the WebSocket broke: {error!r}") from error
        self._counts.sent(frame)

    async def receive(self) -> bytes:
        """The next message."""
        if self._closed:
            raise ClosedByUs("the WebSocket was closed")
        try:
            frame = await self._socket.receive_bytes()
        except WebSocketDisconnect as error:
            raise BrokenByPeer(f"the WebSocket was closed: {error.code} {error.reason}") from error
        except KeyError as error:
            raise PeerProtocolError("the other side sent text where frames are expected") from error
        except RuntimeError as error:
            raise BrokenByPeer(f"the WebSocket broke: {error!r}") from error
        self._counts.received(frame)
        return frame

    async def aclose(self) -> None:
        """Close; again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._socket.application_state is WebSocketState.CONNECTED:
            try:
                await self._socket.close()
            except (WebSocketDisconnect, RuntimeError, OSError):
                return

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        """Only heartbeats tell whether the other end is there."""
        return False

    def peer_heard(self) -> bool:
        """Not known."""
        return False

    def statistics(self) -> CarrierStatistics:
        """Counts since the upgrade."""
        return self._counts.statistics()


async def serve_stream(door: Door, socket: WebSocket) -> None:
    """Serve one WebSocket that came to the HTTP port, if the process has a place for it."""
    try:
        door.places.acquire_nowait()
    except trio.WouldBlock:
        full = Refused("This gateway has all the streams that it takes.", fix="Dial again.", code=BUSY)
        await socket.send_denial_response(answer_of(full))
        return
    try:
        await _serve(door, socket)
    finally:
        door.places.release()


async def _serve(door: Door, socket: WebSocket) -> None:
    knock = Knock(
        path=socket.url.path,
        query=dict(socket.query_params),
        headers={name.lower(): value for name, value in socket.headers.items()},
        address=socket.client.host if socket.client else "unknown",
        secure=socket.url.scheme == "wss",
    )
    try:
        visitor = await door.admit(knock)
    except LeversError as error:
        await socket.send_denial_response(answer_of(error))
        return
    await socket.accept()
    carrier = AsgiCarrier(socket)
    try:
        await door.serve(visitor, carrier)
    finally:
        await carrier.aclose()
