"""The rooms of a cluster in columns, and for each shape what it would cost to take each of them."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from ....model.resources import CARD_MILLI, Shape
from .ours_outlook import COLUMNS, GRAIN, STRANDED, UNIT, Ints, Outlook, Population, View
from .rooms import Kind, Room

NEVER: Final = 1 << 62  # the cost of a room that a shape can't have
WORSE: Final = 1 << 54  # between one card type of the preference list and the next
PREFERENCES_MAX: Final = 128  # that are told apart
LOG_LEAST: Final = 1024
_CPU, _MEMORY, _FREE, _WHOLE, _KIND, _VIEW, _BADNESS, _CARDS = range(8)  # columns; of the cards, the first
GIB_BITS: Final = 10  # of rooms that are as good the one with the least memory left, in GiB; without cards also CPU


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


class Row(msgspec.Struct, eq=False):
    """What it costs a shape to take each room: `costs` by slot, as the log had it at `cursor`."""

    shape: Shape
    costs: Ints = msgspec.field(default_factory=_none)
    preferences: Ints = msgspec.field(default_factory=_none)  # of each kind of node, or NEVER
    cursor: int = -1
    kinds_forgotten: int = 0
    look: int = -1  # that the costs are from


class Columns:
    """Each room that there is has a slot. What changes is written to a log, by which rows keep up."""

    def __init__(self, outlook: Outlook) -> None:
        self.rooms: list[Room | None] = []
        self.outlook = outlook
        self.look = 0
        self.kinds: list[Kind] = []
        self.kinds_forgotten = 0  # how often
        self._kind_places: dict[int, int] = {}  # by number of the kind
        self._views: dict[int, View] = {}  # by number of the kind
        self._slots: dict[int, int] = {}  # by number of the room
        self._free_slots: list[int] = []
        self._log: list[int] = []
        self._log_began = 0
        self._width = 1  # the most cards of a room
        self._numbers: Ints = np.zeros((0, _CARDS + 2), dtype=np.int64)
        self._widen(64, 1)
        self._stack()

    def add(self, room: Room) -> None:
        """A room that was not there."""
        if not self._free_slots or len(room.cards) > self._width:
            self._widen(len(self.rooms) * (1 if self._free_slots else 2), len(room.cards))
        self._set(self._free_slots.pop(), room)

    def remove(self, room: Room) -> None:
        """A room that no node has any more."""
        slot = self._slots.pop(room.number)
        self.rooms[slot] = None
        self._numbers[slot, _MEMORY] = -1
        self._free_slots.append(slot)
        self._tell(slot)

    def replace(self, before: Room, after: Room) -> None:
        """A room that no node has any more, and one that was not there."""
        if len(after.cards) > self._width:
            self._widen(len(self.rooms), len(after.cards))
        self._set(self._slots.pop(before.number), after)

    def _set(self, slot: int, room: Room) -> None:
        view = self.view(room.kind)
        self._slots[room.number] = slot
        self.rooms[slot] = room
        missing = [0] * (self._width - len(room.cards))
        self._numbers[slot] = [
            room.cpu_milli,
            room.memory_mib,
            room.free_milli,
            min(room.cards.count(CARD_MILLI), self.outlook.cards_most),
            self._kind_place(room.kind),
            view.number,
            self.outlook.badness(view, room.cpu_milli, room.free_milli, room.cards),
            *missing,
            *room.cards,
            *missing,
            *[free // GRAIN for free in room.cards],
        ]
        self._tell(slot)

    def room(self, slot: int) -> Room:
        """The room that has this slot."""
        room = self.rooms[slot]
        assert room is not None
        return room

    def view(self, kind: Kind) -> View:
        """What is worth what on nodes of this kind."""
        view = self._views.get(kind.number)
        if view is None:
            view = self._views[kind.number] = self.outlook.view(kind.kind)
            if len(self.outlook.views) != self._stacked:
                self._stack()
        return view

    def badness(self, room: Room) -> int:
        """How bad it is that this room is free, as it stands in its column."""
        return int(self._numbers[self._slots[room.number], _BADNESS])

    def population(self) -> tuple[Population, ...]:
        """How many nodes there are of each kind."""
        return tuple([Population(kind.kind, kind.nodes) for kind in self.kinds if kind.nodes])

    def learn(self, outlook: Outlook) -> None:
        """See everything in a new light."""
        self.outlook, self._views = outlook, {}
        self.look += 1
        self._forget_kinds()
        slots = np.array(list(self._slots.values()), dtype=np.int64)
        rooms = [self.room(slot) for slot in self._slots.values()]
        self._numbers[slots, _KIND] = [self._kind_place(room.kind) for room in rooms]
        self._numbers[slots, _VIEW] = [self.view(room.kind).number for room in rooms]
        whole = (self._numbers[:, _CARDS : _CARDS + self._width] == CARD_MILLI).sum(axis=1)
        self._numbers[:, _WHOLE] = np.minimum(whole, outlook.cards_most)
        self._stack()
        self._numbers[slots, _BADNESS] = self._badness_of(self._numbers[slots])

    def bring_up(self, row: Row) -> Ints:
        """The costs of all slots for a shape, as of now."""
        if row.kinds_forgotten != self.kinds_forgotten:
            row.preferences, row.kinds_forgotten = _none(), self.kinds_forgotten
        if len(row.preferences) < len(self.kinds):
            missing = [_preference(row.shape, kind) for kind in self.kinds[len(row.preferences) :]]
            row.preferences = np.append(row.preferences, np.array(missing, dtype=np.int64))
        changed = self._changed(row)
        if changed is None:
            row.costs = np.full(len(self.rooms), NEVER, dtype=np.int64)
            self._cost(row, (self._numbers[:, _MEMORY] >= 0).nonzero()[0])
        elif changed:
            slots = np.array(changed, dtype=np.int64)
            row.costs[slots] = NEVER
            self._cost(row, slots)
        row.cursor, row.look = self._log_began + len(self._log), self.look
        return row.costs

    def _changed(self, row: Row) -> list[int] | None:
        """The slots that changed since the row was brought up, or None if it is better to begin anew."""
        if row.look != self.look or row.cursor < self._log_began or len(row.costs) != len(self.rooms):
            return None
        changed = self._log[row.cursor - self._log_began :]
        return changed if len(changed) <= len(self._slots) + 64 else None

    def _cost(self, row: Row, slots: Ints) -> None:
        """Set what these rooms cost where there is room; of the others it is NEVER already."""
        shape, rooms = row.shape, self._numbers.take(slots, axis=0)
        preference = row.preferences[rooms[:, _KIND]]
        fits = (rooms[:, _CPU] >= shape.cpu_milli) & (rooms[:, _MEMORY] >= shape.memory_mib) & (preference != NEVER)
        if shape.gpu_count:
            if shape.gpu_count > self._width:
                return
            fits &= rooms[:, _CARDS + self._width - shape.gpu_count] >= shape.gpu_milli
        if not fits.all():
            slots, rooms, preference = slots[fits], rooms[fits], preference[fits]
            if not len(slots):
                return
        cpu = rooms[:, _CPU] - shape.cpu_milli
        level = self._levels.searchsorted(cpu, side="right")
        then = self._cards_then(shape, rooms, rooms[:, _VIEW] * len(self._chipped) + level)
        then += self._rest(rooms[:, _VIEW], level, cpu, rooms[:, _FREE] - shape.gpu_total_milli)
        then += (rooms[:, _MEMORY] - shape.memory_mib) >> GIB_BITS
        if not shape.gpu_count:
            then += cpu
        row.costs[slots] = then - rooms[:, _BADNESS] + preference * WORSE

    def _cards_then(self, shape: Shape, rooms: Ints, place: Ints) -> Ints:
        """How bad the cards are when the shape has taken its own, at these places of the tables."""
        width, whole, count, milli = self._width, rooms[:, _WHOLE], shape.gpu_count, shape.gpu_milli
        row = (place * COLUMNS)[:, None]
        at = rooms[:, _CARDS + width :] + row
        now = self._card_table.take(at)
        then: Ints = now.sum(axis=1)
        if count:
            cards = rooms[:, _CARDS : _CARDS + width]
            after = at - milli // GRAIN if milli % GRAIN == 0 else (cards - milli) // GRAIN + row
            more = self._card_table.take(after, mode="wrap") - now
        if count == 1:
            more += (cards == CARD_MILLI) * self._fewer_table[place, whole][:, None]
            more[cards < milli] = NEVER
            then += more.min(axis=1)
        elif count:
            then += more[:, -count:].sum(axis=1)
            whole = np.maximum(whole - count, 0)
        then += self._several_table[place, whole]
        return then

    def _rest(self, view: Ints, level: Ints, cpu: Ints, free: Ints) -> Ints:
        """How bad all but the single cards is, with so much CPU and card free."""
        stranded = np.maximum(free * UNIT - cpu * self.outlook.per_cpu, 0) * STRANDED // 100
        rest: Ints = stranded + self._chipped[level] * cpu - self._wanted[view] * free
        return rest

    def _badness_of(self, rooms: Ints) -> Ints:
        """The same as `Outlook.badness`, of many rooms."""
        cpu, view = rooms[:, _CPU], rooms[:, _VIEW]
        level = self._levels.searchsorted(cpu, side="right")
        place = view * len(self._chipped) + level
        cards: Ints = self._card_table[rooms[:, _CARDS + self._width :] + (place * COLUMNS)[:, None]].sum(axis=1)
        badness: Ints = cards + self._several_table[place, rooms[:, _WHOLE]]
        return badness + self._rest(view, level, cpu, rooms[:, _FREE])

    def _widen(self, slots: int, width: int) -> None:
        """Make place for so many rooms with so many cards each; what is there stays."""
        had, before, now = len(self.rooms), self._width, max(width, self._width)
        numbers = np.zeros((slots, _CARDS + 2 * now), dtype=np.int64)
        numbers[:, _MEMORY] = -1
        numbers[:had, :_CARDS] = self._numbers[:, :_CARDS]
        numbers[:had, _CARDS + now - before : _CARDS + now] = self._numbers[:, _CARDS : _CARDS + before]
        numbers[:had, _CARDS + 2 * now - before :] = self._numbers[:, _CARDS + before :]
        self._numbers, self._width = numbers, now
        self.rooms += [None] * (slots - had)
        self._free_slots += range(slots - 1, had - 1, -1)

    def _stack(self) -> None:
        """The tables of all views as one, by view and level."""
        views = self.outlook.views
        self._stacked = len(views)
        self._levels = np.array(self.outlook.levels, dtype=np.int64)
        self._chipped = np.array(self.outlook.chipped, dtype=np.int64)
        self._wanted = np.array([view.wanted for view in views], dtype=np.int64)
        self._card_table: Ints = np.concatenate([_none(), *[view.card.ravel() for view in views]])
        empty = np.zeros((0, self.outlook.cards_most + 1), dtype=np.int64)
        self._several_table: Ints = np.concatenate([empty, *[view.several for view in views]])
        before = np.concatenate((self._several_table[:, :1], self._several_table[:, :-1]), axis=1)
        self._fewer_table: Ints = before - self._several_table

    def _forget_kinds(self) -> None:
        """Forget those of which there are no nodes, once they are more than the others."""
        if 2 * sum(kind.nodes > 0 for kind in self.kinds) < len(self.kinds):
            self.kinds, self._kind_places = [], {}
            self.kinds_forgotten += 1

    def _kind_place(self, kind: Kind) -> int:
        place = self._kind_places.get(kind.number)
        if place is None:
            place = self._kind_places[kind.number] = len(self.kinds)
            self.kinds.append(kind)
        return place

    def _tell(self, slot: int) -> None:
        self._log.append(slot)
        if len(self._log) > 2 * (LOG_LEAST + len(self._slots)):
            cut = len(self._log) - LOG_LEAST - len(self._slots)
            self._log_began += cut
            del self._log[:cut]


def _preference(shape: Shape, kind: Kind) -> int:
    """The place of a kind of node in the order of wishes. Work without cards goes first where there are none."""
    capacity = kind.kind.capacity
    if not kind.kind.allows(shape):
        return NEVER
    if not shape.gpu_count:
        return int(capacity.gpu_count > 0)
    return min(shape.preference(capacity.gpu_type), PREFERENCES_MAX)
