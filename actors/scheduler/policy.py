"""The whole decision about room, pure: reports and requests in, one plan out, committed before any of it is sent.

One ledger holds the state. Containers, workers and the requests that wait each have a part that changes it; all that
they decide goes into one group, which becomes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...errors import INVALID
from ...model.figures import REPORT_WAIT_S
from ...model.resources import Capacity
from ...model.states import ContainerEvent, ContainerState, End, TokenKind, WorkerState
from ...store import operations as ops
from ...wire import control, scheduling
from ...wire.client import RequestRefused, StubSpec
from ...wire.letter import Letter
from ...wire.message import Failure, Send
from ..applied import require_all
from .containers import Containers
from .group import Group, Plan
from .ledger import Host, Ledger, Room
from .waiting import Waiting
from .workers import Workers


class SchedulerPolicy:
    """Owns every container that has not ended and every worker that is not gone.

    `new_id(kind)` makes identities, `new_token(kind)` token values; `pools` are in the order in which they are asked
    for workers, `sizes` says how large those are; `keep` how many workers of a pool never wind down; `serves` names the
    one workspace of each pool that takes no other's work.
    """

    def __init__(
        self,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        pools: tuple[str, ...],
        keep: dict[str, int] | None = None,
        sizes: dict[str, Capacity] | None = None,
        serves: Mapping[str, str] | None = None,
    ) -> None:
        self.ledger = Ledger()
        self._group = Group()
        self._containers = Containers(self.ledger, self._group, new_id, new_token)
        self._workers = Workers(self.ledger, self._group, self._containers, keep or {})
        self._waiting = Waiting(self.ledger, self._group, self._containers, pools, sizes or {}, serves or {})
        self._places_from_s = 0.0
        self._dirty = True

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
            if row.state is not WorkerState.GONE:
                self.ledger.add_host(_host(row, now_s))
        for container in containers:
            if container.state is not ContainerState.ENDED:
                self._know_container(container, specs[container.stub_id], now_s)
        self._places_from_s = now_s + REPORT_WAIT_S

    def _know_container(self, row: ops.ContainerRow, spec: StubSpec, now_s: float) -> None:
        room = Room(
            container_id=row.container_id,
            stub_id=row.stub_id,
            workspace_id=row.workspace_id,
            spec=spec,
            state=row.state,
        )
        if room.state is ContainerState.REQUESTED:
            self.ledger.add_request(room)
            return
        self.ledger.rooms[room.container_id] = room
        host = self.ledger.hosts.get(row.worker_id)
        if host is not None:
            host.take(room)
        else:
            self._containers.end(room, ContainerEvent.WORKER_LOST, End.DISCONNECTED, "its worker is gone", now_s)

    @property
    def places(self) -> bool:
        """Whether the known workers have all reported since this leader began."""
        return all(host.reported or host.coming for host in self.ledger.hosts.values())

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in. What it may say is decided by who sent it: the gateway vouches for `source`."""
        self._dirty = True
        side = letter.source.partition("/")[0]
        if side == "worker":
            self._from_worker(letter, now_s)
        elif side == "tasks":
            self._from_tasks(letter, now_s)
        elif side == "pool":
            self._from_pool(letter, now_s)
        elif side == "gateway" and isinstance(letter.message, control.PeerQuiet):
            self._workers.quiet(letter.message.peer, now_s)
        elif letter.expects_answer:
            failure = Failure(INVALID, f"scheduler does not take {type(letter.message).__name__} of {side}.")
            self._group.answer(letter, RequestRefused(failure=failure))

    def _from_worker(self, letter: Letter, now_s: float) -> None:
        """What else a worker may say is nothing to us: it can't bring us down."""
        match letter.message:
            case scheduling.ContainerReady(container_id=container_id, window=window):
                self._containers.ready(container_id, window, letter.source)
            case scheduling.ContainerEnded() as message:
                self._containers.ended(message, letter.source, now_s)
            case scheduling.WorkerReported() as message:
                self._workers.reported(message, letter.source, now_s)
            case scheduling.WorkerLeaving(worker_id=worker_id, why=why) if letter.source == f"worker/{worker_id}":
                self._workers.lose(worker_id, f"it said goodbye: {why}", now_s)

    def _from_tasks(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.RequestContainers() as message:
                self._containers.request(message)
            case scheduling.ReleaseContainers(container_ids=container_ids, why=why):
                for container_id in container_ids:
                    self._containers.release(container_id, why, now_s)
            case message:
                raise TypeError(f"tasks said {type(message).__name__}")

    def _from_pool(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.WorkerGone(worker_id=worker_id, evidence=evidence):
                self._workers.lose(worker_id, evidence, now_s)
            case scheduling.WorkerOrdered() as message:
                self._workers.ordered(message, now_s)
            case scheduling.PoolHeld() as message:
                self._waiting.pool_held(message)
            case message:
                raise TypeError(f"{letter.source} said {type(message).__name__}")

    # Time

    def tick(self, now_s: float) -> None:
        """What only time brings: leases that run out, workers that stand idle, the end of a new leader's wait."""
        self._dirty = True
        self._workers.tick(now_s)
        self._waiting.tick(now_s)

    # The plan

    def plan(self, now_s: float) -> Plan | None:
        """Place what has room, say why the rest waits and what is wanted; None when there is nothing to do.

        Each plan is one slice of a walk over all that waits; until that is at its end there is a next plan, though
        perhaps an empty one.
        """
        if self._dirty and not self._waiting.walking and (self.places or now_s >= self._places_from_s):
            self._waiting.begin()
            self._dirty = False
        self._waiting.go_on(now_s)
        plan = self._group.take(now_s)
        return Plan(operations=[], sends=[]) if plan is None and self._waiting.walking else plan

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
        free=row.capacity,
        state=row.state,
        epoch=row.epoch,
        idle_since_s=now_s,
        silent_since_s=now_s,
        stop_why="it was asked before" if row.state is WorkerState.DRAINING else "",
    )
