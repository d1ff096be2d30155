"""What every placement policy is to the scheduler: told of nodes and of demand, asked for a spot."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ....model.resources import Shape
from ..capacity import Node


class Spot(msgspec.Struct, frozen=True):
    """Where a container goes: a node, and the numbers of its cards there."""

    node_id: str
    cards: tuple[int, ...] = ()


class Placement(Protocol):
    """One policy over the open nodes of one pool. It decides from what it was told alone, and the same each time.

    A `Node` is read when it is put and not kept: the scheduler changes it, and puts it again after each change.
    """

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        ...

    def drop(self, node_id: str) -> None:
        """A node is open no more; unknown ones are ignored."""
        ...

    def saw(self, shape: Shape) -> None:
        """One container of this shape was asked for."""
        ...

    def choose(self, shape: Shape, without: frozenset[str] = frozenset()) -> Spot | None:
        """The spot for a container of this shape on a node not in `without`, or None where there is none.

        Earlier card types of the preference list go first, whatever the score, unless `gpu_any_order`.
        """
        ...

    def remember(self) -> bytes:
        """What it has seen of demand, for a policy that takes over; empty where it learns nothing."""
        ...

    def recall(self, memory: bytes) -> None:
        """Go on from what another one remembered; empty is nothing."""
        ...
