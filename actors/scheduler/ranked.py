"""How many go before one, told in logarithmic time, among very many who come mostly last and leave mostly first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

Entry = tuple[float, str]  # when it asked, and its name

SPARE_MAX = 64  # places at the beginning that nobody has any more; more than that, and half of all, are cleared


class Ranked:
    """Entries in their order. Those who leave near the beginning move only those before them."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._entries) - self._start

    def add(self, entry: Entry) -> None:
        """One more."""
        self._entries.insert(self._place(entry), entry)

    def remove(self, entry: Entry) -> None:
        """One less; it was there."""
        place, start = self._place(entry), self._start
        if place - start > len(self._entries) - place:
            del self._entries[place]
            return
        self._entries[start + 1 : place + 1] = self._entries[start:place]
        self._start += 1
        if self._start > SPARE_MAX and self._start * 2 > len(self._entries):
            del self._entries[: self._start]
            self._start = 0

    def before(self, entry: Entry) -> int:
        """How many are before this one, which need not be there."""
        return self._place(entry) - self._start

    def first_that_is(self, after: Callable[[Entry], bool]) -> int:
        """How many come before the first of which this is so; it has to be so of all that follow that one."""
        return bisect_left(self._entries, True, self._start, key=after) - self._start

    def _place(self, entry: Entry) -> int:
        return bisect_left(self._entries, entry, self._start)
