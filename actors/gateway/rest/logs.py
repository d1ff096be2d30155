"""Logs: workers deliver numbered chunks, readers get lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
from starlette.responses import Response

from ....errors import INVALID, Refused
from ....store.operations import TaskRow
from ..logs import LogEntry, chunk_key, log_channel, read_lines
from .answers import Answer, StreamedAnswer, json_answer
from .bodies import read_body
from .desk import Call

_LAST_CHUNK: Final = 99_999_999
_lines: Final = msgspec.json.Encoder()


class ChunkStored(Answer, frozen=True, kw_only=True):
    """The chunk is kept; the next one may come."""

    chunk: int


async def write(call: Call) -> Response:
    """Keep a chunk of a container's log, and wake its readers. The same chunk again replaces itself."""
    container_id, chunk = call.parameter("container_id"), int(call.parameter("chunk"))
    if chunk > _LAST_CHUNK:
        raise Refused(f"There is no chunk {chunk}.", code=INVALID)
    workspace_id = await call.desk.tenancy.workspace_of(container_id, call.principal)
    body = await read_body(call.request)
    read_lines(body)
    await call.desk.objects.put(chunk_key(workspace_id, container_id, chunk), body)
    await call.desk.wakeups.publish(log_channel(container_id), str(chunk))
    return json_answer(ChunkStored(chunk=chunk))


async def read(call: Call) -> Response:
    """Lines as NDJSON: `{"n", "stream", "time", "text", "attempt"}`, then `{"end": last line}` or `{"lost": true}`."""
    after = call.query("after", "0")
    if not after.isdigit():
        raise Refused(f"after={after!r} is not a line's number.", code=INVALID)
    task = await call.desk.logs.task(call.parameter("task_id"), call.scope)
    follow = call.query("follow") in ("1", "true")
    return StreamedAnswer(_ndjson(call, task, int(after), follow), media_type="application/x-ndjson")


async def _ndjson(call: Call, task: TaskRow, after: int, follow: bool) -> AsyncGenerator[bytes, None]:
    async with aclosing(call.desk.logs.entries(task, after=after, follow=follow)) as entries:
        async for entry in entries:
            yield _packed(entry)


def _packed(entry: LogEntry) -> bytes:
    return _lines.encode(entry) + b"\n"
