"""What others say, made fit to keep, to count with and to show: rows can hold it, and it drives no terminal."""

from __future__ import annotations

import math
from typing import Final

WORDS_MAX: Final = 500  # characters of a sentence that somebody else wrote: some twenty of them fit one answer
INT4_MAX: Final = (1 << 31) - 1  # what a column of sizes and counts holds
COUNT_MAX: Final = (1 << 53) - 1  # of epochs and sequences: every reader of JSON keeps these exactly
MOMENT_MAX_S: Final = 253_402_300_799.0  # the last second of the year 9999
_SPACES: Final = frozenset("\t\n\v\f\r\x85\u2028\u2029")


def plain(text: str) -> str:
    """One line that drives no terminal: breaks become spaces, what cannot be printed becomes a sign for it."""
    if text.isprintable():
        return text
    return "".join(" " if sign in _SPACES else sign if sign.isprintable() else "�" for sign in text)


def sentence(text: str, most: int = WORDS_MAX) -> str:
    """The same, and at most so long."""
    if len(text) <= most:
        return plain(text)
    return f"{plain(text[: most - 1])}…"


def count(number: int, most: int = INT4_MAX) -> int:
    """A count that is neither below zero nor beyond what is believed."""
    return min(max(0, number), most)


def seconds(value: float, most: float = MOMENT_MAX_S) -> float:
    """A time or a span that is a number, not below zero and not beyond what is believed; 0 for what is none."""
    return min(max(0.0, value), most) if math.isfinite(value) else 0.0
