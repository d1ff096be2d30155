"""Bytes of two pipes become numbered lines of calls, and lines become chunks."""

import itertools

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from levers9_test_worker import NotedLogs

from levers9.actors.worker.logs import CHUNK_BYTES, LogLine, LogShipper, LogSplitter
from levers9.errors import BrokenByPeer
from levers9.model.figures import LOG_LINE_MAX_BYTES
from levers9.wire.work import AttemptKey

MARKER = b"\0abcd"


def a_splitter(kept_bytes: int = 1 << 20) -> LogSplitter:
    splitter = LogSplitter(MARKER, kept_bytes)
    for index in range(1, 5):
        splitter.expect(index, AttemptKey(f"t{index}", 1))
    return splitter


def plain(lines: list[LogLine]) -> list[tuple[str, int, str, str]]:
    return [(one.task_id, one.number, one.stream, one.text) for one in lines]


WRITTEN = b"loading\n" + MARKER + b"1\none\ntwo" + MARKER + b"2\n" + MARKER + b"3\nthree\n"
LINES = [("", 1, "out", "loading"), ("t1", 1, "out", "one"), ("t1", 2, "out", "two"), ("t3", 1, "out", "three")]


@given(st.sets(st.integers(1, len(WRITTEN) - 1)))
def test_lines_are_the_same_wherever_the_bytes_were_cut(cuts: set[int]) -> None:
    splitter = a_splitter()
    lines: list[LogLine] = []
    edges = [0, *sorted(cuts), len(WRITTEN)]
    for start, end in itertools.pairwise(edges):
        lines += splitter.feed(0, WRITTEN[start:end], 0.0)
    assert plain(lines) == LINES


def test_lines_are_numbered_over_both_streams() -> None:
    splitter = a_splitter()
    lines = splitter.feed(0, MARKER + b"1\na\n", 0.0) + splitter.feed(1, MARKER + b"1\nb\n", 0.0)
    assert plain(lines) == [("t1", 1, "out", "a"), ("t1", 2, "err", "b")]
    assert splitter.last_number(1) == 2


def test_an_unfinished_line_is_a_line_once_its_call_has_ended() -> None:
    splitter = a_splitter()
    splitter.feed(0, MARKER + b"1\nhalf", 0.0)
    splitter.feed(1, MARKER + b"2\nother", 0.0)
    assert plain(splitter.close_lines(1, 0.0)) == [("t1", 1, "out", "half")]
    assert plain(splitter.close_lines(None, 0.0)) == [("t2", 1, "err", "other")]


def test_a_line_over_the_limit_is_split() -> None:
    splitter = a_splitter()
    lines = splitter.feed(0, b"x" * (LOG_LINE_MAX_BYTES + 5) + b"\n", 0.0)
    assert [len(one.text) for one in lines] == [LOG_LINE_MAX_BYTES, 5]


def test_an_endless_line_without_an_end_takes_no_endless_memory() -> None:
    splitter = a_splitter(kept_bytes=1 << 30)
    lines: list[LogLine] = []
    for _ in range(64):
        lines += splitter.feed(0, b"x" * 8192, 0.0)
    assert sum(len(one.text) for one in lines) >= 6 * LOG_LINE_MAX_BYTES


def test_logs_over_what_is_kept_end_with_a_mark() -> None:
    splitter = a_splitter(kept_bytes=10)
    lines = splitter.feed(0, b"123456\n1234\nmore\n", 0.0)
    assert [one.text[:9] for one in lines] == ["123456", "[levers9:"]


def a_line(number: int, size: int = 1) -> LogLine:
    return LogLine("t", 1, number, "out", 0.0, "x" * size)


async def test_a_chunk_leaves_within_half_a_second(autojump_clock: trio.testing.MockClock) -> None:
    sink = NotedLogs()
    shipper = LogShipper("c", sink, lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shipper.run)
        shipper.add([a_line(1)])
        await trio.sleep(0.4)
        assert sink.chunks == []
        await trio.sleep(0.2)
        assert sink.chunks == [0]
        shipper.add([a_line(2, CHUNK_BYTES), a_line(3)])
        await trio.testing.wait_all_tasks_blocked()
        assert (sink.chunks, [one.number for one in sink.lines]) == ([0, 1, 2], [1, 2, 3])
        nursery.cancel_scope.cancel()


async def test_a_chunk_that_was_not_taken_is_sent_again_under_its_number(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Away(NotedLogs):
        failures = 3

        async def send(self, container_id: str, chunk: int, lines: tuple[LogLine, ...]) -> None:
            if self.failures:
                self.failures -= 1
                raise BrokenByPeer("away")
            await super().send(container_id, chunk, lines)

    sink = Away()
    shipper = LogShipper("c", sink, lambda: 0.0)
    shipper.add([a_line(1), a_line(2)])
    await shipper.flush()
    assert (sink.chunks, [one.number for one in sink.lines]) == ([0], [1, 2])


@pytest.mark.slow
async def test_lines_that_found_no_room_are_counted_in_a_mark() -> None:
    sink = NotedLogs()
    shipper = LogShipper("c", sink, lambda: 0.0)
    shipper.add([a_line(number, 1 << 20) for number in range(12)])
    await shipper.flush()
    shipper.add([a_line(99)])
    await shipper.flush()
    assert sink.lines[-1].text == "[levers9: 3 lines before this one were lost] x"
