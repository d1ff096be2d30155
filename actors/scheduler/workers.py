"""Workers from order to end. Silence makes one unknown; only evidence, or the end of its lease, makes it gone."""

from __future__ import annotations

from typing import Final

from ...model.figures import OWN_OUTAGE_S, WORKER_LEASE_S
from ...model.resources import NOTHING, Amount
from ...model.states import ContainerEvent, ContainerState, End, WorkerEvent, WorkerState
from ...wire import scheduling
from ...wire.operating import WorkerWish
from . import events, hearsay
from .capacity import Standing
from .containers import Containers
from .deciding import Deciding
from .group import Group
from .ledger import Host, Ledger

_STRANGER: Final = "this worker is not known here any more"
_NO_CARDS: Final = "it does not say why"
_MOVED_AT_ONCE: Final = {  # the others move when they report
    (WorkerWish.CORDON, WorkerState.AVAILABLE): WorkerEvent.CORDON_ASKED,
    (WorkerWish.UNCORDON, WorkerState.CORDONED): WorkerEvent.UNCORDON_ASKED,
}


def standing_of(host: Host) -> tuple[Standing, str]:
    """What may be done with a worker's room, and why nothing may be placed there."""
    if host.open:
        return Standing.OPEN, ""
    if host.coming and not host.cordoned:
        return Standing.COMING, ""
    if host.cordoned and host.state in (WorkerState.CORDONED, WorkerState.ORDERED, WorkerState.PENDING):
        return Standing.CLOSED, WorkerState.CORDONED.value
    return Standing.CLOSED, host.state.value if host.reported else "not reporting yet"


class Workers:
    """Moves workers along their table, and tells the core where each stands."""

    def __init__(self, ledger: Ledger, group: Group, deciding: Deciding, containers: Containers) -> None:
        self._ledger = ledger
        self._group = group
        self._deciding = deciding
        self._containers = containers
        self._ticked_at_s: float | None = None
        self._told_free: dict[str, scheduling.RoomFree] = {}

    def know(self, host: Host, now_s: float) -> None:
        """A worker that is ordered, or that an earlier leader had."""
        self._ledger.add_host(host)
        self._tell(host, now_s)

    def _tell(self, host: Host, now_s: float) -> None:
        standing, why = standing_of(host)
        event = events.NodeSet(
            node_id=host.worker_id,
            pool=host.pool,
            capacity=host.capacity,
            traits=host.traits,
            standing=standing,
            why_closed=why,
        )
        self._deciding.tell(event, now_s)

    def ordered(self, message: scheduling.WorkerOrdered, now_s: float) -> None:
        """A worker is on its way; hearing it twice is hearing it once."""
        if message.worker_id in self._ledger.hosts:
            return
        host = Host(
            worker_id=message.worker_id,
            pool=message.pool,
            capacity=message.capacity,
            traits=message.traits,
            idle_since_s=now_s,
            silent_since_s=now_s,
            ordered=message.capacity,
        )
        self.know(host, now_s)

    def reported(self, message: scheduling.WorkerReported, source: str, now_s: float) -> None:
        """A worker's whole truth, as far as it can be. An older life is ignored; one that is gone for us must leave."""
        host = self._ledger.hosts.get(message.worker_id)
        if host is None or source != f"worker/{message.worker_id}":
            self._group.send(source, scheduling.StopWorker(worker_id=message.worker_id, why=_STRANGER))
            return
        believed = hearsay.believed(message, host)
        if believed is not None and believed.epoch >= host.epoch:
            self._reported(host, believed, now_s)

    def _reported(self, host: Host, message: scheduling.WorkerReported, now_s: float) -> None:
        host.move(WorkerEvent.REPORTED)
        host.epoch = message.epoch
        if not host.reported or host.capacity != message.capacity:
            host.capacity = message.capacity
            self._group.record_largest(host)
        if not host.reported:
            self._arrived(host, message)
        host.reported = True
        if host.cordoned and host.open:
            host.move(WorkerEvent.CORDON_ASKED)
        if host.stop_why:
            self._drain(host, host.stop_why)
        self._group.move_worker(host)
        self._tell(host, now_s)
        self._reconcile(host, message.containers, now_s)

    def _arrived(self, host: Host, message: scheduling.WorkerReported) -> None:
        """It has come. One for its node's cards that has none of them keeps them from others: it is made to leave."""
        ordered, lacks = host.ordered, ""
        if host.traits.node and ordered is not None and message.capacity.gpu_count < min(ordered.gpu_count, 1):
            lacks = message.lacks or _NO_CARDS
            host.stop_why = f"it has none of the cards that were ordered: {lacks}"
        arrived = scheduling.WorkerArrived(worker_id=host.worker_id, lacks=lacks)
        self._group.send(f"pool/{host.pool}", arrived)

    def _reconcile(self, host: Host, reports: tuple[scheduling.ContainerReport, ...], now_s: float) -> None:
        """Start what the worker never heard of, stop what is not ours, end what it lost.

        A worker tells results and ends before it reports, so what is missing here is lost, unless it was only placed:
        then the order to start it may still be on its way.
        """
        theirs = {report.container_id: report for report in reports}
        stop = tuple(container_id for container_id in theirs if container_id not in host.rooms)
        accepted = scheduling.WorkerAccepted(worker_id=host.worker_id, stop=stop)
        self._group.send(f"worker/{host.worker_id}", accepted)
        for room in tuple(host.rooms.values()):
            report = theirs.get(room.container_id)
            if report is None and room.state is ContainerState.PLACED:
                self._containers.start(room, now_s)
            elif report is None:
                self._containers.end(room, ContainerEvent.ENDED, End.DISCONNECTED, "its worker no longer has it", now_s)
            elif room.state is ContainerState.STOPPING:
                self._containers.stop(room, "it was asked before")
            elif report.state is ContainerState.READY:
                ready = scheduling.ContainerReady(
                    container_id=room.container_id, window=report.window, address=report.address
                )
                self._containers.ready(ready, f"worker/{host.worker_id}", now_s)

    def quiet(self, peer: str, now_s: float) -> None:
        """Nothing was heard of a worker: it gets nothing new, and keeps what it has. This is never evidence."""
        kind, _, worker_id = peer.partition("/")
        host = self._ledger.hosts.get(worker_id) if kind == "worker" else None
        if host is None or host.coming or host.state is WorkerState.UNKNOWN:
            return
        host.move(WorkerEvent.SILENT)
        host.silent_since_s = now_s
        self._group.move_worker(host)
        self._tell(host, now_s)
        for room in host.rooms.values():
            if room.state is ContainerState.READY:
                self._containers.tell_available(room, 0)

    def lose(self, worker_id: str, why: str, now_s: float, event: WorkerEvent = WorkerEvent.EVIDENCE_OF_END) -> None:
        """A worker is gone, and what it ran with it."""
        host = self._ledger.hosts.get(worker_id)
        if host is None:
            return
        host.move(event)
        self._group.move_worker(host, why)
        self._group.revoke(worker_id)
        self._deciding.tell(events.NodeGone(node_id=worker_id), now_s)
        declared = self._ledger.pools.get(host.pool)
        for room in tuple(host.rooms.values()):
            # What an agent says of a pod names nodes, which only the owner of its cluster may know.
            tells = declared is not None and declared.owner in ("", room.workspace_id)
            told = f"worker {worker_id} is gone{f': {why}' if tells else ''}"
            self._containers.end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, told, now_s)
        del self._ledger.hosts[worker_id]

    def forget_pool(self, pool: str) -> None:
        """A pool is no more; one of that name that comes later is told what is free."""
        self._told_free.pop(pool, None)

    # What people wish

    def wish(self, worker_id: str, wish: WorkerWish, now_s: float) -> WorkerState | None:
        """Cordon, uncordon or drain a worker; returns its state after that, None when nobody knows it."""
        host = self._ledger.hosts.get(worker_id)
        if host is None:
            return None
        if wish is WorkerWish.DRAIN:
            host.stop_why = "a person asked for it"
            if host.state in (WorkerState.AVAILABLE, WorkerState.CORDONED, WorkerState.DRAINING):
                self._drain(host, host.stop_why)
        else:
            host.cordoned = wish is WorkerWish.CORDON
            event = _MOVED_AT_ONCE.get((wish, host.state))
            if event is not None:
                host.move(event)
        self._group.move_worker(host)
        self._tell(host, now_s)
        return host.state

    # Time

    def tick(self, now_s: float) -> None:
        """Leases that run out, and workers that stand idle."""
        self._allow_for_own_outage(now_s)
        for host in tuple(self._ledger.hosts.values()):
            if host.unheard and now_s - host.silent_since_s >= WORKER_LEASE_S:
                if host.state is not WorkerState.UNKNOWN:
                    host.move(WorkerEvent.SILENT)
                self.lose(host.worker_id, "its lease ran out in silence", now_s, WorkerEvent.LEASE_RAN_OUT)
        by_pool: dict[str, list[Host]] = {}
        for host in self._ledger.hosts.values():
            by_pool.setdefault(host.pool, []).append(host)
        for pool, hosts in by_pool.items():
            self._wind_down(pool, hosts, now_s)

    def _allow_for_own_outage(self, now_s: float) -> None:
        """If we stood still ourselves, nobody could be heard: all leases begin anew."""
        stood_still = self._ticked_at_s is not None and now_s - self._ticked_at_s > OWN_OUTAGE_S
        self._ticked_at_s = now_s
        if stood_still:
            for host in self._ledger.hosts.values():
                host.silent_since_s = now_s

    def _wind_down(self, pool: str, all_hosts: list[Host], now_s: float) -> None:
        """Idle workers leave, but for those that the pool keeps, and without whom less than it wants would be free."""
        declared = self._ledger.pools.get(pool) or scheduling.PoolDeclared(pool=pool)
        hosts = [host for host in all_hosts if host.open]
        idle = [host for host in hosts if self._is_empty(host) and self._may_leave(host, declared.idle_s, now_s)]
        free = self._free(hosts) if declared.min_free != NOTHING else NOTHING
        if declared.min_free != NOTHING:
            self._tell_free(pool, [host for host in all_hosts if host.open or host.coming])
        for host in idle[: max(0, len(hosts) - declared.keep_workers)]:
            left = free.less(self._free([host]))
            if declared.min_free != NOTHING and not _covers(left, declared.min_free):
                continue
            free = left
            self._drain(host, "idle")
            self._group.move_worker(host)
            self._tell(host, now_s)

    def _may_leave(self, host: Host, idle_s: float, now_s: float) -> bool:
        """Whether it has been idle for long enough, or keeps cards of its node from somebody who waits for them."""
        if now_s - host.idle_since_s >= idle_s:
            return True
        core = self._deciding.core
        follower = core.fleet.follower(host.worker_id)
        return follower is not None and any(
            core.fleet.could_use(follower, request.workspace, shape)
            for request, fits in core.holding.longest_roomless()
            for _, shape in fits
        )

    def _is_empty(self, host: Host) -> bool:
        """Nothing is on it, and nothing is promised to a gang of which others are still to come."""
        return not host.rooms and not self._deciding.core.fleet.nodes[host.worker_id].uses

    def _tell_free(self, pool: str, hosts: list[Host]) -> None:
        """The pool orders ahead of anybody's wish: it hears what is left, once it has changed."""
        orders = self._ledger.orders.get(pool, 0)
        message = scheduling.RoomFree(pool=pool, free=self._free(hosts), orders_seen=orders)
        if self._told_free.get(pool) != message:
            self._told_free[pool] = message
            self._group.send(f"pool/{pool}", message)

    def _free(self, hosts: list[Host]) -> Amount:
        free = NOTHING
        for host in hosts:
            free = free.plus(self._deciding.core.fleet.nodes[host.worker_id].free)
        return free

    def _drain(self, host: Host, why: str) -> None:
        """It must go: it gets nothing new, and is told again each time it reports."""
        if host.state is not WorkerState.DRAINING:
            host.move(WorkerEvent.DRAIN_ASKED)
        host.stop_why = why
        self._group.send(f"worker/{host.worker_id}", scheduling.StopWorker(worker_id=host.worker_id, why=why))


def _covers(free: Amount, wanted: Amount) -> bool:
    return (
        free.cpu_milli >= wanted.cpu_milli
        and free.memory_mib >= wanted.memory_mib
        and free.gpu_milli >= wanted.gpu_milli
    )
