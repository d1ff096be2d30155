"""What long work does now: one line that is drawn again and again on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from ..model.hearsay import plain
from .output import wrapped

_COLUMNS: Final = 80  # where a terminal does not say
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """On standard error, so that standard output stays for what programs read."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._begun_s = clock()
        self._now = ""
        self._live = self._stream.isatty()

    @property
    def spent_s(self) -> float:
        """How long it has gone on."""
        return self._clock() - self._begun_s

    def tell(self, sentence: str) -> None:
        """Something that stays."""
        self._clear()
        lines = map(plain, sentence.split("\n"))  # what else drives a terminal goes: others may have written it
        self._write("".join(f"{self._broken(line)}\n" for line in lines))

    def show(self, state: str) -> None:
        """Where it stands; the same again only moves a terminal's seconds. What is too long for it is told in full."""
        state = plain(state)
        if self._live:
            room = _columns(self._stream) - 1
            seconds = f" ({self.spent_s:.0f} s)"
            if len(state) + len(seconds) > room and state != self._now:
                self.tell(state)
            self._write(f"{_CLEAR}{state[: room - len(seconds)]}{seconds}")
        elif state != self._now:
            self._write(f"{state}\n")
        self._now = state

    def done(self) -> None:
        """Take the moving line away."""
        self._clear()
        self._now = ""

    def _broken(self, line: str) -> str:
        """On a terminal between words; what is indented is to be copied, or somebody's log."""
        return wrapped(line, _columns(self._stream)) if self._live and not line.startswith("  ") else line

    def _clear(self) -> None:
        if self._live and self._now:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
