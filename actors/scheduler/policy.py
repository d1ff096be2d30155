"""What is told to the scheduler, and what follows, pure: letters in, one plan out, committed before any of it is sent.

The core decides about room. Here letters become events for it, and its decisions rows and messages: containers and
workers each have a part that moves them along their tables, all into one group, which becomes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...errors import INVALID, Refused
from ...model.figures import REPORT_WAIT_S
from ...model.hearsay import sentence
from ...model.queues import Queueing
from ...model.states import ContainerEvent, ContainerState, End, TokenKind, WorkerState
from ...store import operations as ops
from ...wire import control, operating, scheduling
from ...wire.client import RequestRefused, StubSpec
from ...wire.letter import Letter
from ...wire.message import Failure, Send
from ..applied import require_all
from . import events
from .containers import PREEMPTED, Containers, request_of
from .core import Core
from .deciding import Deciding
from .group import Group, Plan
from .journal import Record
from .ledger import CORDONED, Host, Ledger, Room
from .operating import OPERATORS, Operators
from .performing import Performing
from .placement import Placement, new_placement
from .workers import Workers

_NO_QUEUEING = Queueing()


class SchedulerPolicy:
    """Owns every container that has not ended and every worker that is not gone.

    `new_id(kind)` makes identities, `new_token(kind)` token values; `queueing` is what files say of queues and quotas.
    `declared` are pools known beforehand; others declare themselves.
    """

    def __init__(
        self,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        declared: tuple[scheduling.PoolDeclared, ...] = (),
        queueing: Queueing = _NO_QUEUEING,
        placement: Callable[[str], Placement] = new_placement,
    ) -> None:
        self.ledger = Ledger()
        self._group = Group()
        self._deciding = Deciding(Core(placement, queueing))
        self._containers = Containers(self.ledger, self._group, self._deciding, new_id, new_token)
        self._workers = Workers(self.ledger, self._group, self._deciding, self._containers)
        self._operators = Operators(self._group, self._deciding, self._workers, queueing)
        self._performing = Performing(self.ledger, self._group, self._deciding, self._containers)
        self._places_from_s = 0.0
        self._more = False
        for message in declared:
            self._declare(message, 0.0)

    @property
    def core(self) -> Core:
        """Who decides."""
        return self._deciding.core

    def take_records(self) -> list[Record]:
        """What the core was told and decided since the last time, for the journal."""
        return self._deciding.take_records()

    # Recovery

    def load(
        self,
        workers: Iterable[ops.WorkerRow],
        containers: Iterable[ops.ContainerRow],
        specs: Mapping[str, StubSpec],
        now_s: float,
        kept: Queueing = _NO_QUEUEING,
    ) -> None:
        """Begin from the store. Nothing new is placed before known workers have reported, or 15 s have passed."""
        self._operators.load(kept, now_s)
        self._places_from_s = now_s + REPORT_WAIT_S
        self._deciding.tell(events.PlacementsFrom(at_s=self._places_from_s), now_s)
        for row in workers:
            if row.state is not WorkerState.GONE:
                self._workers.know(_host(row, now_s), now_s)
        self._load_containers(containers, specs, now_s)
        for pool in self.ledger.pools:
            self._containers.withdraw(pool)
        self._see_whether_all_reported(now_s)

    def _load_containers(
        self, containers: Iterable[ops.ContainerRow], specs: Mapping[str, StubSpec], now_s: float
    ) -> None:
        requests: dict[str, list[Room]] = {}
        asked_at_s: dict[str, float] = {}
        for row in containers:
            if row.state is not ContainerState.ENDED:
                room = _room(row, specs[row.stub_id])
                self.ledger.add_room(room)
                key = row.gang_id or row.container_id
                requests.setdefault(key, []).append(room)
                asked_at_s.setdefault(key, row.requested_at_s)
        for key, rooms in requests.items():
            self._restore(sorted(rooms, key=lambda room: room.rank), asked_at_s[key], now_s)

    def _restore(self, rooms: list[Room], asked_at_s: float, now_s: float) -> None:
        """Members that are missing from a gang have ended; what its worker lost is ended here."""
        placed = [room for room in rooms if room.state is not ContainerState.REQUESTED]
        if not placed and rooms[0].gang_id and len(rooms) < rooms[0].spec.nodes:
            for room in rooms:
                why = "nothing is left of its gang"
                self._containers.end(room, ContainerEvent.STOP_ASKED, End.DISCONNECTED, why, now_s)
            return
        if not placed:
            self._deciding.tell(events.Requested(requests=(request_of(rooms, asked_at_s),)), now_s)
            return
        by_rank = {room.rank: room for room in placed}
        world = rooms[0].spec.nodes if rooms[0].gang_id else 1
        request = request_of(rooms, asked_at_s)
        members = tuple(by_rank[rank].container_id if rank in by_rank else "" for rank in range(world))
        spots = tuple(_spot(by_rank.get(rank)) for rank in range(world))
        hosts = (self.ledger.hosts.get(room.worker_id) for room in placed if room.gang_id)
        restored = events.Restored(
            request=events.with_members(request, members),
            spots=spots,
            flavor=placed[0].flavor,
            pool=next((host.pool for host in hosts if host is not None), ""),
        )
        self._deciding.tell(restored, now_s)
        for room in rooms:
            self._know(room, now_s)

    def _know(self, room: Room, now_s: float) -> None:
        if room.state is ContainerState.REQUESTED:
            room.replaces = True
            lost = events.Replacement(request_id=room.gang_id, rank=room.rank, member=room.container_id)
            self._deciding.tell(lost, now_s)
            return
        host = self.ledger.hosts.get(room.worker_id)
        if host is not None:
            self.ledger.join(room, host)
            if room.state is not ContainerState.PLACED:
                self._deciding.tell(events.Started(member=room.container_id), now_s)
        else:
            self._containers.end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, "its worker is gone", now_s)

    def _see_whether_all_reported(self, now_s: float) -> None:
        if self._places_from_s and all(host.reported or host.coming for host in self.ledger.hosts.values()):
            self._places_from_s = 0.0
            self._deciding.tell(events.PlacementsFrom(at_s=0.0), now_s)

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in. What it may say is decided by who sent it: the gateway vouches for `source`."""
        side = letter.source.partition("/")[0]
        if side == "worker":
            self._from_worker(letter, now_s)
        elif side == "tasks":
            self._from_tasks(letter, now_s)
        elif side == "pool":
            self._from_pool(letter, now_s)
        elif side == "gateway" and isinstance(letter.message, control.PeerQuiet):
            self._workers.quiet(letter.message.peer, now_s)
        elif side == "gateway" and isinstance(letter.message, OPERATORS):
            self._from_operator(letter, now_s)
        elif letter.expects_answer:
            failure = Failure(INVALID, f"scheduler does not take {type(letter.message).__name__} of {side}.")
            self._group.answer(letter, RequestRefused(failure=failure))

    def _from_worker(self, letter: Letter, now_s: float) -> None:
        """What else a worker may say is nothing to us: it can't bring us down."""
        match letter.message:
            case scheduling.ContainerReady() as message:
                self._containers.ready(message, letter.source, now_s)
            case scheduling.ContainerEnded() as message:
                self._containers.ended(message, letter.source, now_s)
            case scheduling.WorkerReported() as message:
                self._workers.reported(message, letter.source, now_s)
                self._see_whether_all_reported(now_s)
            case scheduling.WorkerLeaving(worker_id=worker_id, why=why) if letter.source == f"worker/{worker_id}":
                self._workers.lose(worker_id, f"it said goodbye: {sentence(why)}", now_s)

    def _from_tasks(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.RequestContainers() as message:
                self._containers.request(message, now_s)
            case scheduling.ReleaseContainers(container_ids=container_ids, why=why):
                for container_id in container_ids:
                    self._containers.release(container_id, why, now_s)
            case message:
                raise TypeError(f"tasks said {type(message).__name__}")

    def _from_pool(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.WorkerGone(worker_id=worker_id, evidence=evidence):
                self._workers.lose(worker_id, evidence, now_s)
                self._group.send(letter.source, scheduling.WorkerForgotten(worker_id=worker_id))
                self._see_whether_all_reported(now_s)
            case scheduling.WorkerOrdered() as message:
                self._workers.ordered(message, now_s)
            case scheduling.PoolHeld(pool=pool, reason=reason, gang_id=gang_id):
                self._deciding.tell(events.PoolHolds(pool=pool, reason=reason, request_id=gang_id), now_s)
            case scheduling.PoolDeclared() as message:
                self._declare(message, now_s)
            case scheduling.PoolRetired(pool=pool):
                self.ledger.forget_pool(pool)
                self._workers.forget_pool(pool)
                self._deciding.tell(events.PoolDropped(pool=pool), now_s)
            case scheduling.PoolNodes(pool=pool, offers=offers):
                self._deciding.tell(events.NodesOffered(pool=pool, offers=offers), now_s)
            case operating.TellWorkers():  # a pool that is taken away has its workers drained
                self._from_operator(letter, now_s)
            case message:
                raise TypeError(f"{letter.source} said {type(message).__name__}")

    def _declare(self, message: scheduling.PoolDeclared, now_s: float) -> None:
        self.ledger.pools[message.pool] = message
        event = events.PoolSet(
            pool=message.pool,
            size=message.size,
            traits=message.traits,
            serves=message.serves,
            placement=message.placement,
            max_workers=message.max_workers,
            rank=message.rank,
            owner=message.owner,
            known_as=message.known_as,
            gpu_type=message.gpu_type,
        )
        self._deciding.tell(event, now_s)
        self._containers.withdraw(message.pool)

    def _from_operator(self, letter: Letter, now_s: float) -> None:
        """Who may ask is the gateway's to check; what is wrong with it is told to who asked."""
        try:
            self._operators.handle(letter, now_s)
        except Refused as refused:
            self._group.answer(letter, RequestRefused(failure=Failure.of(refused)))

    # Time

    def tick(self, now_s: float) -> None:
        """What only time brings: leases that run out, workers that stand idle, the end of a new leader's wait."""
        self._workers.tick(now_s)
        if not self.core.quiet:
            self._deciding.tell(events.Ticked(), now_s)

    # The plan

    def plan(self, now_s: float) -> Plan | None:
        """Decide one slice of what there is to decide; None when there is nothing to do.

        While the core has more to decide there is a next plan, though perhaps an empty one; so there is where only
        records are to be handed on.
        """
        if self.core.changed:
            self._deciding.tell(events.Planned(), now_s)
        more = self._performing.perform(now_s) or self._deciding.full
        plan = self._group.take(now_s)
        return Plan(operations=[], sends=[]) if plan is None and more else plan

    @staticmethod
    def settle(plan: Plan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed.

        Only this actor moves containers, and workers but for their handles, so a row that did not move is one that we
        are wrong about: raises `OutcomeUnknown`, and the truth is read again.
        """
        for operation, answer in zip(plan.operations, answers):
            match operation:
                case ops.MoveContainers(moves=moves):
                    require_all(operation, {move.container_id for move in moves}, answer)
                case ops.MoveWorkers(moves=worker_moves):
                    require_all(operation, {move.worker_id for move in worker_moves}, answer)
        return plan.sends


def _host(row: ops.WorkerRow, now_s: float) -> Host:
    """One that was to go is told again when it reports: the reign before may have ended before it said so."""
    return Host(
        worker_id=row.worker_id,
        pool=row.pool,
        capacity=row.capacity,
        ordered=row.capacity,
        traits=row.traits,
        state=row.state,
        epoch=row.epoch,
        idle_since_s=now_s,
        silent_since_s=now_s,
        stop_why="it was asked before" if row.state is WorkerState.DRAINING else "",
        cordoned=row.why == CORDONED or row.state is WorkerState.CORDONED,
    )


def _room(row: ops.ContainerRow, spec: StubSpec) -> Room:
    return Room(
        container_id=row.container_id,
        stub_id=row.stub_id,
        workspace_id=row.workspace_id,
        spec=spec,
        state=row.state,
        worker_id=row.worker_id,
        cards=row.cards,
        flavor=row.flavor,
        gang_id=row.gang_id,
        rank=row.rank,
        preempted=row.why.startswith(PREEMPTED),
    )


def _spot(room: Room | None) -> tuple[str, tuple[int, ...]]:
    return ("", ()) if room is None else (room.worker_id, room.cards)
