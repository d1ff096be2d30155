"""A look ahead: how much of a node's cards would stay unused if a sample of demand filled it as well as it can."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from ....model.resources import Shape

SAMPLE: Final = 50  # containers
_TURN: Final = 1024  # parts of the way from one container of the sample to the next
_LEAP: Final = 633  # of them between the samples of one look and of another, so that each has its turn


class Asked(msgspec.Struct, frozen=True):
    """A shape, and how many asked for it."""

    shape: Shape
    count: int


class Size(msgspec.Struct, frozen=True):
    """Containers of the sample that want the same cards: the CPU and memory of each, the least CPU first."""

    cards: int
    card_milli: int
    asks: tuple[tuple[int, int], ...]


def sample(asked: Sequence[Asked], turn: int) -> list[int]:
    """The places of `SAMPLE` shapes, the largest first: every so manieth container of all that asked for cards.

    So each size is there as often as in demand, to one container; which ones of the rare sizes, is another matter each
    turn.
    """
    order = sorted(range(len(asked)), key=lambda place: _largest_first(asked[place].shape))
    total = sum(one.count for one in asked)
    taken: list[int] = []
    passed, offset = 0, turn * _LEAP % _TURN
    for place in order:
        passed += asked[place].count
        while len(taken) < SAMPLE and (len(taken) * _TURN + offset) * total < passed * SAMPLE * _TURN:
            taken.append(place)
    return taken


def sizes_of(shapes: Sequence[Shape]) -> tuple[Size, ...]:
    """The same, by what they want; in the order that they come in, the least CPU first in each."""
    return tuple(
        Size(cards, card_milli, tuple(sorted((shape.cpu_milli, shape.memory_mib) for shape in alike)))
        for (cards, card_milli), alike in groupby(shapes, lambda shape: (shape.gpu_count, shape.gpu_milli))
    )


def unused(window: Sequence[Size], cpu_milli: int, memory_mib: int, cards: Sequence[int]) -> int:
    """What is left of these cards, sorted and in thousandths, when the sample has filled the node.

    The largest go first, of equals those with the least CPU, each on the fullest card with room.
    """
    left = [free for free in cards if free]
    for size in window:
        if not left:
            return 0
        if left[-1] < size.card_milli or len(left) < size.cards:
            continue
        for cpu, memory in size.asks:
            if cpu > cpu_milli or left[-size.cards :][0] < size.card_milli:
                break
            if memory <= memory_mib:
                cpu_milli -= cpu
                memory_mib -= memory
                _take(left, size)
                if len(left) < size.cards:
                    break
    return sum(left)


def _take(left: list[int], size: Size) -> None:
    """One container goes on the fullest cards with room."""
    place = bisect_left(left, size.card_milli)
    taken = left[place : place + size.cards]
    del left[place : place + size.cards]
    for free in taken:
        if free > size.card_milli:
            insort(left, free - size.card_milli)


def _largest_first(shape: Shape) -> tuple[int, int, int, int, tuple[str, ...], tuple[tuple[str, str], ...], str, str]:
    return (
        -shape.gpu_total_milli,
        shape.gpu_count,
        shape.cpu_milli,
        shape.memory_mib,
        shape.gpu_types,
        shape.labels,
        shape.runtime,
        shape.accelerator,
    )
