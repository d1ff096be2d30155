"""Keeps the journal's newest segments in a folder. It is evidence, never the truth: nobody waits for it or fails by it.

The scheduler hands over what it decided once that is committed. A thread packs and writes; what comes faster than the
disk takes it is dropped and counted, and the next segment begins with a snapshot, so that it can be replayed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from .events import Event
from .journal import Header, Record, SegmentEncoder

SUFFIX: Final = ".l9journal"
SEGMENT_RECORDS: Final = 50_000
SEGMENT_BYTES: Final = 8 << 20
KEPT_SEGMENTS: Final = 8
WAITING_MAX: Final = 20_000  # records: about a second of the most that one core decides, 10 MB
STOP_WITHIN_S: Final = 2.0

_log: Final = structlog.get_logger("scheduler.journal")


class JournalStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What was written and what was not, in records, and how many wait for the disk."""

    written: int
    dropped: int
    waiting: int
    segments: int


class _Start(msgspec.Struct, frozen=True):
    """A segment begins here, in this standing."""

    at_s: float
    opening: tuple[Event, ...]


class JournalWriter:
    """Appends to segments in `folder`, and removes the oldest ones. `run` writes; `append` never waits."""

    def __init__(
        self,
        folder: Path,
        header: Header,
        *,
        segment_records: int = SEGMENT_RECORDS,
        kept_segments: int = KEPT_SEGMENTS,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._files = _Files(folder, header, kept_segments)
        self._segment_records = segment_records
        self._waiting_max = waiting_max
        self._waiting: list[Record | _Start | int] = []  # an int: so many records were dropped here
        self._waiting_records = 0
        self._in_segment = 0
        self._open = False
        self._gap = 0
        self._dropped = 0
        self._bell = trio.Event()

    def open(self, now_s: float, opening: tuple[Event, ...]) -> None:
        """Begin a segment with this standing; records go on from it."""
        if self._gap:
            self._waiting.append(self._gap)
        self._waiting.append(_Start(now_s, opening))
        self._gap = self._in_segment = 0
        self._open = True
        self._files.wants_another = False
        self._bell.set()

    def append(self, records: Iterable[Record], now_s: float, snapshot: Callable[[], tuple[Event, ...]]) -> None:
        """Hand over what was decided and committed. `snapshot` is the standing after it, asked for now and then."""
        new = tuple(records)
        if self._open and self._waiting_records + len(new) <= self._waiting_max:
            self._waiting += new
            self._waiting_records += len(new)
            self._in_segment += len(new)
        else:  # the next segment opens with what came of them
            self._open = False
            self._gap += len(new)
            self._dropped += len(new)
        full = self._in_segment >= self._segment_records or self._files.wants_another
        if self._waiting_records <= self._waiting_max // 2 and (full or not self._open):
            self.open(now_s, snapshot())
        self._bell.set()

    def statistics(self) -> JournalStatistics:
        """What was written so far."""
        return JournalStatistics(
            written=self._files.written,
            dropped=self._dropped + self._files.lost,
            waiting=self._waiting_records,
            segments=self._files.segments,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, then what is left. Ready when it knows which segments there are."""
        await trio.to_thread.run_sync(self._files.look)
        task_status.started()
        try:
            while True:
                await self._bell.wait()
                self._bell = trio.Event()
                with trio.CancelScope(shield=True):  # a thread that writes cannot be stopped in the middle
                    await self._write_waiting()
        finally:
            with trio.move_on_after(STOP_WITHIN_S, shield=True):
                await self._write_waiting(abandon=True)
                await trio.to_thread.run_sync(self._files.close, abandon_on_cancel=True)

    async def _write_waiting(self, *, abandon: bool = False) -> None:
        batch, self._waiting = self._waiting, []
        self._waiting_records = 0
        if batch:
            await trio.to_thread.run_sync(self._files.write, batch, abandon_on_cancel=abandon)


class _Files:
    """The folder, as the thread sees it. A disk that fails costs records, and the next segment tries again."""

    def __init__(self, folder: Path, header: Header, kept_segments: int) -> None:
        self._folder = folder
        self._header = header
        self._kept_segments = kept_segments
        self._number = header.number
        self._path: Path | None = None
        self._encoder: SegmentEncoder | None = None
        self.wants_another = False
        self.written = 0
        self.lost = 0
        self.segments = 0

    def look(self) -> None:
        """Find the number of the newest segment."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            names = segment_paths(self._folder)
        except OSError as error:
            _log.warning("the journal's folder cannot be used", folder=str(self._folder), why=error.strerror)
            return
        self.segments = len(names)
        if names:
            self._number = max(self._number, _number_of(names[-1]))

    def write(self, batch: list[Record | _Start | int]) -> None:
        """Write records in their order, beginning segments where they begin."""
        run: list[Record] = []
        for item in batch:
            if isinstance(item, Record):
                run.append(item)
                continue
            self._add(run)
            run = []
            if isinstance(item, _Start):
                self._begin(item)
            else:
                self.close(dropped=item)
        self._add(run)

    def _begin(self, start: _Start) -> None:
        self.close()
        self._number += 1
        self._encoder = SegmentEncoder(msgspec.structs.replace(self._header, number=self._number))
        self._path = self._folder / f"{self._number:010d}{SUFFIX}"
        if self._put(self._encoder.open(start.at_s, start.opening)):
            self.segments = len(_pruned(self._folder, self._kept_segments))

    def _add(self, records: list[Record]) -> None:
        if not records:
            return
        if self._encoder is None or not self._put(self._encoder.add(records)):
            self.lost += len(records)
            return
        self.written += len(records)
        self.wants_another = self.wants_another or self._encoder.size_bytes >= SEGMENT_BYTES

    def close(self, dropped: int = 0) -> None:
        """End the segment in good order."""
        if self._encoder is not None:
            self._put(self._encoder.close(dropped))
        self._encoder = None

    def _put(self, data: bytes) -> bool:
        assert self._path is not None
        try:
            with self._path.open("ab") as file:
                file.write(data)
        except OSError as error:
            _log.warning("the journal could not be written", path=str(self._path), why=error.strerror)
            self._encoder = None
            self.wants_another = True
            return False
        return True


def segment_paths(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def _pruned(folder: Path, kept: int) -> list[Path]:
    """Remove all but the newest segments; returns what is left."""
    paths = segment_paths(folder)
    for path in paths[:-kept]:
        with suppress(OSError):  # it is tried again with the next segment
            path.unlink()
    return paths[-kept:]


def _number_of(path: Path) -> int:
    return int(path.stem)
