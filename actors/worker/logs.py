"""Logs of a container: bytes of two pipes become numbered lines of attempts, and lines become chunks.

The runner writes a mark on both pipes before each call: a zero byte, a word of this container, the call's index.
So each line belongs to one attempt, whoever in the tree wrote it, and lines are numbered from 1 over both streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import trio

from ...errors import LeversError
from ...model.figures import LOG_KEPT_BYTES, LOG_LINE_MAX_BYTES
from ...wire.work import AttemptKey

CHUNK_EVERY_S: Final = 0.5
CHUNK_BYTES: Final = 64 << 10
WAITING_MAX_BYTES: Final = 8 << 20  # lines kept for a control plane that is away; then they are lost, with a mark
RETRY_FIRST_S: Final = 0.5
RETRY_MAX_S: Final = 5.0
STREAMS: Final = ("out", "err")


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line. Lines of the time before the first call have an empty `task_id`."""

    task_id: str
    attempt: int
    number: int
    stream: str
    time_s: float
    text: str


class LogSink(Protocol):
    """Where chunks go. Sending a chunk twice is sending it once: its number is its key."""

    async def send(self, container_id: str, chunk: int, lines: tuple[LogLine, ...]) -> None:
        """Hand over one chunk; raises `LeversError` when it was not taken."""
        ...


class LogSplitter:
    """Bytes in, lines out."""

    def __init__(self, marker: bytes, kept_bytes: int = LOG_KEPT_BYTES) -> None:
        self._marker = marker
        self._partial = [b"", b""]
        self._index = [0, 0]
        self._keys: dict[int, AttemptKey] = {0: AttemptKey("", 0)}
        self._numbers: dict[int, int] = {}
        self._left_bytes = kept_bytes

    def expect(self, index: int, key: AttemptKey) -> None:
        """A call with this index will be marked."""
        self._keys[index] = key

    def feed(self, stream: int, data: bytes, now_s: float) -> list[LogLine]:
        """Take what one pipe gave; 0 is standard output, 1 standard error."""
        first, *marked = (self._partial[stream] + data).split(self._marker)
        lines: list[LogLine] = []
        if not marked:
            self._partial[stream] = self._take(stream, first, now_s, lines)
            return lines
        self._take_all(stream, first, now_s, lines)
        for piece in marked[:-1]:
            self._take_all(stream, self._enter(stream, piece), now_s, lines)
        if b"\n" not in marked[-1]:  # the mark itself is not whole yet
            self._partial[stream] = self._marker + marked[-1]
            return lines
        self._partial[stream] = self._take(stream, self._enter(stream, marked[-1]), now_s, lines)
        return lines

    def _enter(self, stream: int, piece: bytes) -> bytes:
        number, _, rest = piece.partition(b"\n")
        if number.isdigit():
            self._index[stream] = int(number)
        return rest

    def close_lines(self, index: int | None, now_s: float) -> list[LogLine]:
        """Unfinished lines of the call with this index, or of any (None), are lines now: it has ended."""
        lines: list[LogLine] = []
        for stream in (0, 1):
            ended = index is None or self._index[stream] <= index
            if ended and self._partial[stream] and not self._partial[stream].startswith(self._marker):
                self._take_all(stream, self._partial[stream], now_s, lines)
                self._partial[stream] = b""
        return lines

    def last_number(self, index: int) -> int:
        """The number of the last line of a call that has ended; calls before it are forgotten."""
        for older in [known for known in self._keys if known < index]:
            del self._keys[older]
            self._numbers.pop(older, None)
        return self._numbers.get(index, 0)

    def _take(self, stream: int, text: bytes, now_s: float, lines: list[LogLine]) -> bytes:
        *whole, partial = text.split(b"\n")
        for line in whole:
            self._add(stream, line, now_s, lines)
        while len(partial) > LOG_LINE_MAX_BYTES + len(self._marker):
            self._add(stream, partial[:LOG_LINE_MAX_BYTES], now_s, lines)
            partial = partial[LOG_LINE_MAX_BYTES:]
        return partial

    def _take_all(self, stream: int, text: bytes, now_s: float, lines: list[LogLine]) -> None:
        if text:
            partial = self._take(stream, text, now_s, lines)
            if partial:
                self._add(stream, partial, now_s, lines)

    def _add(self, stream: int, text: bytes, now_s: float, lines: list[LogLine]) -> None:
        for at in range(0, len(text) or 1, LOG_LINE_MAX_BYTES):
            piece = text[at : at + LOG_LINE_MAX_BYTES]
            if self._left_bytes <= 0:
                return
            self._left_bytes -= len(piece) + 1
            if self._left_bytes <= 0:
                piece = b"[levers9: this container has written 64 MiB of logs; what follows is not kept]"
            lines.append(self._line(stream, piece, now_s))

    def _line(self, stream: int, text: bytes, now_s: float) -> LogLine:
        index = self._index[stream]
        key = self._keys.get(index) or self._keys[max(self._keys)]
        number = self._numbers[index] = self._numbers.get(index, 0) + 1
        return LogLine(key.task_id, key.attempt, number, STREAMS[stream], now_s, text.decode("utf-8", "replace"))


class LogShipper:
    """Sends a container's lines in numbered chunks, twice a second or by 64 KiB, and again until they are taken."""

    def __init__(self, container_id: str, sink: LogSink, unix_time: Callable[[], float]) -> None:
        self._container_id = container_id
        self._sink = sink
        self._unix_time = unix_time
        self._lines: list[LogLine] = []
        self._bytes = 0
        self._chunk = 0
        self._lost = 0
        self._full = trio.Event()
        self._any = trio.Event()

    def add(self, lines: list[LogLine]) -> None:
        """Take lines; never blocks. Where the control plane stays away too long, they are counted and marked."""
        for line in lines:
            if self._bytes > WAITING_MAX_BYTES:
                self._lost += 1
                continue
            self._lines.append(self._marked(line))
            self._bytes += len(line.text)
        if lines:
            self._any.set()
        if self._bytes >= CHUNK_BYTES:
            self._full.set()

    def _marked(self, line: LogLine) -> LogLine:
        if not self._lost:
            return line
        mark = f"[levers9: {self._lost} lines before this one were lost] "
        self._lost = 0
        return msgspec.structs.replace(line, text=mark + line.text)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._any.wait()
            with trio.move_on_after(CHUNK_EVERY_S):
                await self._full.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send all that there is. Cancelling it loses nothing: the chunk is sent again under its number."""
        while self._lines:
            count = self._count()
            await self._send(tuple(self._lines[:count]))
            self._bytes -= sum(len(line.text) for line in self._lines[:count])
            del self._lines[:count]
            self._chunk += 1
        self._any, self._full = trio.Event(), trio.Event()

    def _count(self) -> int:
        size = 0
        for count, line in enumerate(self._lines, 1):
            size += len(line.text)
            if size >= CHUNK_BYTES:
                return count
        return len(self._lines)

    async def _send(self, lines: tuple[LogLine, ...]) -> None:
        wait_s = RETRY_FIRST_S
        while True:
            try:
                return await self._sink.send(self._container_id, self._chunk, lines)
            except LeversError:
                await trio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MAX_S)
