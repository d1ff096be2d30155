"""Objects over REST: content-addressed, per workspace, bounded."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from levers9.actors.gateway.rest import bodies, objects
from levers9.model.states import ContainerState, TokenKind
from levers9.store.operations import ContainerRow, PutContainers

if TYPE_CHECKING:
    from .conftest import Stand

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


def key_of(data: bytes) -> str:
    return f"blob/{hashlib.sha256(data).hexdigest()}"


async def test_only_what_is_missing_is_sent_and_comes_back_whole(stand: Stand) -> None:
    one, two = b"one", b"two" * 1000
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        stored = await http.post("/api/v1/objects/put", content=pack({key_of(one): one}))
        lacking = await http.post("/api/v1/objects/missing", content=pack([key_of(one), key_of(two)]))
        await http.post("/api/v1/objects/put", content=pack({key_of(two): two}))
        back = await http.post("/api/v1/objects/get", content=pack([key_of(one), key_of(two), key_of(b"none")]))
    assert stored.json()["stored"] == 1
    assert unpack(lacking.content) == [key_of(two)]
    assert unpack(back.content) == {key_of(one): one, key_of(two): two}


async def test_one_large_object_streams_in_and_out(stand: Stand) -> None:
    data = bytes(range(256)) * 20_000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        put = await http.put(f"/api/v1/objects/{key_of(data)}", content=pieces())
        got = await http.get(f"/api/v1/objects/{key_of(data)}")
        none = await http.get(f"/api/v1/objects/{key_of(b'none')}")
    assert (put.status_code, got.status_code, none.status_code) == (201, 200, 404)
    assert got.content == data
    assert got.headers["content-length"] == str(len(data))


async def test_a_workspace_sees_nothing_of_another(stand: Stand) -> None:
    secret = b"secret"
    async with stand.http(await stand.token(TokenKind.WORKSPACE, "ws-a")) as http:
        await http.post("/api/v1/objects/put", content=pack({key_of(secret): secret}))
    async with stand.http(await stand.token(TokenKind.WORKSPACE, "ws-b")) as http:
        got = await http.get(f"/api/v1/objects/{key_of(secret)}")
        missing = await http.post("/api/v1/objects/missing", content=pack([key_of(secret)]))
        asked = await http.get(f"/api/v1/objects/{key_of(secret)}?workspace=ws-a")
    assert (got.status_code, unpack(missing.content), asked.status_code) == (404, [key_of(secret)], 403)


async def test_a_shared_worker_reaches_workspaces_that_it_serves_and_no_others(stand: Stand) -> None:
    data = b"code"
    await stand.objects.put(f"ws-a/{key_of(data)}", data)
    row = ContainerRow(container_id="c", stub_id="s", workspace_id="ws-a", state=ContainerState.PLACED, worker_id="w1")
    await stand.store.apply(PutContainers(containers=(row,)))
    async with stand.http(await stand.token(TokenKind.WORKER, "", subject="w1")) as http:
        served = await http.get(f"/api/v1/objects/{key_of(data)}?workspace=ws-a")
        unserved = await http.get(f"/api/v1/objects/{key_of(data)}?workspace=ws-b")
        unsaid = await http.get(f"/api/v1/objects/{key_of(data)}")
    async with stand.http(await stand.token(TokenKind.WORKER, "", subject="w2")) as http:
        other = await http.get(f"/api/v1/objects/{key_of(data)}?workspace=ws-a")
    assert (served.content, unserved.status_code, unsaid.status_code, other.status_code) == (data, 403, 400, 403)


async def test_bytes_that_are_not_their_keys_are_refused_and_not_kept(stand: Stand) -> None:
    key = key_of(b"what it should be")
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        batch = await http.post("/api/v1/objects/put", content=pack({key: b"something else"}))
        large = await http.put(f"/api/v1/objects/{key}", content=b"something else")
        got = await http.get(f"/api/v1/objects/{key}")
    assert (batch.status_code, large.status_code, got.status_code) == (400, 400, 404)


@pytest.mark.parametrize("key", ["blob/xyz", "logs/c/00000000", "../ws-b/blob/x", "blob/" + "a" * 65])
async def test_only_content_has_a_key(stand: Stand, key: str) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.post("/api/v1/objects/get", content=pack([key]))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_a_body_that_says_it_is_too_large_is_refused_unread(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.post("/api/v1/objects/put", content=bytes((32 << 20) + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "32 MiB" in answer.json()["why"]


async def test_a_body_that_hides_its_size_is_refused_as_it_grows(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PAYLOAD_MAX_BYTES", 1000)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(100)

    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.put(f"/api/v1/objects/{key_of(b'x')}", content=endless())
    assert answer.status_code == 413


async def test_a_body_that_comes_too_slowly_is_given_up(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_WITHIN_S", 0.05)
    token = await stand.token(TokenKind.WORKSPACE)
    import trio

    head = f"POST /api/v1/objects/get HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 9\r\n\r\n"
    with trio.fail_after(5):
        async with await trio.open_tcp_stream("127.0.0.1", stand.http_port) as stream:
            await stream.send_all(head.encode())
            answer = await stream.receive_some(4096)
    assert answer.startswith(b"HTTP/1.1 408")
