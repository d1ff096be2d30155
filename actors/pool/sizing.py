"""Which workers a wish needs, pure: shapes are filled into workers that could be started, first fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from ...model.nodes import NodeOffer
from ...model.resources import CARD_MILLI, Amount, Shape

NOTHING = Amount()


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


class Sizing:
    """A count of the workers that are needed. `free` are nodes without a worker, `alike` any number of workers."""

    def __init__(self, free: Iterable[NodeOffer], alike: NodeOffer | None) -> None:
        self._free = {offer.traits.node: offer for offer in free}
        self._alike = alike
        self._ranked: dict[Shape, deque[NodeOffer]] = {}
        self._full: dict[Shape, int] = {}  # so many bins from the first have no room for this shape
        self.bins: list[Bin] = []

    def fill(self, shapes: Sequence[Shape], most: int) -> tuple[Shape, ...]:
        """Room for these, with at most `most` workers; returns those shapes for which there is none, each once."""
        lacking: dict[Shape, None] = {}
        for shape in shapes:
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
        self._free.pop(offer.traits.node, None)
        one = Bin(offer)
        if shape is not None:
            one.put(shape)
            self._full[shape] = len(self.bins)
        self.bins.append(one)

    def _best(self, shape: Shape) -> NodeOffer | None:
        """The worker for a shape: of the type that it prefers, without cards for one without, and small."""
        if shape not in self._ranked:
            able = [offer for offer in self._offers() if could_hold(offer, shape)]
            able.sort(key=lambda offer: (shape.preference(offer.capacity.gpu_type), *_size(offer)))
            self._ranked[shape] = deque(able)
        ranked = self._ranked[shape]
        while ranked and self._alike is None and ranked[0].traits.node not in self._free:
            ranked.popleft()
        return ranked[0] if ranked else None

    def _offers(self) -> tuple[NodeOffer, ...]:
        return tuple(self._free.values()) if self._alike is None else (self._alike,)

    def add(self, wanted: Amount = NOTHING) -> bool:
        """One more worker that nobody asked for, which has some of what is `wanted`; False when there is none."""
        able = [offer for offer in self._offers() if _has(offer, wanted)]
        offer = min(able, key=_size, default=None)
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
    """Whether a worker there would have room for this shape if it had nothing else."""
    return Bin(offer).put(shape)


def missing(wanted: Amount, free: Amount) -> Amount:
    """What is not free of what is wanted; nothing of it is below zero."""
    lacks = wanted.less(free)
    return Amount(max(0, lacks.cpu_milli), max(0, lacks.memory_mib), max(0, lacks.gpu_milli))


def _size(offer: NodeOffer) -> tuple[int, int, int, str]:
    size = offer.capacity
    return size.gpu_count, size.cpu_milli, size.memory_mib, offer.traits.node


def _has(offer: NodeOffer, wanted: Amount) -> bool:
    """Cards are only brought by workers that have some; CPUs and memory by all."""
    return not wanted.gpu_milli or offer.capacity.gpu_count > 0
