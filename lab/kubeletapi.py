"""The HTTPS side of kubelets: what `kubectl logs` and `kubectl exec` reach through the API server."""

from __future__ import annotations

import logging
import math
import ssl
import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import h11
import msgspec
import trio
import trio_websocket

from .execution import ExecCall, serve_exec
from .folder import LabFolder
from .kubelet import Kubelet
from .logfile import ContainerLog, LogQuery
from .pod import PodLife

_HEAD_MAX_BYTES: Final = 64 << 10
_HEAD_WITHIN_S: Final = 10.0
_SILENT_S: Final = 60.0  # how long a tray without power lets others wait: they have given up by then
_LISTEN_BACKLOG: Final = 64

# What one caller does wrong, or leaves undone, is no trouble of others.
_THEIR_DOING: Final = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio_websocket.ConnectionClosed,
    trio_websocket.HandshakeError,
    h11.ProtocolError,
    msgspec.DecodeError,
    ValueError,
)
_log: Final = logging.getLogger("levers9.lab")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a kubelet: the parts of its path, and the values of each query key."""

    parts: tuple[str, ...]
    query: dict[str, tuple[str, ...]]
    is_websocket: bool = False

    def first(self, key: str) -> str:
        """The first value of a key, or ""."""
        return next(iter(self.query.get(key, ())), "")

    def is_set(self, key: str) -> bool:
        """Whether a switch is on."""
        return self.first(key) in ("1", "true")


def read_call(target: str, headers: Mapping[str, str]) -> Call:
    """A request as we understand it."""
    url = urlsplit(target)
    parts = tuple(unquote(part) for part in url.path.strip("/").split("/"))
    query = {key: tuple(values) for key, values in parse_qs(url.query, keep_blank_values=True).items()}
    return Call(parts=parts, query=query, is_websocket=headers.get("upgrade", "").lower() == "websocket")


def log_query(call: Call, now_s: float) -> LogQuery:
    """What `kubectl logs` asks for."""
    since = call.first("sinceTime")
    if seconds := call.first("sinceSeconds"):
        since = f"{datetime.fromtimestamp(now_s - float(seconds), UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
    tail = call.first("tailLines")
    return LogQuery(
        follow=call.is_set("follow"),
        timestamps=call.is_set("timestamps"),
        tail=int(tail) if tail else None,
        since=since,
        limit_bytes=int(call.first("limitBytes") or 0),
    )


def server_context(folder: LabFolder) -> ssl.SSLContext:
    """Our certificate; only who has one of the lab's own authority gets in, which is the API server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.keys / "kubelet.crt", folder.keys / "kubelet.key")
    context.load_verify_locations(folder.keys / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def serve_kubelet(
    kubelet: Kubelet, port: int, context: ssl.SSLContext, *, task_status: trio.TaskStatus[None]
) -> None:
    """Answer at the tray's own address until cancelled."""
    listeners = await trio.open_tcp_listeners(port, host=kubelet.tray.plan.address, backlog=_LISTEN_BACKLOG)

    async def attend(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        try:
            await _Connection(kubelet, stream).attend()
        except* _THEIR_DOING as group:
            _log.info("%s: a call ended early: %r", kubelet.name, group.exceptions)
        finally:
            await trio.aclose_forcefully(plain)

    await trio.serve_listeners(attend, listeners, task_status=task_status)  # type: ignore[arg-type]


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        self.status = status
        super().__init__(words)


class _Connection:
    """One request, one answer, and it is closed."""

    def __init__(self, kubelet: Kubelet, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self._kubelet = kubelet
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def attend(self) -> None:
        if not self._kubelet.tray.reachable:
            await trio.sleep(_SILENT_S)
            return
        head = b""
        with trio.move_on_after(_HEAD_WITHIN_S):
            head = await self._head()
        event = self._http.next_event()
        if not isinstance(event, h11.Request):
            return
        headers = {name.decode(): value.decode() for name, value in event.headers}
        call = read_call(event.target.decode(), headers)
        try:
            await self._answer(call, head)
        except _Refused as refused:
            await self._respond(refused.status, str(refused).encode())
        with trio.move_on_after(1.0):
            await self._stream.aclose()

    async def _head(self) -> bytes:
        """Everything up to the body; a WebSocket's server reads it once more."""
        data = b""
        while b"\r\n\r\n" not in data and len(data) < _HEAD_MAX_BYTES:
            piece = bytes(await self._stream.receive_some())
            if not piece:
                break
            data += piece
            self._http.receive_data(piece)
        return data

    async def _answer(self, call: Call, head: bytes) -> None:
        match call.parts:
            case ("healthz",):
                await self._respond(200, b"ok")
            case ("containerLogs", namespace, name, container):
                await self._logs(call, self._log(call, namespace, name, container))
            case ("exec", namespace, name, *_, container):
                await self._exec(call, head, namespace, name, container)
            case _:
                raise _Refused(404, f"The lab's kubelets have no {call.parts[0]}.")

    def _life(self, namespace: str, name: str) -> PodLife:
        for life in self._kubelet.lives_seen.values():
            if (life.pod.metadata.namespace, life.pod.metadata.name) == (namespace, name):
                return life
        raise _Refused(404, f"pod {namespace}/{name} is not on {self._kubelet.name}")

    def _log(self, call: Call, namespace: str, name: str, container: str) -> ContainerLog:
        each = self._life(namespace, name).containers.get(container)
        wanted = 2 if call.is_set("previous") else 1
        if each is None or len(each.logs) < wanted:
            before = "previous terminated " if wanted == 2 else ""
            raise _Refused(400, f'{before}container "{container}" in pod "{name}" has no log yet')
        return each.logs[-wanted]

    async def _logs(self, call: Call, log: ContainerLog) -> None:
        query = log_query(call, time.time())
        await self._begin(200)
        left = query.limit_bytes or math.inf
        async with aclosing(log.read(query)) as pieces:
            async for piece in pieces:
                shown = piece[: int(min(left, len(piece)))]
                left -= len(shown)
                await self._send(h11.Data(data=shown))
                if left <= 0:
                    break
        await self._send(h11.EndOfMessage())

    async def _exec(self, call: Call, head: bytes, namespace: str, name: str, container: str) -> None:
        each = self._life(namespace, name).containers.get(container)
        if each is None or not each.runs or each.setting is None:
            raise _Refused(404, f'container "{container}" of pod "{name}" does not run')
        if not call.is_websocket:
            raise _Refused(400, "The lab speaks WebSocket here, and no SPDY: use kubectl 1.31 or newer.")
        wanted = ExecCall(
            argv=call.query.get("command", ()),
            setting=each.setting,
            stdin=call.is_set("input"),
            stdout=call.is_set("output"),
            stderr=call.is_set("error"),
            tty=call.is_set("tty"),
        )
        await serve_exec(self._stream, head, wanted)

    async def _begin(self, status: int) -> None:
        headers = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked"), ("Connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers))

    async def _respond(self, status: int, body: bytes) -> None:
        await self._begin(status)
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send_all(data)
