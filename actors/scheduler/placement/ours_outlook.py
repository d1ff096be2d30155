"""What free room is worth, by what was asked for until now: tables, made anew each time enough more was asked for.

SPEC.md has the formula and where its numbers come from. All is in whole numbers: `UNIT` to a thousandth of a card.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ....model.resources import CARD_MILLI
from ..capacity import NodeKind
from .ours_ahead import Asked, Size, sample, sizes_of

Ints = npt.NDArray[np.int64]

UNIT: Final = 1 << 16
GRAIN: Final = 10  # thousandths of a card in one column of a table
COLUMNS: Final = CARD_MILLI // GRAIN + 1
LEVELS_MAX: Final = 64  # amounts of CPU that are told apart
# Weights, in percent.
FRAGMENT: Final = 15
WASTE: Final = 90
STRANDED: Final = 55
WANTED: Final = 15
CHIPPED: Final = 15
SPARE: Final = 90  # of the CPU that goes with each card in demand, what is kept beside free cards
GIVEN_UP: Final = 15  # thousandths: how likely a card gets nothing more, beside the chance of its next container
RARE: Final = 30  # thousandths of demand: what is less common than that is hardly counted on
WINDOWS: Final = 2  # samples for the look ahead
FEW: Final = 50  # containers that are too few to tell how much CPU goes with a card


class Population(msgspec.Struct, frozen=True):
    """A kind of node, and how many of them there are."""

    kind: NodeKind
    nodes: int


class View(msgspec.Struct, eq=False):
    """What is worth what on nodes where the same shapes can run.

    `card[level][free // GRAIN]` is how bad one card is with so much free, on a node with CPU of that level; `several`
    the same of so many whole free cards; `wanted` is how dear a thousandth of a card is here. `windows` are
    samples of demand.
    """

    number: int
    card: Ints
    several: Ints
    wanted: int
    windows: tuple[tuple[Size, ...], ...]
    card_rows: list[list[int]] = msgspec.field(default_factory=list)
    several_rows: list[list[int]] = msgspec.field(default_factory=list)


class Outlook:
    """What room is worth, as a function of demand and of the nodes there are, and of nothing else."""

    def __init__(self, asked: Sequence[Asked], population: Sequence[Population]) -> None:
        self.asked = [one for one in asked if one.shape.gpu_count]
        self.total = sum(one.count * one.shape.gpu_count for one in self.asked)
        self.cards_most = max((one.kind.capacity.gpu_count for one in population), default=0)
        self.levels = levels_of([one.shape.cpu_milli for one in asked])
        self.views: list[View] = []
        self._by_use: dict[bytes, View] = {}
        self._can: dict[NodeKind, bytes] = {}
        self._population = population
        count = sum(one.count for one in self.asked)
        self._windows = [sample(self.asked, WINDOWS * count + number) for number in range(WINDOWS)]
        self._cards = self._cards_by_shape()
        self.per_cpu = _per_cpu(asked, population)
        self.chipped = self._chipped(asked)

    def view(self, kind: NodeKind) -> View:
        """What is worth what on nodes of this kind."""
        can = self._can_run(kind)
        known = self._by_use.get(can)
        if known is None:
            known = self._by_use[can] = self._new_view(can)
        return known

    def level(self, cpu_milli: int) -> int:
        """Which amount of CPU this is: how many of the amounts that are told apart it covers."""
        return bisect_right(self.levels, cpu_milli)

    def badness(self, view: View, cpu_milli: int, free: int, cards: Sequence[int]) -> int:
        """How bad it is to have this room free: the less, the better. `free` is the sum of `cards`."""
        level = bisect_right(self.levels, cpu_milli)
        row = view.card_rows[level]
        whole = 0
        total = self.chipped[level] * cpu_milli - view.wanted * free
        for card in cards:
            total += row[card // GRAIN]
            whole += card >= CARD_MILLI
        stranded = UNIT * free - self.per_cpu * cpu_milli
        return (
            total
            + view.several_rows[level][min(whole, self.cards_most)]
            + (stranded * STRANDED // 100 if stranded > 0 else 0)
        )

    def _can_run(self, kind: NodeKind) -> bytes:
        known = self._can.get(kind)
        if known is None:
            known = self._can[kind] = bytes([kind.allows(one.shape) for one in self.asked])
        return known

    def _new_view(self, can: bytes) -> View:
        asked = [one for one, fits in zip(self.asked, can) if fits]
        single, several = self._useful(asked)
        free = np.arange(0, CARD_MILLI + 1, GRAIN, dtype=np.int64)
        total = max(self.total, 1)
        card = FRAGMENT * UNIT * free * (total - single) // (100 * total) + WASTE * waste(asked) // 100
        cards = np.arange(several.shape[1], dtype=np.int64)
        together = -FRAGMENT * UNIT * CARD_MILLI * cards * several // (100 * total)
        windows = tuple(
            sizes_of([self.asked[place].shape for place in window if can[place]]) for window in self._windows
        )
        view = View(len(self.views), card, together, self._wanted(can), windows, card.tolist(), together.tolist())
        self.views.append(view)
        return view

    def _useful(self, asked: Sequence[Asked]) -> tuple[Ints, Ints]:
        """How much of demand a card with so much free serves, and so many whole ones, by level of CPU."""
        single = np.zeros((len(self.levels) + 1, COLUMNS), dtype=np.int64)
        several = np.zeros((len(self.levels) + 1, self.cards_most + 1), dtype=np.int64)
        for one in asked:
            level = bisect_left(self.levels, one.shape.cpu_milli) + 1
            if one.shape.gpu_count == 1:
                single[level, -(-one.shape.gpu_milli // GRAIN)] += one.count
            elif one.shape.gpu_count <= self.cards_most:
                several[level, one.shape.gpu_count] += one.count * one.shape.gpu_count
        return single.cumsum(axis=0).cumsum(axis=1), several.cumsum(axis=0).cumsum(axis=1)

    def _wanted(self, can: bytes) -> int:
        """How much of demand has nowhere else to go, by how few cards it may use; per thousandth of a card."""
        everywhere = sum(one.nodes * one.kind.capacity.gpu_count for one in self._population)
        demand = sum(one.count * one.shape.gpu_total_milli for one in self.asked)
        if not demand or not everywhere:
            return 0
        pressed = 0
        for place, one in enumerate(self.asked):
            allowed = self._cards[place] if can[place] else 0
            if 0 < allowed < everywhere:
                pressed += one.count * one.shape.gpu_total_milli * everywhere // allowed
        return WANTED * UNIT * min(pressed, demand) // (100 * demand)

    def _cards_by_shape(self) -> list[int]:
        """For each shape the cards of the nodes where it could run."""
        cards = [0] * len(self.asked)
        for one in self._population:
            for place, fits in enumerate(self._can_run(one.kind)):
                cards[place] += fits * one.nodes * one.kind.capacity.gpu_count
        return cards

    def _chipped(self, asked: Sequence[Asked]) -> list[int]:
        """What a thousandth of free CPU costs where it is too little for work without cards, by level."""
        cardless = [one for one in asked if not one.shape.gpu_count]
        count = sum(one.count for one in cardless)
        cpu = sum(one.count * one.shape.cpu_milli for one in cardless)
        cpu_of_all = sum(one.count * one.shape.cpu_milli for one in asked)
        if not cpu:
            return [0] * (len(self.levels) + 1)
        fitting = [0] * (len(self.levels) + 1)
        for one in cardless:
            fitting[bisect_left(self.levels, one.shape.cpu_milli) + 1] += one.count
        costs, fit = [], 0
        for more in fitting:
            fit += more
            costs.append(CHIPPED * self.per_cpu * cpu * (count - fit) // (100 * cpu_of_all * count))
        return costs


def levels_of(amounts: Sequence[int]) -> list[int]:
    """The amounts of CPU to tell apart: those asked for, or of too many every so manieth and the largest."""
    distinct = sorted(set(amounts))
    step = -(-len(distinct) // LEVELS_MAX) or 1
    return distinct[::-1][::step][::-1]


def waste(asked: Sequence[Asked]) -> Ints:
    """How much of a card is expected to stay unused at the end, by what is free now; in units.

    A card gets containers of the sizes that are asked for, each as often as it is asked for, or is given up. What few
    can use gets less than its share: many cards wait for those few.
    """
    counts = {COLUMNS - 1: 0}
    for one in asked:
        if one.shape.gpu_count == 1:
            size = -(-one.shape.gpu_milli // GRAIN)
            counts[size] = counts.get(size, 0) + one.count
    # Whole cards are always wanted: as often as the rest at least, else shares would go on untouched cards first.
    counts[COLUMNS - 1] = max(1, counts[COLUMNS - 1], sum(counts.values()) - counts[COLUMNS - 1])
    sizes = sorted(counts.items())
    everything = sum(counts.values())
    expected = [0]
    for free in range(1, COLUMNS):
        served = sum(count for size, count in sizes if size <= free)
        if not served:
            expected.append(free * GRAIN * UNIT)
            continue
        then = sum(count * expected[free - size] for size, count in sizes if size <= free) // served
        # The chance to get something, out of: 1000 served / (RARE everything + 1000 served) of the share of demand.
        got = 1000 * served * served * 1000
        lost = GIVEN_UP * everything * (RARE * everything + 1000 * served)
        expected.append((lost * free * GRAIN * UNIT + got * then) // (lost + got))
    return np.array(expected, dtype=np.int64)


def _per_cpu(asked: Sequence[Asked], population: Sequence[Population]) -> int:
    """How many units of free card a thousandth of a CPU goes with."""
    cpu = sum(one.count * one.shape.cpu_milli for one in asked if one.shape.gpu_count) * SPARE
    gpu = sum(one.count * one.shape.gpu_total_milli for one in asked) * 100
    if sum(one.count for one in asked) < FEW or not gpu or not cpu:
        with_cards = [one for one in population if one.kind.capacity.gpu_count]
        cpu = sum(one.nodes * one.kind.capacity.cpu_milli for one in with_cards)
        gpu = sum(one.nodes * one.kind.capacity.gpu_count for one in with_cards) * CARD_MILLI
    return UNIT * gpu // cpu if cpu and gpu else UNIT
