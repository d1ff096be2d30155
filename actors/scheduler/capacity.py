"""What is free where, card by card. One `Node` is a worker, running or on its way, or a node that could get one.

Room is taken and given back here alone: free + used + promised is always the total. A card that is lost while in use
stays in the total until its container has gone, so nothing is ever below zero.
"""

from __future__ import annotations

import enum

import msgspec

from ...model.nodes import Traits
from ...model.resources import CARD_MILLI, Capacity, Shape


class Standing(enum.StrEnum):
    """What may be done with a node's room."""

    OPEN = "open"  # containers are placed
    COMING = "coming"  # a worker was ordered and has not reported: its room is promised, not taken
    OFFERED = "offered"  # its pool could start a worker here
    CLOSED = "closed"  # silent, cordoned, draining: what runs there stays


class NodeKind(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes of one make have in common: whether a shape could ever be placed there depends on this alone."""

    pool: str
    capacity: Capacity
    traits: Traits  # of which `node` is ""

    def allows(self, shape: Shape) -> bool:
        """Whether an empty node of this kind would take a container of this shape."""
        return shape.pool in ("", self.pool) and self.traits.allows(shape) and self.capacity.fits(shape)


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What one container holds on a node; `cards` are numbers of cards, `card_milli` of each."""

    cpu_milli: int
    memory_mib: int
    cards: tuple[int, ...] = ()
    card_milli: int = CARD_MILLI


class Node(msgspec.Struct, kw_only=True):
    """A place for containers. `free_cards` holds what is left of each card, in thousandths, by card number."""

    node_id: str
    kind: NodeKind
    name: str = ""
    standing: Standing = Standing.OPEN
    why_closed: str = ""  # "cordoned", say
    cpu_milli: int  # free
    memory_mib: int  # free
    free_cards: list[int]
    uses: dict[str, Use] = msgspec.field(default_factory=dict)
