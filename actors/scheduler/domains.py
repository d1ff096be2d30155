"""How many members of one shape fit into each domain of a topology, kept up to date node by node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.queues import Topology
from .capacity import Node
from .fits import Entry, Fit, Fits, Part, Path

ROOT: Path = ()


class Tree:
    """The domains of one topology with their nodes. A node is in it if it has each of the labels."""

    def __init__(self, topology: Topology) -> None:
        self.name = topology.name
        self.levels = topology.levels
        self.paths: dict[str, Path] = {}  # by node
        self._below: dict[Path, dict[Path, None]] = {}

    @property
    def node_depth(self) -> int:
        """How long the path of a node is."""
        return len(self.levels) + 1

    def depth(self, level: str) -> int:
        """How long the paths of a level's domains are; below the last label, that of nodes."""
        return self.levels.index(level) + 1 if level in self.levels else self.node_depth

    def put(self, node: Node, wanted: bool = True) -> None:
        """Learn a node's place, or that its labels are others now."""
        values = tuple(node.kind.traits.label(level) for level in self.levels)
        path = (*values, node.node_id)
        if self.paths.get(node.node_id) == path and wanted:
            return
        self.drop(node.node_id)
        if wanted and all(values):
            self.paths[node.node_id] = path
            for depth in range(len(path), 0, -1):
                self._below.setdefault(path[: depth - 1], {})[path[:depth]] = None

    def drop(self, node_id: str) -> None:
        """Forget a node, and the domains that it was the last one of."""
        path = self.paths.pop(node_id, ROOT)
        for depth in range(len(path), 0, -1):
            siblings = self._below[path[: depth - 1]]
            del siblings[path[:depth]]
            if siblings:
                return
            del self._below[path[: depth - 1]]

    def __contains__(self, path: Path) -> bool:
        """Whether this domain has nodes."""
        return path in self._below

    def below(self, path: Path) -> Iterable[Path]:
        """The domains, or nodes, right below one."""
        return self._below.get(path, ())

    def nodes(self, path: Path) -> list[str]:
        """All nodes within a domain."""
        if len(path) == self.node_depth:
            return [path[-1]]
        return [node for lower in self.below(path) for node in self.nodes(lower)]


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """What a node counts for: its path, its rank among nodes, and how many members fit."""

    path: Path
    rank: int
    members: int


NO_LEAF = Leaf(ROOT, 0, 0)


class Domains:
    """Counts of one shape in one tree.

    With slices of `unit` members, domains at `unit_depth` count whole slices, those above them the sums of these, and
    those below count members. Without, `unit` is 1 and `unit_depth` that of nodes.
    """

    def __init__(self, tree: Tree, unit_depth: int, unit: int) -> None:
        self.tree = tree
        self.unit = unit
        self.unit_depth = unit_depth
        self._leaves: dict[str, Leaf] = {}
        self._sums: dict[Path, int] = {}  # members from `unit_depth` downwards, slices above
        self._at: dict[int, Fits] = {}  # by depth: all domains of it, once somebody asked
        self._below: dict[Path, Fits] = {}  # right below a domain, once somebody asked

    def leaf(self, node_id: str, path: Path = ROOT) -> Leaf:
        """What a node counts for now; with this path if for nothing."""
        return self._leaves.get(node_id) or Leaf(path, 0, 0)

    def fill(self, leaves: Iterable[Leaf]) -> None:
        """What all nodes count for, told at once where nothing is known yet."""
        self._leaves = {leaf.path[-1]: leaf for leaf in leaves}
        level = {leaf.path: leaf.members for leaf in self._leaves.values()}
        self._sums = dict(level)
        for depth in range(self.tree.node_depth, 0, -1):
            unit = self.unit if depth == self.unit_depth else 1
            above: dict[Path, int] = {}
            for path, count in level.items():
                above[path[:-1]] = above.get(path[:-1], 0) + count // unit
            level = {path: count for path, count in above.items() if count}
            self._sums.update(level)

    def put(self, node_id: str, leaf: Leaf) -> None:
        """What a node counts for from now on."""
        old = self._leaves.get(node_id, NO_LEAF)
        if old == leaf:
            return
        if old.members and leaf.members and old.path == leaf.path:
            self._add(old.path, old.rank, leaf.rank, leaf.members - old.members)
        else:
            self._add(old.path, old.rank, 0, -old.members)
            self._add(leaf.path, 0, leaf.rank, leaf.members)
        if leaf.members:
            self._leaves[node_id] = leaf
        else:
            self._leaves.pop(node_id, None)

    def _add(self, path: Path, old_rank: int, new_rank: int, members: int) -> None:
        """Count members of a node from there up to the root."""
        for depth in range(len(path), -1, -1):
            domain = path[:depth]
            old = self._sums.get(domain, 0)
            new = old + members
            if new:
                self._sums[domain] = new
            else:
                self._clear(domain)
            before, after = self._fit(depth, old_rank, old), self._fit(depth, new_rank, new)
            self._move(domain, before, after)
            if depth == self.unit_depth:
                members = after[1] - before[1]
            old_rank = new_rank = 0  # nodes alone have one
            if not members:
                return

    def _clear(self, domain: Path) -> None:
        """Nothing fits there; its row stays for the next time, unless it has gone."""
        self._sums.pop(domain, None)
        if domain not in self.tree:
            self._below.pop(domain, None)

    def _fit(self, depth: int, rank: int, value: int) -> Fit:
        if depth != self.unit_depth or self.unit == 1:
            return rank, value, 0
        return rank, value // self.unit, value % self.unit

    def _move(self, domain: Path, old: Fit, new: Fit) -> None:
        row = self._at.get(len(domain))
        if row is not None:
            row.move(domain, old, new)
        row = self._below.get(domain[:-1]) if domain else None
        if row is not None:
            row.move(domain, old, new)

    def members(self, path: Path) -> int:
        """How many members fit into a domain that is not above those of the slices."""
        return self._sums.get(path, 0)

    def fit(self, path: Path) -> int:
        """How many slices (from `unit_depth` upwards) or members fit into a domain."""
        return self._entry(path)[1]

    def _entry(self, path: Path) -> Entry:
        depth = len(path)
        rank = self.leaf(path[-1]).rank if depth == self.tree.node_depth else 0
        return (*self._fit(depth, rank, self._sums.get(path, 0)), path)

    def with_room(self, depth: int) -> list[Path]:
        """All domains of one depth into which any fit."""
        return [path for path in self._sums if len(path) == depth]

    def at(self, depth: int) -> Fits:
        """All domains of one depth."""
        row = self._at.get(depth)
        if row is None:
            row = self._at[depth] = Fits([self._entry(path) for path in self.with_room(depth)])
        return row

    def below(self, path: Path) -> Fits:
        """Domains, or nodes, right below one."""
        row = self._below.get(path)
        if row is None:
            row = self._below[path] = Fits([self._entry(lower) for lower in self.tree.below(path)])
        return row

    def seats(self, path: Path, wanted: int, smallest_first: bool = False) -> list[Part]:
        """Nodes for so many members within a domain that holds them, level by level."""
        depth = len(path)
        if depth == self.tree.node_depth:
            return [(path, wanted)]
        unit = self.unit if depth < self.unit_depth else 1
        row = self.below(path)
        parts = row.smallest_first(wanted // unit) if smallest_first else row.largest_first(wanted // unit)
        return [seat for lower, count in parts for seat in self.seats(lower, count * unit, smallest_first)]
