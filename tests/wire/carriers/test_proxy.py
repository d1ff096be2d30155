"""Proxies: which one a dial goes through, and a tunnel through a real one."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trustme
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import check_two_way_stream

from levers9.errors import BrokenByPeer, ConfigError
from levers9.wire.carriers import websocket
from levers9.wire.carriers.proxy import ANSWER_MAX_BYTES, ConnectAnswer, Proxy, connect_request, parse_proxy, proxy_for
from levers9.wire.carriers.reaching import open_stream

from .connect_proxy import a_proxy

PROXY = Proxy(host="proxy.corp", port=3128)
VIA = "http://proxy.corp:3128"


# Which proxy


@pytest.mark.parametrize(
    ("url", "environment", "found"),
    [
        ("wss://plane.test/v1/stream", {}, ""),
        ("wss://plane.test/v1/stream", {"HTTPS_PROXY": VIA}, VIA),
        ("https://plane.test", {"https_proxy": VIA}, VIA),
        ("wss://plane.test", {"https_proxy": VIA, "HTTPS_PROXY": "http://other"}, VIA),
        ("wss://plane.test", {"all_proxy": VIA}, VIA),
        ("wss://plane.test", {"ALL_PROXY": VIA, "HTTPS_PROXY": "http://other"}, "http://other"),
        ("wss://plane.test", {"https_proxy": "", "HTTPS_PROXY": VIA}, VIA),
        ("wss://plane.test", {"HTTP_PROXY": VIA, "http_proxy": VIA}, ""),
        ("ws://plane.test", {"HTTPS_PROXY": VIA, "http_proxy": VIA}, ""),
        ("wss:///v1/stream", {"HTTPS_PROXY": VIA}, ""),
    ],
)
def test_the_proxy_of_an_address(url: str, environment: dict[str, str], found: str) -> None:
    assert proxy_for(url, environment) == found


@pytest.mark.parametrize(
    ("no_proxy", "host", "direct"),
    [
        ("*", "plane.test", True),
        ("other.test, plane.test", "plane.test", True),
        ("other.test plane.test", "plane.test", True),
        ("plane.test", "a.plane.test", True),
        (".plane.test", "a.plane.test", True),
        (".plane.test", "plane.test", True),
        ("*.plane.test", "a.plane.test", True),
        ("plane.test", "airplane.test", False),
        ("lane.test", "plane.test", False),
        ("PLANE.test", "plane.TEST", True),
        ("plane.test:443", "plane.test", True),
        ("plane.test:1993", "plane.test", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.1/8", "10.1.2.3", True),
        ("10.0.0.0/8", "plane.test", False),
        ("10.0.0.0/99", "10.0.0.0", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:443", "10.1.2.3", True),
        ("10.1.2", "10.1.2.3", False),
        ("fd00::/8", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]", True),
        ("[fd00::1]:443", "[fd00::1]", True),
        ("[fd00::1]:80", "[fd00::1]", False),
        ("", "plane.test", False),
        (", .,", "plane.test", False),
    ],
)
def test_no_proxy_names_hosts_domains_and_networks(no_proxy: str, host: str, direct: bool) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        assert proxy_for(f"wss://{host}/", {"HTTPS_PROXY": VIA, name: no_proxy}) == ("" if direct else VIA)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://proxy.corp:3128", PROXY),
        ("proxy.corp:3128/", PROXY),
        ("http://proxy.corp", Proxy(host="proxy.corp", port=80)),
        ("http://me:p%40ss@proxy.corp", Proxy(host="proxy.corp", port=80, authorization="Basic bWU6cEBzcw==")),
        ("http://me@[fd00::1]:8", Proxy(host="fd00::1", port=8, authorization="Basic bWU6")),
    ],
)
def test_how_a_proxy_is_written(url: str, proxy: Proxy) -> None:
    assert parse_proxy(url) == proxy


@pytest.mark.parametrize(
    "url", ["socks5://me:secret@proxy.corp:1080", "http://", "http://me:secret@proxy.corp:port", "https://proxy.corp"]
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="write HTTPS_PROXY as http://HOST:PORT") as caught:
        parse_proxy(url)
    assert "secret" not in str(caught.value)


# The words


def test_what_a_proxy_is_asked() -> None:
    named = parse_proxy("http://me:pw@proxy.corp")
    assert connect_request(named, "fd00::1", 443) == (
        b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: levers9\r\n"
        b"Proxy-Authorization: Basic bWU6cHc=\r\n\r\n"
    )
    assert b"Authorization" not in connect_request(PROXY, "plane.test", 443)


@given(st.lists(st.integers(1, 40), max_size=6))
def test_an_answer_is_taken_however_it_is_cut(cuts: list[int]) -> None:
    answer = ConnectAnswer(PROXY, "plane.test", 443)
    whole = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"
    at = 0
    for cut in cuts:
        part, at = whole[at : at + cut], at + cut
        if at < len(whole):
            assert not answer.feed(part)
        else:
            assert answer.feed(part)
            return
    assert answer.feed(whole[at:])


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            [b"HTTP/1.1 407 Authentication\r\n\r\n"],
            r"proxy\.corp:3128, asked for plane\.test:443, .* 407.*NAME:",
        ),
        ([b"HTTP/1.0 403 Forbidden\r\n\r\nno"], "403.*NO_PROXY"),
        ([b"HTTP/1.1 502 Bad\r\n\r\n"], "could not reach that host"),
        ([b"HTTP/1.1 504 Bad\r\n\r\n"], "in time"),
        ([b"HTTP/1.1 301 Moved\r\n\r\n"], r"301\.$"),
        ([b"HTTP/1.1 ", b""], "closed the connection"),
        ([b"SSH-2.0\r\n\r\n"], "other than HTTP"),
        ([b"HTTP/1.1 2x0\r\n\r\n"], "other than HTTP"),
        ([b"x" * ANSWER_MAX_BYTES, b"x"], "other than HTTP"),
        ([b"HTTP/1.1 200 OK\r\n\r\nmore"], "before the tunnel was open"),
    ],
)
def test_any_other_answer_names_the_proxy(parts: list[bytes], why: str) -> None:
    answer = ConnectAnswer(PROXY, "plane.test", 443)

    def feed() -> None:
        for part in parts:
            assert not answer.feed(part)

    with pytest.raises(BrokenByPeer, match=why):
        feed()


# Through a real one


async def test_a_tunnel_is_a_stream_as_good_as_any() -> None:
    async with a_proxy() as proxy:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]

        async def make() -> tuple[trio.abc.Stream, trio.abc.Stream]:
            ours = await open_stream("plane.test", port, secure=False, proxy=proxy.url)
            return ours, await listeners[0].accept()

        await check_two_way_stream(make, None)
        await listeners[0].aclose()


async def _echo(info: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
    with contextlib.suppress(BrokenByPeer):
        while True:
            await carrier.send(info.token.encode() + await carrier.receive())


@contextlib.asynccontextmanager
async def a_server(name: str) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(name).configure_cert(server)
    authority.configure_trust(client)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, _echo, ssl_context=server))
        yield f"wss://plane.test:{port}/v1/stream", client
        nursery.cancel_scope.cancel()


async def test_a_websocket_goes_through_it_with_tls_to_the_host_itself() -> None:
    async with a_proxy(wants="me:pw") as proxy, a_server("plane.test") as (url, context):
        carrier = await websocket.connect(url, token="t", ssl_context=context, proxy=proxy.url)
        await carrier.send(b"x" * 100_000)
        assert await carrier.receive() == b"t" + b"x" * 100_000
        await carrier.aclose()
        assert proxy.asked == [f"CONNECT {url[6:].partition('/')[0]}"]


async def test_its_refusal_is_told_with_what_to_do_and_no_password() -> None:
    async with a_proxy(wants="me:pw") as proxy, a_server("plane.test") as (url, context):
        wrong = proxy.url.replace("me:pw", "me:other")
        with pytest.raises(BrokenByPeer, match=r"407.*a name and a password") as caught:
            await websocket.connect(url, token="t", ssl_context=context, proxy=wrong)
        assert "other" not in str(caught.value)
        unknown = url.replace("plane", "elsewhere")
        with pytest.raises(BrokenByPeer, match=r"403.*let this machine reach"):
            await websocket.connect(unknown, token="t", ssl_context=context, proxy=proxy.url)


async def test_a_certificate_is_checked_for_the_host_and_not_the_proxy() -> None:
    async with a_proxy() as proxy, a_server("127.0.0.1") as (url, context):
        with pytest.raises(BrokenByPeer, match=r"certificate of plane\.test is for another name"):
            await websocket.connect(url, token="t", ssl_context=context, proxy=proxy.url)


async def test_a_proxy_that_is_away_is_named() -> None:
    async with a_proxy() as proxy:
        url = proxy.url
    with pytest.raises(BrokenByPeer, match=r"proxy 127\.0\.0\.1:\d+ cannot be reached"):
        await websocket.connect("wss://plane.test", token="t", proxy=url)


async def test_a_proxy_of_another_kind_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigError, match="socks5"):
        await websocket.connect("wss://plane.test", token="t", proxy="socks5://proxy")
