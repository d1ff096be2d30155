"""All nodes in the domains of all topologies, and how many of a shape fit there: counted once, then node by node."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.gangs import NODE_LEVEL, Together, TopologyMode
from ...model.queues import Flavor, Topology
from ...model.resources import Shape
from .capacity import Node, NodeKind, Standing
from .counting import EVERYWHERE, NOWHERE, Changes, Count, Counted, room_when_empty
from .domains import ROOT, Domains, Tree
from .fits import Path

COUNTED_MAX: Final = 64  # kinds of questions whose counts are kept; one of 5,000 nodes takes about 1 MiB
IMPLIED_MAX: Final = 16  # topologies of one label that nobody declared
FEW: Final = 16  # so many left-out nodes are counted out and in again with each question
_FLAT: Final = Topology(name="", levels=())
_IMPLIED: Final = "label "  # no declared topology has a name with a space


class Question(msgspec.Struct, frozen=True):
    """What counts are kept for."""

    topology: str
    shape: Shape
    standings: frozenset[Standing]
    unit_depth: int
    unit: int
    without: frozenset[str] = NOWHERE
    empty: bool = False


def flavor_of(node: Node, flavors: tuple[Flavor, ...]) -> Flavor | None:
    """The flavor that owns a node: the first that matches it, so that no node is counted in two."""
    for flavor in flavors:
        if (
            flavor.pool in ("", node.kind.pool)
            and flavor.gpu_type in ("", node.kind.capacity.gpu_type)
            and all(node.kind.traits.label(key) == value for key, value in flavor.labels.items())
        ):
            return flavor
    return None


def unit_of(tree: Tree, together: Together) -> tuple[int, int]:
    """The depth of the domains in which slices stay, and the size of slices."""
    if together.slice_size <= 1:
        return tree.node_depth, 1
    return tree.depth(together.level), together.slice_size


def is_implied(tree: Tree) -> bool:
    """Whether nobody declared this topology: it is a label that nodes have."""
    return tree.name.startswith(_IMPLIED)


class Survey:
    """Told of each change of a node; nodes are read when somebody asks."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.closed: dict[str, None] = {}
        self._kinds: dict[str, NodeKind] = {}  # with which each node was put into the trees
        self._flavors: tuple[Flavor, ...] = ()
        self.trees: dict[str, Tree] = {"": Tree(_FLAT)}
        self._declared: tuple[Tree, ...] = ()
        self._changes = Changes()
        self._counted: dict[Question, Counted] = {}

    def configure(self, topologies: tuple[Topology, ...], flavors: tuple[Flavor, ...]) -> None:
        """Other topologies, or flavors; nodes stay known."""
        self._flavors = flavors
        self.trees = {topology.name: Tree(topology) for topology in (_FLAT, *topologies)}
        self._declared = tuple(tree for tree in self.trees.values() if tree.name)
        self._counted.clear()
        for node in self.nodes.values():
            self._seat(node)

    def put(self, node: Node) -> None:
        """A node appeared, or changed in any way."""
        known = self.nodes.get(node.node_id)
        self.nodes[node.node_id] = node
        if node.standing is Standing.CLOSED:
            self.closed[node.node_id] = None
        else:
            self.closed.pop(node.node_id, None)
        if known is not node or self._kinds.get(node.node_id) is not node.kind:
            self._seat(node)
        self._changes.note(node.node_id)

    def _seat(self, node: Node) -> None:
        """A flavor that hangs together by one topology keeps its nodes out of the others."""
        self._kinds[node.node_id] = node.kind
        flavor = flavor_of(node, self._flavors)
        own = "" if flavor is None else flavor.topology
        for tree in self.trees.values():
            tree.put(node, not own or tree.name in ("", own))

    def drop(self, node_id: str) -> None:
        """A node is no more."""
        if self.nodes.pop(node_id, None) is None:
            return
        self.closed.pop(node_id, None)
        self._kinds.pop(node_id, None)
        for tree in self.trees.values():
            tree.drop(node_id)
        self._changes.note(node_id)

    def levels(self) -> tuple[str, ...]:
        """Every level that some node has, from coarse to fine within each topology."""
        names = [level for tree in self._declared if tree.paths for level in tree.levels]
        return (*dict.fromkeys(names), NODE_LEVEL)

    def place(self, node_id: str) -> Path:
        """The domain of a node in the first topology that has it."""
        paths = (tree.paths.get(node_id, ROOT)[:-1] for tree in self._declared)
        return next((path for path in paths if path), ROOT)

    # Questions

    def asked(self, together: Together) -> list[Tree]:
        """The topologies in which to look, in their order; the flat one, of all nodes, is the last resort."""
        mode, level = together.mode, together.level
        flat = self.trees[""]
        named = [self.trees[together.topology]] if together.topology in self.trees else []
        if together.topology:
            trees = named
        elif mode is TopologyMode.PREFERRED or (level and level != NODE_LEVEL):
            trees = [*self._declared, flat]
        else:
            trees = [flat]
        if level and level != NODE_LEVEL:
            if not together.topology and not any(level in tree.levels for tree in self._declared):
                return self._implied(level)
            return [tree for tree in trees if level in tree.levels and tree.paths]
        return [] if mode is not TopologyMode.NONE and not level else [tree for tree in trees if tree.paths]

    def _implied(self, level: str) -> list[Tree]:
        """A label that nodes have, and no topology, is a topology of its own."""
        name = f"{_IMPLIED}{level}"
        if name not in self.trees:
            if not any(node.kind.traits.label(level) for node in self.nodes.values()):
                return []
            self._make_room()
            self.trees[name] = Tree(Topology(name=name, levels=(level,)))
            for node in self.nodes.values():
                self._seat(node)
        tree = self.trees[name]
        return [tree] if tree.paths else []

    def _make_room(self) -> None:
        implied = [name for name in self.trees if name.startswith(_IMPLIED)]
        if len(implied) >= IMPLIED_MAX:
            del self.trees[implied[0]]
            self._counted = {asked: kept for asked, kept in self._counted.items() if asked.topology != implied[0]}

    def counts(
        self, tree: Tree, shape: Shape, together: Together, standings: frozenset[Standing], without: frozenset[str]
    ) -> Domains:
        """How many members have room now, in each domain of a topology."""
        kept = without if len(without) > FEW else NOWHERE
        depth, unit = unit_of(tree, together)
        question = Question(tree.name, shape, standings, depth, unit, kept)
        counted = self._counted_for(question, lambda node: node.count(shape))
        return counted.catch_up(self.nodes, self._changes, without)

    def when_empty(
        self, tree: Tree, shape: Shape, together: Together, standings: frozenset[Standing] = EVERYWHERE
    ) -> Domains:
        """How many members would have room if nothing else were there."""
        depth, unit = unit_of(tree, together)
        question = Question(tree.name, shape, standings, depth, unit, empty=True)
        counted = self._counted_for(question, lambda node: room_when_empty(node.kind, shape))
        return counted.catch_up(self.nodes, self._changes, NOWHERE)

    def _counted_for(self, question: Question, count: Count) -> Counted:
        """The counts that are kept for a question; those that nobody asked for longest make room."""
        counted = self._counted.pop(question, None)
        if counted is None:
            tree, unit = self.trees[question.topology], (question.unit_depth, question.unit)
            counted = Counted(tree, unit, count, question.standings)
            if len(self._counted) >= COUNTED_MAX:
                del self._counted[next(iter(self._counted))]
        self._counted[question] = counted
        return counted
