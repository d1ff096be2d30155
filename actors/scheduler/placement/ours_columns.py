"""The rooms of a cluster in columns, and for each shape what it would cost to take each of them."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ....model.resources import CARD_MILLI, Shape
from .ours_outlook import COLUMNS, GRAIN, STRANDED, UNIT, Ints, Outlook, Population
from .rooms import Kind, Room

Bools = npt.NDArray[np.bool_]

NEVER: Final = 1 << 62  # the cost of a room that a shape can't have
WORSE: Final = 1 << 54  # between one card type of the preference list and the next
PREFERENCES_MAX: Final = 128  # that are told apart
LOG_LEAST: Final = 1024
GIB_BITS: Final = 10  # of otherwise equal rooms the one with the least memory left, in GiB


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
        self._kind_places: dict[int, int] = {}
        self._slots: dict[int, int] = {}  # by number of the room
        self._free_slots: list[int] = []
        self._log: list[int] = []
        self._log_began = 0
        self._cards: Ints = np.zeros((0, 0), dtype=np.int64)
        self._numbers: Ints = np.zeros((7, 0), dtype=np.int64)
        self._widen(64, 1)
        self._stack()

    def add(self, room: Room) -> None:
        """A room that was not there."""
        if not self._free_slots:
            self._widen(2 * len(self._cpu), len(room.cards))
        elif len(room.cards) > self._cards.shape[1]:
            self._widen(len(self._cpu), len(room.cards))
        slot = self._free_slots.pop()
        self._slots[room.number] = slot
        self.rooms[slot] = room
        view = self.outlook.view(room.kind.kind)
        if len(self.outlook.views) != self._stacked:
            self._stack()
        self._cards[slot] = 0
        if room.cards:
            self._cards[slot, -len(room.cards) :] = room.cards
        whole = min(room.cards.count(CARD_MILLI), self.outlook.cards_most)
        badness = self.outlook.badness(view, room.cpu_milli, room.free_milli, room.cards)
        self._numbers[:, slot] = (
            *(room.cpu_milli, room.memory_mib, room.free_milli, whole),
            *(self._kind_place(room.kind), view.number, badness),
        )
        self._tell(slot)

    def remove(self, room: Room) -> None:
        """A room that no node has any more."""
        slot = self._slots.pop(room.number)
        self.rooms[slot] = None
        self._memory[slot] = -1
        self._free_slots.append(slot)
        self._tell(slot)

    def learn(self, outlook: Outlook) -> None:
        """See everything in a new light."""
        self.outlook = outlook
        self.look += 1
        self._forget_kinds()
        slots = np.array(list(self._slots.values()), dtype=np.int64)
        for slot in self._slots.values():
            room = self.room(slot)
            self._view[slot] = outlook.view(room.kind.kind).number
            self._whole[slot] = min(room.cards.count(CARD_MILLI), outlook.cards_most)
        self._stack()
        self._badness[slots] = self._badness_of(slots)

    def population(self) -> tuple[Population, ...]:
        """How many nodes there are of each kind."""
        return tuple([Population(kind.kind, kind.nodes) for kind in self.kinds if kind.nodes])

    def _forget_kinds(self) -> None:
        """Forget those of which there are no nodes, once they are more than the others."""
        if 2 * sum(kind.nodes > 0 for kind in self.kinds) >= len(self.kinds):
            return
        self.kinds, self._kind_places = [], {}
        self.kinds_forgotten += 1
        for slot in self._slots.values():
            self._kind[slot] = self._kind_place(self.room(slot).kind)

    def bring_up(self, row: Row) -> Ints:
        """The costs of all slots for a shape, as of now."""
        if row.kinds_forgotten != self.kinds_forgotten:
            row.preferences, row.kinds_forgotten = _none(), self.kinds_forgotten
        if len(row.preferences) < len(self.kinds):
            missing = [_preference(row.shape, kind) for kind in self.kinds[len(row.preferences) :]]
            row.preferences = np.append(row.preferences, np.array(missing, dtype=np.int64))
        changed = self._changed(row)
        if changed is None:
            row.costs = np.full(len(self._cpu), NEVER, dtype=np.int64)
            self._cost(row, np.flatnonzero(self._memory >= 0))
        elif changed:
            slots = np.array(changed, dtype=np.int64)
            row.costs[slots] = NEVER
            self._cost(row, slots)
        row.cursor, row.look = self._log_began + len(self._log), self.look
        return row.costs

    def _changed(self, row: Row) -> list[int] | None:
        """The slots that changed since the row was brought up, or None if it is better to begin anew."""
        if row.look != self.look or row.cursor < self._log_began or len(row.costs) != len(self._cpu):
            return None
        changed = self._log[row.cursor - self._log_began :]
        return changed if 2 * len(changed) <= len(self._slots) + 64 else None

    def room(self, slot: int) -> Room:
        """The room that has this slot."""
        room = self.rooms[slot]
        assert room is not None
        return room

    def _cost(self, row: Row, slots: Ints) -> None:
        """Set what these rooms cost where there is room; of the others it is NEVER already."""
        slots = slots[self._fits(row, slots)]
        if not len(slots):
            return
        shape, view = row.shape, self._view[slots]
        cpu = self._cpu[slots] - shape.cpu_milli
        level = np.searchsorted(self._levels, cpu, side="right")
        free = self._free[slots] - shape.gpu_total_milli
        stranded = np.maximum(free * UNIT - cpu * self.outlook.per_cpu, 0) * STRANDED // 100
        then = self._cards_then(shape, slots, view * len(self._chipped) + level)
        then += self._chipped[level] * cpu + stranded - self._wanted[view] * free - self._badness[slots]
        then += (self._memory[slots] - shape.memory_mib) >> GIB_BITS
        row.costs[slots] = then + row.preferences[self._kind[slots]] * WORSE

    def _fits(self, row: Row, slots: Ints) -> Bools:
        shape = row.shape
        fits: Bools = (self._cpu[slots] >= shape.cpu_milli) & (self._memory[slots] >= shape.memory_mib)
        fits &= row.preferences[self._kind[slots]] != NEVER
        if shape.gpu_count:
            fits &= self._cards[slots, -shape.gpu_count] >= shape.gpu_milli
        return fits

    def _cards_then(self, shape: Shape, slots: Ints, place: Ints) -> Ints:
        """How bad the cards are when the shape has taken its own, at these places of the tables."""
        cards, whole, count = self._cards[slots], self._whole[slots], shape.gpu_count
        at = cards // GRAIN + (place * COLUMNS)[:, None]
        now = self._card_table[at]
        then: Ints = now.sum(axis=1)
        if count == 1:
            more = self._card_table[at - shape.gpu_milli // GRAIN] - now
            fewer = self._several_table[place, np.maximum(whole - 1, 0)] - self._several_table[place, whole]
            more += np.where(cards == CARD_MILLI, fewer[:, None], 0)
            more[cards < shape.gpu_milli] = NEVER
            then += more.min(axis=1)
        elif count:
            then += (self._card_table[at[:, -count:] - shape.gpu_milli // GRAIN] - now[:, -count:]).sum(axis=1)
            whole = np.maximum(whole - count, 0)
        then += self._several_table[place, whole]
        return then

    def _badness_of(self, slots: Ints) -> Ints:
        """The same as `Outlook.badness`, of many rooms."""
        cpu, free, view = self._cpu[slots], self._free[slots], self._view[slots]
        level = np.searchsorted(self._levels, cpu, side="right")
        place = view * len(self._chipped) + level
        cards: Ints = self._card_table[self._cards[slots] // GRAIN + (place * COLUMNS)[:, None]].sum(axis=1)
        stranded = np.maximum(free * UNIT - cpu * self.outlook.per_cpu, 0) * STRANDED // 100
        several = self._several_table[place, self._whole[slots]]
        badness: Ints = cards + several + stranded + self._chipped[level] * cpu - self._wanted[view] * free
        return badness

    def _widen(self, slots: int, cards: int) -> None:
        """Make place for so many rooms with so many cards each; what is there stays."""
        had, wide = self._cards.shape
        widened = np.zeros((slots, max(cards, wide)), dtype=np.int64)
        if wide:
            widened[:had, -wide:] = self._cards
        self._cards = widened
        numbers = np.zeros((7, slots), dtype=np.int64)
        numbers[1] = -1
        numbers[:, :had] = self._numbers
        self._numbers = numbers
        self._cpu, self._memory, self._free, self._whole, self._kind, self._view, self._badness = numbers
        self.rooms += [None] * (slots - had)
        self._free_slots += range(slots - 1, had - 1, -1)

    def _stack(self) -> None:
        """The tables of all views as one, by view and level."""
        views = self.outlook.views
        self._stacked = len(views)
        self._levels = np.array(self.outlook.levels, dtype=np.int64)
        self._chipped = np.array(self.outlook.chipped, dtype=np.int64)
        self._wanted = np.array([view.wanted for view in views], dtype=np.int64)
        if views:
            self._card_table = np.concatenate([view.card for view in views]).ravel()
            self._several_table = np.concatenate([view.several for view in views])

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
