"""How a pool stands, for people: its size and nodes, its workers, what is wanted of it, and what holds that."""

from __future__ import annotations

from ...wire.operating import NodeStanding, PoolStanding
from .orders import OrderBook
from .settings import PoolSettings
from .wishes import Needs


def standing(settings: PoolSettings, book: OrderBook, needs: Needs, holds: tuple[str, ...]) -> PoolStanding:
    """The pool as of now."""
    taken = book.nodes
    nodes = tuple(
        NodeStanding(
            name=offer.traits.node,
            capacity=offer.capacity,
            labels=offer.traits.labels,
            state=offer.state,
            worker_id=taken[offer.traits.node].worker_id if offer.traits.node in taken else "",
        )
        for offer in settings.nodes
    )
    return PoolStanding(
        name=settings.name,
        size=None if settings.nodes or settings.attached else settings.worker,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        serves=settings.serves,
        placement=settings.placement,
        workers=len(book),
        pending=book.pending,
        nodes=nodes,
        wanted=len(needs.singles) + sum(len(gang.offers) for gang in needs.gangs),
        wanted_gangs=len(needs.gangs),
        beyond=needs.beyond,
        holds=holds,
        leaving=settings.retiring,
        attached=settings.attached,
    )
