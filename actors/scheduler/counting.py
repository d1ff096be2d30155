"""Which nodes have changed since somebody counted, so that only those are counted again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...model.resources import CARD_MILLI, Shape
from .capacity import Node, NodeKind, Standing
from .domains import NO_LEAF, Domains, Leaf, Tree

CHANGES_KEPT: Final = 65_536  # whoever is further behind counts everything again, which is about as much work
NOWHERE: Final[frozenset[str]] = frozenset()
EVERYWHERE: Final = frozenset(Standing)
_RANKS: Final = {Standing.OPEN: 2, Standing.COMING: 1, Standing.OFFERED: 0, Standing.CLOSED: 0}

Count = Callable[[Node], int]


class Changes:
    """The nodes that changed, in order, numbered."""

    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._first = 0

    @property
    def next(self) -> int:
        """The number of the next change."""
        return self._first + len(self._nodes)

    def note(self, node_id: str) -> None:
        """A node appeared, changed or has gone."""
        self._nodes.append(node_id)
        if len(self._nodes) > CHANGES_KEPT:
            self._first += CHANGES_KEPT // 2
            del self._nodes[: CHANGES_KEPT // 2]

    def since(self, number: int) -> Iterable[str] | None:
        """The nodes that changed from this one on, each once; None where that is not known any more."""
        if number < self._first:
            return None
        return dict.fromkeys(self._nodes[number - self._first :])


class Counted:
    """Domains with counts as of some change, of nodes with some standings."""

    def __init__(self, tree: Tree, unit: tuple[int, int], count: Count, standings: frozenset[Standing]) -> None:
        self._tree = tree
        self._unit = unit
        self._domains = Domains(tree, *unit)
        self._count = count
        self._standings = standings
        self._without = NOWHERE
        self._counted_to = -1

    def catch_up(self, nodes: Mapping[str, Node], changes: Changes, without: frozenset[str]) -> Domains:
        """Count again what has changed; nodes in `without` count for nothing."""
        touched = changes.since(self._counted_to)
        self._counted_to = changes.next
        others = () if without is self._without or without == self._without else sorted(without ^ self._without)
        self._without = without
        if touched is None:
            self._domains = Domains(self._tree, *self._unit)
            self._domains.fill(leaf for node in nodes.values() if (leaf := self._leaf(node)).members)
            return self._domains
        for node_id in (*touched, *others):
            self._recount(node_id, nodes.get(node_id))
        return self._domains

    def _recount(self, node_id: str, node: Node | None) -> None:
        self._domains.put(node_id, NO_LEAF if node is None else self._leaf(node))

    def _leaf(self, node: Node) -> Leaf:
        path = self._tree.paths.get(node.node_id)
        if path is None or node.standing not in self._standings or node.node_id in self._without:
            return NO_LEAF
        members = self._count(node)
        return Leaf(path, _RANKS[node.standing], members) if members else NO_LEAF


def room_when_empty(kind: NodeKind, shape: Shape) -> int:
    """How many containers of this shape an empty node of this kind takes."""
    capacity = kind.capacity
    if not kind.allows(shape):
        return 0
    most = min(capacity.cpu_milli // max(1, shape.cpu_milli), capacity.memory_mib // max(1, shape.memory_mib))
    if not shape.gpu_count:
        return most
    return min(most, capacity.gpu_count * (CARD_MILLI // shape.gpu_milli) // shape.gpu_count)
