"""The standing of a core as events: told to an empty core, they bring it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from . import events
from .capacity import Node
from .events import Event
from .fleet import Pool
from .live import Live

if TYPE_CHECKING:
    from .core import Core


def snapshot_of(core: Core) -> Iterator[Event]:
    """Configuration first, then nodes, then who has room, then who waits, and what is remembered of the past."""
    yield events.QueueingSet(queueing=core.queueing)
    for pool in core.fleet.pools.values():
        yield from _pool(pool)
    for node in core.fleet.nodes.values():
        if not core.fleet.is_offer(node):
            yield _node(node)
    for live in core.tenants.by_request.values():
        yield from _live(live)
    yield events.Requested(requests=tuple(core.admitting.waiting.values()))
    for member, (request_id, rank) in core.admitting.lost.items():
        yield events.Replacement(request_id=request_id, rank=rank, member=member)
    retries, gave_back = core.promises.remember()
    yield events.Recalled(
        shares=core.queues.remember(),
        demand=core.fleet.remember(),
        reserved=core.reservations.remember(),
        retries=retries,
        gave_back=gave_back,
        stopping=core.admitting.remember(),
    )
    yield events.PlacementsFrom(at_s=core.places_from_s)


def _pool(pool: Pool) -> Iterator[Event]:
    if not pool.declared:
        return
    yield events.PoolSet(
        pool=pool.name,
        size=pool.size,
        traits=pool.traits,
        serves=pool.serves,
        placement=pool.policy,
        max_workers=pool.max_workers,
        rank=pool.rank,
    )
    for request_id, reason in pool.holds.items():
        yield events.PoolHolds(pool=pool.name, reason=reason, request_id=request_id)
    if pool.offers:
        yield events.NodesOffered(pool=pool.name, offers=tuple(pool.offers.values()))


def _node(node: Node) -> Event:
    name = "" if node.name == node.node_id else node.name
    return events.NodeSet(
        node_id=node.node_id,
        pool=node.kind.pool,
        capacity=node.kind.capacity,
        traits=msgspec.structs.replace(node.kind.traits, node=name),
        standing=node.worker_standing,
        why_closed=node.worker_why,
    )


def _live(live: Live) -> Iterator[Event]:
    request = events.with_members(live.request, tuple(live.members))
    if live.promised:
        yield events.Promised(
            request=request,
            nodes=tuple(live.nodes),
            flavor=live.flavor,
            pool=live.pool,
            workers=live.workers,
            deadline_s=live.deadline_s,
            cards=tuple(live.cards),
        )
        return
    yield events.Restored(
        request=request, spots=live.spots(), flavor=live.flavor, since_s=live.since_s, pool=live.shape.pool
    )
    for member, ready in zip(live.members, live.ready):
        if member and ready:
            yield events.Started(member=member)
