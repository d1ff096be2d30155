"""The core with its record: each event that it was told, and what it decided, for the journal."""

from __future__ import annotations

from typing import Final

from .core import Core
from .events import Decision, Event
from .journal import Record

RECORDS_HELD: Final = 1_000  # then they are handed on, even if nothing else is to be done


class Deciding:
    """Tells the core, and keeps what it decided until somebody performs it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._records: list[Record] = []
        self._decisions: list[Decision] = []

    def tell(self, event: Event, now_s: float) -> None:
        """Tell the core what happened."""
        decisions = self.core.handle(event, now_s)
        self._decisions += decisions
        self._records.append(Record(now_s, event, decisions))

    @property
    def full(self) -> bool:
        """Whether so much is recorded that somebody should take it."""
        return len(self._records) >= RECORDS_HELD

    def take_decisions(self) -> list[Decision]:
        """What was decided since the last time."""
        decisions, self._decisions = self._decisions, []
        return decisions

    def take_records(self) -> list[Record]:
        """What the core was told since the last time."""
        records, self._records = self._records, []
        return records
