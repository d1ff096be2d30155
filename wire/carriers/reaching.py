"""Opening a stream to a host: TCP, through a proxy where there is one, and TLS inside."""

from __future__ import annotations

import ssl
from typing import Final

import trio

from ...errors import BrokenByPeer
from .proxy import ConnectAnswer, Proxy, connect_request, parse_proxy
from .trust import client_context

ClientStream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
_READ_BYTES: Final = 4096


async def open_stream(
    host: str, port: int, *, secure: bool, ssl_context: ssl.SSLContext | None = None, proxy: str = ""
) -> ClientStream:
    """A stream whose TLS handshake is done. `proxy` "" is none.

    Raises `OSError` (`ssl.SSLError` is one), `trio.BrokenResourceError`, and `BrokenByPeer` that names the proxy.
    """
    raw = await _through(parse_proxy(proxy), host, port) if proxy else await trio.open_tcp_stream(host, port)
    if not secure:
        return raw
    stream = trio.SSLStream(raw, ssl_context or client_context(), server_hostname=host, https_compatible=True)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def _through(proxy: Proxy, host: str, port: int) -> trio.SocketStream:
    try:
        stream = await trio.open_tcp_stream(proxy.host, proxy.port)
    except OSError as error:
        raise BrokenByPeer(f"The proxy {proxy.shown} cannot be reached: {error.strerror or error}.") from error
    try:
        await stream.send_all(connect_request(proxy, host, port))
        answer = ConnectAnswer(proxy, host, port)
        while not answer.feed(bytes(await stream.receive_some(_READ_BYTES))):
            pass
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream
