"""Objects and logs over HTTP: what is asked, what is asked again, and what is refused for good."""

import contextlib
from collections.abc import AsyncIterator, Callable

import httpx2
import msgspec
import pytest
import structlog.testing
import trio

from levers9.actors.worker.http import GatewayHttp
from levers9.actors.worker.logs import LogLine
from levers9.actors.worker.objects import Owner
from levers9.errors import Refused, StoreUnavailable
from levers9.model.ids import Chance

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
