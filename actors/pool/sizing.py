"""Which workers a wish needs, pure: shapes are filled into workers that could be started, first fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ...model.nodes import NodeOffer
from ...model.resources import CARD_MILLI, Amount, Capacity, Shape

NOTHING: Final = Amount()
WORKERS_COUNTED: Final = 64  # at a time; a pool asks the guard for no more


class _Make(msgspec.Struct, frozen=True):
    """What decides, beside labels, whether a shape has room on an empty worker."""

    capacity: Capacity
    gpu_sharing: bool
    runtimes: tuple[str, ...]


class Bin:
    """A worker that could be ordered, and what the shapes that were put into it leave of it, card by card."""

    def __init__(self, offer: NodeOffer) -> None:
        self.offer = offer
        self._cpu_milli = offer.capacity.cpu_milli
        self._memory_mib = offer.capacity.memory_mib
        self._cards = [CARD_MILLI] * offer.capacity.gpu_count

    def put(self, shape: Shape) -> bool:
        """Put a shape in; False where it has no room."""
        cards = self._cards_for(shape)
        if cards is None or shape.cpu_milli > self._cpu_milli or shape.memory_mib > self._memory_mib:
            return False
        self._cpu_milli -= shape.cpu_milli
        self._memory_mib -= shape.memory_mib
        for card in cards:
            self._cards[card] -= shape.gpu_milli
        return True

    def _cards_for(self, shape: Shape) -> list[int] | None:
        """The fullest cards that do; None where there are too few, or of the wrong type."""
        if not self.offer.traits.allows(shape):
            return None
        if not shape.gpu_count:
            return []
        if not shape.takes_type(self.offer.capacity.gpu_type):
            return None
        able = sorted((free, card) for card, free in enumerate(self._cards) if free >= shape.gpu_milli)
        chosen = [card for _, card in able[: shape.gpu_count]]
        return chosen if len(chosen) == shape.gpu_count else None

    @property
    def left(self) -> Amount:
        """What is left."""
        return Amount(self._cpu_milli, self._memory_mib, sum(self._cards))


class FreeNodes:
    """Named nodes without a worker, by what a worker there would have: of one make, whatever their labels."""

    def __init__(self, offers: Iterable[NodeOffer]) -> None:
        self.by_name = {offer.traits.node: offer for offer in offers}
        self.makes: dict[_Make, list[NodeOffer]] = {}
        for offer in sorted(self.by_name.values(), key=lambda offer: offer.traits.node):
            self.makes.setdefault(_make_of(offer), []).append(offer)

    def could_hold(self, shape: Shape) -> bool:
        """Whether a worker on one of them would have room for this shape if it had nothing else."""
        able = (offers for offers in self.makes.values() if could_hold(offers[0], shape))
        return any(not shape.labels or any(one.traits.allows(shape) for one in offers) for offers in able)


class Sizing:
    """A count of the workers that are needed: on nodes that are `free` and not `taken`, or of those that are alike."""

    def __init__(self, free: FreeNodes, taken: Iterable[str], alike: NodeOffer | None) -> None:
        self._makes = free.makes if alike is None else {_make_of(alike): [alike]}
        self._alike = alike
        self._taken = set(taken)
        self._next = dict.fromkeys(self._makes, 0)  # those before are taken
        self._ranked: dict[Shape, tuple[_Make, ...]] = {}
        self._full: dict[Shape, int] = {}  # so many bins from the first have no room for this shape
        self.bins: list[Bin] = []

    def fill(self, shapes: Sequence[Shape], most: int) -> tuple[Shape, ...]:
        """Room for these, with at most `most` workers; returns those shapes for which there is none, each once.

        It ends after `WORKERS_COUNTED`: when those are ordered there is a new wish.
        """
        lacking: dict[Shape, None] = {}
        for shape in shapes:
            if len(self.bins) >= WORKERS_COUNTED:
                break
            if shape in lacking or self._put(shape):
                continue
            offer = self._best(shape) if len(self.bins) < most else None
            if offer is not None:
                self._open(offer, shape)
            else:
                lacking[shape] = None
        return tuple(lacking)

    def _put(self, shape: Shape) -> bool:
        """First fit; bins only fill up, so what had no room for a shape has none for the next one like it."""
        for place in range(self._full.get(shape, 0), len(self.bins)):
            if self.bins[place].put(shape):
                self._full[shape] = place
                return True
        self._full[shape] = len(self.bins)
        return False

    def _open(self, offer: NodeOffer, shape: Shape | None) -> None:
        if self._alike is None:
            self._taken.add(offer.traits.node)
        one = Bin(offer)
        if shape is not None:
            one.put(shape)
            self._full[shape] = len(self.bins)
        self.bins.append(one)

    def _best(self, shape: Shape) -> NodeOffer | None:
        """The worker for a shape: of the type that it prefers, without cards for one without, and small."""
        if shape not in self._ranked:
            able = [make for make, offers in self._makes.items() if could_hold(offers[0], shape)]
            able.sort(key=lambda make: (shape.preference(make.capacity.gpu_type), *_size(make.capacity)))
            self._ranked[shape] = tuple(able)
        found = (self._first(make, shape) for make in self._ranked[shape])
        return next((offer for offer in found if offer is not None), None)

    def _first(self, make: _Make, shape: Shape | None = None) -> NodeOffer | None:
        """The first node of a make that is not taken, and has the labels that a shape wants."""
        offers = self._makes[make]
        while self._next[make] < len(offers) and offers[self._next[make]].traits.node in self._taken:
            self._next[make] += 1
        if shape is None or not shape.labels:
            return offers[self._next[make]] if self._next[make] < len(offers) else None
        left = offers[self._next[make] :]
        return next((one for one in left if one.traits.allows(shape) and one.traits.node not in self._taken), None)

    def add(self, wanted: Amount = NOTHING) -> bool:
        """One more worker that nobody asked for, which has some of what is `wanted`; False when there is none."""
        makes = [make for make in self._makes if make.capacity.gpu_count or not wanted.gpu_milli]
        makes.sort(key=lambda make: _size(make.capacity))
        offer = next((one for make in makes if (one := self._first(make)) is not None), None)
        if offer is not None:
            self._open(offer, None)
        return offer is not None

    @property
    def left(self) -> Amount:
        """What all workers that were counted leave free."""
        found = NOTHING
        for one in self.bins:
            found = found.plus(one.left)
        return found


def could_hold(offer: NodeOffer, shape: Shape) -> bool:
    """Whether an empty worker of this make has room for a shape, whatever its labels."""
    return Bin(offer).put(msgspec.structs.replace(shape, labels=()))


def missing(wanted: Amount, free: Amount) -> Amount:
    """What is not free of what is wanted; nothing of it is below zero."""
    lacks = wanted.less(free)
    return Amount(max(0, lacks.cpu_milli), max(0, lacks.memory_mib), max(0, lacks.gpu_milli))


def _make_of(offer: NodeOffer) -> _Make:
    return _Make(offer.capacity, offer.traits.gpu_sharing, offer.traits.runtimes)


def _size(size: Capacity) -> tuple[int, int, int]:
    """Cards are the dearest, then CPUs."""
    return size.gpu_count, size.cpu_milli, size.memory_mib
