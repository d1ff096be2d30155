"""The journal's folder: what was handed over is there, old segments go, and a slow disk costs records, not the core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from levers9.actors.scheduler.events import Ended, Event, Planned
from levers9.actors.scheduler.journal import Header, Record, Segment, read_journal
from levers9.actors.scheduler.journal_files import JournalWriter, segment_paths

HEADER = Header(0, 3, "0.1", "ours")


def steps(first: int, count: int) -> list[Record]:
    return [Record(float(at), Ended(member=f"m{at}"), ()) for at in range(first, first + count)]


def nothing() -> tuple[Event, ...]:
    return (Planned(),)


@asynccontextmanager
async def writing(writer: JournalWriter) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        yield
        nursery.cancel_scope.cancel()


def segments_in(folder: Path) -> list[Segment]:
    return list(read_journal(b"".join(path.read_bytes() for path in segment_paths(folder))))


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not holds():
            await trio.lowlevel.checkpoint()


async def test_what_was_handed_over_is_there_after_the_stop(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "journal", HEADER)
    async with writing(writer):
        writer.open(1.0, nothing())
        writer.append(steps(0, 3), 2.0, nothing)
    (segment,) = segments_in(tmp_path / "journal")
    assert segment.header == Header(1, 3, "0.1", "ours")
    assert (segment.opening, segment.records, segment.closed) == ((Planned(),), tuple(steps(0, 3)), True)
    assert writer.statistics().written == 3


async def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, HEADER)
    async with writing(writer):
        writer.open(1.0, nothing())
        writer.append(steps(0, 3), 2.0, nothing)
        await until(lambda: writer.statistics().written == 3)
        (segment,) = segments_in(tmp_path)
        assert (segment.records, segment.closed) == (tuple(steps(0, 3)), False)


async def test_a_full_segment_is_followed_by_another_that_opens_with_the_standing(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, HEADER, segment_records=2, kept_segments=3)
    async with writing(writer):
        writer.open(0.0, nothing())
        for first in range(0, 12, 2):
            writer.append(steps(first, 2), float(first), nothing)
    segments = segments_in(tmp_path)
    assert [segment.header.number for segment in segments] == [5, 6, 7]
    assert [segment.records for segment in segments] == [tuple(steps(8, 2)), tuple(steps(10, 2)), ()]
    assert writer.statistics().segments == 3


async def test_numbers_go_on_where_an_earlier_life_ended(tmp_path: Path) -> None:
    (tmp_path / "0000000041.l9journal").write_bytes(b"")
    (tmp_path / "notes.l9journal").write_bytes(b"")
    writer = JournalWriter(tmp_path, HEADER)
    async with writing(writer):
        writer.open(1.0, nothing())
    assert [path.name for path in segment_paths(tmp_path)] == ["0000000041.l9journal", "0000000042.l9journal"]


async def test_what_comes_too_fast_is_counted_and_the_next_segment_goes_on(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, HEADER, waiting_max=10)
    writer.open(0.0, nothing())
    writer.append(steps(0, 8), 1.0, nothing)
    writer.append(steps(8, 3), 2.0, nothing)  # nobody writes yet: these have no room
    async with writing(writer):
        await until(lambda: writer.statistics().written == 8)
        writer.append(steps(11, 2), 3.0, nothing)  # these are in the snapshot
        writer.append(steps(13, 1), 4.0, nothing)
    first, second = segments_in(tmp_path)
    assert (first.records, first.dropped) == (tuple(steps(0, 8)), 5)
    assert (second.opened_at_s, second.records, second.dropped) == (3.0, tuple(steps(13, 1)), 0)
    assert writer.statistics().dropped == 5


async def test_a_disk_that_fails_costs_records_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    writer = JournalWriter(folder, HEADER)
    async with writing(writer):
        folder.rmdir()
        writer.open(0.0, nothing())
        writer.append(steps(0, 2), 1.0, nothing)
        await until(lambda: writer.statistics().dropped == 2)
        folder.mkdir()
        writer.append(steps(2, 1), 2.0, nothing)  # lost as well, and opens the next segment
        writer.append(steps(3, 1), 3.0, nothing)
    (segment,) = segments_in(folder)
    assert (segment.opened_at_s, segment.records) == (2.0, tuple(steps(3, 1)))


async def test_a_folder_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    writer = JournalWriter(tmp_path / "file" / "journal", HEADER)
    async with writing(writer):
        writer.open(0.0, nothing())
        writer.append(steps(0, 1), 1.0, nothing)
    assert writer.statistics().written == 0


async def test_without_an_opening_the_first_records_open_a_segment(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, HEADER)
    async with writing(writer):
        writer.append(steps(0, 1), 5.0, nothing)
        writer.append(steps(1, 1), 6.0, nothing)
    (segment,) = segments_in(tmp_path)
    assert (segment.opened_at_s, segment.records) == (5.0, tuple(steps(1, 1)))
