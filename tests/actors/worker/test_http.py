"""Objects and logs over HTTP: what is asked, what is asked again, and what is refused for good."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

import httpx2
import msgspec
import pytest
import structlog.testing
import trio
import trustme

from levers9.actors.worker.http import GatewayHttp, open_http
from levers9.actors.worker.logs import LogLine
from levers9.actors.worker.objects import Owner
from levers9.errors import Refused, StoreUnavailable
from levers9.model.ids import Chance

from ...wire.carriers.connect_proxy import a_proxy

OWNER = Owner(workspace_id="ws", container_id="c")


@contextlib.asynccontextmanager
async def http(answer: Callable[[httpx2.Request], httpx2.Response]) -> AsyncIterator[GatewayHttp]:
    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(base_url="http://gateway", transport=transport) as client:
        yield GatewayHttp(client, Chance(1))


async def test_many_objects_are_asked_for_in_the_workspace_of_their_container() -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, content=msgspec.msgpack.encode({"blob/a": b"1"}))

    async with http(answer) as gateway:
        assert await gateway.get_many(OWNER, ("blob/a",)) == {"blob/a": b"1"}
    assert str(asked[0].url) == "http://gateway/api/v1/objects/get?workspace=ws"
    assert msgspec.msgpack.decode(asked[0].content) == ["blob/a"]


async def test_a_gateway_that_fails_or_is_away_is_asked_until_it_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = iter([503, 0, 429, 201])

    def answer(request: httpx2.Request) -> httpx2.Response:
        status = next(answers)
        if not status:
            raise httpx2.ConnectError("nobody listens")
        return httpx2.Response(status)

    with structlog.testing.capture_logs() as told:
        async with http(answer) as gateway:
            await gateway.put(OWNER, "blob/a", b"1")
    assert [entry["event"] for entry in told] == ["asking again"] * 3


async def test_what_is_refused_is_not_asked_again() -> None:
    body = msgspec.json.encode({"ok": False, "code": "not_found", "what": "There is no object.", "fix": "Look."})

    async with http(lambda request: httpx2.Response(404, content=body)) as gateway:
        with pytest.raises(Refused, match=r"There is no object\. Look\.") as caught:
            await gateway.get(OWNER, "blob/a")
    assert caught.value.code == "not_found"


async def test_an_error_in_another_form_is_told_by_its_status() -> None:
    async with http(lambda request: httpx2.Response(400, content=b"<html>")) as gateway:
        with pytest.raises(Refused, match="answered with 400"):
            await gateway.get(OWNER, "blob/a")


async def test_a_refused_chunk_of_logs_holds_up_nothing_and_an_unheard_one_is_the_shipper_s() -> None:
    status = 403

    async with http(lambda request: httpx2.Response(status)) as gateway:
        line = LogLine("t", 1, 1, "out", 0.0, "x")
        with structlog.testing.capture_logs() as told:
            await gateway.send("c", 0, (line,))
        status = 500
        with pytest.raises(StoreUnavailable):
            await gateway.send("c", 0, (line,))
    assert told[0]["event"] == "a chunk of logs was refused"


@contextlib.asynccontextmanager
async def a_gateway(name: str, authority: trustme.CA) -> AsyncIterator[int]:
    """Answers each request over TLS with its own `authorization`, once a connection."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            head = bytes(await stream.receive_some(65_536)).decode().lower()
            token = head.partition("authorization: bearer ")[2].partition("\r\n")[0].encode()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(token))
            await stream.send_all(token)
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1", https_compatible=True)
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        with trio.fail_after(10):
            yield listeners[0].transport_listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_it_goes_through_a_proxy_with_tls_under_an_authority_of_one_s_own() -> None:
    authority = trustme.CA()
    pem = authority.cert_pem.bytes().decode()
    async with a_proxy(wants="me:pw") as proxy, a_gateway("plane.test", authority) as port:
        url = f"https://plane.test:{port}"
        async with open_http(url, "token-1", Chance(1), ca_pem=pem, proxy=proxy.url) as gateway:
            assert await gateway.get(OWNER, "blob/a") == b"token-1"
        assert proxy.asked == [f"CONNECT plane.test:{port}"]


async def test_why_a_certificate_is_not_trusted_is_told() -> None:
    async with a_gateway("127.0.0.1", trustme.CA()) as port:
        async with open_http(f"https://127.0.0.1:{port}", "t", Chance(1)) as gateway:
            with pytest.raises(StoreUnavailable, match="not signed by anybody this machine trusts"):
                await gateway.send("c", 0, (LogLine("t", 1, 1, "out", 0.0, "x"),))


async def test_the_token_never_goes_to_another_machine_in_the_clear() -> None:
    with pytest.raises(Refused, match="in the clear"):
        async with open_http("http://10.0.0.7", "t", Chance(1)):
            pass
