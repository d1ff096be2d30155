"""Pools and their nodes: where a shape may go, what is free there, and what a pool could still start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from ...model.nodes import NodeOffer, NodeState, Traits
from ...model.reasons import Reason
from ...model.resources import Amount, Capacity, Shape
from .capacity import Node, Standing, Use, new_node
from .events import NodeSet, NodesOffered, PoolSet
from .placement import Placement, Spot

NOWHERE: Final[frozenset[str]] = frozenset()


class Watcher(Protocol):
    """Who else wants to know of every change of a node: domains of a topology, say."""

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        ...

    def drop(self, node_id: str) -> None:
        """A node is no more."""
        ...


class Pool(msgspec.Struct, kw_only=True):
    """A pool as it is configured, its open nodes ranked, and why it orders nothing. `holds` is by gang, "" for all."""

    name: str
    placement: Placement
    policy: str
    size: Capacity | None = None
    traits: Traits = Traits()
    serves: str = ""
    rank: int = 0
    offers: dict[str, NodeOffer] = msgspec.field(default_factory=dict)
    nodes: dict[str, Node] = msgspec.field(default_factory=dict)
    holds: dict[str, Reason] = msgspec.field(default_factory=dict)
    workers: int = 0  # that it has, those on their way included
    max_workers: int = 0  # 0: nobody knows
    declared: bool = True  # else only its workers are known, and nobody knows yet whom it serves

    @property
    def orders(self) -> bool:
        """Whether it ever starts a worker."""
        return self.size is not None or bool(self.offers)

    @property
    def full(self) -> bool:
        """Whether it has all the workers that it may have."""
        return 0 < self.max_workers <= self.workers

    def could_start(self, shape: Shape) -> bool:
        """Whether a worker that it may still start would have room for this shape."""
        if shape.pool not in ("", self.name):
            return False
        if self.size is not None and self.size.fits(shape) and self.traits.allows(shape):
            return True
        return any(node.standing is Standing.OFFERED and node.fits(shape) for node in self.nodes.values())


@lru_cache(maxsize=4096)
def in_pool(shape: Shape, pool: str) -> Shape:
    """The same shape, in this pool only."""
    return msgspec.structs.replace(shape, pool=pool)


def offered_id(pool: str, name: str) -> str:
    """The identity of a named node that has no worker."""
    return f"{pool}/{name}"


def offered_names(node_ids: Iterable[str]) -> tuple[str, ...]:
    """The names of those of these nodes that have no worker, each once: the other way round of `offered_id`."""
    return tuple(dict.fromkeys(node_id.partition("/")[2] for node_id in node_ids if "/" in node_id))


class Fleet:
    """Every node there is or could be. `new_placement` makes a policy by its name."""

    def __init__(self, new_placement: Callable[[str], Placement], watcher: Watcher) -> None:
        self.nodes: dict[str, Node] = {}
        self.pools: dict[str, Pool] = {}
        self._new_placement = new_placement
        self._watcher = watcher
        self.coming: dict[str, Node] = {}  # workers that were ordered and have not reported
        self._eligible: dict[tuple[str, str], list[Pool]] = {}
        self._total = Amount()

    # Pools

    def set_pool(self, event: PoolSet) -> None:
        """A pool as it is configured; another policy ranks its open nodes anew."""
        pool = self.pools.get(event.pool)
        if pool is None:
            pool = Pool(name=event.pool, placement=self._new_placement(event.placement), policy=event.placement)
        elif pool.policy != event.placement:
            pool.placement, pool.policy = self._new_placement(event.placement), event.placement
            for node in pool.nodes.values():
                self._rank(pool, node)
        pool.size, pool.traits, pool.serves, pool.rank = event.size, event.traits, event.serves, event.rank
        pool.max_workers, pool.declared = event.max_workers, True
        self.pools[event.pool] = pool
        self._eligible.clear()

    def drop_pool(self, name: str) -> None:
        """A pool is no more, nor are its nodes."""
        pool = self.pools.pop(name, None)
        self._eligible.clear()
        for node in () if pool is None else tuple(pool.nodes.values()):
            if not self.is_offer(node):
                self._total = self._total.less(_size(node.kind.capacity))
            self._forget(node)

    def eligible(self, workspace: str, wanted: str) -> list[Pool]:
        """The pools that serve a workspace, in order; `wanted` is one by name, or "" for any."""
        key = (workspace, wanted)
        pools = self._eligible.get(key)
        if pools is None:
            pools = [
                pool
                for pool in sorted(self.pools.values(), key=lambda pool: (pool.rank, pool.name))
                if pool.declared and pool.serves in ("", workspace) and wanted in ("", pool.name)
            ]
            self._eligible[key] = pools
        return pools

    # Nodes

    def offer(self, event: NodesOffered) -> None:
        """All named nodes of a pool. A node with a worker keeps it, and is closed while its offer is not ready."""
        pool = self.pools.get(event.pool)
        if pool is None or not pool.declared:
            return
        offers = {offer.traits.node: offer for offer in event.offers}  # listed twice, the last one counts
        for name in pool.offers:
            if name not in offers:
                self._drop_offered(pool, name)
        pool.offers = offers
        working = {node.name: node for node in pool.nodes.values() if node.standing is not Standing.OFFERED}
        for name, offer in offers.items():
            node = working.get(name)
            if node is None or self.is_offer(node):
                self._put_offered(pool, offer)
            else:
                self._relabel(node, offer.traits)
                self._stand(pool, node, node.worker_standing, node.worker_why)

    def _put_offered(self, pool: Pool, offer: NodeOffer) -> None:
        name = offer.traits.node
        ready = offer.state is NodeState.READY
        standing = Standing.OFFERED if ready else Standing.CLOSED
        why = "" if ready else offer.state.value
        self._put(pool, new_node(offered_id(pool.name, name), pool.name, offer.capacity, offer.traits, standing, why))

    def _drop_offered(self, pool: Pool, name: str) -> None:
        node = pool.nodes.get(offered_id(pool.name, name))
        if node is not None:
            self._forget(node)

    def set_node(self, event: NodeSet) -> Node:
        """A worker, with its size and standing of now."""
        pool = self.pools.get(event.pool)
        if pool is None:
            self.set_pool(PoolSet(pool=event.pool))
            pool = self.pools[event.pool]
            pool.declared = False
        node = self.nodes.get(event.node_id)
        if node is None:
            node = new_node(event.node_id, event.pool, event.capacity, event.traits)
            if event.traits.node:
                self._drop_offered(pool, event.traits.node)
            self._total = self._total.plus(node.free)
            pool.workers += 1
        elif node.kind.capacity != event.capacity:
            self._total = self._total.less(_size(node.kind.capacity)).plus(_size(event.capacity))
            node.resize(event.capacity)
        offer = pool.offers.get(node.name)
        self._relabel(node, event.traits if offer is None else offer.traits)
        self._stand(pool, node, event.standing, event.why_closed)
        return node

    @staticmethod
    def _relabel(node: Node, newest: Traits) -> None:
        """The labels of its node as the pool says them now, not as they were when its worker was ordered."""
        if node.kind.traits.labels != newest.labels:
            node.relabel(newest.labels)

    def _stand(self, pool: Pool, node: Node, standing: Standing, why: str) -> None:
        """A worker's own standing, unless its node itself may not be used."""
        node.worker_standing, node.worker_why = standing, why
        offer = pool.offers.get(node.name)
        if offer is not None and offer.state is not NodeState.READY and standing is Standing.OPEN:
            standing, why = Standing.CLOSED, offer.state.value
        node.standing, node.why_closed = standing, why
        self._put(pool, node)

    def drop_node(self, node_id: str) -> Node | None:
        """A worker is no more; its named node is on offer again."""
        node = self.nodes.get(node_id)
        if node is None:
            return None
        self._forget(node)
        self._total = self._total.less(_size(node.kind.capacity))
        pool = self.pools.get(node.kind.pool)
        if pool is not None and node.name in pool.offers:
            self._put_offered(pool, pool.offers[node.name])
        return node

    def _put(self, pool: Pool, node: Node) -> None:
        self.nodes[node.node_id] = pool.nodes[node.node_id] = node
        self._rank(pool, node)

    def _rank(self, pool: Pool, node: Node) -> None:
        if node.standing is Standing.OPEN:
            pool.placement.put(node)
        else:
            pool.placement.drop(node.node_id)
        if node.standing is Standing.COMING:
            self.coming[node.node_id] = node
        else:
            self.coming.pop(node.node_id, None)
        self._watcher.put(node)

    def _forget(self, node: Node) -> None:
        del self.nodes[node.node_id]
        self.coming.pop(node.node_id, None)
        self._watcher.drop(node.node_id)
        pool = self.pools.get(node.kind.pool)
        if pool is not None:
            pool.workers -= not self.is_offer(node)
            pool.nodes.pop(node.node_id, None)
            pool.placement.drop(node.node_id)

    @property
    def total(self) -> Amount:
        """What all workers have, by their last word."""
        return self._total

    # Room

    def take(self, member: str, node: Node, shape: Shape, cards: tuple[int, ...], promised: bool = False) -> None:
        """A container is placed, or its room is promised."""
        node.take(member, shape, cards, promised)
        self._rank(self.pools[node.kind.pool], node)

    def give_back(self, member: str, node: Node) -> Use | None:
        """A container has gone from a node."""
        use = node.uses.get(member)
        if use is not None:
            node.give_back(member)
            self._rank(self.pools[node.kind.pool], node)
        return use

    def choose(self, workspace: str, shape: Shape, without: frozenset[str] = NOWHERE) -> Spot | None:
        """The spot for one container: of the pools that serve it the first with the most wanted card type.

        Work without cards goes to workers without cards first, whatever the order of pools.
        """
        pools = self.eligible(workspace, shape.pool)
        if len(pools) == 1:
            return pools[0].placement.choose(shape, without)
        best: Spot | None = None
        best_rank: tuple[int, int] | None = None
        for place, pool in enumerate(pools):
            spot = pool.placement.choose(shape, without)
            if spot is None:
                continue
            rank = (self._waste(shape, spot), place)
            if best_rank is None or rank < best_rank:
                best, best_rank = spot, rank
            if best_rank[0] == 0:
                break
        return best

    def _waste(self, shape: Shape, spot: Spot) -> int:
        capacity = self.nodes[spot.node_id].kind.capacity
        if not shape.gpu_count:
            return int(capacity.gpu_count > 0)
        return shape.preference(capacity.gpu_type)

    def saw(self, workspace: str, shape: Shape, count: int) -> None:
        """So many containers of a shape were asked for."""
        for pool in self.eligible(workspace, shape.pool):
            for _ in range(count):
                pool.placement.saw(shape)

    def is_offer(self, node: Node) -> bool:
        """Whether it is a named node without a worker."""
        return node.node_id == offered_id(node.kind.pool, node.name)

    def remember(self) -> tuple[tuple[str, bytes], ...]:
        """The demand that each pool's policy has seen."""
        return tuple((pool.name, pool.placement.remember()) for pool in self.pools.values())

    def recall(self, demand: tuple[tuple[str, bytes], ...]) -> None:
        """See what was seen before."""
        for name, memory in demand:
            if name in self.pools:
                self.pools[name].placement.recall(memory)

    def serving(self, workspace: str, wanted: str) -> Iterator[Node]:
        """All nodes of pools that serve a workspace."""
        for pool in self.eligible(workspace, wanted):
            yield from pool.nodes.values()


def _size(capacity: Capacity) -> Amount:
    return Amount(capacity.cpu_milli, capacity.memory_mib, capacity.gpu_count * 1000)
