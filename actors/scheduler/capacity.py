"""What is free where, card by card. One `Node` is a worker, running or on its way, or a node that could get one.

Room is taken and given back here alone. Free + used + promised is always the total, and nothing is ever below
zero: what a worker lost while it was in use counts as there until its container has gone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from ...model.nodes import Traits
from ...model.resources import CARD_MILLI, Amount, Capacity, Shape

_NO_TRAITS: Final = Traits()


class Standing(enum.StrEnum):
    """What may be done with a node's room."""

    OPEN = "open"  # containers are placed
    COMING = "coming"  # a worker was ordered and has not reported: its room is promised, not taken
    OFFERED = "offered"  # its pool could start a worker here
    CLOSED = "closed"  # silent, cordoned, draining: what runs there stays


class OfSpace(Shape, frozen=True, kw_only=True):
    """A shape, and whose it is: asked of nodes that take the work of one workspace only, and of no others."""

    workspace: str


@lru_cache(maxsize=4096)
def of_space(shape: Shape, workspace: str) -> Shape:
    """The same shape, asked for by this workspace."""
    return OfSpace(**{name: getattr(shape, name) for name in Shape.__struct_fields__}, workspace=workspace)


class NodeKind(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes of one make have in common: whether a shape could ever be placed there depends on this alone."""

    pool: str
    capacity: Capacity
    traits: Traits  # of which `node` is "", and `serves`, too, unless it is another one than its pool's

    def allows(self, shape: Shape) -> bool:
        """Whether an empty node of this kind would take a container of this shape."""
        return shape.pool in ("", self.pool) and self.admits(shape) and self.capacity.fits(shape)

    def admits(self, shape: Shape) -> bool:
        """As `allows`, whatever its size: who does not say for whom it asks gets no node that takes one's work only."""
        serves = self.traits.serves
        theirs = not serves or (isinstance(shape, OfSpace) and shape.workspace == serves)
        return theirs and self.traits.allows(shape)


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one container holds on a node; `cards` are numbers of cards, `card_milli` of each.

    `promised`: kept for a member of a gang whose other nodes are still on their way.
    """

    cpu_milli: int
    memory_mib: int
    cards: tuple[int, ...] = ()
    card_milli: int = CARD_MILLI
    promised: bool = False


class Node(msgspec.Struct, kw_only=True):
    """A place for containers. `free_cards` is what is left of each card, in thousandths, by number of the card.

    `lost_cards` were there once and are not now; nothing of them is free.
    """

    node_id: str
    kind: NodeKind
    name: str = ""
    standing: Standing = Standing.OPEN
    why_closed: str = ""  # "cordoned", say
    since_s: float = 0.0  # from when that is known, Unix seconds; 0: nobody said
    serves: str = ""  # the one workspace for which its worker's own token is good
    worker_standing: Standing = Standing.OPEN  # by the worker's own word; its node may be closed all the same
    worker_why: str = ""
    cpu_milli: int  # free
    memory_mib: int  # free
    free_cards: list[int]
    lost_cards: list[int] = msgspec.field(default_factory=list)
    uses: dict[str, Use] = msgspec.field(default_factory=dict)
    used_cpu_milli: int = 0
    used_memory_mib: int = 0

    def fits(self, shape: Shape) -> bool:
        """Whether a container of this shape has room now, whatever the node's standing."""
        return (
            shape.cpu_milli <= self.cpu_milli
            and shape.memory_mib <= self.memory_mib
            and self.kind.admits(shape)
            and shape.pool in ("", self.kind.pool)
            and (not shape.gpu_count or self._has_cards(shape))
        )

    def takers(self) -> tuple[Callable[[Shape], bool], str]:
        """Who could use what is free here: `fits`, and the one workspace for which it stands, "" for any."""
        serves = self.kind.traits.serves
        return ((lambda shape: self.fits(of_space(shape, serves))) if serves else self.fits), serves

    def _has_cards(self, shape: Shape) -> bool:
        if not shape.takes_type(self.kind.capacity.gpu_type):
            return False
        milli = shape.gpu_milli
        if milli == CARD_MILLI:
            return self.free_cards.count(milli) >= shape.gpu_count
        return sum(free >= milli for free in self.free_cards) >= shape.gpu_count

    def count(self, shape: Shape) -> int:
        """How many containers of this shape have room now."""
        if not self.fits(shape):
            return 0
        most = min(self.cpu_milli // shape.cpu_milli, self.memory_mib // shape.memory_mib)
        if not shape.gpu_count:
            return most
        if shape.gpu_milli == CARD_MILLI:
            return min(most, self.free_cards.count(CARD_MILLI) // shape.gpu_count)
        if shape.gpu_count > 1:
            return self._count_by_picking(shape, most)
        return min(most, sum(free // shape.gpu_milli for free in self.free_cards))

    def _count_by_picking(self, shape: Shape, most: int) -> int:
        """Shares of several cards each: how many fit depends on which cards the others get."""
        free_cards = [*self.free_cards]
        for count in range(most):
            cards = _pick(free_cards, shape)
            if len(cards) < shape.gpu_count:
                return count
            for card in cards:
                free_cards[card] -= shape.gpu_milli
        return most

    def pick_cards(self, shape: Shape) -> tuple[int, ...]:
        """Cards for a shape that fits: those with the least left that do, then by number."""
        return _pick(self.free_cards, shape) if shape.gpu_count else ()

    def take(self, member: str, shape: Shape, cards: tuple[int, ...], promised: bool = False) -> None:
        """A container is placed here, or its room is promised."""
        use = Use(
            cpu_milli=shape.cpu_milli,
            memory_mib=shape.memory_mib,
            cards=cards,
            card_milli=shape.gpu_milli,
            promised=promised,
        )
        self.uses[member] = use
        self.used_cpu_milli += use.cpu_milli
        self.used_memory_mib += use.memory_mib
        for card in cards:
            while card >= len(self.free_cards):  # restored on a worker that has reported fewer cards since
                self.lost_cards.append(len(self.free_cards))
                self.free_cards.append(0)
            self.free_cards[card] = max(0, self.free_cards[card] - use.card_milli)
        if self.lost_cards:  # which ones depends on who is there, not on who came first
            self._count_cards()
        self._count_free()

    def give_back(self, member: str) -> None:
        """A container has gone from here; nothing happens if it never was here."""
        use = self.uses.pop(member, None)
        if use is None:
            return
        self.used_cpu_milli -= use.cpu_milli
        self.used_memory_mib -= use.memory_mib
        self._count_cards()
        self._count_free()

    def resize(self, capacity: Capacity) -> None:
        """The worker has this much now."""
        self.kind = msgspec.structs.replace(self.kind, capacity=capacity)
        missing = capacity.gpu_count - len(self.free_cards)
        self.free_cards += [CARD_MILLI] * max(0, missing)
        self._count_cards()
        self._count_free()

    def relabel(self, labels: tuple[tuple[str, str], ...]) -> None:
        """Its node has these labels now: its domain was split, say."""
        self.kind = msgspec.structs.replace(self.kind, traits=msgspec.structs.replace(self.kind.traits, labels=labels))

    def set_apart(self, pool_serves: str) -> None:
        """Its pool serves this workspace now, "" for any; a node whose token is good for less is of its own kind."""
        serves = "" if self.serves == pool_serves else self.serves
        if self.kind.traits.serves != serves:
            traits = msgspec.structs.replace(self.kind.traits, serves=serves)
            self.kind = msgspec.structs.replace(self.kind, traits=traits)

    def _count_cards(self) -> None:
        """Nobody but the driver knows which cards are lost: idle ones are taken for them, with the highest numbers."""
        in_use = [0] * len(self.free_cards)
        for use in self.uses.values():
            for card in use.cards:
                in_use[card] += use.card_milli
        surplus = len(self.free_cards) - self.kind.capacity.gpu_count
        idle = [card for card, milli in enumerate(in_use) if not milli]
        busy = [card for card, milli in enumerate(in_use) if milli]
        self.lost_cards = sorted((idle[::-1] + busy[::-1])[: max(0, surplus)])
        self.free_cards = [
            0 if card in self.lost_cards else max(0, CARD_MILLI - milli) for card, milli in enumerate(in_use)
        ]

    def _count_free(self) -> None:
        self.cpu_milli = max(0, self.kind.capacity.cpu_milli - self.used_cpu_milli)
        self.memory_mib = max(0, self.kind.capacity.memory_mib - self.used_memory_mib)

    @property
    def free(self) -> Amount:
        """All that is free."""
        return Amount(self.cpu_milli, self.memory_mib, sum(self.free_cards))

    @property
    def used(self) -> Amount:
        """All that containers hold, or are promised."""
        cards = sum(use.card_milli * len(use.cards) for use in self.uses.values())
        return Amount(self.used_cpu_milli, self.used_memory_mib, cards)


def _pick(free_cards: list[int], shape: Shape) -> tuple[int, ...]:
    milli = shape.gpu_milli
    able = [(free, card) for card, free in enumerate(free_cards) if free >= milli]
    return tuple(sorted(card for _, card in sorted(able)[: shape.gpu_count]))


def new_node(
    node_id: str,
    pool: str,
    capacity: Capacity,
    traits: Traits = _NO_TRAITS,
    standing: Standing = Standing.OPEN,
    why_closed: str = "",
) -> Node:
    """An empty node."""
    kind = NodeKind(pool=pool, capacity=capacity, traits=msgspec.structs.replace(traits, node=""))
    return Node(
        node_id=node_id,
        kind=kind,
        name=traits.node or node_id,
        standing=standing,
        why_closed=why_closed,
        serves=traits.serves,
        cpu_milli=capacity.cpu_milli,
        memory_mib=capacity.memory_mib,
        free_cards=[CARD_MILLI] * capacity.gpu_count,
    )
