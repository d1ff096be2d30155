"""The order of rooms for one shape, kept from question to question: only rooms that are new since then are scored."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from ....model.resources import Shape
from .rooms import Kind, Room, Rooms

Score = Callable[[Shape, Room], int]  # the higher the better, for a room that fits
Entry = tuple[int, str, int, Room]  # the key, the room's first node then, the room's number, the room

NEVER: Final = -1  # the preference of a kind of node that the shape may not use
KINDS_MAX: Final = 4096  # remembered by one shape
_WORSE: Final = 1 << 200  # between one card type of the preference list and the next: more than any score


class Pick(msgspec.Struct, frozen=True):
    """What was chosen."""

    node_id: str
    room: Room


class Ranking(ABC):
    """Rooms for one shape, the best first: by preference of card types, then score. What ties are broken by differs."""

    def __init__(self, shape: Shape, rooms: Rooms, score: Score) -> None:
        self.shape = shape
        self._rooms = rooms
        self._score = score
        self._preferences: dict[int, int] = {}  # by number of kind
        self._cursor = -1

    def forget(self) -> None:
        """Score everything anew, when next asked."""
        self._cursor = -1

    @abstractmethod
    def best(self, without: frozenset[str] = frozenset()) -> Pick | None:
        """A node of the best rooms that is not in `without`, or None."""

    @abstractmethod
    def leading(self, most: int) -> list[tuple[int, Room]]:
        """At most so many rooms, the best first, each with its key: what is less is better."""

    def allows(self, kind: Kind) -> bool:
        """Whether the shape may run on nodes of this kind."""
        return self._preference(kind) != NEVER

    def key(self, room: Room) -> int | None:
        """What rooms are ordered by, None for one that does not take the shape."""
        if not room.fits(self.shape) or (preference := self._preference(room.kind)) == NEVER:
            return None
        return preference * _WORSE - self._score(self.shape, room)

    def _preference(self, kind: Kind) -> int:
        known = self._preferences.get(kind.number)
        if known is None:
            if len(self._preferences) >= KINDS_MAX:
                self._preferences.clear()
            known = NEVER
            if kind.kind.allows(self.shape):
                known = self.shape.preference(kind.kind.capacity.gpu_type) if self.shape.gpu_count else 0
            self._preferences[kind.number] = known
        return known


class ByIdentity(Ranking):
    """Of equally good rooms, the node whose identity comes first.

    What lies in the heap may be out of date: a room that has gone, or whose first node has changed. That is looked at
    when it comes up. An entry's node is never later than the room's first one now, so nothing better is overlooked.
    """

    def __init__(self, shape: Shape, rooms: Rooms, score: Score) -> None:
        super().__init__(shape, rooms, score)
        self._heap: list[Entry] = []

    def best(self, without: frozenset[str] = frozenset()) -> Pick | None:
        """The first of the best rooms' nodes."""
        self._catch_up()
        aside: list[Entry] = []
        found = self._next(without, aside)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return found

    def leading(self, most: int) -> list[tuple[int, Room]]:
        """At most so many rooms, the best first, each with its key: what is less is better."""
        self._catch_up()
        aside: dict[int, Entry] = {}
        while len(aside) < most and self._settle():
            entry = heapq.heappop(self._heap)
            aside.setdefault(entry[2], entry)
        for entry in aside.values():
            heapq.heappush(self._heap, entry)
        return [(entry[0], entry[3]) for entry in aside.values()]

    def _catch_up(self) -> None:
        heap, first = self._heap, self._rooms.first
        fresh = self._rooms.since(self._cursor)
        if fresh is None or len(heap) > 4 * len(self._rooms.live) + 64:
            heap.clear()
            for room in self._rooms.live.values():
                if (key := self.key(room)) is not None:
                    heap.append((key, first(room), room.number, room))
            heapq.heapify(heap)
        elif fresh:
            for room in dict.fromkeys([room for room, _ in fresh]):
                if room.members and (key := self.key(room)) is not None:
                    heapq.heappush(heap, (key, first(room), room.number, room))
        self._cursor = self._rooms.cursor

    def _settle(self) -> bool:
        """Bring the top of the heap up to date; False when there is nothing left."""
        heap = self._heap
        while heap:
            key, node_id, number, room = heap[0]
            now = self._rooms.first(room) if room.members else ""
            if node_id == now:
                return True
            if now > node_id:
                heapq.heapreplace(heap, (key, now, number, room))
            else:
                heapq.heappop(heap)
        return False

    def _next(self, without: frozenset[str], aside: list[Entry]) -> Pick | None:
        """The best node that is not left out; what was taken off the heap on the way is put `aside`."""
        found: tuple[int, str, Room] | None = None
        while self._settle():
            key, node_id, _, room = self._heap[0]
            if found is not None and (key, node_id) > found[:2]:
                break
            if node_id not in without:
                found = (key, node_id, room)
                break
            aside.append(heapq.heappop(self._heap))
            if (other := self._rooms.first(room, without)) and (found is None or (key, other) < found[:2]):
                found = (key, other, room)
        return None if found is None else Pick(found[1], found[2])
