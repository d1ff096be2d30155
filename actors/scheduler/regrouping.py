"""New nodes for members that a gang has lost, near those that stayed."""

from __future__ import annotations

import msgspec

from ...model.gangs import Together, TopologyMode
from .domains import ROOT, Domains
from .fits import Part, Path


class Regrouping:
    """One gang: the node of each rank, "" for those that have none. Without slices, each member is a slice of its own.

    `lost` are the ranks that get nodes anew. In slices, others without a node are counted as if they did, too.

    What is found is counted out while more is looked for, and counted in again at the end: nothing is taken here.
    """

    def __init__(self, domains: Domains, together: Together, nodes: tuple[str, ...], lost: tuple[int, ...]) -> None:
        self._domains = domains
        self._mode = together.mode
        self._depth = domains.tree.depth(together.level) if together.level else domains.tree.node_depth
        self._nodes = nodes
        self._lost = lost
        self._stayed = [domains.tree.paths[node] for node in nodes if node in domains.tree.paths]

    @property
    def common(self) -> Path:
        """The finest domain in which all that stayed are."""
        path = self._stayed[0][:-1] if self._stayed else ROOT
        while any(stayed[: len(path)] != path for stayed in self._stayed):
            path = path[:-1]
        return path

    @property
    def known(self) -> bool:
        """Whether it is known where all that stayed are, and they still are as near as they must be."""
        if len(self._stayed) + self._nodes.count("") < len(self._nodes):
            return self._mode is not TopologyMode.REQUIRED and self._domains.unit == 1
        return self._mode is not TopologyMode.REQUIRED or len(self._shared()) >= self._depth

    def _shared(self) -> Path:
        """As `common`, down to the node itself."""
        first = self._stayed[0] if self._stayed else ROOT
        return first if all(path == first for path in self._stayed) else self.common

    @property
    def base(self) -> Path:
        """The domain in which the lost ones must be."""
        return self._shared()[: self._depth] if self._mode is TopologyMode.REQUIRED else ROOT

    @property
    def fits(self) -> int:
        """How many of the lost ones would fit where they must be, slices aside."""
        return self._domains.fit(self.base) * self._domains.unit if self.known else 0

    def find(self) -> tuple[str, ...] | None:
        """A node for each lost rank, or None."""
        if not self.known:
            return None
        whole, torn = self._slices()
        found: dict[int, str] = {}
        held: list[Part] = []
        try:
            for domain, ranks in torn.items():
                if self._domains.members(domain) < len(ranks):
                    return None
                self._put(self._domains.seats(domain, len(ranks)), ranks, found, held)
            seats = self._near(len(whole))
            if seats is None:
                return None
            self._put(sorted(seats), whole, found, held)
        finally:
            self._hold(held, -1)
        return tuple(found[rank] for rank in self._lost)

    def _slices(self) -> tuple[list[int], dict[Path, list[int]]]:
        """Lost ranks of slices that are lost altogether; and of torn ones, by the domain of what is left of each."""
        unit, depth = self._domains.unit, self._domains.unit_depth
        if unit == 1:
            return [*self._lost], {}
        whole: list[int] = []
        torn: dict[Path, list[int]] = {}
        for first in range(0, len(self._nodes), unit):
            ranks = range(first, first + unit)
            left = [self._nodes[rank] for rank in ranks if self._nodes[rank]]
            lost = [rank for rank in ranks if not self._nodes[rank]]
            if left:
                torn.setdefault(self._domains.tree.paths.get(left[0], ROOT)[:depth], []).extend(lost)
            else:
                whole += lost
        return whole, {domain: ranks for domain, ranks in torn.items() if ranks}

    def _near(self, members: int) -> list[Part] | None:
        """Nodes for whole slices: in the base, or as near to the others as there is room."""
        units = members // self._domains.unit
        lowest = len(self.base)
        start = self._shared()[: self._depth] if self._mode is not TopologyMode.NONE else ROOT
        for depth in range(min(len(start), self._domains.unit_depth), lowest - 1, -1):
            if self._domains.fit(start[:depth]) >= units:
                return self._domains.seats(start[:depth], members, self._mode is TopologyMode.NONE)
        return None

    def _put(self, seats: list[Part], ranks: list[int], found: dict[int, str], held: list[Part]) -> None:
        nodes = [path[-1] for path, count in seats for _ in range(count)]
        found.update(zip(ranks, nodes))
        self._hold(seats, 1)
        held += seats

    def _hold(self, seats: list[Part], sign: int) -> None:
        """Count seats out, or in again with a sign of -1."""
        for path, count in seats:
            leaf = self._domains.leaf(path[-1], path)
            self._domains.put(path[-1], msgspec.structs.replace(leaf, members=leaf.members - sign * count))
