"""The log of a container on disk: a line each with its time and stream, as container runtimes write it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import trio

_LOG_MAX_BYTES: Final = 10 << 20  # kubelet's default; there are two files of that size at most
_LINE_MAX_BYTES: Final = 16 << 10  # longer ones are cut, as containerd does


class LogLine(msgspec.Struct, frozen=True):
    """A line, or a part of a long one. `time` is in RFC 3339 with nanoseconds, and sorts as text."""

    time: str
    stream: str
    text: bytes
    whole: bool = True

    def shown(self, *, timestamps: bool) -> bytes:
        """As `kubectl logs` prints it."""
        before = f"{self.time} ".encode() if timestamps else b""
        return before + self.text + (b"\n" if self.whole else b"")


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of a log somebody wants."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: str = ""
    limit_bytes: int = 0  # 0 is none


class ContainerLog:
    """Written by one process, followed by any number of readers."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.finished = False
        self._older = path.with_suffix(".old")
        self._file = path.open("ab")
        self._rests: dict[str, bytes] = {}
        self._news = trio.Event()
        self._turned = 0  # how often a new file has begun

    def write(self, stream: str, data: bytes) -> None:
        """Bytes of a stream, in whatever pieces."""
        *lines, rest = (self._rests.get(stream, b"") + data).split(b"\n")
        for line in lines:
            self._put(stream, line)
        while len(rest) > _LINE_MAX_BYTES:
            self._line(stream, rest[:_LINE_MAX_BYTES], b"P")
            rest = rest[_LINE_MAX_BYTES:]
        self._rests[stream] = rest
        self._file.flush()
        self._wake()

    def finish(self) -> None:
        """Nothing more comes."""
        for stream, rest in self._rests.items():
            if rest:
                self._line(stream, rest, b"P")
        self._file.close()
        self.finished = True
        self._wake()

    async def read(self, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """The lines asked for; with `follow` those to come, until the process has ended."""
        with ExitStack() as stack:
            file, turned = stack.enter_context(self.path.open("rb")), self._turned
            past = [line for line in self._past(file) if line.time >= query.since]
            for line in past if query.tail is None else deque(past, maxlen=query.tail):
                yield line.shown(timestamps=query.timestamps)
            while query.follow:
                news, finished, fresh = self._news, self.finished, turned != self._turned
                for line in _lines(file):
                    yield line.shown(timestamps=query.timestamps)
                if fresh:
                    file, turned = stack.enter_context(self.path.open("rb")), turned + 1
                elif finished:
                    return
                else:
                    await news.wait()

    def _put(self, stream: str, line: bytes) -> None:
        while len(line) > _LINE_MAX_BYTES:
            self._line(stream, line[:_LINE_MAX_BYTES], b"P")
            line = line[_LINE_MAX_BYTES:]
        self._line(stream, line, b"F")

    def _line(self, stream: str, line: bytes, tag: bytes) -> None:
        if self._file.tell() > _LOG_MAX_BYTES:
            self._file.close()
            self.path.replace(self._older)
            self._turned += 1
            self._file = self.path.open("ab")
        self._file.write(b" ".join((now_text().encode(), stream.encode(), tag, line)) + b"\n")

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _past(self, file: BinaryIO) -> Iterator[LogLine]:
        if self._older.exists():
            with self._older.open("rb") as older:
                yield from _lines(older)
        yield from _lines(file)


def _lines(file: BinaryIO) -> Iterator[LogLine]:
    """The whole lines from where a file has been read up to."""
    for line in file:
        yield parse(line.removesuffix(b"\n"))


def parse(line: bytes) -> LogLine:
    """A line of the file."""
    time, stream, tag, text = line.split(b" ", 3)
    return LogLine(time.decode(), stream.decode(), text, tag == b"F")


def now_text() -> str:
    """The time with nanoseconds, as runtimes write it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
