"""How a worker and an agent dial: each address in turn, and each reason told once."""

import contextlib
import ssl
from functools import partial

import pytest
import structlog.testing
import trio
import trustme

from levers9.daemons import dialling
from levers9.daemons.dialling import Dialler, stream_url
from levers9.errors import UNAUTHENTICATED, BrokenByPeer, ConfigError, Refused
from levers9.wire.carriers import websocket

from ..wire.carriers.connect_proxy import a_proxy


class Plane:
    """Takes streams, or refuses them, and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[websocket.RequestInfo] = []
        self.refuses = ""

    async def check(self, request: websocket.RequestInfo) -> None:
        self.asked.append(request)
        if self.refuses:
            raise Refused("Not now.", code=self.refuses)

    async def hold(self, request: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        with contextlib.suppress(BrokenByPeer):
            await carrier.receive()


@pytest.fixture
def plane() -> Plane:
    return Plane()


def a_dialler(urls: tuple[str, ...], environment: dict[str, str] | None = None, ca_pem: str = "") -> Dialler:
    return Dialler(peer="worker", own_id="w-1", urls=urls, token="t", ca_pem=ca_pem, environment=environment or {})


async def closed_port() -> int:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    return port


async def test_addresses_are_dialled_in_turn_with_who_we_are(plane: Plane) -> None:
    other = Plane()
    async with trio.open_nursery() as nursery:
        ports = [
            await nursery.start(partial(websocket.serve, "127.0.0.1", 0, one.hold, check=one.check))
            for one in (plane, other)
        ]
        dial = a_dialler((f"ws://127.0.0.1:{ports[0]}/", f"http://127.0.0.1:{ports[1]}"))
        for _ in range(2):
            await (await dial()).aclose()
        nursery.cancel_scope.cancel()
    for one in (*plane.asked, *other.asked):
        assert (one.path, one.query, one.token) == ("/v1/stream", {"peer": "worker", "id": "w-1"}, "t")
    assert len(plane.asked) == len(other.asked) == 1


async def test_each_reason_is_told_once_and_so_is_its_end(plane: Plane) -> None:
    dial = a_dialler((f"ws://127.0.0.1:{await closed_port()}",))
    with structlog.testing.capture_logs() as told:
        for _ in range(3):
            with pytest.raises(BrokenByPeer):
                await dial()
    assert [entry["event"] for entry in told] == ["the control plane cannot be reached"]
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, plane.hold, check=plane.check))
        dial = a_dialler((f"ws://127.0.0.1:{port}",))
        plane.refuses = "store_unavailable"
        with structlog.testing.capture_logs() as told:
            with pytest.raises(BrokenByPeer):
                await dial()
            plane.refuses = ""
            await (await dial()).aclose()
        nursery.cancel_scope.cancel()
    assert [entry["event"] for entry in told] == [
        "the control plane cannot be reached",
        "the control plane is reached again",
    ]


async def test_a_refusal_for_good_is_raised(plane: Plane) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, plane.hold, check=plane.check))
        plane.refuses = UNAUTHENTICATED
        with pytest.raises(Refused, match="Not now"):
            await a_dialler((f"ws://127.0.0.1:{port}",))()
        nursery.cancel_scope.cancel()


async def say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_an_address_that_swallows_everything_is_told_with_what_to_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialling, "ANSWER_WITHIN_S", 0.05)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, say_nothing, 0)
        dial = a_dialler((f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}",))
        with pytest.raises(BrokenByPeer, match=r"did not answer within 0\.05 s\. Look whether a firewall"):
            await dial()
        nursery.cancel_scope.cancel()


async def test_the_proxy_and_the_authority_of_the_environment_are_used(plane: Plane) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("plane.test").configure_cert(context)
    async with trio.open_nursery() as nursery, a_proxy(wants="me:pw") as proxy:
        serve = partial(websocket.serve, "127.0.0.1", 0, plane.hold, check=plane.check, ssl_context=context)
        url = f"https://plane.test:{await nursery.start(serve)}"
        pem = authority.cert_pem.bytes().decode()
        await (await a_dialler((url,), {"HTTPS_PROXY": proxy.url}, pem)()).aclose()
        with pytest.raises(BrokenByPeer, match="cannot be reached"):
            await a_dialler((url,), {"HTTPS_PROXY": proxy.url, "NO_PROXY": "test"}, pem)()
        nursery.cancel_scope.cancel()
    assert proxy.tunnels == 1


def test_a_proxy_of_no_use_is_told_before_the_first_dial() -> None:
    with pytest.raises(ConfigError, match="socks5"):
        a_dialler(("wss://plane.test",), {"ALL_PROXY": "socks5://proxy"})


def test_one_external_address_serves_streams_by_path() -> None:
    urls = ["https://plane.test", "http://127.0.0.1:1", "wss://plane.test:1993"]
    assert [stream_url(url) for url in urls] == ["wss://plane.test", "ws://127.0.0.1:1", "wss://plane.test:1993"]
