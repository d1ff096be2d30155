"""The WebSocket carrier, over loopback."""

import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest
import trio
import trio_websocket
import trustme

from levers9.errors import FORBIDDEN, NOT_FOUND, UNAUTHENTICATED, BrokenByPeer, ClosedByUs, PeerProtocolError, Refused
from levers9.model.ids import Chance
from levers9.wire.carriers import websocket
from levers9.wire.codec import Envelope
from levers9.wire.link import Acceptor, DialledLink, Link, Opened, Received

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def _check(info: websocket.RequestInfo) -> None:
    if info.token != "good":
        raise Refused("This token is not known.", fix="Log in again.", code=UNAUTHENTICATED)


async def _echo(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
    await carrier.send(info.path.encode() + info.query.get("peer", "").encode())
    with contextlib.suppress(BrokenByPeer):
        while True:
            await carrier.send(await carrier.receive())


@contextlib.asynccontextmanager
async def a_server(
    handler: websocket.Handler = _echo,
    check: websocket.Check | None = _check,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            partial(websocket.serve, "127.0.0.1", 0, handler, check=check, ssl_context=ssl_context)
        )
        with trio.fail_after(5):
            yield f"ws://127.0.0.1:{port}/v1/stream?peer=client"
        nursery.cancel_scope.cancel()


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


async def test_frames_travel_both_ways_and_the_handler_sees_the_request() -> None:
    async with a_server() as url:
        carrier = await websocket.connect(url, token="good")
        assert await carrier.receive() == b"/v1/streamclient"
        await carrier.send(b"x" * 100_000)
        assert await carrier.receive() == b"x" * 100_000
        await carrier.aclose()


async def test_a_wrong_token_is_refused_before_the_upgrade() -> None:
    async with a_server() as url:
        with pytest.raises(Refused, match="This token is not known") as caught:
            await websocket.connect(url, token="bad")
        assert (caught.value.code, caught.value.fix) == (UNAUTHENTICATED, "Log in again.")


async def test_links_work_over_it() -> None:
    acceptor = Acceptor(chance=Chance(1))

    async def on_link(link: Link) -> None:
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                await link.send(*event.envelopes)

    async def handler(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        await acceptor.serve(carrier, name="client/1", on_link=on_link)

    async with trio.open_nursery() as nursery:
        await nursery.start(acceptor.run)
        async with a_server(handler) as url:
            link = DialledLink(name="gateway", dial=lambda: websocket.connect(url, token="good"), chance=Chance(2))
            await nursery.start(link.run)
            assert await link.next_event() == Opened(False)
            one = Envelope("1", "a", "b", msgspec.Raw(b"\xc0"))
            await link.send(one)
            assert (await link.next_event()).envelopes[0].id == "1"
            await link.aclose()
        nursery.cancel_scope.cancel()


async def test_a_refused_link_raises_at_once() -> None:
    async with a_server() as url:
        link = DialledLink(name="gateway", dial=lambda: websocket.connect(url, token="bad"), chance=Chance(2))
        with pytest.raises(Refused, match="not known"):
            await link.run()


@pytest.mark.parametrize("url", ["ws://example.org/v1/stream", "ws://10.1.2.3:1993/v1/stream"])
async def test_a_token_never_travels_in_the_clear(url: str) -> None:
    with pytest.raises(Refused, match="in the clear"):
        await websocket.connect(url, token="good")


async def test_over_tls() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    async with a_server(ssl_context=server) as url:
        secure = url.replace("ws://", "wss://")
        carrier = await websocket.connect(secure, token="good", ssl_context=client)
        assert await carrier.receive() == b"/v1/streamclient"
        await carrier.aclose()
        with pytest.raises(BrokenByPeer, match="not signed by anybody this machine trusts"):
            await websocket.connect(secure, token="good")


@pytest.mark.parametrize("code", [FORBIDDEN, NOT_FOUND, "odd"])
async def test_a_refusal_keeps_its_code(code: str) -> None:
    async def refuse(info: websocket.RequestInfo) -> None:
        raise Refused("No.", code=code)

    async with a_server(check=refuse) as url:
        with pytest.raises(Refused, match=r"No\.") as caught:
            await websocket.connect(url)
    assert caught.value.code == code


async def test_a_refusal_that_may_pass_is_dialled_again() -> None:
    async def refuse(info: websocket.RequestInfo) -> None:
        raise Refused("The store is away.", code="store_unavailable")

    async with a_server(check=refuse) as url:
        with pytest.raises(BrokenByPeer, match="503"):
            await websocket.connect(url)


@contextlib.asynccontextmanager
async def a_raw_server(answer: bytes) -> AsyncIterator[str]:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(answer)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        with trio.fail_after(5):
            yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", BrokenByPeer),
        (b'HTTP/1.1 403 Forbidden\r\nContent-Length: 17\r\n\r\n{"message": "no"}', BrokenByPeer),
        (b'HTTP/1.1 403 Forbidden\r\nContent-Length: 33\r\n\r\n{"code": "forbidden", "what": ""}', Refused),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", BrokenByPeer),
        (b"SSH-2.0-OpenSSH_9.2\r\n", BrokenByPeer),
        (b"", BrokenByPeer),
    ],
)
async def test_only_a_control_plane_refuses_for_good(answer: bytes, error: type[Exception]) -> None:
    async with a_raw_server(answer) as url:
        with pytest.raises(error):
            await websocket.connect(url)


async def test_nobody_there_is_broken_by_peer() -> None:
    async with a_server() as url:
        pass
    with pytest.raises(BrokenByPeer, match=r"cannot be reached: Connection refused$"):
        await websocket.connect(url)


async def test_tls_that_meets_none_is_told_in_openssl_s_words() -> None:
    async with a_server() as url:
        with pytest.raises(BrokenByPeer, match=r"cannot be reached: .*(WRONG_VERSION_NUMBER|wrong version|record)"):
            await websocket.connect(url.replace("ws://", "wss://"))


async def test_a_header_that_cannot_be_sent_is_an_error_and_not_a_crash() -> None:
    async with a_server() as url:
        with pytest.raises(BrokenByPeer, match="cannot be reached"):
            await websocket.connect(url, token="good\r\nX: y")


async def say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "DIAL_LIMIT_S", 0.05)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, say_nothing, 0)
        with pytest.raises(BrokenByPeer), trio.fail_after(5):
            await websocket.connect(f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"nonsense\r\n\r\n",
        "GET /ü HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"x" * 100_000,
        b"",
    ],
)
async def test_whatever_arrives_the_server_goes_on(bytes_sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "HANDSHAKE_LIMIT_S", 0.05)
    async with a_server() as url:
        stream = await trio.open_tcp_stream("127.0.0.1", port_of(url))
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(bytes_sent)
            while await stream.receive_some():
                pass
        await stream.aclose()
        carrier = await websocket.connect(url, token="good")
        await carrier.aclose()


async def test_a_client_that_left_during_the_check_ends_only_itself() -> None:
    left = trio.Event()
    checked = trio.Event()

    async def check(info: websocket.RequestInfo) -> None:
        await left.wait()
        checked.set()

    async with a_server(check=check) as url:
        stream = await trio.open_tcp_stream("127.0.0.1", port_of(url))
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, no farewell
        await stream.send_all(UPGRADE)
        await trio.sleep(0.05)
        await stream.aclose()
        await trio.sleep(0.05)
        left.set()
        await checked.wait()
        carrier = await websocket.connect(url)
        assert await carrier.receive() == b"/v1/streamclient"
        await carrier.aclose()


async def test_a_message_over_the_limit_ends_the_carrier() -> None:
    async with a_server() as url:
        carrier = await websocket.connect(url, token="good")
        await carrier.receive()
        await carrier.send(b"x" * ((1 << 20) + 1))
        with pytest.raises(BrokenByPeer, match="1009"):
            await carrier.receive()
        with pytest.raises(BrokenByPeer):
            await carrier.send(b"x")
        await carrier.aclose()


async def test_text_is_not_a_frame() -> None:
    failed: list[Exception] = []

    async def handler(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        with pytest.raises(PeerProtocolError, match="sent text") as caught:
            await carrier.receive()
        failed.append(caught.value)

    async with a_server(handler, None) as url:
        stream = await trio.open_tcp_stream("127.0.0.1", port_of(url))
        async with stream, trio.open_nursery() as nursery:
            connection = await trio_websocket.wrap_client_stream(nursery, stream, "localhost", "/")
            await connection.send_message("text")
            with pytest.raises(trio_websocket.ConnectionClosed):
                await connection.get_message()
    assert len(failed) == 1


async def test_a_closed_carrier_says_so() -> None:
    async with a_server() as url:
        carrier = await websocket.connect(url, token="good")
        assert (carrier.watch_peer(lambda: None), carrier.peer_heard()) == (False, False)
        await carrier.aclose()
        await carrier.aclose()
        with pytest.raises(ClosedByUs):
            await carrier.send(b"x")
        with pytest.raises(ClosedByUs):
            await carrier.receive()
        assert carrier.statistics().frames_sent == 0


@pytest.mark.slow
async def test_after_a_cancelled_send_nothing_is_sent_any_more() -> None:
    async def deaf(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        await trio.sleep_forever()

    async with a_server(deaf) as url:
        carrier = await websocket.connect(url, token="good")
        with trio.move_on_after(0.2) as scope:
            while True:
                await carrier.send(b"x" * (1 << 20))
        assert scope.cancelled_caught
        with pytest.raises(ClosedByUs, match="a send was cancelled"):
            await carrier.send(b"x")
        began = trio.current_time()
        await carrier.aclose()
        assert trio.current_time() - began < 1.0


@pytest.mark.parametrize("where", ["check", "handler"])
async def test_our_own_failures_are_raised_by_the_server(where: str) -> None:
    async def fail(*_: object) -> None:
        raise OSError("ours")

    async def run() -> None:
        check, handler = (fail, _echo) if where == "check" else (_check, fail)
        async with a_server(handler, check) as url:
            with contextlib.suppress(BrokenByPeer):
                carrier = await websocket.connect(url, token="good")
                await carrier.receive()
            await trio.sleep(5)

    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="ours"), flatten_subgroups=True):
        await run()


async def test_without_a_check_everyone_is_welcome() -> None:
    seen: list[websocket.RequestInfo] = []

    async def handler(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        seen.append(info)

    async with a_server(handler, None) as url:
        carrier = await websocket.connect(url, headers={"X-Thing": "1"})
        with pytest.raises(BrokenByPeer, match="1000"):
            await carrier.receive()
        await carrier.aclose()
    assert (seen[0].token, seen[0].headers["x-thing"], seen[0].remote[:10]) == ("", "1", "127.0.0.1:")
