"""The store of a world: latency and faults on demand, each transaction noted and held against the invariants."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import trio

from levers9.errors import LeversError, OutcomeUnknown, StoreUnavailable
from levers9.model.ids import Chance
from levers9.model.states import ContainerState, End, TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.face import StoreStatistics
from levers9.store.memory import MemoryStore
from levers9.store.memory.tables import Tables

from .journal import Journal


class StoreFault(enum.StrEnum):
    """How an `apply` goes wrong."""

    BEFORE = "before"  # nothing is done
    AFTER = "after"  # it is done, and nobody knows
    CRASH = "crash"  # the caller meets a bug of ours


@dataclass(frozen=True)
class _Pending:
    fault: StoreFault
    kinds: tuple[type[ops.Operation], ...]


class Bug(Exception):
    """What no one expects."""


class Truth:
    """One store for all processes of a world. `violated` hears of each broken invariant."""

    def __init__(self, journal: Journal, chance: Chance, violated: Callable[[str], None]) -> None:
        self._inner = MemoryStore()
        self._journal = journal
        self._chance = chance
        self._violated = violated
        self._pending: list[_Pending] = []
        self.away_until = -1.0
        self.accepted: dict[str, None] = {}
        self.runs_now: Callable[[str, int], bool] = lambda task_id, attempt: False
        self.watch: Callable[[tuple[ops.Operation, ...]], None] = lambda operations: None  # each commit

    @property
    def tables(self) -> Tables:
        """The rows themselves, for invariants."""
        return self._inner._tables

    def fail_next(self, fault: StoreFault, *kinds: type[ops.Operation]) -> None:
        """Make the next `apply` fail that writes in an epoch and holds one of these operations (none: any)."""
        self._pending.append(_Pending(fault, kinds))

    async def apply(self, operations: tuple[ops.Operation, ...], epoch: int | None) -> tuple[ops.Answer, ...]:
        """As `Store.apply`, with latency before and after the commit."""
        await trio.sleep(self._chance.uniform(0.0002, 0.002))
        fault = self._fault(operations, epoch)
        if fault is StoreFault.CRASH:
            raise Bug("the world told this actor to crash")
        if fault is not None:
            self._inner.fail_next(before=fault is StoreFault.BEFORE)
        before = self._rows_before(operations)
        try:
            answers = await self._inner.apply(*operations, epoch=epoch)
        except LeversError as error:
            self._journal.note("failed", epoch, operations, type(error).__name__)
            if isinstance(error, OutcomeUnknown):
                self._check(operations, before)
            raise
        self._journal.note("commit", epoch, operations, answers)
        self._check(operations, before)
        await trio.sleep(self._chance.uniform(0.0002, 0.002))
        return answers

    def _fault(self, operations: tuple[ops.Operation, ...], epoch: int | None) -> StoreFault | None:
        if trio.current_time() < self.away_until:
            return StoreFault.BEFORE
        if epoch is None:
            return None
        for place, pending in enumerate(self._pending):
            if not pending.kinds or any(isinstance(operation, pending.kinds) for operation in operations):
                del self._pending[place]
                return pending.fault
        return None

    def statistics(self) -> StoreStatistics:
        return self._inner.statistics()

    # Invariants

    def _rows_before(self, operations: tuple[ops.Operation, ...]) -> dict[str, ops.TaskRow | None]:
        ids = [task_id for operation in operations for task_id in _tasks_of(operation)]
        return {task_id: self.tables.tasks.get(task_id) for task_id in ids}

    def _check(self, operations: tuple[ops.Operation, ...], before: dict[str, ops.TaskRow | None]) -> None:
        for task_id, old in before.items():
            new = self.tables.tasks.get(task_id)
            if new is None:
                continue
            self.accepted[task_id] = None
            self._check_move(old, new)
        for operation in operations:
            if isinstance(operation, ops.EndAttempts):
                for end in operation.ends:
                    self._check_loss(end, before[end.task_id])
            elif isinstance(operation, ops.PutWorkers):
                self._check_nodes()
        self.watch(operations)

    def _check_nodes(self) -> None:
        """A node that is named has one worker of its pool: ordered, pending or running."""
        owners: dict[tuple[str, str], str] = {}
        for row in self.tables.workers.values():
            node = (row.pool, row.traits.node)
            if row.state is WorkerState.GONE or not row.traits.node:
                continue
            if owners.setdefault(node, row.worker_id) != row.worker_id:
                self._violated(f"I1: {node} has the workers {owners[node]} and {row.worker_id}")

    def _check_move(self, old: ops.TaskRow | None, new: ops.TaskRow) -> None:
        attempts = 0 if old is None else old.attempt
        if not attempts <= new.attempt <= attempts + 1:
            self._violated(f"I3: {new.task_id} went from attempt {attempts} to {new.attempt}")
        if old is not None and old.state.terminal and (old.state, old.result) != (new.state, new.result):
            self._violated(f"I3: {new.task_id} was {old.state} and became {new.state}")
        if old is not None and old.state.terminal and old.attempt != new.attempt:
            self._violated(f"I5: {new.task_id} was {old.state}, and attempt {new.attempt} was permitted")

    def _check_loss(self, end: ops.AttemptEnd, old: ops.TaskRow | None) -> None:
        applied = old is not None and not old.state.terminal and old.attempt == end.attempt
        if applied and end.end is End.DISCONNECTED and self.runs_now(end.task_id, end.attempt):
            self._violated(f"I10: attempt {end.attempt} of {end.task_id} was given up while it ran: {end.failure}")

    def unrest(self) -> list[str]:
        """What keeps the records from being at rest (I7), in words."""
        tables = self.tables
        found = [f"{row.task_id} is {row.state}" for row in tables.tasks.values() if not row.state.terminal]
        found += [
            f"{row.container_id} is {row.state} on {row.worker_id or 'no worker'}"
            for row in tables.containers.values()
            if row.state is not ContainerState.ENDED
        ]
        found += [
            f"{row.worker_id} is {row.state}" for row in tables.workers.values() if row.state is not WorkerState.GONE
        ]
        found += [
            f"the token of {row.subject} is active"
            for row in tables.tokens.values()
            if row.subject and row.active and row.kind is not TokenKind.AGENT
        ]
        found += [f"{row.key} is owed to {row.target}" for row in tables.outbox.values()]
        return found


class Handle:
    """The store as one process has it: of no use once that is dead."""

    def __init__(self, truth: Truth, dead: Callable[[], bool]) -> None:
        self._truth = truth
        self._dead = dead

    async def apply(self, *operations: ops.Operation, epoch: int | None = None) -> tuple[ops.Answer, ...]:
        if self._dead():
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("this process is dead")
        return await self._truth.apply(operations, epoch)

    def statistics(self) -> StoreStatistics:
        return self._truth.statistics()


def _tasks_of(operation: ops.Operation) -> tuple[str, ...]:
    match operation:
        case ops.AcceptTasks(tasks=tasks):
            return tuple(task.task_id for task in tasks)
        case ops.StartAttempts(starts=starts):
            return tuple(start.task_id for start in starts)
        case ops.EndAttempts(ends=ends):
            return tuple(end.task_id for end in ends)
        case ops.CancelTasks(task_ids=task_ids):
            return task_ids
    return ()
