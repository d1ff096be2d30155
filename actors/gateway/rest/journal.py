"""The scheduler's journal, as it lies on this host: whole segments one after the other, the oldest first."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import trio
from starlette.responses import Response

from ....errors import INVALID, NOT_FOUND, NOT_LEADER, Refused
from .answers import StreamedAnswer
from .desk import Call

_PATTERN: Final = "*.l9journal"  # as the scheduler names them, with a number in front that grows
_READ_BYTES: Final = 256 << 10


async def read(call: Call) -> Response:
    """The newest `?segments` of the journal; 0 or left out: all that are kept."""
    wanted = call.query("segments", "0")
    if not wanted.isdigit():
        raise Refused(f"segments={wanted[:40]!r} is not a number.", fix="Say how many, or 0 for all.", code=INVALID)
    leader_url = call.desk.statistics().leader_url
    if leader_url:
        raise Refused(
            "This replica does not lead, and each keeps the journal of its own reigns.",
            f"The one that leads is at {leader_url}.",
            "Ask that one: `levers9 config set controlplane_http_url` with its address.",
            NOT_LEADER,
        )
    paths = await trio.to_thread.run_sync(_segments, call.desk.journal_dir, int(wanted))
    if not paths:
        raise Refused("There is no journal yet.", "The scheduler begins one when it leads.", code=NOT_FOUND)
    return StreamedAnswer(_bytes_of(paths), media_type="application/octet-stream")


def _segments(folder: Path | None, newest: int) -> list[Path]:
    paths = sorted(folder.glob(_PATTERN)) if folder is not None else []
    return paths[-newest:] if newest else paths


async def _bytes_of(paths: list[Path]) -> AsyncGenerator[bytes, None]:
    """A segment that was removed meanwhile is left out: it was the oldest."""
    for path in paths:
        at = 0
        while part := await trio.to_thread.run_sync(_part_of, path, at):
            at += len(part)
            yield part


def _part_of(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(_READ_BYTES)
    except FileNotFoundError:
        return b""
