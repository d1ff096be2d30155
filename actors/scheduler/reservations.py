"""Room kept for those who wait long: a gang, or a request for most of a node, that smaller ones always overtake.

It gets the nodes that can be free for it first. Others leave these alone, but for those that are sure to have ended by
then: they go around it. What runs there ends by its time limit, nothing follows it, and so the one who waits starts
within `RESERVE_AFTER_S` and the longest time limit of what ran there (with none, when that ends), but for others of a
higher priority, which ageing holds in bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ...model.gangs import Together, TopologyMode
from ...model.queues import DEFAULT, FairShare, Queueing
from ...model.resources import Shape
from .capacity import Node, Standing
from .counting import NOWHERE
from .domains import Tree
from .events import Request
from .forecast import NEVER_S, EndsBy, Start, earliest
from .topology import Topologies

RESERVE_AFTER_S: Final = 60.0  # shorter waits end by themselves more often than not, and each reservation idles nodes
PER_POOL_MAX: Final = 1  # each more would idle more nodes at once; the next one gets its turn when this one starts
RENEW_EVERY_S: Final = 1.0
FORECAST_EVERY_S: Final = 10.0
EASY_FROM: Final = 5  # of a request of which so many fit on an empty node, one finds room wherever something ends
LOOKS_PER_S: Final = 64  # at requests that get nothing reserved; each is looked at again
LOOKED_AGAIN_AFTER_S: Final = 60.0
NODES_LOOKED_AT: Final = 256  # of one domain, unless it takes more of them
DOMAINS_LOOKED_AT: Final = 4

_OPEN: Final = frozenset({Standing.OPEN})
_USABLE: Final = frozenset({Standing.OPEN, Standing.COMING})


Asked = Callable[[str, Shape], Shape | None]


def _as_it_is(_: str, shape: Shape) -> Shape:
    return shape


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are kept for a request. `at_s` is when it starts at the latest; `NEVER_S`: nobody knows."""

    request: Request
    shape: Shape
    nodes: tuple[str, ...]
    at_s: float
    looked_at_s: float


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    kept: tuple[Reserved, ...] = ()
    renew_at_s: float = 0.0
    looks: int = 0
    passed_over: tuple[tuple[str, str, float], ...] = ()


class Reservations:
    """Who has room reserved. `ends_by_s(member)` is when a container's time limit ends, 0 where it has none.

    `asked(workspace, shape)` is the shape as nodes are asked for it, None where its pool does not serve that workspace.
    """

    def __init__(self, topologies: Topologies, ends_by_s: EndsBy, asked: Asked = _as_it_is) -> None:
        self._topologies = topologies
        self._ends_by_s = ends_by_s
        self._asked = asked
        self._kept: dict[str, Reserved] = {}
        self._closed: dict[str, frozenset[str]] = {}
        self._values: dict[str, int] = {}
        self._ageing = FairShare()
        self._opened: dict[str, None] = {}
        self._eased: dict[str, None] = {}  # some may go around these who could not before
        self._renew_at_s = 0.0
        self._looks = 0  # left until then
        self._passed_over: dict[tuple[str, str], float] = {}  # by request and pool: until when

    def configure(self, queueing: Queueing) -> None:
        """Other priorities, or another ageing."""
        self._values = {priority.name: priority.value for priority in queueing.priorities}
        self._ageing = queueing.fair_share

    def remember(self) -> bytes:
        """All that it knows, for `recall`."""
        memory = _Memory(
            kept=tuple(self._kept.values()),
            renew_at_s=self._renew_at_s,
            looks=self._looks,
            passed_over=tuple((*key, until_s) for key, until_s in self._passed_over.items()),
        )
        return msgspec.msgpack.encode(memory)

    def recall(self, memory: bytes) -> None:
        """Know what another one knew."""
        known = msgspec.msgpack.decode(memory, type=_Memory) if memory else _Memory()
        self._renew_at_s, self._looks = known.renew_at_s, known.looks
        self._passed_over = {(request_id, pool): until_s for request_id, pool, until_s in known.passed_over}
        self._kept.clear()
        self._closed.clear()
        for reserved in known.kept:
            self._keep(reserved)

    def _keep(self, reserved: Reserved) -> None:
        self._kept[reserved.request.request_id] = reserved
        self._closed[reserved.request.request_id] = frozenset(reserved.nodes)

    def reserve(self, request: Request, shape: Shape, now_s: float) -> Reserved | None:
        """Keep nodes for a request that has waited long enough; None: it has not, or it is another one's turn.

        `shape` is narrowed to a flavor. Nothing is kept for what would not fit on the nodes there are.
        """
        self.renew(now_s)
        kept = self._kept.get(request.request_id)
        if kept is not None:
            return kept
        if now_s - request.requested_at_s < RESERVE_AFTER_S or self._crowded(shape.pool) or not self._looks:
            return None
        if now_s < self._passed_over.get((request.request_id, shape.pool), 0.0):
            return None
        reserved = None if self._easy(request, shape) else self._find(request, shape, now_s)
        if reserved is None:
            self._looks -= 1
            self._passed_over[request.request_id, shape.pool] = now_s + LOOKED_AGAIN_AFTER_S
            return None
        self._keep(reserved)
        return reserved

    def without(self, request: Request, now_s: float) -> frozenset[str]:
        """The nodes that this request must leave alone, as it is not over before they are needed.

        One of a higher priority, counted with ageing, need not.
        """
        if not self._kept:
            return NOWHERE
        self.renew(now_s)
        closed = [
            self._closed[request_id]
            for request_id, reserved in self._kept.items()
            if request_id != request.request_id
            and not _goes_around(request, reserved, now_s)
            and self._level(request, now_s) <= self._level(reserved.request, now_s)
        ]
        return closed[0] if len(closed) == 1 else NOWHERE.union(*closed)

    def _level(self, request: Request, now_s: float) -> int:
        value = self._values.get(request.priority, self._values.get(DEFAULT, 0))
        if self._ageing.ageing_s <= 0:
            return value
        waited_ms = max(0, int(now_s * 1000) - int(request.requested_at_s * 1000))  # counted as queues do
        return value + self._ageing.ageing_step * (waited_ms // max(1, int(self._ageing.ageing_s * 1000)))

    def holders(self) -> tuple[str, ...]:
        """Who has nodes reserved."""
        return tuple(self._kept)

    def nodes_of(self, request_id: str) -> tuple[str, ...]:
        """The nodes that are kept for it."""
        return self._kept[request_id].nodes if request_id in self._kept else ()

    def release(self, request_id: str) -> None:
        """It has started, or waits no more."""
        reserved = self._kept.pop(request_id, None)
        if reserved is not None:
            del self._closed[request_id]
            self._opened.update(dict.fromkeys(reserved.nodes))

    def opened(self) -> tuple[str, ...]:
        """The nodes that are open to more than when this was asked last: whoever left them alone may look again."""
        if not self._opened and not self._eased:
            return ()
        still = NOWHERE.union(*self._closed.values())
        opened = dict.fromkeys((*(node_id for node_id in self._opened if node_id not in still), *self._eased))
        self._opened.clear()
        self._eased.clear()
        return tuple(opened)

    def _crowded(self, pool: str) -> bool:
        """Whether enough is reserved already of a pool; a request for any pool is alone."""
        pools = [reserved.shape.pool for reserved in self._kept.values()]
        return sum(pool == other or not pool or not other for other in pools) >= PER_POOL_MAX

    def _easy(self, request: Request, shape: Shape) -> bool:
        """Whether it is so small that nobody overtakes it for long."""
        asked = self._asked(request.workspace, shape)
        if request.gang or asked is None:
            return False
        tree = self._topologies.asked(Together())
        return all(
            self._topologies.when_empty(flat, asked, Together(), _USABLE).at(flat.node_depth).most >= EASY_FROM
            for flat in tree
        )

    # Choosing nodes

    def _find(self, request: Request, shape: Shape, now_s: float) -> Reserved | None:
        """The nodes that are free first; of those that end equally late, or at no known time, those that are freest."""
        best: Start | None = None
        asked = self._asked(request.workspace, shape)
        for tree, nodes in () if asked is None else self._grounds(request, asked):
            start = self._start(tree, nodes, request, asked or shape, now_s)
            if start is not None and (best is None or start.at_s < best.at_s):
                best = start
        if best is None:
            return None
        return Reserved(request=request, shape=shape, nodes=best.nodes, at_s=best.at_s, looked_at_s=now_s)

    def _start(self, tree: Tree, nodes: list[Node], request: Request, shape: Shape, now_s: float) -> Start | None:
        members, together = len(request.members), request.together
        few = nodes[: max(NODES_LOOKED_AT, members)]
        start = earliest(tree, few, members, shape, together, self._ends_by_s, now_s)
        if start is None and len(few) < len(nodes):
            start = earliest(tree, nodes, members, shape, together, self._ends_by_s, now_s)
        return start

    def _grounds(self, request: Request, shape: Shape) -> Iterator[tuple[Tree, list[Node]]]:
        """Domains that could hold the request if they were empty, with the nodes that count; the freest first."""
        members, together = len(request.members), request.together
        for tree in self._topologies.asked(together):
            empty = self._topologies.when_empty(tree, shape, together, _USABLE)
            now = self._topologies.counts(tree, shape, together, _OPEN, NOWHERE)
            units = members // empty.unit
            for depth in _depths(tree, together):
                paths = [path for path in empty.with_room(depth) if empty.fit(path) >= units]
                for path in sorted(paths, key=lambda path: (-now.fit(path), path))[:DOMAINS_LOOKED_AT]:
                    nodes = [node_id for node_id in tree.nodes(path) if empty.leaf(node_id).members]
                    nodes.sort(key=lambda node_id: (-now.leaf(node_id).members, node_id))
                    yield tree, [self._topologies.nodes[node_id] for node_id in nodes]
                if paths:
                    break

    # As time goes by

    def renew(self, now_s: float) -> None:
        """Nodes vanish and close; what ended early makes a start sooner, and nothing makes it later than was said."""
        if now_s < self._renew_at_s:
            return
        self._renew_at_s = now_s + RENEW_EVERY_S
        self._looks = LOOKS_PER_S
        self._passed_over = {key: until_s for key, until_s in self._passed_over.items() if now_s < until_s}
        for request_id, reserved in tuple(self._kept.items()):
            renewed = self._renewed(reserved, now_s)
            if renewed is not reserved:
                self.release(request_id)
                if renewed is not None:
                    self._keep(renewed)
                    if reserved.at_s == NEVER_S or renewed.at_s > reserved.at_s:
                        self._eased.update(dict.fromkeys(renewed.nodes))

    def _renewed(self, reserved: Reserved, now_s: float) -> Reserved | None:
        nodes = [self._topologies.nodes.get(node_id) for node_id in reserved.nodes]
        usable = [node for node in nodes if node is not None and node.standing in _USABLE]
        start = None
        if len(usable) == len(nodes) and self._asked(reserved.request.workspace, reserved.shape) is not None:
            if now_s < reserved.looked_at_s + FORECAST_EVERY_S:
                return reserved
            start = self._again(reserved, usable, now_s)
        if start is None:
            return self._find(reserved.request, reserved.shape, now_s)
        return msgspec.structs.replace(reserved, at_s=min(reserved.at_s, start.at_s), looked_at_s=now_s)

    def _again(self, reserved: Reserved, nodes: list[Node], now_s: float) -> Start | None:
        """When it would start on the nodes that it has."""
        request = reserved.request
        asked = self._asked(request.workspace, reserved.shape)
        if asked is None:
            return None
        starts = [
            self._start(tree, nodes, request, asked, now_s)
            for tree in self._topologies.asked(request.together)
            if all(node.node_id in tree.paths for node in nodes)
        ]
        return min((start for start in starts if start is not None), key=lambda start: start.at_s, default=None)


def _depths(tree: Tree, together: Together) -> tuple[int, ...]:
    """The depths of domains that may hold the whole request, the most wanted first."""
    if together.mode is TopologyMode.NONE:
        return (0,)
    asked = tree.depth(together.level)
    return (asked,) if together.mode is TopologyMode.REQUIRED else (asked, 0)


def _goes_around(request: Request, reserved: Reserved, now_s: float) -> bool:
    """Whether a request is sure to have ended before the reserved room is needed."""
    return request.limit_s > 0 and reserved.at_s < NEVER_S and now_s + request.limit_s <= reserved.at_s
