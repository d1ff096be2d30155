"""What pools are asked for: room that no worker has, running or on its way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...model.reasons import HoldKind
from ...model.resources import Shape
from .capacity import Node
from .events import GangWanted, Request, RoomWanted
from .fleet import Fleet, Pool, offered_names
from .gangs import copy_of
from .live import Lacking, Live

WANTED_MAX: Final = 256  # of one pool at a time: more would not change what it orders now
PASSED_OVER: Final = frozenset({HoldKind.MAXIMUM, HoldKind.BACK_OFF})  # then the next pool is asked


class Waiting(msgspec.Struct, frozen=True):
    """Equal requests without room: one of them, the shapes that its flavors allow, and how many there are."""

    request: Request
    shapes: tuple[Shape, ...]
    count: int
    apart: bool = False  # members of a gang that go one by one: it has lost them


class Wants:
    """Says to each pool what it lacks, whenever that changes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._told: dict[str, tuple[RoomWanted, int]] = {}  # and how many workers each pool had ordered by then
        self._able: dict[tuple[str, Shape], bool] = {}

    def forget_told(self) -> None:
        """All is told again: a wish may have got lost, because its pool was just starting."""
        self._told.clear()

    def tell(
        self, waiting: Iterable[Waiting], promises: Iterable[Live], lacking: Iterable[Lacking] = ()
    ) -> tuple[list[RoomWanted], set[str]]:
        """Wishes that have changed, and the groups for which workers are on their way already."""
        if not any(pool.orders for pool in self._fleet.pools.values()):
            return [], set()
        self._able.clear()
        coming = _Coming(self._fleet)
        single: dict[str, dict[Shape, int]] = {}
        starting: set[str] = set()
        for one in waiting:
            missing = one.count - coming.count_on(one)
            if not missing:
                starting.add(one.request.group)
            elif one.request.gang and not one.apart:
                continue  # it is wanted as a whole once it is promised, or not at all
            else:
                self._add(single, one, missing)
        gangs = _gangs(promises, lacking)
        changed = []
        for pool in self._fleet.pools.values():
            shapes = tuple(single.get(pool.name, {}).items())
            wish = RoomWanted(pool=pool.name, shapes=shapes, gangs=tuple(gangs.get(pool.name, ())))
            if pool.orders and self._is_news(pool, wish):
                self._told[pool.name] = wish, pool.ordered
                changed.append(wish)
        return changed, starting

    def _is_news(self, pool: Pool, wish: RoomWanted) -> bool:
        """What a pool has ordered for is fulfilled: the same wish, made after that, is for as much again."""
        nothing = RoomWanted(pool=pool.name)
        told, ordered = self._told.get(pool.name, (nothing, pool.ordered))
        return wish != told or (wish != nothing and ordered != pool.ordered)

    def _add(self, lacking: dict[str, dict[Shape, int]], one: Waiting, missing: int) -> None:
        pool, shape = self._whom_to_ask(one)
        if pool is None or shape is None:
            return
        wanted = lacking.setdefault(pool.name, {})
        left = WANTED_MAX - sum(wanted.values())
        if left > 0:
            wanted[shape] = wanted.get(shape, 0) + min(missing, left)

    def _whom_to_ask(self, one: Waiting) -> tuple[Pool | None, Shape | None]:
        """The first pool that could start a worker for it, but for those that can't now while others could."""
        able = [
            (pool, shape)
            for shape in one.shapes
            for pool in self._fleet.eligible(one.request.workspace, shape.pool)
            if pool.orders and self._could_start(pool, shape, one.request.workspace)
        ]
        open_now = [(pool, shape) for pool, shape in able if not pool.full]
        for pool, shape in open_now:
            hold = pool.holds.get("")
            if hold is None or hold.kind not in PASSED_OVER:
                return pool, shape
        return next(iter(open_now or able), (None, None))  # what is held may be work of another shape

    def _could_start(self, pool: Pool, shape: Shape, workspace: str) -> bool:
        """Asked once for all that ask for the same."""
        asked = pool.name, pool.asked(shape, workspace)
        able = self._able.get(asked)
        if able is None:
            able = self._able[asked] = pool.could_start(shape, workspace)
        return able


class _Coming:
    """Room on workers that are on their way, which is counted down as those who wait are given it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        coming = sorted(fleet.coming.values(), key=lambda node: node.node_id)  # a replay knows no other order
        self._nodes = [copy_of(node) for node in coming]  # it must not be taken from the real ones
        self._from: dict[tuple[str, tuple[Shape, ...]], int] = {}  # the nodes before have no room for such

    def count_on(self, one: Waiting) -> int:
        """How many of these have room there."""
        key = one.request.workspace, one.shapes
        counted, at = 0, self._from.get(key, 0)
        while counted < one.count and at < len(self._nodes):
            node = self._nodes[at]
            shape = self._fitting(node, one)
            if shape is None:
                at += 1
            else:
                node.take(f"{one.request.request_id}/{counted}", shape, node.pick_cards(shape))
                counted += 1
        self._from[key] = at
        return counted

    def _fitting(self, node: Node, one: Waiting) -> Shape | None:
        pool, workspace = self._fleet.pools[node.kind.pool], one.request.workspace
        if pool.serves not in ("", workspace):
            return None
        asked = (pool.asked(shape, workspace) for shape in one.shapes)
        return next((shape for shape in asked if node.fits(shape)), None)


def _gangs(promises: Iterable[Live], lacking: Iterable[Lacking]) -> dict[str, list[GangWanted]]:
    gangs: dict[str, list[GangWanted]] = {}
    for live in promises:
        nodes = offered_names(live.nodes)
        if nodes or live.workers:
            wanted = GangWanted(live.request.request_id, nodes, live.workers)
            gangs.setdefault(live.pool, []).append(wanted)
    for one in lacking:
        names = offered_names(one.nodes)
        if names:
            gangs.setdefault(one.shape.pool, []).append(GangWanted(one.request.request_id, names))
    return gangs
