"""Workers from order to end. Silence makes one unknown; only evidence, or the end of its lease, makes it gone."""

from __future__ import annotations

from typing import Final

from ...model.figures import IDLE_WORKER_S, OWN_OUTAGE_S, WORKER_LEASE_S
from ...model.states import ContainerEvent, ContainerState, End, WorkerEvent, WorkerState
from ...wire import scheduling
from .containers import Containers
from .group import Group
from .ledger import Host, Ledger

_STRANGER: Final = "this worker is not known here any more"


class Workers:
    """Moves workers along their table. `keep` says how many workers of a pool never wind down."""

    def __init__(self, ledger: Ledger, group: Group, containers: Containers, keep: dict[str, int]) -> None:
        self._ledger = ledger
        self._group = group
        self._containers = containers
        self._keep = keep
        self._ticked_at_s: float | None = None

    def ordered(self, message: scheduling.WorkerOrdered, now_s: float) -> None:
        """A worker is on its way; hearing it twice is hearing it once."""
        if message.worker_id in self._ledger.hosts:
            return
        self._ledger.add_host(
            Host(
                worker_id=message.worker_id,
                pool=message.pool,
                capacity=message.capacity,
                free=message.capacity,
                idle_since_s=now_s,
                silent_since_s=now_s,
            )
        )

    def reported(self, message: scheduling.WorkerReported, source: str, now_s: float) -> None:
        """A worker's whole truth. An older life of it is ignored; one that is gone for us must leave."""
        host = self._ledger.hosts.get(message.worker_id)
        if host is None or source != f"worker/{message.worker_id}":
            self._group.send(source, scheduling.StopWorker(worker_id=message.worker_id, why=_STRANGER))
            return
        if message.epoch < host.epoch:
            return
        host.move(WorkerEvent.REPORTED)
        host.epoch = message.epoch
        if not host.reported or host.capacity != message.capacity:
            host.resize(message.capacity)
            self._group.record_largest(host)
        host.reported = True
        if host.stop_why:
            self._drain(host, host.stop_why)
        self._group.move_worker(host)
        self._reconcile(host, message.containers, now_s)

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
                self._containers.ready(room.container_id, report.window, f"worker/{host.worker_id}")

    def quiet(self, peer: str, now_s: float) -> None:
        """Nothing was heard of a worker: it gets nothing new, and keeps what it has. This is never evidence."""
        kind, _, worker_id = peer.partition("/")
        host = self._ledger.hosts.get(worker_id) if kind == "worker" else None
        if host is None or host.coming or host.state is WorkerState.UNKNOWN:
            return
        host.move(WorkerEvent.SILENT)
        host.silent_since_s = now_s
        self._group.move_worker(host)
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
        why = f"worker {worker_id} is gone: {why}"
        for room in tuple(host.rooms.values()):
            self._containers.end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, why, now_s)
        del self._ledger.hosts[worker_id]

    # Time

    def tick(self, now_s: float) -> None:
        """Leases that run out, and workers that stand idle."""
        self._allow_for_own_outage(now_s)
        for host in tuple(self._ledger.hosts.values()):
            if host.unheard and now_s - host.silent_since_s >= WORKER_LEASE_S:
                if host.state is not WorkerState.UNKNOWN:
                    host.move(WorkerEvent.SILENT)
                self.lose(host.worker_id, "its lease ran out in silence", now_s, WorkerEvent.LEASE_RAN_OUT)
        for pool in dict.fromkeys(host.pool for host in self._ledger.hosts.values()):
            self._wind_down(pool, now_s)

    def _allow_for_own_outage(self, now_s: float) -> None:
        """If we stood still ourselves, nobody could be heard: all leases begin anew."""
        stood_still = self._ticked_at_s is not None and now_s - self._ticked_at_s > OWN_OUTAGE_S
        self._ticked_at_s = now_s
        if stood_still:
            for host in self._ledger.hosts.values():
                host.silent_since_s = now_s

    def _wind_down(self, pool: str, now_s: float) -> None:
        hosts = [host for host in self._ledger.hosts.values() if host.pool == pool and host.open]
        idle = [host for host in hosts if not host.rooms and now_s - host.idle_since_s >= IDLE_WORKER_S]
        for host in idle[: max(0, len(hosts) - self._keep.get(pool, 0))]:
            self._drain(host, "idle")
            self._group.move_worker(host)

    def _drain(self, host: Host, why: str) -> None:
        """It must go: it gets nothing new, and is told again each time it reports."""
        if host.state is not WorkerState.DRAINING:
            host.move(WorkerEvent.DRAIN_ASKED)
        host.stop_why = why
        self._group.send(f"worker/{host.worker_id}", scheduling.StopWorker(worker_id=host.worker_id, why=why))
