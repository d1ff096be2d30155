"""Pools and their nodes: where a shape may go, what is free there, and what a pool could still start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from ...model.nodes import NodeOffer, NodeState, Traits
from ...model.reasons import Reason
from ...model.resources import Amount, Capacity, Shape
from .capacity import Node, NodeKind, Standing, Use, new_node, of_space
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
    ordered: int = 0  # workers that were ever heard of here
    max_workers: int = 0  # 0: nobody knows
    declared: bool = True  # else only its workers are known, and nobody knows yet whom it serves
    owner: str = ""
    known_as: str = ""
    gpu_type: str = ""
    reported: bool = False  # whether it ever said what its nodes are
    apart: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)  # nodes that take this one's work only

    @property
    def pool(self) -> str:
        """Its name, as whoever is told names of pools asks for it."""
        return self.name

    @property
    def orders(self) -> bool:
        """Whether it ever starts a worker."""
        return self.size is not None or bool(self.offers)

    @property
    def full(self) -> bool:
        """Whether it has all the workers that it may have."""
        return 0 < self.max_workers <= self.workers

    def could_start(self, shape: Shape, workspace: str) -> bool:
        """Whether a worker that it may still start would have room for this shape, asked for by this workspace."""
        if shape.pool not in ("", self.name):
            return False
        if self.room_of_one_more(shape, workspace):
            return True
        shape = self.asked(shape, workspace)
        return any(node.standing is Standing.OFFERED and node.fits(shape) for node in self.nodes.values())

    def room_of_one_more(self, shape: Shape, workspace: str) -> int:
        """How many containers of this shape one more worker takes, where they are all alike and have no named nodes."""
        if self.size is None or self.traits.serves not in ("", self.serves, workspace):
            return 0
        return new_node("", self.name, self.size, msgspec.structs.replace(self.traits, serves="")).count(shape)

    def asked(self, shape: Shape, workspace: str) -> Shape:
        """The shape as its nodes are asked for it: they hear for whom where some take that one's work only."""
        return of_space(shape, workspace) if workspace in self.apart else shape

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of its nodes yet, although it has some."""
        seen = self.reported or bool(self.nodes) or self.size is not None
        return not seen and bool(self.owner or self.gpu_type)

    def set_apart(self, node: Node) -> bool:
        """Know whether a node takes one workspace's work only; returns whether that changes who stands apart."""
        serves = node.kind.traits.serves
        if serves:
            fresh = serves not in self.apart
            self.apart.setdefault(serves, {})[node.node_id] = None
            return fresh
        return False

    def join(self, node: Node) -> bool:
        """A node is no more, or is of another kind; returns whether that changes who stands apart."""
        serves = node.kind.traits.serves
        nodes = self.apart.get(serves, {})
        nodes.pop(node.node_id, None)
        if serves in self.apart and not nodes:
            del self.apart[serves]
            return True
        return False


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
        self._apart: frozenset[str] | None = NOWHERE
        self._total = Amount()

    # Pools

    def set_pool(self, event: PoolSet) -> tuple[Node, ...]:
        """A pool as it is configured; another policy ranks its open nodes anew. Returns nodes of another kind now."""
        pool = self.pools.get(event.pool)
        if pool is None:
            pool = Pool(name=event.pool, placement=self._new_placement(event.placement), policy=event.placement)
        elif pool.policy != event.placement:
            pool.placement, pool.policy = self._new_placement(event.placement), event.placement
            for node in pool.nodes.values():
                self._rank(pool, node)
        pool.size, pool.traits, pool.serves, pool.rank = event.size, event.traits, event.serves, event.rank
        pool.max_workers, pool.declared = event.max_workers, True
        pool.owner, pool.known_as, pool.gpu_type = event.owner, event.known_as, event.gpu_type
        self.pools[event.pool] = pool
        self._eligible.clear()
        self._apart = None
        return tuple(self._set_apart(pool))

    def _set_apart(self, pool: Pool) -> Iterator[Node]:
        for node in pool.nodes.values():
            if node.serves:
                before = node.kind
                pool.join(node)
                node.set_apart(pool.serves)
                if node.kind is not before:
                    self._put(pool, node)
                    yield node
                else:
                    pool.set_apart(node)

    def drop_pool(self, name: str) -> None:
        """A pool is no more, nor are its nodes."""
        pool = self.pools.pop(name, None)
        self._eligible.clear()
        self._apart = None
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

    def offer(self, event: NodesOffered) -> bool:
        """All named nodes of a pool. A node with a worker keeps it, and is closed while its offer closes workers.

        Returns whether any of that is news: most reports of a cluster are none.
        """
        pool = self.pools.get(event.pool)
        if pool is None or not pool.declared:
            return False
        offers = {offer.traits.node: offer for offer in event.offers}  # listed twice, the last one counts
        if pool.reported and offers == pool.offers:
            return False
        before = pool.offers
        for name in pool.offers:
            if name not in offers:
                self._drop_offered(pool, name)
        gone = [name for name, offer in pool.offers.items() if name not in offers and offer.state.closes_worker]
        pool.offers, pool.reported = offers, True
        working = {node.name: node for node in pool.nodes.values() if node.standing is not Standing.OFFERED}
        for name, offer in offers.items():
            node = working.get(name)
            if node is None or self.is_offer(node):
                if before.get(name) != offer or offered_id(pool.name, name) not in pool.nodes:
                    self._put_offered(pool, offer)
            else:
                self._relabel(node, offer.traits)
                self._stand(pool, node, node.worker_standing, node.worker_why)
        for node in [working[name] for name in gone if name in working]:
            self._stand(pool, node, node.worker_standing, node.worker_why)
        return True

    def _put_offered(self, pool: Pool, offer: NodeOffer) -> None:
        name = offer.traits.node
        ready = offer.state is NodeState.READY
        standing = Standing.OFFERED if ready else Standing.CLOSED
        why = "" if ready else offer.state.value
        node = new_node(offered_id(pool.name, name), pool.name, offer.capacity, offer.traits, standing, why)
        node.since_s = offer.since_s
        node.set_apart(pool.serves)
        self._drop_offered(pool, name)
        self._put(pool, node)

    def offered(self, pool: str, name: str) -> Node | None:
        """The named node of a pool where it has no worker; None where it has one, or is not known."""
        return self.nodes.get(offered_id(pool, name))

    def place_of(self, gone: Node) -> Node | None:
        """Where another worker could be in place of one that is no more, None for nowhere."""
        pool = self.pools.get(gone.kind.pool)
        if pool is None or pool.size is None:
            return self.offered(gone.kind.pool, gone.name)
        return new_node(gone.node_id, pool.name, pool.size, pool.traits, Standing.OFFERED)

    def _drop_offered(self, pool: Pool, name: str) -> None:
        node = self.offered(pool.name, name)
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
            node.set_apart(pool.serves)
            if event.traits.node:
                self._drop_offered(pool, event.traits.node)
            self._total = self._total.plus(node.free)
            pool.workers += 1
            pool.ordered += 1
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
        since_s = 0.0
        if offer is not None and offer.state.closes_worker and standing is Standing.OPEN:
            standing, why, since_s = Standing.CLOSED, offer.state.value, offer.since_s
        node.standing, node.why_closed, node.since_s = standing, why, since_s
        self._put(pool, node)

    def follower(self, node_id: str) -> NodeKind | None:
        """What a worker in place of this one would be, where its node has more cards by now than it took.

        A worker that has lost cards is not followed by one that would have them.
        """
        node = self.nodes[node_id]
        offer = self.pools[node.kind.pool].offers.get(node.name)
        if offer is None or offer.state is not NodeState.READY or node.lost_cards:
            return None
        more = offer.capacity.gpu_count > node.kind.capacity.gpu_count
        return msgspec.structs.replace(node.kind, capacity=offer.capacity) if more else None

    def could_use(self, kind: NodeKind, workspace: str, shape: Shape) -> bool:
        """Whether a workspace could run a shape with cards on an empty node of this kind."""
        pool = self.pools[kind.pool]
        serves = shape.gpu_count > 0 and pool in self.eligible(workspace, shape.pool)
        return serves and kind.allows(pool.asked(shape, workspace))

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
        if pool.set_apart(node):
            self._apart = None
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
            if pool.join(node):
                self._apart = None
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
            return pools[0].placement.choose(pools[0].asked(shape, workspace), without)
        best: Spot | None = None
        best_rank: tuple[int, int] | None = None
        for place, pool in enumerate(pools):
            spot = pool.placement.choose(pool.asked(shape, workspace), without)
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

    def serving(self, workspace: str, shape: Shape) -> Iterator[tuple[Node, Shape]]:
        """All nodes of pools that serve a workspace, each with the shape as it is asked for it."""
        for pool in self.eligible(workspace, shape.pool):
            asked = pool.asked(shape, workspace)
            for node in pool.nodes.values():
                yield node, asked

    def asked(self, workspace: str, shape: Shape) -> Shape | None:
        """The shape as the nodes of its pool are asked for it; None where that does not serve this workspace."""
        pool = self.pools.get(shape.pool)
        if pool is None or not pool.declared or pool.serves not in ("", workspace):
            return None
        return pool.asked(shape, workspace)

    def takes(self, node: Node, workspace: str) -> bool:
        """Whether anything of a workspace may run on a node."""
        pool = self.pools.get(node.kind.pool)
        usable = pool is not None and pool.declared and pool.serves in ("", workspace)
        return usable and node.kind.traits.serves in ("", workspace)

    @property
    def apart(self) -> frozenset[str]:
        """Workspaces that may have room where others have none."""
        if self._apart is None:
            pools = self.pools.values()
            self._apart = frozenset(name for pool in pools for name in (pool.serves, *pool.apart) if name)
        return self._apart


def _size(capacity: Capacity) -> Amount:
    return Amount(capacity.cpu_milli, capacity.memory_mib, capacity.gpu_count * 1000)
