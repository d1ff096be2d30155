"""Nodes on which workers come without their cards: another one of the same size would come without them too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...model.doubling import doubled_s
from ...model.nodes import NodeOffer, NodeState
from .orders import Order

FIRST_S: Final = 60.0
MOST_S: Final = 3600.0


class _Tried(msgspec.Struct):
    """A node, as it was when a worker without cards came; the size that was ordered there."""

    cards: int
    times: int
    until_s: float
    opened: bool = False  # it was told that this is over


class Cardless:
    """Which nodes get no worker for now: for a minute first, twice as long each time, for an hour at most.

    One that has more cards free by then, or fewer, is tried at once.
    """

    def __init__(self) -> None:
        self._tried: dict[str, _Tried] = {}

    def came(self, order: Order, lacks: str, now_s: float) -> bool:
        """A worker has come; `lacks` is "" where it has cards. Returns whether that changes anything."""
        node, cards = order.traits.node, order.capacity.gpu_count
        if not lacks:
            return self._tried.pop(node, None) is not None
        known = self._tried.get(node)
        times = known.times + 1 if known is not None and known.cards == cards else 0
        self._tried[node] = _Tried(cards=cards, times=times, until_s=now_s + doubled_s(FIRST_S, times, MOST_S))
        return True

    def on(self, offers: Iterable[NodeOffer], now_s: float) -> tuple[NodeOffer, ...]:
        """What these nodes, which are all that there are, offer now."""
        if not self._tried:
            return tuple(offers)
        told = {offer.traits.node: offer for offer in offers}
        self._tried = {node: tried for node, tried in self._tried.items() if node in told}
        return tuple(_closed(offer) if self._closes(offer, now_s) else offer for offer in told.values())

    def _closes(self, offer: NodeOffer, now_s: float) -> bool:
        tried = self._tried.get(offer.traits.node)
        return (
            tried is not None
            and offer.state is NodeState.READY
            and tried.cards == offer.capacity.gpu_count
            and now_s < tried.until_s
        )

    def opens(self, now_s: float) -> bool:
        """Whether the time of any node is over, which is said once."""
        over = [tried for tried in self._tried.values() if not tried.opened and now_s >= tried.until_s]
        for tried in over:
            tried.opened = True
        return bool(over)


def _closed(offer: NodeOffer) -> NodeOffer:
    return msgspec.structs.replace(offer, state=NodeState.CARDS_UNKNOWN)
