"""Objects: content-addressed, per workspace; in batches, or one large one streamed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
import trio
from starlette.responses import Response

from ....errors import INVALID, NOT_FOUND, TOO_LARGE, Refused
from ....model.figures import PAYLOAD_MAX_BYTES, REST_BODY_MAX_BYTES
from .answers import TOO_SLOW, Answer, StreamedAnswer, json_answer
from .bodies import LARGE_BODY_WITHIN_S, body_parts, read_msgpack
from .desk import Call

KEYS_AT_ONCE: Final = 10_000
_READ_AT_ONCE: Final = 32
_KEY: Final = re.compile(r"blob/([0-9a-f]{64})")
_keys: Final = msgspec.msgpack.Decoder(list[str])
_blobs: Final = msgspec.msgpack.Decoder(dict[str, bytes])
_encode: Final = msgspec.msgpack.encode
_MSGPACK: Final = "application/msgpack"


class Stored(Answer, frozen=True, kw_only=True):
    """Objects that are kept now."""

    stored: int


async def missing(call: Call) -> Response:
    """Which of these keys does the store lack?"""
    workspace_id, keys = await _workspace(call), await _read_keys(call)
    lacking = await call.desk.objects.missing([_whole(workspace_id, key) for key in keys])
    return Response(_encode([_key(whole) for whole in lacking]), media_type=_MSGPACK)


async def put(call: Call) -> Response:
    """Keep many small objects."""
    workspace_id = await _workspace(call)
    blobs = await read_msgpack(call.request, _blobs)
    _check_count(len(blobs))
    for key, data in blobs.items():
        _check_hash(key, hashlib.sha256(data).hexdigest())
    await call.desk.objects.put_all({_whole(workspace_id, key): data for key, data in blobs.items()})
    return json_answer(Stored(stored=len(blobs)))


async def get(call: Call) -> Response:
    """Many small objects; those that are missing are left out."""
    workspace_id, keys = await _workspace(call), await _read_keys(call)
    found: dict[str, bytes] = {}
    size_bytes = 0
    for start in range(0, len(keys), _READ_AT_ONCE):
        wholes = [_whole(workspace_id, key) for key in keys[start : start + _READ_AT_ONCE]]
        for whole, data in (await call.desk.objects.get_all(wholes)).items():
            found[_key(whole)] = data
            size_bytes += len(data)
        if size_bytes > REST_BODY_MAX_BYTES:
            raise Refused("Together these objects are too large.", "An answer has 32 MiB.", "Ask for fewer.", TOO_LARGE)
    return Response(_encode(found), media_type=_MSGPACK)


async def write(call: Call) -> Response:
    """Keep one large object, as it streams in."""
    workspace_id, key = await _workspace(call), call.parameter("key")
    digest = hashlib.sha256()

    async def checked() -> AsyncGenerator[bytes, None]:
        async with aclosing(body_parts(call.request, PAYLOAD_MAX_BYTES)) as parts:
            async for part in parts:
                digest.update(part)
                yield part
        _check_hash(key, digest.hexdigest())

    whole = _whole(workspace_id, key)
    with trio.move_on_after(LARGE_BODY_WITHIN_S) as scope:
        async with aclosing(checked()) as parts:
            await call.desk.objects.put_stream(whole, parts)
    if scope.cancelled_caught:
        raise Refused("The body came too slowly.", f"It has {LARGE_BODY_WITHIN_S:g} s.", code=TOO_SLOW)
    return json_answer(Stored(stored=1), 201)


async def read(call: Call) -> Response:
    """One large object, streamed."""
    whole = _whole(await _workspace(call), call.parameter("key"))
    info = await call.desk.objects.head(whole)
    if info is None:
        raise Refused(f"There is no object {call.parameter('key')!r} in this workspace.", code=NOT_FOUND)
    headers = {"content-length": str(info.size_bytes)}
    return StreamedAnswer(call.desk.objects.get_stream(whole), headers=headers, media_type="application/octet-stream")


async def _workspace(call: Call) -> str:
    return await call.desk.tenancy.workspace_for(call.principal, call.query("workspace"))


async def _read_keys(call: Call) -> list[str]:
    keys = await read_msgpack(call.request, _keys)
    _check_count(len(keys))
    return keys


def _whole(workspace_id: str, key: str) -> str:
    if not _KEY.fullmatch(key):
        raise Refused(
            f"{key[:100]!r} is not an object's key.", fix="A key is blob/ and a SHA-256 in hex.", code=INVALID
        )
    return f"{workspace_id}/{key}"


def _key(whole: str) -> str:
    return whole.partition("/")[2]


def _check_hash(key: str, digest: str) -> None:
    if key != f"blob/{digest}":
        raise Refused(f"The bytes for {key[:100]!r} are not its own.", f"Their SHA-256 is {digest}.", code=INVALID)


def _check_count(count: int) -> None:
    if count > KEYS_AT_ONCE:
        raise Refused("Too many keys at once.", f"The limit is {KEYS_AT_ONCE}.", code=TOO_LARGE)
