"""The log of a container."""

from pathlib import Path

import pytest
import trio

from levers9.lab import logfile
from levers9.lab.logfile import ContainerLog, LogQuery, parse


async def read(log: ContainerLog, query: LogQuery = LogQuery()) -> bytes:  # noqa: B008  # frozen
    return b"".join([piece async for piece in log.read(query)])


@pytest.fixture
def log(tmp_path: Path) -> ContainerLog:
    return ContainerLog(tmp_path / "0.log")


async def test_lines_come_back_as_they_were_written(log: ContainerLog) -> None:
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"oops\n")
    log.write("stdout", b"o\nlast")
    log.finish()
    assert await read(log) == b"one\noops\ntwo\nlast"


async def test_a_tail_has_the_last_lines(log: ContainerLog) -> None:
    log.write("stdout", b"1\n2\n3\n")
    log.finish()
    assert await read(log, LogQuery(tail=2)) == b"2\n3\n"
    assert await read(log, LogQuery(tail=0)) == b""


async def test_times_are_shown_where_they_are_asked_for_and_lines_before_one_are_left_out(log: ContainerLog) -> None:
    log.write("stdout", b"1\n")
    log.write("stdout", b"2\n")
    log.finish()
    lines = (await read(log, LogQuery(timestamps=True))).splitlines()
    later = lines[1].split()[0].decode()
    assert lines[1].endswith(b"Z 2")
    assert await read(log, LogQuery(since=later)) == b"2\n"


async def test_a_long_line_comes_in_one_piece_although_it_is_cut_on_disk(log: ContainerLog) -> None:
    log.write("stdout", b"x" * 50_000 + b"\n")
    log.finish()
    assert await read(log) == b"x" * 50_000 + b"\n"


async def test_who_follows_gets_what_is_written_later_and_ends_with_the_process(log: ContainerLog) -> None:
    log.write("stdout", b"before\n")
    got: list[bytes] = []

    async def follow() -> None:
        got.append(await read(log, LogQuery(follow=True)))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            log.write("stdout", b"after\n")
            await trio.testing.wait_all_tasks_blocked()
            assert not got
            log.finish()
    assert got == [b"before\nafter\n"]


async def test_a_log_never_grows_beyond_two_files_and_a_follower_misses_nothing(
    log: ContainerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfile, "_LOG_MAX_BYTES", 1000)
    got: list[bytes] = []

    async def follow() -> None:
        async for piece in log.read(LogQuery(follow=True)):
            got.append(piece)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for number in range(200):
                await trio.testing.wait_all_tasks_blocked()
                log.write("stdout", f"line {number}\n".encode())
            log.finish()
    assert got == [f"line {number}\n".encode() for number in range(200)]
    assert sum(path.stat().st_size for path in log.path.parent.iterdir()) < 2300


def test_a_line_of_the_file_names_its_time_and_stream() -> None:
    line = parse(b"2026-01-01T00:00:00.000000000Z stderr P some text")
    assert (line.time, line.stream, line.text, line.whole) == (
        "2026-01-01T00:00:00.000000000Z",
        "stderr",
        b"some text",
        False,
    )
