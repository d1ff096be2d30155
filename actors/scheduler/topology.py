"""Where the members of a gang go together: in one domain of a topology, near each other, or anywhere.

A topology orders node labels from coarse to fine, and nodes are below the last one. A gang may require one domain of a
level; or prefer it, and take a coarser one or several where none has room; or not care. Two passes: the members that
fit are summed from nodes to domains, then domains are chosen from above down to nodes, by best fit for those who care
and by least free capacity for those who do not. Both are described in `fits`.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from ...model.gangs import Together, TopologyMode
from ...model.reasons import Excluded, HoldKind, Lack, Reason
from ...model.resources import Shape
from .capacity import Standing
from .counting import NOWHERE
from .domains import ROOT, Domains, Tree
from .fits import Part
from .gangs import of_one_type
from .regrouping import Regrouping
from .shortage import EXCLUDED_MAX, alone, excluded, helpful, lack, reason_for
from .survey import Survey, is_implied

CLOSED_LOOKED_AT: Final = 512  # for a reason
ELSEWHERE: Final = "in another one"  # where a reason has told of one domain


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The node of each rank. Ranks next to each other are near each other."""

    nodes: tuple[str, ...]
    topology: str = ""  # in which it was looked for; "" where nearness was not asked for


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with how many members each; `steps` is how many levels above the one that was asked for."""

    seats: tuple[Part, ...]
    steps: int = 0


def find(domains: Domains, members: int, together: Together) -> Found | None:
    """Nodes for all members, or None."""
    units, unit = members // domains.unit, domains.unit
    if domains.fit(ROOT) < units:
        return None
    if together.mode is TopologyMode.NONE:
        parts = domains.at(domains.unit_depth).smallest_first(units)
        return Found(seats=tuple(seat for path, count in parts for seat in domains.seats(path, count * unit, True)))
    asked = domains.tree.depth(together.level)
    lowest = asked if together.mode is TopologyMode.REQUIRED else 0
    for depth in range(asked, lowest - 1, -1):
        path = domains.at(depth).tightest(units)
        if path is not None:
            return Found(seats=tuple(domains.seats(path, members)), steps=asked - depth)
    return None


class Topologies(Survey):
    """Answers about gangs. They depend on the nodes of now alone."""

    def assign(
        self,
        members: int,
        shape: Shape,
        together: Together,
        standings: frozenset[Standing],
        without: frozenset[str] = NOWHERE,
        explained: bool = True,
    ) -> Assignment | Reason:
        """Nodes with these standings for all members, or why there are none; those in `without` are kept for others.

        Not `explained`, a reason says only how many would fit.
        """
        reasons: list[Reason] = []
        for narrowed in of_one_type(shape):
            answer = self._assign(members, narrowed, together, standings, without)
            if answer is not None:
                return answer
            reasons.append(self._why_not(members, narrowed, together, standings, without, explained))
        return max(reasons, key=lambda reason: reason.fits)

    def _assign(
        self, members: int, shape: Shape, together: Together, standings: frozenset[Standing], without: frozenset[str]
    ) -> Assignment | None:
        best: Found | None = None
        name = ""
        for tree in self.asked(together):
            found = find(self.counts(tree, shape, together, standings, without), members, together)
            if found is not None and (best is None or found.steps < best.steps):
                best, name = found, tree.name
            if best is not None and not best.steps:
                break
        if best is None:
            return None
        return Assignment(nodes=self._by_rank(self.trees[name], best.seats), topology=name)

    def replace(
        self,
        nodes: tuple[str, ...],
        shape: Shape,
        together: Together,
        standings: frozenset[Standing],
        without: frozenset[str] = NOWHERE,
        ranks: tuple[int, ...] = (),
    ) -> tuple[str, ...] | Reason:
        """Nodes for lost members of a gang, all or none: for these `ranks`, or for all that have "" in `nodes`.

        The others stay. A required domain is theirs, and so is the domain of a slice that has others left.
        """
        lost = ranks or tuple(rank for rank, node_id in enumerate(nodes) if not node_id)
        if not any(nodes):
            slices = together.slice_size > 1
            answer = self.assign(len(nodes) if slices else len(lost), shape, together, standings, without)
            if isinstance(answer, Reason):
                return answer
            return tuple(answer.nodes[rank] for rank in lost) if slices else answer.nodes
        shape = self._of_their_type(shape, nodes)
        fits = 0
        for tree in self.asked(together):
            regrouping = Regrouping(self.counts(tree, shape, together, standings, without), together, nodes, lost)
            found = regrouping.find()
            if found is not None:
                return found
            fits = max(fits, regrouping.fits)
        reason = self._why_not(len(lost), shape, together, standings, without)
        return msgspec.structs.replace(reason, fits=min(fits, len(lost) - 1), excluded=(), lacks=())

    def _of_their_type(self, shape: Shape, nodes: tuple[str, ...]) -> Shape:
        """The shape with the card type of those that stayed."""
        known = [self.nodes[node_id].kind.capacity.gpu_type for node_id in nodes if node_id in self.nodes]
        of_type = of_one_type(shape)
        return next((one for one in of_type if known and one.takes_type(known[0])), of_type[0])

    def as_many(
        self, members: int, shape: Shape, standings: frozenset[Standing], without: frozenset[str] = NOWHERE
    ) -> tuple[str, ...]:
        """Nodes for as many of the members as have room anywhere, on few nodes."""
        flat = self.trees[""]
        row = self.counts(flat, shape, Together(), standings, without).at(flat.node_depth)
        return self._by_rank(flat, tuple(row.largest_first(members)))

    def count(self, shape: Shape, standings: frozenset[Standing], without: frozenset[str] = NOWHERE) -> int:
        """How many containers of a shape have room."""
        return self.counts(self.trees[""], shape, Together(), standings, without).fit(ROOT)

    # Reasons

    def _no_such_level(self, members: int, together: Together) -> Reason:
        where = f"topology {together.topology}" if together.topology else "any topology"
        detail = f"No node of {where} has the level {together.level!r}; there are {', '.join(self.levels())}."
        return Reason(
            kind=HoldKind.TOPOLOGY, topology=together.topology, level=together.level, wanted=members, detail=detail
        )

    def _why_not(
        self,
        members: int,
        shape: Shape,
        together: Together,
        standings: frozenset[Standing],
        without: frozenset[str],
        explained: bool = True,
    ) -> Reason:
        trees = self.asked(together)
        if not trees:
            return self._no_such_level(members, together)
        counts = [self.counts(tree, shape, together, standings, without) for tree in trees]
        reason = reason_for(counts, members, together)
        tree = self.trees[reason.topology]
        if is_implied(tree):  # its name is the level's, which is told anyway
            reason = msgspec.structs.replace(reason, topology="")
        if not explained:
            return reason
        excluded = self._excluded(tree, members, shape, together, standings, without)
        if reason.kind is HoldKind.TOPOLOGY:
            excluded = excluded or self._apart(
                self.counts(tree, shape, together, standings, without), members, together
            )
            if excluded:
                return msgspec.structs.replace(reason, excluded=excluded)
        lacks = self._lacks(tree, members, reason.fits, shape, standings, without)
        return msgspec.structs.replace(reason, excluded=excluded, lacks=lacks)

    def _excluded(
        self,
        tree: Tree,
        members: int,
        shape: Shape,
        together: Together,
        standings: frozenset[Standing],
        without: frozenset[str],
    ) -> tuple[Excluded, ...]:
        """Nodes that would make it fit, but are closed or kept for others."""
        unavailable = [*islice(self.closed, CLOSED_LOOKED_AT), *sorted(without - self.closed.keys())]
        if not unavailable:
            return ()
        with_all = self.counts(tree, shape, together, standings | {Standing.CLOSED}, NOWHERE)
        open_now = self.counts(tree, shape, together, standings, without)
        depth = tree.depth(together.level) if together.mode is TopologyMode.REQUIRED else 0
        return excluded(helpful(open_now, with_all, depth, members // open_now.unit, unavailable), self.nodes)

    def _apart(self, counts: Domains, members: int, together: Together) -> tuple[Excluded, ...]:
        """The few nodes that are in other domains than most, where all members would fit if they were in one."""
        tree, units = counts.tree, members // counts.unit
        if together.mode is not TopologyMode.REQUIRED or counts.fit(ROOT) < units or len(tree.paths) > CLOSED_LOOKED_AT:
            return ()
        depth = tree.depth(together.level)
        best = counts.at(depth).tightest(counts.at(depth).most)
        others = [node for node, path in tree.paths.items() if path[:depth] != best and counts.leaf(node).members]
        if len(others) > EXCLUDED_MAX:
            return ()
        nodes = sorted((self.nodes[node_id] for node_id in others), key=lambda node: (node.name, node.node_id))
        return tuple(Excluded(node.name, ELSEWHERE, pool=node.kind.pool) for node in nodes)

    def _lacks(
        self,
        tree: Tree,
        members: int,
        fits: int,
        shape: Shape,
        standings: frozenset[Standing],
        without: frozenset[str],
    ) -> tuple[Lack, ...]:
        """The first resource that is too little for all members; the first of all where none is, but all are apart."""
        shapes = alone(shape)
        for resource, other in shapes.items():
            if self.counts(tree, other, Together(), standings, without).fit(ROOT) < members:
                return (lack(resource, shape, members - fits),)
        return (lack(next(iter(shapes)), shape, members - fits),)

    def _by_rank(self, tree: Tree, seats: tuple[Part, ...]) -> tuple[str, ...]:
        """Nodes in order of their domains, then of their names, each as often as members go there."""
        place = {path: path[:-1] if tree.levels else self.place(path[-1]) for path, _ in seats}
        ordered = sorted(seats, key=lambda seat: (place[seat[0]], self.nodes[seat[0][-1]].name, seat[0][-1]))
        return tuple(path[-1] for path, count in ordered for _ in range(count))
