"""The order of rooms for one shape, kept from question to question: only rooms that are new since then are scored."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ....model.resources import Shape
from .chance import Chance
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


class Ranking:
    """Rooms for one shape, the best first: by preference of card types, then score, then the first node's identity.

    What lies in the heap may be out of date: a room that has gone, or whose first node has changed. That is looked at
    when it comes up. An entry's node is never later than the room's first one now, so nothing better is overlooked.
    """

    def __init__(self, shape: Shape, rooms: Rooms, score: Score) -> None:
        self.shape = shape
        self._rooms = rooms
        self._score = score
        self._heap: list[Entry] = []
        self._preferences: dict[int, int] = {}  # by number of kind
        self._cursor = -1

    def forget(self) -> None:
        """Score everything anew, when next asked."""
        self._cursor = -1

    def best(self, without: frozenset[str] = frozenset()) -> Pick | None:
        """The first of the best rooms' nodes, by identity."""
        self._catch_up()
        aside: list[Entry] = []
        found = self._next(without, aside)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return found

    def any_of_best(self, chance: Chance, without: frozenset[str] = frozenset()) -> Pick | None:
        """Any node of the best rooms, each as likely as the others."""
        self._catch_up()
        tied = [(node_id, room) for room in self._tied(without) for node_id in self._rooms.all_in(room)]
        open_ones = [Pick(node_id, room) for node_id, room in tied if node_id not in without]
        return open_ones[chance.below(len(open_ones))] if open_ones else None

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
        fresh = self._rooms.since(self._cursor) if self._cursor >= 0 else None
        if fresh is None or len(self._heap) > 4 * len(self._rooms.live) + 64:
            self._heap = []
            self._preferences = {}
            fresh = list(self._rooms.live.values())
            for room in fresh:
                self._add(room, self._heap.append)
            heapq.heapify(self._heap)
        else:
            for room in dict.fromkeys(fresh):
                self._add(room, self._push)
        self._cursor = self._rooms.cursor

    def _push(self, entry: Entry) -> None:
        heapq.heappush(self._heap, entry)

    def _add(self, room: Room, append: Callable[[Entry], None]) -> None:
        if not room.members or not room.fits(self.shape):
            return
        preference = self._preference(room.kind)
        if preference != NEVER:
            key = preference * _WORSE - self._score(self.shape, room)
            append((key, self._rooms.first(room), room.number, room))

    def allows(self, kind: Kind) -> bool:
        """Whether the shape may run on nodes of this kind."""
        return self._preference(kind) != NEVER

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

    def _tied(self, without: frozenset[str]) -> Iterator[Room]:
        """The rooms with the best key of those that have a node which is not left out."""
        aside: dict[int, Entry] = {}
        best: int | None = None
        while self._settle():
            key, _, number, room = entry = self._heap[0]
            if best is not None and key != best:
                break
            heapq.heappop(self._heap)
            if number not in aside:
                aside[number] = entry
                if best is None and self._rooms.first(room, without):
                    best = key
        for entry in aside.values():
            heapq.heappush(self._heap, entry)
        return iter([entry[3] for entry in aside.values() if entry[0] == best])
