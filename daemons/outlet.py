"""Where a root writes for people: from a thread of its own, so that whoever does not read holds up nobody.

A write into a pipe that is full blocks; in the loop of a root that would end its signals, its restarts and its stop.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

LINES_MAX: Final = 4096  # of some 200 bytes; what comes on top is left out and counted
FLUSH_S: Final = 1.0  # a reader that is there takes far less
_LEFT_OUT: Final = "({} lines are left out here: nobody read along.)"


class Outlet:
    """Writes lines to a descriptor, in order. As a context, it gives what waits `FLUSH_S` to be written in the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._left_out = 0
        self._changed = threading.Condition()
        self._idle = True
        self._thread: threading.Thread | None = None

    def say(self, line: str) -> None:
        """Never blocks, never raises: the terminal may be gone, a disk full."""
        with self._changed:
            if len(self._lines) >= LINES_MAX:
                self._left_out += 1
                return
            self._lines.append(line)
            self._idle = False
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="outlet", daemon=True)
                self._thread.start()

    def flush(self, within_s: float = FLUSH_S) -> bool:
        """Wait until all is written; whether it is."""
        ends = time.monotonic() + within_s
        with self._changed:
            return self._changed.wait_for(lambda: self._idle, max(0.0, ends - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def _write_all(self) -> None:
        while True:
            _write(self._descriptor, f"{self._next()}\n".encode(errors="replace"))

    def _next(self) -> str:
        with self._changed:
            if not self._lines and self._left_out:
                self._lines.append(_LEFT_OUT.format(self._left_out))
                self._left_out = 0
            self._idle = not self._lines
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._lines)
            return self._lines.popleft()


def _write(descriptor: int, data: bytes) -> None:
    """All of it, or as much as can be: a reader that is gone costs the rest."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
