"""Dead letters: what nobody could be given. Bounded, counted by reason, and told in sentences."""

from __future__ import annotations

import enum
from collections import Counter, deque

import msgspec

from ..model.figures import DEAD_LETTERS
from .letter import Letter


class Cause(enum.Enum):
    """Why a letter is dead."""

    UNDELIVERABLE = "nobody has that address"
    LATE = "its asker had stopped waiting"
    REJECTED = "the mailbox was full"
    OVERFLOWED = "the mailbox overflowed"
    QUARANTINED = "it is quarantined"
    CRASHED = "its receiver crashed while it handled it"
    DISCARDED = "its receiver ended before it came to it"
    BROKEN = "the link to its receiver is gone"


class DeadLetterStatistics(msgspec.Struct, frozen=True):
    """How many letters died since the start, altogether and by cause."""

    total: int
    by_cause: tuple[tuple[Cause, int], ...]


class DeadLetters:
    """A ring of the newest dead letters. It keeps sentences, not letters, so that large payloads go at once."""

    def __init__(self, slots: int = DEAD_LETTERS) -> None:
        self._sentences: deque[str] = deque(maxlen=slots)
        self._counts: Counter[Cause] = Counter()

    def add(self, letter: Letter, cause: Cause, why: str = "") -> None:
        """Count a letter, and keep the sentence that says what became of it."""
        self._counts[cause] += 1
        self._sentences.append(f"{letter.sentence()}: {why or cause.value}")

    def latest(self, limit: int = DEAD_LETTERS) -> tuple[str, ...]:
        """The newest sentences, newest last."""
        return tuple(self._sentences)[-limit:] if limit > 0 else ()

    def statistics(self) -> DeadLetterStatistics:
        """The counts, in the order of `Cause`."""
        found = tuple((cause, self._counts[cause]) for cause in Cause if self._counts[cause])
        return DeadLetterStatistics(self._counts.total(), found)
