"""The standing of a core as events: told to an empty core, they bring it there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from . import events
from .board import Board
from .capacity import Node
from .events import Event, Stopping
from .fleet import Pool
from .live import Live


def snapshot_of(board: Board, stopping: Stopping) -> Iterator[Event]:
    """Configuration first, then nodes, then who has room, then who waits, and what is remembered of the past."""
    yield events.QueueingSet(queueing=board.queueing)
    for pool in board.fleet.pools.values():
        yield from _pool(pool)
    for node in board.fleet.nodes.values():
        if not board.fleet.is_offer(node):
            yield _node(node)
    for live in board.tenants.by_request.values():
        yield from _live(live)
    yield events.Requested(requests=tuple(board.waiting.values()))
    for member, (request_id, rank) in board.lost.items():
        yield events.Replacement(request_id=request_id, rank=rank, member=member)
    retries, gave_back = board.promises.remember()
    yield events.Recalled(
        shares=board.queues.remember(),
        demand=board.fleet.remember(),
        reserved=board.reservations.remember(),
        retries=retries,
        gave_back=gave_back,
        stopping=stopping,
    )
    yield events.PlacementsFrom(at_s=board.places_from_s)


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
        owner=pool.owner,
        known_as=pool.known_as,
        gpu_type=pool.gpu_type,
    )
    for request_id, reason in pool.holds.items():
        yield events.PoolHolds(pool=pool.name, reason=reason, request_id=request_id)
    if pool.reported:
        yield events.NodesOffered(pool=pool.name, offers=tuple(pool.offers.values()))


def _node(node: Node) -> Event:
    name = "" if node.name == node.node_id else node.name
    return events.NodeSet(
        node_id=node.node_id,
        pool=node.kind.pool,
        capacity=node.kind.capacity,
        traits=msgspec.structs.replace(node.kind.traits, node=name, serves=node.serves),
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
