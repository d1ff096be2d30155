"""Ties broken by chance: of all nodes with the best score, any, each as likely as the others. For comparisons."""

from __future__ import annotations

import heapq

from ....model.resources import Shape
from .chance import Chance
from .ranking import Pick, Ranking, Score
from .rooms import Room, Rooms

Place = tuple[str, int, Room]  # a node, when it came to this room, and the room


class AtRandom(Ranking):
    """Nodes in bags, one for each key. Those that have left their room since are thrown out when they are drawn."""

    def __init__(self, shape: Shape, rooms: Rooms, score: Score, chance: Chance) -> None:
        super().__init__(shape, rooms, score)
        self._chance = chance
        self._bags: dict[int, list[Place]] = {}
        self._keys: list[int] = []  # a heap
        self._size = 0

    def best(self, without: frozenset[str] = frozenset()) -> Pick | None:
        """Any node of the best rooms."""
        self._catch_up()
        while self._keys:
            place = self._draw(self._bags[self._keys[0]])
            if place is None:
                del self._bags[heapq.heappop(self._keys)]
            elif place[0] not in without:
                return Pick(place[0], place[2])
            else:
                return self._best_of_the_rest(without)
        return None

    def leading(self, most: int) -> list[tuple[int, Room]]:
        """At most so many rooms, the best first, each with its key: what is less is better."""
        self._catch_up()
        found: dict[int, tuple[int, Room]] = {}
        for key in sorted(self._keys):
            for place in self._bags[key]:
                if self._is_true(place):
                    found.setdefault(place[2].number, (key, place[2]))
                if len(found) == most:
                    return list(found.values())
        return list(found.values())

    def _draw(self, bag: list[Place]) -> Place | None:
        while bag:
            number = self._chance.below(len(bag))
            if self._is_true(bag[number]):
                return bag[number]
            bag[number] = bag[-1]
            bag.pop()
            self._size -= 1
        return None

    def _best_of_the_rest(self, without: frozenset[str]) -> Pick | None:
        for key in sorted(self._keys):
            places = [place for place in self._bags[key] if place[0] not in without and self._is_true(place)]
            if places:
                node_id, _, room = places[self._chance.below(len(places))]
                return Pick(node_id, room)
        return None

    def _is_true(self, place: Place) -> bool:
        member = self._rooms.members.get(place[0])
        return member is not None and member.moved == place[1] and member.room is place[2]

    def _catch_up(self) -> None:
        fresh = self._rooms.since(self._cursor)
        if fresh is None or self._size > 4 * len(self._rooms.members) + 64:
            self._bags, self._keys, self._size = {}, [], 0
            fresh = [(room, node_id) for room in self._rooms.live.values() for node_id in self._rooms.all_in(room)]
        keys: dict[Room, int | None] = {}
        for room, node_id in dict.fromkeys(fresh):
            member = self._rooms.members.get(node_id)
            if member is None or member.room is not room:
                continue
            if room not in keys:
                keys[room] = self.key(room)
            if (key := keys[room]) is not None:
                self._put(key, (node_id, member.moved, room))
        self._cursor = self._rooms.cursor

    def _put(self, key: int, place: Place) -> None:
        bag = self._bags.get(key)
        if bag is None:
            bag = self._bags[key] = []
            heapq.heappush(self._keys, key)
        bag.append(place)
        self._size += 1
