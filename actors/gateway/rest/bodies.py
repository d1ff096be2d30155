"""Bodies: bounded in size and in time, and parsed into a type at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec
import trio
from starlette.requests import Request

from ....errors import INVALID, TOO_LARGE, Refused
from ....model.figures import PAYLOAD_MAX_BYTES, REST_BODY_MAX_BYTES
from .answers import TOO_SLOW

BODY_WITHIN_S: Final = 60.0
LARGE_BODY_WITHIN_S: Final = 900.0
JSON_BODY_MAX_BYTES: Final = 1 << 20
_Parsed = TypeVar("_Parsed")


async def read_body(request: Request, limit_bytes: int = REST_BODY_MAX_BYTES) -> bytes:
    """The whole body. Raises `Refused` for one that is too large or comes too slowly."""
    parts: list[bytes] = []
    with trio.move_on_after(BODY_WITHIN_S) as scope:
        async with aclosing(body_parts(request, limit_bytes)) as stream:
            async for part in stream:
                parts.append(part)
    if scope.cancelled_caught:
        raise Refused("The body came too slowly.", f"It has {BODY_WITHIN_S:g} s.", code=TOO_SLOW)
    return b"".join(parts)


async def body_parts(request: Request, limit_bytes: int = PAYLOAD_MAX_BYTES) -> AsyncGenerator[bytes, None]:
    """The body as it comes. Raises `Refused` as soon as it is too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    size_bytes = 0
    async with aclosing(request.stream()) as stream:
        async for part in stream:
            size_bytes += len(part)
            if size_bytes > limit_bytes:
                raise _too_large(limit_bytes)
            yield part


async def read_json(request: Request, kind: type[_Parsed]) -> _Parsed:
    """The body as this type. Raises `Refused` with what is wrong where."""
    body = await read_body(request, JSON_BODY_MAX_BYTES)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise Refused("The body cannot be read.", str(error), code=INVALID) from error


async def read_msgpack(request: Request, decoder: msgspec.msgpack.Decoder[_Parsed]) -> _Parsed:
    """The body through this decoder. Raises `Refused` with what is wrong where."""
    body = await read_body(request)
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Refused("The body cannot be read.", str(error), code=INVALID) from error


def _too_large(limit_bytes: int) -> Refused:
    return Refused(
        "The body is too large.", f"The limit here is {limit_bytes / (1 << 20):g} MiB.", "Use a Volume.", TOO_LARGE
    )
