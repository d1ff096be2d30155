"""The control plane's HTTP face in a few lines, on a real socket: an object store in a dict, and answers by path."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import unquote

import msgspec


@dataclass
class HttpStub:
    """What is stored, what was asked, and what is answered to `METHOD /path` (a pattern)."""

    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, object]] = field(default_factory=list)
    answers: dict[str, tuple[int, object]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    url: str = ""

    def start(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = True
        server.stub = self  # type: ignore[attr-defined]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(10)

    def _answer(self) -> None:
        stub = cast(HttpStub, self.server.stub)  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        stub.tokens.add(self.headers.get("Authorization", ""))
        path = unquote(self.path)
        status, content = self._objects(stub, path, body)
        if status == 0:
            asked = json.loads(body) if body and "json" in self.headers.get("Content-Type", "") else None
            stub.asked.append((self.command, path, asked))
            missing = (404, {"ok": False, "code": "not_found", "what": f"There is nothing at {path}."})
            known = (value for asked, value in stub.answers.items() if fnmatchcase(f"{self.command} {path}", asked))
            status, answer = next(known, missing)
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _objects(self, stub: HttpStub, path: str, body: bytes) -> tuple[int, bytes]:
        prefix = "/api/v1/objects/"
        if path == prefix + "missing":
            keys = msgspec.msgpack.decode(body, type=list[str])
            return 200, msgspec.msgpack.encode([key for key in keys if key not in stub.objects])
        if path == prefix + "put":
            stub.objects.update(msgspec.msgpack.decode(body, type=dict[str, bytes]))
            return 200, b"{}"
        if path.startswith(prefix) and self.command == "PUT":
            stub.objects[path.removeprefix(prefix)] = body
            return 200, b"{}"
        if path.startswith(prefix) and path.removeprefix(prefix) in stub.objects:
            return 200, stub.objects[path.removeprefix(prefix)]
        return 0, b""

    do_GET = do_POST = do_PUT = do_DELETE = _answer
