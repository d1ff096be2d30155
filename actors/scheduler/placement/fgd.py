"""Fragmentation gradient descent (FGD, USENIX ATC 2023): where the least GPU becomes useless to typical shapes.

A room's fragment for a typical shape is all its free GPU if the shape can't run there or wants no card, else what is
free on cards too full for it. A room's fragment is the mean of these, weighted by how common the shapes are. The score
is how much of it goes away, bent to 0..100 by the logistic function, and whole: coarse on purpose, as it was published.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal
from itertools import accumulate
from typing import Final

import msgspec

from ....model.resources import CARD_MILLI, Shape
from .demand import Demand, Typical
from .index import Indexed, Ties
from .ranking import KINDS_MAX, Pick, Ranking
from .rooms import Kind, Room

FIRST_LOOK: Final = 64  # containers seen before what is typical is looked at for the second time
ROOMS_MAX: Final = 65_536  # of which is remembered what typical shapes can use
_NONE: Final = -1
_PRECISE: Final = Context(prec=40, rounding=ROUND_CEILING)
# Where the score becomes 1, 2 … 99: the fragment that goes away, in thousandths of a card.
STEPS: Final = tuple(
    _PRECISE.multiply(_PRECISE.ln(_PRECISE.divide(Decimal(score), Decimal(100 - score))), Decimal(1000))
    for score in range(1, 100)
)


class Several(msgspec.Struct, frozen=True):
    """Typical shapes that want several cards: of which size, and for how many containers so many cards are enough."""

    card_milli: int
    containers: tuple[int, ...]  # by number of cards with room

    def usable(self, cards: Iterable[int]) -> int:
        """What they can use of these cards."""
        fitting = [free for free in cards if free >= self.card_milli]
        return self.containers[min(len(fitting), len(self.containers) - 1)] * sum(fitting)


class Use(msgspec.Struct, frozen=True):
    """What typical shapes can use of cards, where there is enough CPU for them; times the number of containers.

    `single[free]` is what those that want one card can use of a card with that much free.
    """

    single: tuple[int, ...]
    several: tuple[Several, ...]

    def usable(self, cards: tuple[int, ...]) -> int:
        """All that can be used of these cards."""
        single = sum([self.single[free] for free in cards])
        return single + sum(size.usable(cards) for size in self.several) if self.several else single


class Uses(msgspec.Struct):
    """What nodes of some kinds are of use for: the typical shapes that may run there, and by CPU what they can use."""

    typical: tuple[Typical, ...]
    by_cpu: list[Use | None]


class Memory(msgspec.Struct, frozen=True):
    """What this policy has learned."""

    demand: tuple[Typical, ...]
    typical: tuple[Typical, ...]
    look_at: int


_decode: Final = msgspec.msgpack.Decoder(Memory).decode


class Fgd(Indexed):
    """The published policy. What is typical is what it saw; it looks again each time it has seen twice as much."""

    def __init__(self, ties: Ties = "first", seed: int = 0) -> None:
        super().__init__(ties, seed)
        self._demand = Demand()
        self._look_at = 0
        self._typical: tuple[Typical, ...] = ()
        self._containers = 0
        self._steps: list[int] = []
        self._cpu_levels: list[int] = []
        self._by_kind: dict[Kind, Uses] = {}
        self._by_typical: dict[tuple[Typical, ...], Uses] = {}
        self._usable_now: dict[Room, int] = {}

    def saw(self, shape: Shape) -> None:
        """One container of this shape was asked for."""
        self._demand.saw(shape)

    def pick(self, ranking: Ranking, without: frozenset[str]) -> Pick | None:
        """The node where the least becomes useless, by what is typical now."""
        if self._demand.total >= self._look_at:
            self._look()
        return super().pick(ranking, without)

    def score(self, shape: Shape, room: Room) -> int:
        """0 to 100; 50 where as much is useless as before."""
        return self._best(shape, room)[0]

    def level(self, shape: Shape, room: Room) -> int:
        """What is free on the fullest of the cards where the least becomes useless."""
        return self._best(shape, room)[1]

    def remember(self) -> bytes:
        """What was asked for, what of it is typical, and when that is looked at again."""
        return msgspec.msgpack.encode(Memory(self._demand.counted(), self._typical, self._look_at))

    def recall(self, memory: bytes) -> None:
        """Go on from what another one remembered. Raises msgspec.DecodeError for what is no memory of this policy."""
        if memory:
            known = _decode(memory)
            self._demand, self._look_at = Demand(known.demand), known.look_at
            self._settle_on(known.typical)

    def _look(self) -> None:
        self._look_at = max(FIRST_LOOK, 2 * self._demand.total)
        self._settle_on(self._demand.typical())

    def _settle_on(self, typical: tuple[Typical, ...]) -> None:
        self._typical = typical
        self._containers = sum(typical.count for typical in self._typical)
        precise = (_PRECISE.multiply(step, Decimal(self._containers)) for step in STEPS)
        self._steps = [int(_PRECISE.to_integral_value(step)) for step in precise]
        self._cpu_levels = sorted({typical.shape.cpu_milli for typical in self._typical})
        self._by_kind, self._by_typical, self._usable_now = {}, {}, {}
        self.forget_scores()

    def _best(self, shape: Shape, room: Room) -> tuple[int, int]:
        """The score, and what is free on the card or cards that give it; the fullest of equally good ones."""
        use, cards, milli = self._use(room.kind, room.cpu_milli - shape.cpu_milli), room.cards, shape.gpu_milli
        best, level, now = _NONE, 0, self._now(room)
        if not shape.gpu_count:
            return bisect_right(self._steps, use.usable(cards) - now), level
        one = shape.gpu_count == 1 and not use.several  # then only what is of use on that card changes
        untouched = use.usable(cards) if one else 0
        for place in _places(cards, shape):
            free = cards[place]
            if one:
                then = untouched - use.single[free] + use.single[free - milli]
            else:
                then = use.usable(_taken(cards, place, shape))
            if then > best:
                best, level = then, free
        return bisect_right(self._steps, shape.gpu_total_milli * self._containers + best - now), level

    def _now(self, room: Room) -> int:
        known = self._usable_now.get(room)
        if known is None:
            if len(self._usable_now) >= ROOMS_MAX:
                self._usable_now.clear()
            known = self._usable_now[room] = self._use(room.kind, room.cpu_milli).usable(room.cards)
        return known

    def _use(self, kind: Kind, cpu_milli: int) -> Use:
        uses = self._by_kind.get(kind) or self._uses(kind)
        place = bisect_right(self._cpu_levels, cpu_milli)
        use = uses.by_cpu[place]
        if use is None:
            enough = self._cpu_levels[place - 1] if place else -1
            use = uses.by_cpu[place] = use_of([one for one in uses.typical if one.shape.cpu_milli <= enough])
        return use

    def _uses(self, kind: Kind) -> Uses:
        if len(self._by_kind) >= KINDS_MAX:
            self._by_kind.clear()
        typical = tuple([one for one in self._typical if one.shape.gpu_count and kind.kind.allows(one.shape)])
        fresh = Uses(typical, [None] * (len(self._cpu_levels) + 1))
        uses = self._by_kind[kind] = self._by_typical.setdefault(typical, fresh)
        return uses


def use_of(typical: list[Typical]) -> Use:
    """What these shapes can use, all of which have enough CPU."""
    single: list[int] = [0] * (CARD_MILLI + 1)
    for one in typical:
        if one.shape.gpu_count == 1:
            single[one.shape.gpu_milli] += one.count
    wanting = accumulate(single)  # how many of them find room on a card with so much free
    sizes = sorted({one.shape.gpu_milli for one in typical if one.shape.gpu_count > 1})
    several = tuple(several_of(milli, [one for one in typical if one.shape.gpu_milli == milli]) for milli in sizes)
    return Use(tuple(free * count for free, count in enumerate(wanting)), several)


def several_of(card_milli: int, typical: list[Typical]) -> Several:
    """What those of these shapes can use that want more than one card, all of this size."""
    wanted = [0] * (1 + max(one.shape.gpu_count for one in typical))
    for one in typical:
        wanted[one.shape.gpu_count] += one.count if one.shape.gpu_count > 1 else 0
    return Several(card_milli, tuple(accumulate(wanted)))


def _places(cards: tuple[int, ...], shape: Shape) -> list[int]:
    """Where the cards that a container could take begin: any level for one card, the fullest ones for several."""
    milli = shape.gpu_milli
    if shape.gpu_count > 1:
        return [next(place for place, free in enumerate(cards) if free >= milli)]
    places, last = [], -1
    for place, free in enumerate(cards):
        if free >= milli and free != last:
            places.append(place)
            last = free
    return places


def _taken(cards: tuple[int, ...], place: int, shape: Shape) -> tuple[int, ...]:
    """The cards once the container has those from `place` on."""
    end = place + shape.gpu_count
    return (*cards[:place], *(free - shape.gpu_milli for free in cards[place:end]), *cards[end:])
