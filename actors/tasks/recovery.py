"""How a new reign begins: what waited waits, what ran is held by its container until that says otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...model.states import ContainerState, End, TaskState
from ...store import operations as ops
from ...wire.message import Payload
from .ledger import Call, Ledger
from .warm import Gang, Warm
from .workers import WorkersSide

_LOST: Final = "its container ended while nobody led"


class Recovery:
    """Fills the ledger from rows."""

    def __init__(self, ledger: Ledger, workers: WorkersSide) -> None:
        self._ledger = ledger
        self._workers = workers
        self._ended: dict[str, ops.ContainerRow] = {}

    def lost(self, tasks: Iterable[ops.TaskRow]) -> tuple[str, ...]:
        """Containers that ended while they ran these as rank 0: `load` wants their rows, which name their gangs."""
        running = [row for row in tasks if row.container_id and row.state in (TaskState.RUNNING, TaskState.CANCELLING)]
        ganged = [row for row in running if self._ledger.stubs[row.stub_id].spec.nodes > 1]
        return tuple(row.container_id for row in ganged if row.container_id not in self._ledger.containers)

    def load(
        self,
        stubs: Iterable[ops.StubRow],
        containers: Iterable[ops.ContainerRow],
        tasks: Iterable[ops.TaskRow],
        now_s: float,
    ) -> None:
        """Know these rows, on top of those that are known."""
        for row in stubs:
            self._ledger.add_stub(row)
        for container in containers:
            if container.state is not ContainerState.ENDED and container.stub_id in self._ledger.stubs:
                self._ledger.add_container(_warm(container, now_s))
                self._ledger.touch(container.stub_id)
            elif container.gang_id:
                self._ended[container.container_id] = container
        for stub in self._ledger.stubs.values():
            for gang in stub.gangs.values():
                self._know_gang(gang)
        for task in tasks:
            self._know_task(task, now_s)

    def _know_gang(self, gang: Gang) -> None:
        """In a gang that had its room, members without a worker are replacements: of no use with nobody left."""
        members = [gang.members[rank] for rank in sorted(gang.members)]
        had_room = bool(gang.lacking) or any(member.worker_id for member in members)
        for member in members:
            member.replaces = had_room and not member.worker_id
        if not gang.rooted:
            gang.leaving = True
            self._workers.ranks.release(members, "nothing else is left of its gang")

    def _know_task(self, row: ops.TaskRow, now_s: float) -> None:
        call = _call(row)
        stub = self._ledger.stubs[row.stub_id]
        self._ledger.touch(row.stub_id)
        if not call.waits:
            stub.first_started_at_s = min(row.started_at_s, stub.first_started_at_s or row.started_at_s)
        ended = self._ended.get(call.container_id)
        if call.waits or call.container_id in self._ledger.containers:
            self._ledger.add_call(call)
            self._lose_ranks(call, now_s)
        elif ended is not None and ended.gang_id in stub.gangs:
            self._ledger.add_call(call, holder=_warm(ended, now_s))
            self._lose_ranks(call, now_s)
        else:
            self._lose(call, now_s)

    def _lose_ranks(self, call: Call, now_s: float) -> None:
        """Ranks of its gang ended while nobody led; whether they had done their part, nobody heard."""
        gang = self._ledger.gang_of(call)
        if gang is None:
            return
        for rank in gang.lacking:
            if gang.task_id == call.task_id:
                gone = Warm(container_id="", stub_id=call.stub_id, gang_id=gang.gang_id, rank=rank)
                self._workers.lose_rank(gang, gone, End.DISCONNECTED, _LOST, now_s)

    def _lose(self, call: Call, now_s: float) -> None:
        """Its container ended while nobody led; whatever its worker told us then, nobody heard."""
        gone = Warm(container_id=call.container_id, stub_id=call.stub_id)
        self._ledger.add_container(gone)
        self._ledger.add_call(call)
        self._ledger.drop_container(gone.container_id)
        self._workers.lose(call, End.DISCONNECTED, _LOST, now_s)


def _warm(row: ops.ContainerRow, now_s: float) -> Warm:
    """Its credits are known when its worker reports."""
    return Warm(
        container_id=row.container_id,
        stub_id=row.stub_id,
        worker_id=row.worker_id,
        available=row.state is ContainerState.READY,
        idle_since_s=now_s,
        leaving=row.state is ContainerState.STOPPING,
        gang_id=row.gang_id,
        rank=row.rank,
    )


def _call(row: ops.TaskRow) -> Call:
    return Call(
        task_id=row.task_id,
        stub_id=row.stub_id,
        arguments=row.arguments or Payload("msgpack"),
        state=row.state,
        attempt=row.attempt,
        retries_used=row.retries_used,
        container_id=row.container_id,
        waiting_since_s=row.retry_at_s or row.accepted_at_s,
    )
