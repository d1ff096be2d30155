"""Domains side by side, sorted by how many members fit into each, and the two ways of choosing among them.

Best fit takes the largest first, so that few domains are used, but for the last one the tightest that holds the rest,
so that large ones stay whole. Least free capacity takes the smallest first: it uses up what is good for little else.
"""

from __future__ import annotations

from bisect import bisect_left, insort

Path = tuple[str, ...]  # label values from coarse to fine; of a node, its identity after them
Entry = tuple[int, int, int, Path]  # rank, how many fit, how many are left over, the domain
Fit = tuple[int, int, int]  # an entry without its domain
Part = tuple[Path, int]  # a domain, and how many go there


class Fits:
    """A sorted row of domains into which at least one fits.

    A higher rank goes first whatever fits; among domains that fit equally many, the one with the least left over goes
    first (what does not fill a slice), then the domain that comes first by its values.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self._row = sorted(entry for entry in entries if entry[1])

    def move(self, path: Path, old: Fit, new: Fit) -> None:
        """As many fit into a domain now."""
        if old[1]:
            del self._row[bisect_left(self._row, (*old, path))]
        if new[1]:
            insort(self._row, (*new, path))

    @property
    def most(self) -> int:
        """How many fit into the domain with the most room."""
        return max((self._row[end - 1][1] for end in self._ends()), default=0)

    def tightest(self, wanted: int) -> Path | None:
        """The domain that holds so many and is left with the least room."""
        for end in self._ends():
            rank, most, _, _ = self._row[end - 1]
            if most >= wanted:
                return self._row[bisect_left(self._row, (rank, wanted))][3]
        return None

    def largest_first(self, wanted: int) -> list[Part]:
        """Best fit for so many, or for as many as there is room for."""
        parts: list[Part] = []
        end = len(self._row)
        while wanted and end:
            rank, most, _, _ = self._row[end - 1]
            start = at = bisect_left(self._row, (rank, most), 0, end)
            while wanted > most and at < end:
                parts.append((self._row[at][3], most))
                wanted -= most
                at += 1
            if wanted <= most and at < end:
                tightest = bisect_left(self._row, (rank, wanted), 0, end)
                parts.append((self._row[tightest if tightest < start else at][3], wanted))
                return parts
            end = start
        return parts

    def smallest_first(self, wanted: int) -> list[Part]:
        """Least free capacity for so many, or for as many as there is room for."""
        parts: list[Part] = []
        for end in self._ends():
            at = bisect_left(self._row, (self._row[end - 1][0],), 0, end)
            while wanted and at < end:
                _, fits, _, path = self._row[at]
                parts.append((path, min(fits, wanted)))
                wanted -= parts[-1][1]
                at += 1
        return parts

    def _ends(self) -> list[int]:
        """Where each rank ends, the highest first; there are three ranks at most."""
        ends: list[int] = []
        end = len(self._row)
        while end:
            ends.append(end)
            end = bisect_left(self._row, (self._row[end - 1][0],), 0, end)
        return ends
