"""What a pool should order now, of what the scheduler wishes and of what the pool keeps ahead of it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from itertools import islice
from typing import Final

import msgspec

from ...model.nodes import NodeOffer
from ...model.resources import Amount, Shape
from ...model.sentences import plural
from ...wire import scheduling
from .orders import OrderBook
from .settings import PoolSettings, ready
from .sizing import NOTHING, FreeNodes, Sizing, missing

LACKED_KEPT: Final = 64  # shapes


class GangNeed(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a gang that are still to be ordered, all at once; none of them while something `hold`s it."""

    gang_id: str
    offers: tuple[NodeOffer, ...]
    wanted: int
    hold: str = ""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Workers to order, on these nodes. `beyond` says that more are wanted than the pool may have, or were and it
    still could not have them.

    `stale`: the scheduler's wish is older than the last order, and counts for nothing until it says the next.
    """

    gangs: tuple[GangNeed, ...] = ()
    singles: tuple[NodeOffer, ...] = ()
    beyond: bool = False
    stale: bool = False


class Wishes:
    """The newest wish of the scheduler, held against the pool's workers and its ceilings."""

    def __init__(self, settings: PoolSettings, book: OrderBook) -> None:
        self._settings = settings
        self._book = book
        self._wish = scheduling.RoomWanted(pool=settings.name, shapes=())
        self._told_free: scheduling.RoomFree | None = None
        self._needs: Needs | None = None
        self._all = FreeNodes(settings.offers)
        self._free = FreeNodes(())
        self._counted = (-1, -1, -1)
        self._lacked: dict[Shape, None] = {}  # once wanted, and beyond what it may have since

    @property
    def settings(self) -> PoolSettings:
        """The pool as it is now."""
        return self._settings

    @settings.setter
    def settings(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._all = FreeNodes(settings.offers)
        self._counted = (-1, -1, -1)

    def hear(self, wish: scheduling.RoomWanted) -> None:
        """The newest wish. It counts for nothing while it does not know of the last order."""
        self._wish = wish
        self._needs = None

    def hear_free(self, message: scheduling.RoomFree) -> None:
        """What is free now."""
        self._told_free = message
        self._needs = None

    def give_back(self, gang_id: str) -> None:
        """A gang is not wanted any more."""
        gangs = tuple(gang for gang in self._wish.gangs if gang.gang_id != gang_id)
        self._wish = msgspec.structs.replace(self._wish, gangs=gangs)
        self._needs = None

    def needs(self) -> Needs:
        """What to order now; counted again only when something has changed."""
        counted = (self._book.count, len(self._book), self._book.pending)
        if counted != self._counted:
            self._counted = counted
            self._free = self._free_nodes()
            self._needs = None
        if self._needs is None:
            self._needs = self._count()
        return self._needs

    def _count(self) -> Needs:
        stale = self._wish.orders_seen < self._book.count
        gangs: list[GangNeed] = []
        taken: dict[str, None] = {}
        room = self._room()
        for wanted in () if stale else self._wish.gangs:
            need = self._gang(wanted, taken, room)
            if need is not None:
                gangs.append(need)
                room -= len(need.offers)
                taken.update(dict.fromkeys(offer.traits.node for offer in need.offers))
        singles, beyond = self._singles(taken, max(0, room), stale)
        return Needs(gangs=tuple(gangs), singles=singles, beyond=beyond, stale=stale)

    def _free_nodes(self) -> FreeNodes:
        taken = self._book.nodes
        return FreeNodes(offer for offer in self._settings.nodes if ready(offer) and offer.traits.node not in taken)

    def _room(self) -> int:
        """How many more workers there may be. On named nodes, never more are on their way than there are nodes."""
        room = self._settings.max_workers - self._counted_workers()
        if self._settings.nodes:
            room = min(room, len(self._settings.nodes) - self._book.pending)
        return max(0, room)

    def _counted_workers(self) -> int:
        """A cluster has a place a node: workers on nodes that it does not tell of any more take none of those."""
        if not self._settings.attached:
            return len(self._book)
        return sum(offer.traits.node in self._book.nodes for offer in self._settings.nodes)

    def _gang(self, wanted: scheduling.GangWanted, taken: Container[str], room: int) -> GangNeed | None:
        """What is missing of a gang's workers; None when all are ordered."""
        have = self._book.of_gang(wanted.gang_id)
        size = len(wanted.nodes) or wanted.workers
        if wanted.nodes:
            there = {order.traits.node for order in have}
            lacking = [node for node in wanted.nodes if node not in there]
            free = self._free.by_name
            offers = [free[node] for node in lacking if node in free and node not in taken]
        else:
            lacking = [""] * max(0, size - len(have))
            offers = self._any_offers(taken, len(lacking))
        if not lacking:
            return None
        hold = ""
        if size > self._settings.max_workers:
            hold = f"a gang of {size} workers is more than its maximum of {self._settings.max_workers}"
        elif len(offers) < len(lacking):
            hold = _few_free(len(offers), len(lacking))
        elif len(lacking) > room:
            hold = f"a gang lacks {len(lacking)} {plural('worker', len(lacking))}, and it may have {room} more"
        return GangNeed(gang_id=wanted.gang_id, offers=() if hold else tuple(offers), wanted=size, hold=hold)

    def _any_offers(self, taken: Container[str], count: int) -> list[NodeOffer]:
        alike = self._alike()
        if alike is not None:
            return [alike] * count
        free = (offer for node, offer in self._free.by_name.items() if node not in taken)
        return list(islice(free, count))

    def _alike(self) -> NodeOffer | None:
        """A worker on no named node."""
        return None if self._settings.nodes or not self._settings.offers else self._settings.offers[0]

    def _singles(self, taken: Collection[str], room: int, stale: bool) -> tuple[tuple[NodeOffer, ...], bool]:
        """Workers for the shapes, then those that are kept warm, then those that are kept free."""
        sizing = Sizing(self._free, taken, self._alike())
        lacking = () if stale else sizing.fill(self._wish.shapes, room)
        lives = len(self._book)
        while lives + len(sizing.bins) < self._settings.min_workers and len(sizing.bins) < room and sizing.add():
            pass
        while len(sizing.bins) < room:
            wanted = missing(self._settings.keep_free, self._left(sizing.left))
            if wanted == NOTHING or not sizing.add(wanted):
                break
        return tuple(one.offer for one in sizing.bins), self._beyond(lacking, room, taken)

    def _beyond(self, lacking: Iterable[Shape], room: int, taken: Container[str]) -> bool:
        """What was beyond stays so until it could be started: who waits for it asks other pools meanwhile, and would
        come back at once, and leave again, for as long as we said by turns that there is room and that there is none.
        """
        free = self._left_by_gangs(taken) if self._alike() is None else self._all
        kept = [shape for shape in self._lacked if not (room and free.could_hold(shape))]
        found = [*(shape for shape in lacking if self._all.could_hold(shape)), *kept]
        self._lacked = dict.fromkeys(found[:LACKED_KEPT])
        return bool(found)

    def _left_by_gangs(self, taken: Container[str]) -> FreeNodes:
        """The free nodes that no gang is to have."""
        if not self._lacked:
            return self._free
        return FreeNodes(offer for node, offer in self._free.by_name.items() if node not in taken)

    def _left(self, left: Amount) -> Amount:
        """What is free, as far as is known: what the scheduler says, and all of the workers that it has not counted.

        Where it does not say, every worker counts as free: rather too little is kept than a flood ordered.
        """
        told = self._told_free
        if told is None:
            return self._book.room_after(0).plus(left)
        return self._book.room_after(told.orders_seen).plus(told.free).plus(left)


def _few_free(free: int, lacking: int) -> str:
    if lacking == 1:
        return "the node that a gang lacks is not free"
    return f"only {free} of the {lacking} nodes that a gang lacks are free"
