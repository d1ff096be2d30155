"""Things in an order that changes: the first one is at hand, and each gets a new place in logarithmic time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = tuple[int, int, int, float, str]  # of all orders here: what goes first is smaller; the last part is unique


class Placed:
    """What may be in one order at a time."""

    __slots__ = ("key", "turn")

    def __init__(self) -> None:
        self.turn = 0  # which entry of it counts; 0: it is in no order
        self.key: Key = (0, 0, 0, 0.0, "")


T = TypeVar("T", bound=Placed)


class Turns:
    """Numbers for entries, each given once."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """The next number, from 1."""
        self._last += 1
        return self._last


class Ordered(Generic[T]):
    """A heap whose outdated entries are dropped when they come up, or when most of it is outdated."""

    __slots__ = ("_count", "_heap", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._heap: list[tuple[Key, int, T]] = []
        self._turns = turns
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        """All that are in it, in no useful order, though always in the same one."""
        return (thing for _, turn, thing in self._heap if thing.turn == turn)

    def put(self, thing: T, key: Key) -> None:
        """Give it this place, whether it has one in this order or none in any."""
        if thing.turn:
            if thing.key == key:
                return
        else:
            self._count += 1
        thing.key = key
        thing.turn = turn = self._turns.next()
        heappush(self._heap, (key, turn, thing))
        if len(self._heap) > 2 * self._count + 32:
            self._heap = [entry for entry in self._heap if entry[2].turn == entry[1]]
            heapify(self._heap)

    def drop(self, thing: T) -> None:
        """It is in no order any more; it was in this one or in none."""
        if thing.turn:
            thing.turn = 0
            self._count -= 1

    def first(self) -> T | None:
        """The one with the smallest key."""
        heap = self._heap
        while heap:
            _, turn, thing = heap[0]
            if thing.turn == turn:
                return thing
            heappop(heap)
        return None
