"""The control plane's HTTP face: objects, tasks, logs, tokens. Standard library only, connections kept and reused."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from ..errors import BrokenByPeer, Refused
from ..wire.carriers import proxy, trust

WAIT_S: Final = 60.0
_KEPT: Final = 8  # idle connections
_BATCH_BYTES: Final = 8 << 20
_MISSING_PAGE: Final = 2000
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
OCTETS: Final = "application/octet-stream"

_blobs: Final = msgspec.msgpack.Decoder(dict[str, bytes])
_names: Final = msgspec.msgpack.Decoder(list[str])


class _Refusal(msgspec.Struct):
    what: str = ""
    why: str = ""
    fix: str = ""
    code: str = "refused"
    err_msg: str = ""


class Rest:
    """One control plane over HTTP; threads share it. Raises `Refused`, or `BrokenByPeer` when it is away."""

    def __init__(self, base_url: str, token: str) -> None:
        parts = urlsplit(base_url)
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._shown = base_url
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False

    def call(self, method: str, path: str, body: bytes | None = None, content_type: str = JSON) -> bytes:
        """One request and its whole answer. It is sent again once when a kept connection turns out to be dead."""
        connection = self._take()
        fresh = connection.sock is None
        try:
            status, answer = self._exchange(connection, method, path, body, content_type)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if fresh:
                raise self._away(error) from error
            return self._again(method, path, body, content_type)
        self._keep(connection)
        if status >= 400:
            raise refusal(status, answer, path)
        return answer

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that goes on for as long as the server likes."""
        connection = self._connection(None)
        try:
            connection.request("GET", self._prefix + path, headers=self._headers(JSON))
            response = connection.getresponse()
            if response.status >= 400:
                raise refusal(response.status, response.read(), path)
            for line in response:
                if line.strip():
                    yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from error
        finally:
            connection.close()

    def json(self, method: str, path: str, body: object = None) -> object:
        """One JSON request. The answer is what `json.loads` makes of it."""
        packed = None if body is None else json.dumps(body).encode()
        answer = self.call(method, path, packed)
        decoded: object = json.loads(answer) if answer else None
        return decoded

    def missing(self, keys: list[str]) -> list[str]:
        """Those of the keys that the object store lacks."""
        lacking: list[str] = []
        for start in range(0, len(keys), _MISSING_PAGE):
            body = msgspec.msgpack.encode(keys[start : start + _MISSING_PAGE])
            lacking += _names.decode(self.call("POST", "/api/v1/objects/missing", body, MSGPACK))
        return lacking

    def put(self, key: str, data: bytes) -> None:
        """Store one object, unless it is there already."""
        if self.missing([key]):
            self.call("PUT", f"/api/v1/objects/{quote(key)}", data, OCTETS)

    def put_many(self, objects: Iterator[tuple[str, bytes]]) -> None:
        """Store objects, many small ones a request."""
        batch: dict[str, bytes] = {}
        size = 0
        for key, data in objects:
            if len(data) > _BATCH_BYTES:
                self.call("PUT", f"/api/v1/objects/{quote(key)}", data, OCTETS)
                continue
            if size + len(data) > _BATCH_BYTES:
                self._put_batch(batch)
                batch, size = {}, 0
            batch[key] = data
            size += len(data)
        if batch:
            self._put_batch(batch)

    def get(self, key: str) -> bytes:
        """The bytes of one object. Raises `Refused` when it is not there."""
        return self.call("GET", f"/api/v1/objects/{quote(key)}")

    def close(self) -> None:
        """Close the idle connections, and keep none from now on."""
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _put_batch(self, batch: dict[str, bytes]) -> None:
        self.call("POST", "/api/v1/objects/put", msgspec.msgpack.encode(batch), MSGPACK)

    def _again(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        self._drop_idle()
        return self.call(method, path, body, content_type)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, content_type: str
    ) -> tuple[int, bytes]:
        connection.request(method, self._prefix + path, body, self._headers(content_type))
        response = connection.getresponse()
        return response.status, response.read()

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._process != os.getpid():  # a forked child must not speak on its parent's connections
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._connection(WAIT_S)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._closed and connection.sock is not None and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _connection(self, wait_s: float | None) -> http.client.HTTPConnection:
        if self._https:
            context = trust.client_context(trust.ca_of())
            return self._through_proxy(wait_s, context)
        return http.client.HTTPConnection(self._host, self._port, timeout=wait_s)

    def _through_proxy(self, wait_s: float | None, context: ssl.SSLContext) -> http.client.HTTPConnection:
        """A connection by the proxy that the environment names, if it names one."""
        url = proxy.proxy_for(f"https://{proxy.bracketed(self._host)}:{self._port or 443}", os.environ)
        if not url:
            return http.client.HTTPSConnection(self._host, self._port, timeout=wait_s, context=context)
        by = proxy.parse_proxy(url)
        connection = http.client.HTTPSConnection(by.host, by.port, timeout=wait_s, context=context)
        authorization = {"Proxy-Authorization": by.authorization} if by.authorization else {}
        connection.set_tunnel(self._host, self._port or 443, authorization)
        return connection

    def _away(self, error: Exception) -> BrokenByPeer:
        untrusted = trust.why_untrusted(error, self._host)
        if untrusted:
            return BrokenByPeer(untrusted)
        return BrokenByPeer(
            f"The control plane at {self._shown} does not answer: {_why(error)}. "
            "Look whether it runs (`levers9 dev` on this machine), and whether `levers9 config show` has its address."
        )


def _why(error: Exception) -> str:
    """In words, without the number that the system has for it."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def refusal(status: int, answer: bytes, path: str) -> Refused:
    """The error in an answer with a status of 400 and above."""
    try:
        told = msgspec.json.decode(answer, type=_Refusal)
    except msgspec.MsgspecError:
        told = _Refusal()
    what = told.what or told.err_msg or f"The control plane answered {status} to {path}."
    return Refused(what, told.why, told.fix, told.code)
