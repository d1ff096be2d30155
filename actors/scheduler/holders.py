"""Who holds what others wait for, counted as it changes: of many thousands that run few do from second to second."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from ...model.queues import DEFAULT
from ...model.reasons import Holder, HoldKind, Reason
from .board import Board
from .events import Request
from .live import Live

HOLDERS_TOLD: Final = 5
HOLDERS_EVERY_S: Final = 1.0
_OF_SOMEBODY: Final = frozenset({HoldKind.ROOM, HoldKind.QUOTA, HoldKind.TOPOLOGY, HoldKind.CONCURRENCY})


class _Kind(NamedTuple):
    """What it counts as that somebody has."""

    quota: str
    flavor: str
    pool: str
    gpu_type: str
    cards: bool
    serves: str  # whose work alone its node takes, where its pool takes others' as well


class _Part(NamedTuple):
    """What one request has; `frees_by_s` is 0 where nobody knows."""

    kind: _Kind
    workspace: str
    group: str
    label: str
    containers: int
    gpu_milli: int
    frees_by_s: float


class _Sum:
    """What several have together, and when the first of them gives something back."""

    __slots__ = ("containers", "gpu_milli", "parts", "times", "who")

    def __init__(self, who: str) -> None:
        self.who = who
        self.containers = 0
        self.gpu_milli = 0
        self.parts: dict[str, _Part] = {}
        self.times: list[tuple[float, str]] = []

    def put(self, request_id: str, part: _Part) -> None:
        """What this request has is so much."""
        self.take(request_id)
        self.parts[request_id] = part
        self.containers += part.containers
        self.gpu_milli += part.gpu_milli
        if part.frees_by_s:
            heappush(self.times, (part.frees_by_s, request_id))
            if len(self.times) > 2 * len(self.parts) + 32:
                self.times = [(each.frees_by_s, name) for name, each in self.parts.items() if each.frees_by_s]
                heapify(self.times)

    def take(self, request_id: str) -> None:
        """This request has nothing any more."""
        part = self.parts.pop(request_id, None)
        if part is not None:
            self.containers -= part.containers
            self.gpu_milli -= part.gpu_milli

    @property
    def frees_by_s(self) -> float:
        """When the first time limit ends; 0 where there is none."""
        while self.times:
            at_s, name = self.times[0]
            if name in self.parts and self.parts[name].frees_by_s == at_s:
                return at_s
            heappop(self.times)
        return 0.0

    def told(self, who: str) -> Holder:
        """For whoever asks."""
        return Holder(who, self.containers, self.gpu_milli, self.frees_by_s)


class Holders:
    """All that is held: kind by kind, and of each kind workspace by workspace and group by group."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._parts: dict[str, _Part] = {}
        self._spaces: dict[_Kind, dict[str, _Sum]] = {}
        self._groups: dict[str, dict[tuple[_Kind, str], _Sum]] = {}  # by workspace
        self._at_s = -HOLDERS_EVERY_S
        self._quotas: dict[tuple[str, str], str] = {}

    def forget(self) -> None:
        """Everything is counted anew."""
        self._parts.clear()
        self._spaces.clear()
        self._groups.clear()
        self._at_s = -HOLDERS_EVERY_S
        self._quotas = {(queue.workspace, queue.name): queue.quota for queue in self._board.queueing.queues}
        self._board.tenants.changed.update(dict.fromkeys(self._board.tenants.by_request))

    def of(self, request: Request, reason: Reason) -> tuple[Holder, ...]:
        """The largest holders of what is lacking, as of the last second; other workspaces' together, without a name."""
        if reason.kind not in _OF_SOMEBODY:
            return ()
        if self._board.now_s >= self._at_s + HOLDERS_EVERY_S:
            self._at_s = self._board.now_s
            self._catch_up()
        kinds = self._lacking(request, reason)
        found: dict[str, Holder] = {}
        for (kind, group), held in self._groups.get(request.workspace, {}).items():
            if kind in kinds:
                found[group] = _together(found.get(group), held.told(held.who))
        named = sorted(found.items(), key=lambda one: (-one[1].gpu_milli, -one[1].containers, one[1].who, one[0]))
        others = None if reason.kind is HoldKind.CONCURRENCY else self._of_others(request.workspace, kinds)
        return (*(holder for _, holder in named[:HOLDERS_TOLD]), *([] if others is None else [others]))

    def _of_others(self, workspace: str, kinds: dict[_Kind, None]) -> Holder | None:
        others: Holder | None = None
        for kind in kinds:
            for name, held in self._spaces[kind].items():
                if name != workspace:
                    others = _together(others, held.told(""))
        return others

    def _lacking(self, request: Request, reason: Reason) -> dict[_Kind, None]:
        """The kinds of what is lacking: of the same quota, or in a pool where it may run.

        Of pools that serve others alone the asker learns nothing.
        """
        if reason.kind is HoldKind.CONCURRENCY:
            return dict.fromkeys(self._spaces)
        if reason.kind is HoldKind.QUOTA:
            lenders = frozenset((reason.quota, *self._lenders(reason.quota)))
            return {kind: None for kind in self._spaces if kind.flavor == reason.flavor and kind.quota in lenders}
        shape = request.shape
        pools = frozenset(pool.name for pool in self._board.fleet.eligible(request.workspace, shape.pool))
        return {
            kind: None
            for kind in self._spaces
            if kind.pool in pools
            and kind.serves in ("", request.workspace)
            and (not shape.gpu_count or (kind.cards and shape.takes_type(kind.gpu_type)))
        }

    def _lenders(self, name: str) -> tuple[str, ...]:
        """Quotas that a quota, or a cohort, may borrow of: those that are in any cohort, if it is in one."""
        quotas = self._board.queueing.quotas
        alone = any(quota.name == name and not quota.cohort for quota in quotas)
        return () if alone else tuple(quota.name for quota in quotas if quota.cohort)

    # Counting

    def _catch_up(self) -> None:
        tenants = self._board.tenants
        for request_id in tenants.changed:
            live = tenants.by_request.get(request_id)
            self._put(request_id, None if live is None else self._part_of(live))
        tenants.changed.clear()

    def _put(self, request_id: str, part: _Part | None) -> None:
        before = self._parts.pop(request_id, None)
        if before is not None:
            self._take(request_id, before)
        if part is None:
            return
        self._parts[request_id] = part
        spaces, groups = self._spaces.setdefault(part.kind, {}), self._groups.setdefault(part.workspace, {})
        spaces.setdefault(part.workspace, _Sum("")).put(request_id, part)
        groups.setdefault((part.kind, part.group), _Sum(part.label)).put(request_id, part)

    def _take(self, request_id: str, part: _Part) -> None:
        spaces, groups = self._spaces[part.kind], self._groups[part.workspace]
        spaces[part.workspace].take(request_id)
        if not spaces[part.workspace].parts:
            del spaces[part.workspace]
            if not spaces:
                del self._spaces[part.kind]
        name = part.kind, part.group
        groups[name].take(request_id)
        if not groups[name].parts:
            del groups[name]
            if not groups:
                del self._groups[part.workspace]

    def _part_of(self, live: Live) -> _Part:
        request, nodes = live.request, self._board.fleet.nodes
        node = next((nodes[name] for name in live.nodes if name in nodes), None)
        count = sum(bool(member) for member in live.members)
        kind = _Kind(
            quota=self._quotas.get((request.workspace, request.queue), DEFAULT),
            flavor=live.flavor,
            pool=node.kind.pool if node is not None else live.shape.pool,
            gpu_type=node.kind.capacity.gpu_type if node is not None else "",
            cards=live.shape.gpu_count > 0,
            serves=node.kind.traits.serves if node is not None else "",
        )
        frees_by_s = live.since_s + request.limit_s if request.limit_s and not live.promised else 0.0
        gpu_milli = count * live.shape.gpu_total_milli
        return _Part(kind, request.workspace, request.group, request.label, count, gpu_milli, frees_by_s)


def _together(one: Holder | None, other: Holder) -> Holder:
    if one is None:
        return other
    times = [at_s for at_s in (one.frees_by_s, other.frees_by_s) if at_s]
    return Holder(one.who, one.containers + other.containers, one.gpu_milli + other.gpu_milli, min(times, default=0.0))
