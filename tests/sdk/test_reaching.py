"""The SDK's way to a control plane under a private authority and behind a proxy: by HTTP, in threads."""

from __future__ import annotations

import base64
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import trustme

from levers9.errors import BrokenByPeer
from levers9.sdk.rest import Rest

NAME = "plane.test"


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


class _Tunnels(_Answers):
    """A proxy that knows the control plane's name, and wants a name and a password."""

    wants = base64.b64encode(b"me:pw").decode()
    plane = 0

    def do_CONNECT(self) -> None:
        if self.headers.get("Proxy-Authorization") != f"Basic {self.wants}":
            return self.send_error(407)
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.plane)) as plane:
            back = threading.Thread(target=_copy, args=(plane, self.connection))
            back.start()
            _copy(self.connection, plane)
            plane.shutdown(socket.SHUT_RDWR)
            back.join()
        return None


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
    except OSError:
        pass


def _serving(server: http.server.ThreadingHTTPServer) -> Iterator[int]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def plane(authority: trustme.CA) -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME, "127.0.0.1").configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield from _serving(server)


@pytest.fixture
def proxy(plane: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(_Tunnels, "plane", plane)
    yield from _serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Tunnels))


def test_an_authority_in_the_environment_is_trusted(
    plane: int, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Rest(f"https://127.0.0.1:{plane}", "t")
    with pytest.raises(BrokenByPeer, match="not signed by anybody this machine trusts"):
        rest.call("GET", "/")
    monkeypatch.setenv("LEVERS9_CA_PEM", authority.cert_pem.bytes().decode())
    assert rest.call("GET", "/") == b"ok"
    rest.close()


def test_requests_go_through_the_proxy_with_its_password(
    plane: int, proxy: int, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERS9_CA_PEM", authority.cert_pem.bytes().decode())
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:pw@127.0.0.1:{proxy}")
    rest = Rest(f"https://{NAME}:{plane}", "t")
    assert rest.call("GET", "/") == b"ok"
    rest.close()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy}")
    with pytest.raises(BrokenByPeer, match="407"):
        Rest(f"https://{NAME}:{plane}", "t").call("GET", "/")
