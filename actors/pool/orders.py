"""The workers of a pool from order to end: which are on their way, on which nodes, and for which gangs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.nodes import NodeOffer, Traits
from ...model.resources import Amount, Capacity
from ...model.states import WorkerState
from ...store import operations as ops

PENDING = (WorkerState.ORDERED, WorkerState.PENDING)


class Order(msgspec.Struct, kw_only=True):
    """A worker that is not gone. `number` counts the pool's orders from 1, as the scheduler counts them."""

    worker_id: str
    capacity: Capacity
    traits: Traits = Traits()
    gang_id: str = ""
    ordered_at_s: float
    number: int
    pending: bool = True  # it has not reported yet
    came_at_s: float = 0.0  # when it did, if this leader heard it
    given_up: bool = False  # it is told to end, as it has not reported for too long
    ended: bool = False  # and its row does not say so yet


class OrderBook:
    """All workers of one pool whose rows don't say that they are gone. At most one of them stands on a node of a name.

    A worker that has ended keeps its place until its row says so: with two rows of one node, whoever leads next could
    not tell whose the node is.
    """

    def __init__(self) -> None:
        self._orders: dict[str, Order] = {}
        self.nodes: dict[str, Order] = {}  # who stands on which named node, or will
        self.count = 0  # all orders ever known here

    def load(self, row: ops.WorkerRow) -> None:
        """Know a worker of an earlier leader. One that was given up is no order any more, and keeps its node."""
        given_up = row.state is WorkerState.GONE
        order = Order(
            worker_id=row.worker_id,
            capacity=row.capacity,
            traits=row.traits,
            gang_id="" if given_up else row.gang_id,
            ordered_at_s=row.ordered_at_s,
            number=0 if given_up else self.count + 1,
            pending=row.state in PENDING,
        )
        self._add(order)
        self.count -= given_up

    def order(self, worker_id: str, offer: NodeOffer, gang_id: str, now_s: float) -> Order:
        """A worker is ordered."""
        order = Order(
            worker_id=worker_id,
            capacity=offer.capacity,
            traits=offer.traits,
            gang_id=gang_id,
            ordered_at_s=now_s,
            number=self.count + 1,
        )
        self._add(order)
        return order

    def _add(self, order: Order) -> None:
        self._orders[order.worker_id] = order
        self.count += 1
        if order.traits.node:
            self.nodes[order.traits.node] = order

    def arrived(self, worker_id: str, now_s: float) -> Order | None:
        """A worker has reported; its order, where that is news."""
        order = self._orders.get(worker_id)
        if order is None or not order.pending:
            return None
        order.pending, order.came_at_s = False, now_s
        return order

    def take_late(self, ordered_before_s: float) -> tuple[str, ...]:
        """The workers that were ordered by then and have not reported; each is named once."""
        late = [
            order
            for order in self._orders.values()
            if order.pending and not order.given_up and not order.ended and order.ordered_at_s <= ordered_before_s
        ]
        for order in late:
            order.given_up = True
        return tuple(order.worker_id for order in late)

    def end(self, worker_id: str) -> Order | None:
        """A worker has ended; its order, where that is news."""
        order = self._orders.get(worker_id)
        if order is None or order.ended:
            return None
        order.ended = True
        return order

    def forget(self, worker_id: str) -> None:
        """The row of a worker that has ended says so."""
        order = self._orders.get(worker_id)
        if order is not None and order.ended:
            del self._orders[worker_id]
            self.nodes.pop(order.traits.node, None)

    def disband(self, gang_id: str) -> None:
        """Workers that came for a gang are like any others now."""
        for order in self._orders.values():
            if order.gang_id == gang_id:
                order.gang_id = ""

    def __len__(self) -> int:
        return len(self._orders)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._orders

    @property
    def live(self) -> tuple[str, ...]:
        """The workers that are ordered or run."""
        return tuple(self._orders)

    @property
    def reported(self) -> tuple[str, ...]:
        """The workers that are not on their way any more."""
        return tuple(order.worker_id for order in self._orders.values() if not (order.pending or order.ended))

    @property
    def pending(self) -> int:
        """How many are on their way."""
        return sum(order.pending for order in self._orders.values())

    def of_gang(self, gang_id: str) -> tuple[Order, ...]:
        """The workers that were ordered for a gang."""
        return tuple(order for order in self._orders.values() if order.gang_id == gang_id)

    def room_after(self, number: int) -> Amount:
        """All that the workers ordered after this number have."""
        return total(order.capacity for order in self._orders.values() if order.number > number and not order.ended)


def total(sizes: Iterable[Capacity]) -> Amount:
    """What workers of these sizes have together."""
    found = Amount()
    for size in sizes:
        found = found.plus(Amount(size.cpu_milli, size.memory_mib, size.gpu_count * 1000))
    return found
