"""Objects: memory, a folder and S3 alike."""

import urllib.request
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from levers9.errors import INVALID, NOT_FOUND, Refused
from levers9.store.objects import CHUNK_BYTES, MemoryObjects, ObjectInfo, Objects, open_objects


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.slow)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "folder":
        return open_objects(tmp_path / "made" / "objects")
    return s3_objects(request.getfixturevalue("monkeypatch"), request.getfixturevalue("s3_url"))


def s3_objects(environment: pytest.MonkeyPatch, endpoint: str) -> Objects:
    """Open a new bucket, found by what is in the environment, as in production."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=10).close()
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DISABLE_BULK_DELETE": "true",  # this server deletes one by one
    }.items():
        environment.setenv(name, value)
    return open_objects(f"s3://{bucket}/some/prefix")


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await trio.lowlevel.checkpoint()
        yield chunk


async def test_what_was_put_is_got_and_replaced(objects: Objects) -> None:
    await objects.put("one/blob/a", b"first")
    await objects.put("one/blob/a", b"second \0")
    assert await objects.get("one/blob/a") == b"second \0"
    assert await objects.head("one/blob/a") == ObjectInfo(key="one/blob/a", size_bytes=8)


async def test_what_is_not_there_is_refused_as_not_found(objects: Objects) -> None:
    assert await objects.head("none") is None
    with pytest.raises(Refused) as caught:
        await objects.get("none")
    with pytest.raises(Refused) as streamed:
        await anext(objects.get_stream("none"))
    assert (caught.value.code, streamed.value.code) == (NOT_FOUND, NOT_FOUND)


async def test_put_if_absent_keeps_the_first(objects: Objects) -> None:
    assert await objects.put_if_absent("a", b"first")
    assert not await objects.put_if_absent("a", b"second")
    assert await objects.get("a") == b"first"


async def test_of_many_writers_at_once_one_is_the_first(objects: Objects) -> None:
    kept: list[bool] = []

    async def put(number: int) -> None:
        kept.append(await objects.put_if_absent("a", bytes([number])))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(put, number)
    assert kept.count(True) == 1


async def test_many_small_ones_travel_together(objects: Objects) -> None:
    await objects.put("blob/b", b"old")
    await objects.put_all({"blob/a": b"A", "blob/b": b"new", "blob/c": b""})
    assert await objects.missing(("blob/x", "blob/a", "blob/y")) == ("blob/x", "blob/y")
    assert await objects.get_all(("blob/a", "blob/b", "blob/c", "blob/x")) == {
        "blob/a": b"A",
        "blob/b": b"old",
        "blob/c": b"",
    }


async def test_a_large_object_is_streamed_in_and_out(objects: Objects) -> None:
    chunk = bytes(range(256)) * 4096
    assert await objects.put_stream("large", pieces(*[chunk] * 13, b"end")) == 13 * CHUNK_BYTES + 3
    got = [each async for each in objects.get_stream("large")]
    assert b"".join(got) == chunk * 13 + b"end"
    assert len(got) > 1
    assert await objects.put_stream("empty", pieces()) == 0
    assert await objects.get("empty") == b""


async def test_a_stream_that_breaks_leaves_nothing_and_says_why(objects: Objects) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield b"x" * (11 * CHUNK_BYTES)
        raise Refused("The other side went away.", code="mine")

    with pytest.raises(Refused) as caught:
        await objects.put_stream("broken", breaks())
    assert caught.value.code == "mine"
    assert await objects.list("") == ()


async def test_a_cancelled_stream_leaves_nothing(objects: Objects) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield b"x" * (11 * CHUNK_BYTES)
        scope.cancel()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        await objects.put_stream("stalled", stalls())
    assert scope.cancelled_caught
    assert await objects.list("") == ()


async def test_a_folder_is_listed_by_key(objects: Objects) -> None:
    for key in ("one/b", "one/a/c", "oneself/x", "two/a"):
        await objects.put(key, key.encode())
    assert [info.key for info in await objects.list("one")] == ["one/a/c", "one/b"]
    assert await objects.list("one/a/") == (ObjectInfo(key="one/a/c", size_bytes=7),)
    assert len(await objects.list("")) == 4
    assert await objects.list("none") == ()


async def test_deleting_is_no_error_twice(objects: Objects) -> None:
    await objects.put("a", b"")
    await objects.delete("a", "b")
    await objects.delete("a")
    assert await objects.list("") == ()


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/./b", "a\0", "a\nb", "a#1", "k" * 2000]
)
async def test_a_key_that_leads_elsewhere_is_refused(objects: Objects, key: str) -> None:
    for call in (objects.put(key, b""), objects.get(key), objects.head(key), objects.delete(key)):
        with pytest.raises(Refused) as caught:
            await call
        assert caught.value.code == INVALID
    for call in (objects.put_all({key: b""}), objects.get_all([key]), objects.missing([key])):
        with pytest.raises(Refused):
            await call


@pytest.mark.parametrize("key", ["a b", "é", "a%2Fb", "a?b", "~", "a:b"])
async def test_odd_but_honest_keys_come_back_as_they_were(objects: Objects, key: str) -> None:
    await objects.put(key, b"x")
    assert [info.key for info in await objects.list("")] == [key]
    assert await objects.get(key) == b"x"
