"""The whole decision about room, pure: reports and requests in, one plan out, committed before any of it is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...errors import INVALID, Refused
from ...model.figures import IDLE_WORKER_S, REPORT_WAIT_S, WORKER_LEASE_S
from ...model.resources import Capacity
from ...model.states import ContainerEvent, ContainerState, End, TokenKind, WorkerEvent, WorkerState
from ...model.tokens import hash_of, hint_of
from ...store import operations as ops
from ...wire import control, scheduling
from ...wire.client import StubSpec
from ...wire.letter import Letter
from ...wire.message import Send
from .ledger import Host, Room
from .placement import best_fit, shortfall

WANTED_MAX: Final = 256  # shapes told to a pool at a time: more would not change what it orders now


class Plan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and the messages that follow from it."""

    operations: list[ops.Operation]
    sends: list[Send]


class SchedulerPolicy:
    """Owns every container that has not ended and every worker that is not gone.

    `new_id(kind)` makes identities, `new_token(kind)` token values; `pools` are in the order in which
    they are asked for workers; `keep` says how many idle workers of a pool never wind down.
    """

    def __init__(
        self,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        pools: tuple[str, ...],
        keep: dict[str, int] | None = None,
    ) -> None:
        self._new_id = new_id
        self._new_token = new_token
        self._pools = pools
        self._keep = keep or {}
        self.hosts: dict[str, Host] = {}
        self.rooms: dict[str, Room] = {}
        self._waiting: dict[str, deque[str]] = {}
        self._held: dict[str, str] = {}
        self._pool_held: dict[str, str] = {}
        self._orders: dict[str, int] = dict.fromkeys(pools, 0)
        self._wanted_before: dict[str, scheduling.RoomWanted] = {}
        self._places_from_s = 0.0
        self._dirty = True
        self._reset_group()

    def _reset_group(self) -> None:
        self._container_moves: list[ops.ContainerMove] = []
        self._worker_moves: list[ops.WorkerMove] = []
        self._operations: list[ops.Operation] = []
        self._revoked: list[str] = []
        self._sends: list[Send] = []

    # Recovery

    def load(
        self,
        workers: Iterable[ops.WorkerRow],
        containers: Iterable[ops.ContainerRow],
        specs: dict[str, StubSpec],
        now_s: float,
    ) -> None:
        """Begin from the store. Nothing new is placed before known workers have reported, or 15 s have passed."""
        for row in workers:
            self._know_worker(row, now_s)
        for container in containers:
            if container.state is not ContainerState.ENDED and container.stub_id in specs:
                self._know_container(container, specs[container.stub_id], now_s)
        self._places_from_s = now_s + REPORT_WAIT_S

    def _know_worker(self, row: ops.WorkerRow, now_s: float) -> None:
        if row.state is WorkerState.GONE:
            return
        self.hosts[row.worker_id] = Host(
            worker_id=row.worker_id,
            pool=row.pool,
            capacity=row.capacity,
            free=row.capacity,
            state=row.state,
            epoch=row.epoch,
            idle_since_s=now_s,
            silent_since_s=now_s,
        )
        self._orders[row.pool] = self._orders.get(row.pool, 0) + 1

    def _know_container(self, row: ops.ContainerRow, spec: StubSpec, now_s: float) -> None:
        room = Room(
            container_id=row.container_id,
            stub_id=row.stub_id,
            workspace_id=row.workspace_id,
            spec=spec,
            state=row.state,
        )
        self.rooms[row.container_id] = room
        host = self.hosts.get(row.worker_id)
        if room.state is ContainerState.REQUESTED:
            self._queue(room)
        elif host is None:
            self._end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, "its worker is gone", now_s)
        else:
            host.take(room)

    @property
    def places(self) -> bool:
        """Whether the known workers have all reported since this leader began."""
        return all(host.reported or host.coming for host in self.hosts.values())

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in."""
        self._dirty = True
        if letter.source.startswith("worker/"):
            self._from_worker(letter, now_s)
        else:
            self._from_platform(letter, now_s)

    def _from_worker(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.ContainerReady() as message:
                self._ready(message.container_id, message.window, letter.source)
            case scheduling.ContainerEnded() as message:
                self._ended(message, letter.source, now_s)
            case scheduling.WorkerReported() as message:
                self._reported(message, letter.source, now_s)
            case scheduling.WorkerLeaving() as message if letter.source == f"worker/{message.worker_id}":
                self._lose(message.worker_id, f"it said goodbye: {message.why}", now_s)
            case message:
                raise Refused(f"scheduler does not take {type(message).__name__} of a worker.", code=INVALID)

    def _from_platform(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.RequestContainers() as message:
                self._request(message)
            case scheduling.ReleaseContainers() as message:
                for container_id in message.container_ids:
                    self._release(container_id, message.why, now_s)
            case scheduling.WorkerGone() as message:
                self._lose(message.worker_id, message.evidence, now_s)
            case scheduling.WorkerOrdered() as message:
                self._ordered(message, now_s)
            case scheduling.PoolHeld() as message:
                self._pool_held[message.pool] = message.why
            case control.PeerQuiet() as message:
                self._quiet(message.peer, now_s)
            case message:
                raise Refused(f"scheduler does not take {type(message).__name__}.", code=INVALID)

    def _request(self, message: scheduling.RequestContainers) -> None:
        for container_id in message.container_ids:
            if container_id in self.rooms:
                continue
            room = Room(
                container_id=container_id,
                stub_id=message.stub_id,
                workspace_id=message.workspace_id,
                spec=message.spec,
            )
            self.rooms[container_id] = room
            self._queue(room)

    def _queue(self, room: Room) -> None:
        self._waiting.setdefault(room.stub_id, deque()).append(room.container_id)

    def _release(self, container_id: str, why: str, now_s: float) -> None:
        room = self.rooms.get(container_id)
        if room is None:
            return
        if room.state is ContainerState.REQUESTED:
            self._end(room, ContainerEvent.STOP_ASKED, End.CANCELLED, why, now_s)
            return
        self._move(room, ContainerEvent.STOP_ASKED)
        self._stop(room, why)

    def _stop(self, room: Room, why: str) -> None:
        message = scheduling.StopContainer(container_id=room.container_id, why=why)
        self._sends.append(Send(f"worker/{room.worker_id}", message))

    def _ready(self, container_id: str, window: int, source: str) -> None:
        room = self.rooms.get(container_id)
        if room is None or source != f"worker/{room.worker_id}" or room.state is ContainerState.REQUESTED:
            return
        room.window = window
        before = room.state
        room.move(ContainerEvent.BECAME_READY)
        if room.state is not ContainerState.READY:
            return
        if before is not room.state:
            self._record(room, before)
        self._tell_available(room, window)

    def _tell_available(self, room: Room, window: int) -> None:
        message = scheduling.ContainerAvailable(
            container_id=room.container_id, stub_id=room.stub_id, worker_id=room.worker_id, window=window
        )
        self._sends.append(Send("tasks", message))

    def _ended(self, message: scheduling.ContainerEnded, source: str, now_s: float) -> None:
        room = self.rooms.get(message.container_id)
        if room is not None and source == f"worker/{room.worker_id}":
            self._end(room, ContainerEvent.ENDED, message.end, message.why, now_s)
        self._sends.append(Send(source, scheduling.ContainerForgotten(container_id=message.container_id)))

    def _move(self, room: Room, event: ContainerEvent) -> None:
        before = room.state
        room.move(event)
        if room.state is not before:
            self._record(room, before)

    def _record(self, room: Room, before: ContainerState, end: End | None = None, why: str = "") -> None:
        self._container_moves.append(
            ops.ContainerMove(
                container_id=room.container_id,
                sources=(before,),
                state=room.state,
                worker_id=room.worker_id or None,
                end=end,
                why=why,
            )
        )

    def _end(self, room: Room, event: ContainerEvent, end: End, why: str, now_s: float) -> None:
        before = room.state
        room.move(event)
        self._record(room, before, end, why)
        del self.rooms[room.container_id]
        self._revoked.append(room.container_id)
        host = self.hosts.get(room.worker_id)
        if host is not None:
            host.give_back(room, now_s)
        gone = scheduling.ContainerGone(container_id=room.container_id, stub_id=room.stub_id, end=end, why=why)
        self._sends.append(Send("tasks", gone))

    # Workers

    def _ordered(self, message: scheduling.WorkerOrdered, now_s: float) -> None:
        if message.worker_id in self.hosts:
            return
        self.hosts[message.worker_id] = Host(
            worker_id=message.worker_id,
            pool=message.pool,
            capacity=message.capacity,
            free=message.capacity,
            idle_since_s=now_s,
        )
        self._orders[message.pool] = self._orders.get(message.pool, 0) + 1

    def _reported(self, message: scheduling.WorkerReported, source: str, now_s: float) -> None:
        host = self.hosts.get(message.worker_id)
        if host is None or source != f"worker/{message.worker_id}":
            stop = scheduling.StopWorker(worker_id=message.worker_id, why="this worker is not known here any more")
            self._sends.append(Send(source, stop))
            return
        if message.epoch < host.epoch:
            return
        host.move(WorkerEvent.REPORTED)
        host.epoch = message.epoch
        host.reported = True
        self._resize(host, message.capacity)
        self._worker_moves.append(
            ops.WorkerMove(
                worker_id=host.worker_id,
                sources=(),
                state=host.state,
                epoch=host.epoch,
                capacity=host.capacity,
            )
        )
        self._reconcile(host, message.containers, now_s)

    def _resize(self, host: Host, capacity: Capacity) -> None:
        free = capacity
        for room in host.rooms.values():
            free = free.less(room.spec.shape)
        host.capacity, host.free = capacity, free
        self._operations.append(ops.PutPool(pool=host.pool, largest=capacity))

    def _reconcile(self, host: Host, reports: tuple[scheduling.ContainerReport, ...], now_s: float) -> None:
        """Start what the worker never heard of, stop what is not ours, end what it lost."""
        theirs = {report.container_id: report for report in reports}
        stop = tuple(container_id for container_id in theirs if container_id not in host.rooms)
        accepted = scheduling.WorkerAccepted(worker_id=host.worker_id, stop=stop)
        self._sends.append(Send(f"worker/{host.worker_id}", accepted))
        for room in tuple(host.rooms.values()):
            report = theirs.get(room.container_id)
            if report is None and room.state is ContainerState.PLACED:
                self._start(room)
            elif report is None:
                self._end(room, ContainerEvent.ENDED, End.DISCONNECTED, "its worker no longer has it", now_s)
            elif room.state is ContainerState.STOPPING:
                self._stop(room, "asked before")
            elif report.state is ContainerState.READY:
                self._ready(room.container_id, report.window, f"worker/{host.worker_id}")

    def _quiet(self, peer: str, now_s: float) -> None:
        kind, _, worker_id = peer.partition("/")
        host = self.hosts.get(worker_id) if kind == "worker" else None
        if host is None or host.coming or host.state is WorkerState.UNKNOWN:
            return
        host.move(WorkerEvent.SILENT)
        host.silent_since_s = now_s
        self._worker_moves.append(ops.WorkerMove(worker_id=worker_id, sources=(), state=host.state))
        for room in host.rooms.values():
            if room.state is ContainerState.READY:
                self._tell_available(room, 0)

    def _lose(self, worker_id: str, why: str, now_s: float, event: WorkerEvent = WorkerEvent.EVIDENCE_OF_END) -> None:
        host = self.hosts.pop(worker_id, None)
        if host is None:
            return
        host.move(event)
        self._worker_moves.append(ops.WorkerMove(worker_id=worker_id, sources=(), state=host.state, why=why))
        self._revoked.append(worker_id)
        for room in tuple(host.rooms.values()):
            self._end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, f"worker {worker_id} is gone: {why}", now_s)

    # Time

    def tick(self, now_s: float) -> None:
        """What only time brings: leases that run out, workers that stand idle, the end of a new leader's wait."""
        self._dirty = True
        for host in tuple(self.hosts.values()):
            unheard = host.state is WorkerState.UNKNOWN or (not host.reported and not host.coming)
            if unheard and now_s - host.silent_since_s >= WORKER_LEASE_S:
                if host.state is not WorkerState.UNKNOWN:
                    host.move(WorkerEvent.SILENT)
                self._lose(host.worker_id, "its lease ran out in silence", now_s, WorkerEvent.LEASE_RAN_OUT)
        for pool in self._pools:
            self._wind_down(pool, now_s)

    def _wind_down(self, pool: str, now_s: float) -> None:
        hosts = [host for host in self.hosts.values() if host.pool == pool and host.open]
        idle = [host for host in hosts if not host.rooms and now_s - host.idle_since_s >= IDLE_WORKER_S]
        for host in idle[: max(0, len(hosts) - self._keep.get(pool, 0))]:
            host.stopping = True
            stop = scheduling.StopWorker(worker_id=host.worker_id, why="idle")
            self._sends.append(Send(f"worker/{host.worker_id}", stop))

    # The plan

    def plan(self, now_s: float) -> Plan | None:
        """Place what has room, say why the rest waits and what is wanted; None when there is nothing to do."""
        if self._dirty and (self.places or now_s >= self._places_from_s):
            self._place()
            self._dirty = False
        operations = self._operations
        if self._container_moves:
            operations.append(ops.MoveContainers(moves=tuple(self._container_moves), now_s=now_s))
        if self._worker_moves:
            operations.append(ops.MoveWorkers(moves=tuple(self._worker_moves), now_s=now_s))
        if self._revoked:
            operations.append(ops.RevokeTokens(subjects=tuple(self._revoked)))
        plan = Plan(operations=operations, sends=self._sends)
        self._reset_group()
        return plan if plan.operations or plan.sends else None

    @staticmethod
    def settle(plan: Plan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed."""
        return plan.sends

    def _place(self) -> None:
        open_hosts = [host for host in self.hosts.values() if host.open]
        coming = {host.worker_id: host.free for host in self.hosts.values() if host.coming}
        wanted: dict[str, list[Room]] = {pool: [] for pool in self._pools}
        for stub_id in tuple(self._waiting):
            queue = self._waiting[stub_id]
            why = self._place_stub(queue, open_hosts, coming, wanted)
            if not queue:
                del self._waiting[stub_id]
            self._tell_held(stub_id, why)
        for pool in self._pools:
            self._tell_wanted(pool, wanted[pool])

    def _place_stub(
        self,
        queue: deque[str],
        open_hosts: list[Host],
        coming: dict[str, Capacity],
        wanted: dict[str, list[Room]],
    ) -> str:
        """Place one stub's requests in order; they are all of one shape, so the first that has no room ends it."""
        while queue:
            room = self.rooms.get(queue[0])
            if room is None or room.state is not ContainerState.REQUESTED:
                queue.popleft()
                continue
            host = best_fit(room.spec.shape, open_hosts)
            if host is None:
                return self._look_ahead(queue, room, open_hosts, coming, wanted)
            queue.popleft()
            host.take(room)
            self._move(room, ContainerEvent.PLACED)
            self._start(room)
        return ""

    def _look_ahead(
        self,
        queue: deque[str],
        first: Room,
        open_hosts: list[Host],
        coming: dict[str, Capacity],
        wanted: dict[str, list[Room]],
    ) -> str:
        shape = first.spec.shape
        left = [room for container_id in queue if (room := self.rooms.get(container_id)) is not None]
        for worker_id, free in coming.items():
            while left and shape.pool in ("", self.hosts[worker_id].pool) and free.fits(shape):
                free = free.less(shape)
                left.pop()
            coming[worker_id] = free
        pools = [pool for pool in self._pools if shape.pool in ("", pool)]
        if left and pools:
            wanted[pools[0]].extend(left[:WANTED_MAX])
        why = f"{shortfall(shape, open_hosts)}."
        if not left:
            return f"{why} A worker is starting."
        holds = [f"Pool {pool}: {self._pool_held[pool]}" for pool in pools if self._pool_held.get(pool)]
        return " ".join((why, *holds))

    def _tell_held(self, stub_id: str, why: str) -> None:
        if self._held.get(stub_id, "") != why:
            self._held[stub_id] = why
            self._sends.append(Send("tasks", scheduling.ContainerHeld(stub_id=stub_id, why=why)))
        if not why:
            self._held.pop(stub_id, None)

    def _tell_wanted(self, pool: str, rooms: list[Room]) -> None:
        shapes = tuple(room.spec.shape for room in rooms[:WANTED_MAX])
        message = scheduling.RoomWanted(pool=pool, shapes=shapes, orders_seen=self._orders.get(pool, 0))
        if message != self._wanted_before.get(pool, scheduling.RoomWanted(pool=pool, shapes=())):
            self._wanted_before[pool] = message
            self._sends.append(Send(f"pool/{pool}", message))

    def _start(self, room: Room) -> None:
        token = self._new_token(TokenKind.WORKSPACE_RESTRICTED)
        self._operations.append(ops.CreateToken(token=self._token_row(room, token)))
        message = scheduling.StartContainer(
            container_id=room.container_id,
            stub_id=room.stub_id,
            workspace_id=room.workspace_id,
            spec=room.spec,
            token=token,
        )
        self._sends.append(Send(f"worker/{room.worker_id}", message))

    def _token_row(self, room: Room, token: str) -> ops.TokenRow:
        return ops.TokenRow(
            token_id=self._new_id("token"),
            workspace_id=room.workspace_id,
            kind=TokenKind.WORKSPACE_RESTRICTED,
            name=f"container {room.container_id}",
            hash=hash_of(token),
            hint=hint_of(token),
            active=True,
            created_at_s=0.0,
            subject=room.container_id,
        )
