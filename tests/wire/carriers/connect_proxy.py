"""A small real proxy: HTTP CONNECT on loopback, with names that it alone knows."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import trio


@dataclass
class ConnectProxy:
    """What it lets through (`names`: host → address), what it was asked for, and the name:password it wants."""

    names: dict[str, str] = field(default_factory=dict)
    wants: str = ""
    asked: list[str] = field(default_factory=list)
    port: int = 0
    tunnels: int = 0

    @property
    def url(self) -> str:
        """As it stands in HTTPS_PROXY."""
        return f"http://{self.wants}@127.0.0.1:{self.port}" if self.wants else f"http://127.0.0.1:{self.port}"

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self.handle, listeners)

    async def handle(self, client: trio.SocketStream) -> None:
        """One tunnel."""
        head = b""
        while b"\r\n\r\n" not in head:
            head += bytes(await client.receive_some(4096)) or b"\r\n\r\n"
        verb, target, *_ = head.decode().split()
        self.asked.append(f"{verb} {target}")
        host, _, port = target.rpartition(":")
        await client.send_all(b"HTTP/1.1 %d Said so\r\nServer: small\r\n\r\n" % self.status(host, head))
        if self.status(host, head) == 200:
            self.tunnels += 1
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await _join(client, await trio.open_tcp_stream(self.names[host], int(port)))

    def status(self, host: str, head: bytes) -> int:
        """What is answered."""
        lines = [line.partition(b": ") for line in head.split(b"\r\n")]
        said = {name.lower(): value for name, _, value in lines}.get(b"proxy-authorization", b"")
        if self.wants and said != b"Basic " + base64.b64encode(self.wants.encode()):
            return 407
        return 200 if host in self.names else 403


async def _join(one: trio.SocketStream, other: trio.SocketStream) -> None:
    async def copy(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(65_536):
                await sink.send_all(data)
        scope.cancel()

    async with one, other, trio.open_nursery() as nursery:
        nursery.start_soon(copy, one, other, nursery.cancel_scope)
        nursery.start_soon(copy, other, one, nursery.cancel_scope)


@contextlib.asynccontextmanager
async def a_proxy(wants: str = "", **names: str) -> AsyncIterator[ConnectProxy]:
    """A proxy that serves while the context lasts; it knows `plane.test` as this machine."""
    proxy = ConnectProxy(names={"plane.test": "127.0.0.1", **names}, wants=wants)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.serve)
        with trio.fail_after(10):
            yield proxy
        nursery.cancel_scope.cancel()
