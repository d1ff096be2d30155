"""The whole decision about room, pure: events in, decisions out. The same events give the same decisions anywhere.

What is told changes the standing at once; what follows from it is decided in slices, when `Planned` comes: the queues
say who is next and whether it has quota, the finder whether there is room. Who has none is parked with its reason, and
looked at again when something has changed that could help it. So no request blocks another, and none is looked at in
vain while nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...model.queues import Queueing
from ...model.reasons import HoldKind, Reason
from . import events
from .admitting import Admitting
from .board import Board
from .capacity import Node
from .events import Decision, Event
from .holding import Holding
from .placement import Placement
from .snapshot import snapshot_of

_NO_QUEUEING: Final = Queueing()


class Core(Board):
    """Takes events, and decides. `new_placement` makes a placement policy by its name ("": the default)."""

    def __init__(self, new_placement: Callable[[str], Placement], queueing: Queueing = _NO_QUEUEING) -> None:
        super().__init__(new_placement, queueing)
        self.holding = Holding(self)
        self.admitting = Admitting(self, self.holding)
        self._dirty = True
        self._nodes_changed = False
        self.configure(queueing)

    def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        """Take one event in. A clock that goes back stands still. Raises TypeError for what is no event of the core."""
        self.now_s = max(self.now_s, now_s)
        if isinstance(event, events.Planned):
            return tuple(self._plan(event.steps))
        self._dirty = True
        if isinstance(event, events.Ticked):
            return tuple(self._tick())
        return tuple(self._take(event))

    def _take(self, event: Event) -> list[Decision]:
        match event:
            case events.NodeSet() | events.NodeGone() | events.NodesOffered():
                self._take_node(event)
            case events.PoolSet() | events.PoolDropped() | events.PoolHolds():
                self._take_pool(event)
            case events.Restored() | events.Promised() | events.Recalled() | events.PlacementsFrom():
                self._take_over(event)
            case events.QueueingSet(queueing=queueing):
                self.configure(queueing)
            case _:
                return self._take_request(event)
        return []

    def _take_request(self, event: Event) -> list[Decision]:
        match event:
            case events.Requested(requests=requests):
                for request in requests:
                    self.admitting.request(request)
            case events.Ended(member=member):
                return self.admitting.end(member)
            case events.Started(member=member):
                self.admitting.started(member)
            case events.Replacement(request_id=request_id, rank=rank, member=member):
                return self.admitting.await_replacement(request_id, rank, member)
            case _:
                raise TypeError(f"the core takes no {type(event).__name__}")
        return []

    def _take_over(self, event: Event) -> None:
        """What an earlier leader, or an earlier segment of a journal, left."""
        match event:
            case events.Restored() as restored:
                self.admitting.restore(restored)
            case events.Promised() as promised:
                self.promises.restore(promised, self.now_s)
            case events.Recalled() as past:
                self.queues.recall(past.shares)
                self.fleet.recall(past.demand)
                self.reservations.recall(past.reserved)
                self.promises.recall(past.retries, past.gave_back)
                self.admitting.recall(past.stopping)
            case events.PlacementsFrom(at_s=at_s):
                self.places_from_s = at_s

    def configure(self, queueing: Queueing) -> None:
        """Other queues, quotas and topologies: what has room keeps it."""
        self.queueing = queueing
        self.queues.configure(queueing, self.now_s)
        self.topologies.configure(queueing.topologies, queueing.flavors)
        self.reservations.configure(queueing)
        self.holding.holders.forget()

    # Pools and nodes

    def _take_pool(self, event: Event) -> None:
        match event:
            case events.PoolSet():
                self._nodes_changed = True  # whom it serves decides about promises, too
                for node in self.fleet.set_pool(event):
                    self.tenants.changes(node)
            case events.PoolDropped(pool=name):
                self.fleet.drop_pool(name)
            case events.PoolHolds(pool=name, reason=reason, request_id=request_id):
                if not self._hold_pool(name, reason, request_id):
                    return
        self.queues.set_apart(self.fleet.apart)
        self.queues.set_total(self.fleet.total)
        self.queues.wake_all()

    def _hold_pool(self, name: str, reason: Reason | None, request_id: str) -> bool:
        """Whether that is news."""
        pool = self.fleet.pools.get(name)
        if pool is None or pool.holds.get(request_id) == reason:
            return False
        pool.holds.pop(request_id, None)
        if reason is not None:
            pool.holds[request_id] = reason
        return True

    def _take_node(self, event: Event) -> None:
        if isinstance(event, events.NodesOffered):
            if not self.fleet.offer(event):
                return
            self.queues.wake_all()
        self._nodes_changed = True
        match event:
            case events.NodeSet():
                known = self.fleet.nodes.get(event.node_id)
                if known is not None and known.kind.capacity.gpu_type != event.capacity.gpu_type:
                    self.tenants.changes(known)
                self.wake_by(self.fleet.set_node(event))
            case events.NodeGone(node_id=node_id):
                self._lose_node(self.fleet.drop_node(node_id))
        self.queues.set_apart(self.fleet.apart)
        self.queues.set_total(self.fleet.total)

    def _lose_node(self, gone: Node | None) -> None:
        """Whoever waits for its place is looked at again: another worker may be started there, or in its pool."""
        self.tenants.lose(gone)
        place = None if gone is None else self.fleet.place_of(gone)
        if place is not None:
            self.wake_by(place)
        pool = None if gone is None else self.fleet.pools.get(gone.kind.pool)
        if pool is not None and 0 < pool.max_workers < len(pool.offers):
            self.queues.wake_all()  # any of its nodes may have a worker in place of that one

    # Time

    def _tick(self) -> list[Decision]:
        self.holding.tell_again(self.now_s)
        decisions: list[Decision] = []
        for request_id in self.queues.yields(self.now_s, self.would_help):
            members = self.tenants.by_request[request_id].members
            decisions += [events.Yielded(member=member) for member in members if member]
        self.admitting.reserve()
        if self.promises.due(self.now_s):
            self.queues.wake_all()
        return decisions

    # Planning

    def _plan(self, steps: int) -> list[Decision]:
        if not self._dirty:
            return []
        if self.now_s < self.places_from_s:
            return self.holding.tell_all(Reason(kind=HoldKind.LEADER))
        decisions = self.admitting.settle(self._nodes_changed)
        self._nodes_changed = False
        for _ in range(steps):
            request = self.admitting.next()
            if request is None:
                break
            decisions += self.admitting.look_at(request)
        else:
            return [*decisions, events.More()]
        decisions += self.admitting.look_at_the_rest()
        self._dirty = False
        return decisions + self.holding.tell()

    def snapshot(self) -> tuple[Event, ...]:
        """Events that bring an empty core into this standing.

        From here on all is looked at and told again, as it is by a core that was told these.
        """
        self.queues.renew()
        self.admitting.forget()
        self.holding.forget()
        self._dirty = self._nodes_changed = True
        return tuple(snapshot_of(self, self.admitting.remember()))

    @property
    def changed(self) -> bool:
        """Whether there may be something to decide."""
        return self._dirty

    @property
    def quiet(self) -> bool:
        """Whether time alone brings nothing: nobody waits, and nothing has changed."""
        return not (self._dirty or self.waiting or self.lost or self.promises.live)
