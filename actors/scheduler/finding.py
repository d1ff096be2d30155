"""Where a request could go: on open nodes now, or, for a gang, with workers that are starting or could be started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...model.gangs import TopologyMode
from ...model.reasons import HoldKind, Reason
from ...model.resources import Shape
from ...model.sentences import plural
from .capacity import Standing
from .events import Request
from .fleet import NOWHERE, Fleet, Pool, in_pool
from .live import Lacking, Live
from .topology import Assignment, Topologies
from .wants import PASSED_OVER

Fits = Sequence[tuple[str, Shape]]  # flavors that have quota, each with the shape narrowed to its nodes

_OPEN: Final = frozenset({Standing.OPEN})
_COMING: Final = frozenset({Standing.OPEN, Standing.COMING})
_OFFERED: Final = frozenset({Standing.OPEN, Standing.COMING, Standing.OFFERED})


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes for all members by rank; "" for those that need one of `workers` further workers of the pool."""

    flavor: str
    shape: Shape
    nodes: tuple[str, ...]
    cards: tuple[tuple[int, ...], ...] = ()  # where the placement policy has chosen them
    pool: str = ""
    workers: int = 0
    ready: bool = True  # all of it is open now

    def live(self, request: Request, now_s: float) -> Live:
        """The request with this room; its cards are chosen when it takes its seats."""
        return Live(
            request=request,
            flavor=self.flavor,
            shape=self.shape,
            nodes=list(self.nodes),
            cards=[()] * len(self.nodes),
            members=list(request.members),
            pool=self.pool,
            workers=self.workers,
            since_s=now_s,
        )


class Finder:
    """Looks, and changes nothing."""

    def __init__(self, fleet: Fleet, topologies: Topologies) -> None:
        self._fleet = fleet
        self._topologies = topologies

    def now(self, request: Request, fits: Fits, without: frozenset[str] = NOWHERE) -> Found | Reason | None:
        """Room on open nodes. A reason, with numbers alone, where a gang has none; None where a single one has."""
        if request.gang:
            return self._gang(request, fits, _OPEN, without)
        for flavor, shape in fits:
            spot = self._fleet.choose(request.workspace, shape, without)
            if spot is not None:
                return Found(flavor=flavor, shape=shape, nodes=(spot.node_id,), cards=(spot.cards,))
        return None

    def why(self, request: Request, fits: Fits, without: frozenset[str] = NOWHERE) -> Reason | None:
        """Why a gang has room neither now nor with all workers that could be started; None where it has."""
        found = self._gang(request, fits, _OFFERED, without, explained=True)
        return self._beyond(self._fleet.pools[found.pool], found) if isinstance(found, Found) else found

    def later(
        self, request: Request, fits: Fits, without: frozenset[str] = NOWHERE, gave_back: str = ""
    ) -> Found | None:
        """Room for a gang with workers that are on their way, else with some that a pool could start as well.

        None is promised to it in a pool that may not have so many: that would only keep others out of there.
        """
        coming = self._gang(request, fits, _COMING, without)
        if isinstance(coming, Found):
            return msgspec.structs.replace(coming, ready=False)
        for flavor, shape, pool in self._in_turn(request, fits, gave_back):
            found = self._with_offered(request, flavor, shape, pool, without)
            if found is not None and self._beyond(pool, found) is None:
                return found
        return None

    def _gang(
        self,
        request: Request,
        fits: Fits,
        standings: frozenset[Standing],
        without: frozenset[str],
        *,
        explained: bool = False,
    ) -> Found | Reason | None:
        """A gang stays within one pool."""
        why: Reason | None = None
        for flavor, shape in fits:
            for pool in self._fleet.eligible(request.workspace, shape.pool):
                narrowed = in_pool(shape, pool.name)
                asked = pool.asked(narrowed, request.workspace)
                answer = self._topologies.assign(
                    len(request.members), asked, request.together, standings, without, explained
                )
                if isinstance(answer, Assignment):
                    return Found(flavor=flavor, shape=narrowed, nodes=answer.nodes, pool=pool.name)
                if why is None or (answer.kind is HoldKind.TOPOLOGY and answer.fits > why.fits):
                    why = answer
        return why

    def _in_turn(self, request: Request, fits: Fits, gave_back: str) -> list[tuple[str, Shape, Pool]]:
        """In order, but pools that can't start workers now, for anybody or for this gang, come last.

        Before these comes the one to which it `gave_back` the last ones.
        """
        pools = [
            (flavor, in_pool(shape, pool.name), pool)
            for flavor, shape in fits
            for pool in self._fleet.eligible(request.workspace, shape.pool)
        ]
        return sorted(pools, key=lambda one: (_held(one[2], request), one[2].name == gave_back))

    def _with_offered(
        self, request: Request, flavor: str, shape: Shape, pool: Pool, without: frozenset[str]
    ) -> Found | None:
        """Room that there would be with further workers of a pool, on nodes of a name or on none."""
        found = self._gang(request, ((flavor, shape),), _OFFERED, without)
        if isinstance(found, Found):
            return msgspec.structs.replace(found, ready=False)
        return self._with_more(request, flavor, shape, pool, without)

    def _beyond(self, pool: Pool, found: Found) -> Reason | None:
        """Why a pool may not have so many workers more; None where it may, or nobody knows how many it may have.

        One that may have a worker on each of its nodes has no other limit: it alone knows of those on nodes that left.
        """
        named = [self._fleet.nodes[node_id] for node_id in dict.fromkeys(found.nodes) if node_id]
        more = found.workers + sum(node.standing is Standing.OFFERED for node in named)
        left = max(0, pool.max_workers - pool.workers)
        if not pool.max_workers or 0 < len(pool.offers) <= pool.max_workers or more <= left:
            return None
        detail = f"a gang lacks {more} {plural('worker', more)}, and it may have {left} more."
        return Reason(kind=HoldKind.MAXIMUM, pool=pool.name, wanted=more, detail=detail)

    def _with_more(
        self, request: Request, flavor: str, shape: Shape, pool: Pool, without: frozenset[str]
    ) -> Found | None:
        """Room on what there is, and on so many further workers of a pool whose workers have no named nodes."""
        if pool.size is None or not self._near_enough(request, pool):
            return None
        asked = pool.asked(shape, request.workspace)
        nodes = [*self._topologies.as_many(len(request.members), asked, _COMING, without)]
        each = pool.room_of_one_more(shape, request.workspace)
        missing = len(request.members) - len(nodes)
        if not each:
            return None
        workers = -(-missing // each)
        if pool.max_workers and len(pool.nodes) + workers > pool.max_workers:
            return None
        nodes += [""] * missing
        return Found(flavor=flavor, shape=shape, nodes=tuple(nodes), pool=pool.name, workers=workers, ready=False)

    @staticmethod
    def _near_enough(request: Request, pool: Pool) -> bool:
        """Workers without a node of their own are near each other only if the whole pool carries the label."""
        together = request.together
        return together.mode is not TopologyMode.REQUIRED or bool(pool.traits.label(together.level))

    def near(
        self, live: Live, ranks: tuple[int, ...], standings: frozenset[Standing] = _OPEN
    ) -> tuple[str, ...] | Reason:
        """Open nodes for all lost members, near the others as their gang asked for it; or why there are none."""
        together, nodes = live.request.together, tuple(live.nodes)
        shape = self._fleet.asked(live.request.workspace, live.shape)
        if shape is None:
            return Reason(kind=HoldKind.NO_POOL)
        return self._topologies.replace(nodes, shape, together, standings, NOWHERE, ranks)

    def lacking(self, live: Live, ranks: tuple[int, ...], why: Reason) -> Lacking:
        """What would give lost members room for which no node is open: first workers that are on their way."""
        shape = live.shape
        lacking = Lacking(request=live.request, shape=shape, why=why)
        coming = self.near(live, ranks, _COMING)
        if not isinstance(coming, Reason):
            starting = Reason(kind=HoldKind.STARTING, pool=shape.pool)
            return msgspec.structs.replace(lacking, why=starting)
        offered = self.near(live, ranks, _OFFERED)
        if not isinstance(offered, Reason):
            return msgspec.structs.replace(lacking, nodes=offered)
        pool = self._fleet.pools.get(shape.pool)
        able = pool is not None and self._starts(live, pool)
        return msgspec.structs.replace(lacking, count=len(ranks) if able else 0)

    def _starts(self, live: Live, pool: Pool) -> bool:
        """Whether further workers of a pool would do, of which it has any number that are alike."""
        serves = pool.serves in ("", live.request.workspace)
        return pool.size is not None and serves and self._near_enough(live.request, pool)


def _held(pool: Pool, request: Request) -> bool:
    """Whether it starts no workers now, for anybody or for this gang."""
    holds = (pool.holds.get(""), pool.holds.get(request.request_id))
    return any(hold is not None and hold.kind in PASSED_OVER for hold in holds)
