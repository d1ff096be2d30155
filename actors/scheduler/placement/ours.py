"""Our own policy, the default: the least waste to be expected, and of the best rooms the one that fills up best.

SPEC.md of the scheduler tells the idea, the formula and the evidence.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

import msgspec
import numpy as np

from ....model.resources import CARD_MILLI, Shape
from ..capacity import Node
from .chance import Chance
from .face import Spot
from .index import Ties
from .ours_ahead import Asked, unused
from .ours_columns import NEVER, Columns, Row
from .ours_outlook import GRAIN, UNIT, WINDOWS, Ints, Outlook, Population
from .rooms import Room, Rooms

AHEAD: Final = 8  # the weight of what the look ahead finds unused, beside what is expected to be wasted
CANDIDATES: Final = 12  # rooms that are looked at more closely
MARGIN: Final = 600 * UNIT  # by which they may be worse than the best
SHAPES_MAX: Final = 4096  # counted; beyond it, those asked for once are forgotten
GROWTH_PCT: Final = 150  # of the demand at the last look: then it looks again
ROWS_MAX: Final = 512  # shapes of which the costs are kept
SEEN_MAX: Final = 1 << 15  # containers; then each counts half
FILLED_MAX: Final = 65_536  # nodes filled in advance that are remembered

Leading = tuple[int, int, str, Room]  # what a room costs, a lot that settles ties, a node, and the room
Option = tuple[
    int, int, str, int, Room
]  # the cost, the lot, the node, what is free on the card that it takes, the room

_NO_CHOICE: Final = [(0, 0)]  # of a card
_LOTS: Final = 1 << 40
_DRAWS: Final = 64


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What a policy goes on from: demand by now, and what it last looked at."""

    seen: tuple[Asked, ...] = ()
    looked_at: tuple[Asked, ...] = ()
    population: tuple[Population, ...] = ()
    look_at: int = 0


class Count(msgspec.Struct):
    """How many asked for a shape."""

    of: int = 0


class Ours:
    """Least waste, by a value of free room that is learnt from demand, and a look ahead among the best rooms.

    It decides from the nodes it was told of, and from demand as it stood when it last looked: it looks again each time
    half as many more containers were asked for. All that is a function of what `remember` gives. Of equals the first
    node by identity is taken, or with `ties="random"`, for comparisons, any, by a generator that starts at `seed`.
    """

    def __init__(self, ties: Ties = "first", seed: int = 0) -> None:
        self._chance = Chance(seed) if ties == "random" else None
        self._rooms = Rooms()
        self._seen: dict[Shape, Count] = {}
        self._total = 0
        self._memory = Memory()
        self._nodes_then = 0
        self._more_cards = False  # on some node than the outlook knows of
        self._outlook = Outlook((), ())
        self._columns = Columns(self._outlook)
        self._rows: dict[Shape, Row] = {}
        self._unused: dict[tuple[int, int, int, tuple[int, ...]], int] = {}

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        member = self._rooms.members.get(node.node_id)
        before = member.room if member is not None else None
        self._rooms.put(node)
        after = self._rooms.members[node.node_id].room
        if after is before:
            return
        self._more_cards = self._more_cards or node.kind.capacity.gpu_count > self._outlook.cards_most
        left, entered = before is not None and not before.members, after.members == 1
        if before is not None and left and entered:
            self._columns.replace(before, after)
        elif before is not None and left:
            self._columns.remove(before)
        elif entered:
            self._columns.add(after)

    def drop(self, node_id: str) -> None:
        """A node is open no more; unknown ones are ignored."""
        member = self._rooms.members.get(node_id)
        self._rooms.drop(node_id)
        if member is not None and not member.room.members:
            self._columns.remove(member.room)

    def saw(self, shape: Shape) -> None:
        """One container of this shape was asked for."""
        count = self._seen.get(shape)
        if count is None:
            count = self._seen[shape] = Count()
        count.of += 1
        self._total += 1
        if self._total >= SEEN_MAX or len(self._seen) > SHAPES_MAX:
            self._fade()

    def choose(self, shape: Shape, without: frozenset[str] = frozenset()) -> Spot | None:
        """The spot for a container of this shape on a node not in `without`, or None where there is none."""
        if self._is_due():
            self._look()
        costs = self._columns.bring_up(self._row(shape))
        options = self._options(shape, self._best(costs, without))
        if not options:
            return None
        if len(options) == 1:
            _, _, node_id, free, _ = options[0]
        else:
            _, _, node_id, free = min([self._with_look_ahead(shape, option) for option in options])
        node_id = self._node(node_id, without)
        return Spot(node_id, _numbers(self._rooms.members[node_id].cards, shape, free))

    def remember(self) -> bytes:
        """What it has seen of demand, and what it decides by now."""
        seen = tuple([Asked(shape, count.of) for shape, count in self._seen.items()])
        return msgspec.msgpack.encode(msgspec.structs.replace(self._memory, seen=seen))

    def recall(self, memory: bytes) -> None:
        """Go on from what another one remembered; empty is nothing."""
        recalled = msgspec.msgpack.decode(memory, type=Memory) if memory else Memory()
        self._seen = {one.shape: Count(one.count) for one in recalled.seen}
        self._total = sum(one.count for one in recalled.seen)
        self._memory = msgspec.structs.replace(recalled, seen=())
        self._learn()

    def _look(self) -> None:
        asked = tuple([Asked(shape, count.of) for shape, count in self._seen.items()])
        self._memory = Memory((), asked, self._columns.population(), self._next_look())
        self._learn()

    def _learn(self) -> None:
        self._outlook = Outlook(self._memory.looked_at, self._memory.population)
        self._columns.learn(self._outlook)
        self._nodes_then = sum(one.nodes for one in self._memory.population)
        self._more_cards = any(
            one.kind.capacity.gpu_count > self._outlook.cards_most for one in self._columns.population()
        )
        self._unused = {}

    def _is_due(self) -> bool:
        """Whether there is half as much more demand than at the last look, or half as many nodes more or less.

        Or a node has more cards than any had then.
        """
        nodes, then = len(self._rooms.members), self._nodes_then
        changed = 2 * nodes > 3 * then or 3 * nodes < 2 * then or self._more_cards
        return changed or self._total >= self._memory.look_at

    def _next_look(self) -> int:
        return max(self._total + 1, self._total * GROWTH_PCT // 100)

    def _fade(self) -> None:
        """What was long ago counts less."""
        self._seen = {shape: Count(count.of // 2) for shape, count in self._seen.items() if count.of > 1}
        for shape in sorted(self._seen, key=lambda shape: self._seen[shape].of)[: max(0, len(self._seen) - SHAPES_MAX)]:
            del self._seen[shape]
        self._total = sum(count.of for count in self._seen.values())
        self._memory = msgspec.structs.replace(self._memory, look_at=min(self._memory.look_at, self._next_look()))

    def _row(self, shape: Shape) -> Row:
        row = self._rows.get(shape)
        if row is None:
            if len(self._rows) >= ROWS_MAX:
                del self._rows[min(self._rows, key=lambda other: self._rows[other].cursor)]
            row = self._rows[shape] = Row(shape)
        return row

    def _best(self, costs: Ints, without: frozenset[str]) -> list[Leading]:
        """The rooms that cost the least, the least first: those within the margin, and not more than are looked at."""
        best = int(costs.min())
        while best < NEVER:
            leading = self._within(costs, best + MARGIN, without)
            if leading:
                return leading
            costs = np.where(costs <= best + MARGIN, NEVER, costs)
            best = int(costs.min())
        return []

    def _within(self, costs: Ints, limit: int, without: frozenset[str]) -> list[Leading]:
        slots = (costs <= limit).nonzero()[0]
        least = costs[slots]
        if len(slots) > CANDIDATES and not without:
            least.partition(CANDIDATES - 1)
            slots = (costs <= least[CANDIDATES - 1]).nonzero()[0]
            least = costs[slots]
        found = []
        for slot, cost in zip(slots.tolist(), least.tolist()):
            room = self._columns.room(slot)
            node_id = self._rooms.first(room, without)
            if node_id:
                found.append((cost, self._chance.below(_LOTS) if self._chance else 0, node_id, room))
        found.sort()
        return found[:CANDIDATES]

    def _node(self, node_id: str, without: frozenset[str]) -> str:
        """This node, or with ties at random any that has the same room."""
        if self._chance is None:
            return node_id
        room = self._rooms.members[node_id].room
        for _ in range(_DRAWS):
            drawn = room.ids[self._chance.below(len(room.ids))]
            member = self._rooms.members.get(drawn)
            if member is not None and member.room is room and drawn not in without:
                return drawn
        return node_id

    def _options(self, shape: Shape, leading: list[Leading]) -> list[Option]:
        """The ways to place a container in these rooms that are within the margin."""
        found = []
        limit = leading[0][0] + MARGIN if leading else 0
        for cost, lot, node_id, room in leading:
            for free, worse in self._levels(shape, room) if shape.gpu_count == 1 else _NO_CHOICE:
                if cost + worse <= limit:
                    found.append((cost + worse, lot, node_id, free, room))
        return found

    def _levels(self, shape: Shape, room: Room) -> list[tuple[int, int]]:
        """What is free on the cards that it could take, and how much worse than the best each of them is."""
        milli = shape.gpu_milli
        frees = [free for free in dict.fromkeys(room.cards) if free >= milli]
        if len(frees) == 1:
            return [(frees[0], 0)]
        view = self._columns.view(room.kind)
        level = self._outlook.level(room.cpu_milli - shape.cpu_milli)
        row = view.card_rows[level]
        costs = [row[(free - milli) // GRAIN] - row[free // GRAIN] for free in frees]
        if frees[-1] == CARD_MILLI:
            several = view.several_rows[level]
            whole = min(room.cards.count(CARD_MILLI), len(several) - 1)
            costs[-1] += several[whole - 1] - several[whole] if whole else 0
        least = min(costs)
        return [(free, cost - least) for free, cost in zip(frees, costs)]

    def _with_look_ahead(self, shape: Shape, option: Option) -> tuple[int, int, str, int]:
        """Its cost with what more would stay unused; of equals the first node by identity, and the fullest card."""
        cost, lot, node_id, free, room = option
        cards = _taken(room.cards, shape, free)
        then = self._unused_of(room, room.cpu_milli - shape.cpu_milli, room.memory_mib - shape.memory_mib, cards)
        now = self._unused_of(room, room.cpu_milli, room.memory_mib, room.cards)
        return cost + AHEAD * UNIT * (then - now) // WINDOWS, lot, node_id, free

    def _unused_of(self, room: Room, cpu_milli: int, memory_mib: int, cards: tuple[int, ...]) -> int:
        key = (room.kind.number, cpu_milli, memory_mib, cards)
        known = self._unused.get(key)
        if known is None:
            if len(self._unused) >= FILLED_MAX:
                self._unused.clear()
            windows = self._columns.view(room.kind).windows
            known = self._unused[key] = sum([unused(window, cpu_milli, memory_mib, cards) for window in windows])
        return known


def _taken(cards: tuple[int, ...], shape: Shape, free: int) -> tuple[int, ...]:
    """The cards, sorted, once the container has one with so much free, or of several the freest."""
    if not shape.gpu_count:
        return cards
    left = list(cards)
    if shape.gpu_count == 1:
        left.remove(free)
        insort(left, free - shape.gpu_milli)
        return tuple(left)
    kept, freest = left[: -shape.gpu_count], left[-shape.gpu_count :]
    return tuple(sorted(kept + [free - shape.gpu_milli for free in freest]))


def _numbers(cards: tuple[int, ...], shape: Shape, free: int) -> tuple[int, ...]:
    """The numbers of the cards that it takes: the first with so much free, or of several the freest."""
    if shape.gpu_count == 1:
        return (cards.index(free),)
    freest = sorted(range(len(cards)), key=lambda number: -cards[number])
    return tuple(sorted(freest[: shape.gpu_count]))
