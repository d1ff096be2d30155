"""One line on a terminal that says how far long work is: how many, how fast, how long still, and what it waits for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

EVERY_S: Final = 0.2
_COLUMNS: Final = 80  # where a terminal does not say
PATIENCE_S: Final = 1.0  # what is done sooner needs no line


def sentence(done: int, total: int, spent_s: float, more: str = "") -> str:
    """Such as `1,203/2,000 · 830/s · 1 s left`; a total of 0 is one that is not known."""
    per_s = done / spent_s if spent_s > 0 else 0.0
    parts = [f"{done:,}/{total:,}" if total else f"{done:,}", f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"]
    if total and 0 < done < total:
        parts.append(f"{_span((total - done) / per_s)} left")
    return " · ".join([*parts, more] if more else parts)


class ProgressLine:
    """Draws on standard error where that is a terminal, at most five times a second, after a second of patience."""

    def __init__(
        self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic, *, on: bool = True
    ) -> None:
        self._title = title
        self._stream = stream or sys.stderr
        self._clock = clock
        self._on = on and self._stream.isatty()
        self._begun_s = clock()
        self._next_s = self._begun_s + PATIENCE_S
        self._drawn = False

    @property
    def on(self) -> bool:
        """Whether there is anything to draw on."""
        return self._on

    def show(self, done: int, total: int, more: str = "") -> None:
        """Draw it, if it is time to."""
        now_s = self._clock()
        if not self._on or now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        self._drawn = True
        text = f"{self._title}: {sentence(done, total, now_s - self._begun_s, more)}"
        self._stream.write(f"\r\x1b[K{text[: _columns(self._stream) - 1]}")  # a line that breaks cannot be redrawn
        self._stream.flush()

    def clear(self) -> None:
        """Take it away."""
        if self._drawn:
            self._drawn = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _span(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
