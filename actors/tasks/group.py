"""What the letters since the last plan amount to, gathered until it becomes the operations of one transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from ...store import operations as ops
from ...wire import client, work
from ...wire.letter import Letter
from ...wire.message import Failure, Message, Send
from .ledger import Call

READS_A_PLAN: Final = 64  # whole rows, payloads included: a caller that watches thousands gets them in turns
OWED_MAX: Final = 64  # words that nobody waits for travel with others, with the next tick, or once there are so many


class Plan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and what follows from it. Numbers are places in `operations`."""

    operations: list[ops.Operation] = msgspec.field(default_factory=list)
    sends: list[Send] = msgspec.field(default_factory=list)
    accepts: list[tuple[int, tuple[Call, ...]]] = msgspec.field(default_factory=list)
    ends: int = -1
    starts: int = -1
    requests: int = -1
    cancels: list[tuple[int, str, str]] = msgspec.field(default_factory=list)
    reads: list[tuple[int, str]] = msgspec.field(default_factory=list)
    finished: dict[str, list[client.TaskResult]] = msgspec.field(default_factory=dict)
    acks: dict[tuple[str, str], list[work.AttemptKey]] = msgspec.field(default_factory=dict)
    deliveries: dict[str, list[str]] = msgspec.field(default_factory=dict)


class Group:
    """Filled by the parts of the policy, emptied by `take`. Reads that are owed stay for the next plan.

    Three things wait for company, and at most for the next tick (`flush`): that calls are accepted goes with their
    results, that results are committed with the next calls for their worker, that a caller has them with a tick.
    """

    def __init__(self) -> None:
        self._reads: deque[tuple[str, str, str]] = deque()
        self._taken: dict[str, None] = {}
        self._accepted: dict[str, list[Send]] = {}
        self._acks: dict[tuple[str, str], list[work.AttemptKey]] = {}
        self.flush = False
        self._reset()

    def _reset(self) -> None:
        self._stubs: list[ops.StubRow] = []
        self.accepting: dict[str, dict[str, Call]] = {}
        self._ends: dict[str, ops.AttemptEnd] = {}
        self.ended: set[str] = set()
        self._finished: dict[str, list[client.TaskResult]] = {}
        self._cancels: list[tuple[str, str, ops.CancelTasks]] = []
        self._requests: list[ops.ContainerRow] = []
        self._starts: list[ops.AttemptStart] = []
        self._deliveries: dict[str, list[str]] = {}
        self._sends: list[Send] = []

    # What the parts of the policy put in

    def send(self, target: str, message: Message) -> None:
        """Send this once all is committed."""
        self._sends.append(Send(target, message))

    def answer(self, letter: Letter, message: Message) -> None:
        """Answer this letter once all is committed."""
        self._sends.append(Send(letter.source, message, letter.id))

    def accepted(self, letter: Letter, message: client.TasksAccepted) -> None:
        """Answer a submission: at once if it was asked with a deadline, else with the first results."""
        if letter.deadline_s:
            self.answer(letter, message)
        else:
            self._accepted.setdefault(letter.source, []).append(Send(letter.source, message, letter.id))

    def put_stub(self, row: ops.StubRow) -> None:
        """Keep a stub."""
        self._stubs.append(row)

    def accept(self, call: Call) -> None:
        """Commit a call."""
        self.accepting.setdefault(call.stub_id, {})[call.task_id] = call

    def end(self, end: ops.AttemptEnd) -> None:
        """Commit an attempt's end. One that went on and then ended while it waited has ended with that attempt."""
        before = self._ends.get(end.task_id)
        if before is not None:
            end = msgspec.structs.replace(end, attempt=before.attempt, end=before.end)
        self._ends[end.task_id] = end

    def finish(self, call: Call, result: client.TaskResult) -> None:
        """Tell the callers that watch a call how it ended."""
        self.ended.add(call.task_id)
        for watcher in call.watchers:
            self._finished.setdefault(watcher, []).append(result)

    def acknowledge(self, worker: str, container_id: str, keys: list[work.AttemptKey]) -> None:
        """Tell a worker, in a while, that these results need be kept no more."""
        if keys:
            self._acks.setdefault((worker, container_id), []).extend(keys)

    def cancel(self, letter: Letter, operation: ops.CancelTasks) -> None:
        """Commit a cancel, and answer its letter with what the tasks are then."""
        self._cancels.append((letter.source, letter.id, operation))

    def read(self, source: str, task_ids: tuple[str, ...], workspace_id: str) -> None:
        """Read what became of these tasks, and tell it."""
        self._reads.extend((source, workspace_id, task_id) for task_id in task_ids)

    def take_results(self, task_ids: tuple[str, ...]) -> None:
        """The caller has these results; that is committed with the next tick."""
        self._taken.update(dict.fromkeys(task_ids))

    def request(self, rows: list[ops.ContainerRow]) -> None:
        """Commit container requests."""
        self._requests.extend(rows)

    def deliver(self, call: Call, worker_id: str) -> None:
        """Start an attempt that the ledger has begun, and send it to its worker."""
        self._deliveries.setdefault(call.container_id, []).append(call.task_id)
        if call.task_id not in self.accepting.get(call.stub_id, {}):
            self._starts.append(
                ops.AttemptStart(
                    task_id=call.task_id, attempt=call.attempt, container_id=call.container_id, worker_id=worker_id
                )
            )

    def deliver_too(self, call: Call, container_id: str) -> None:
        """Send an attempt that begins to another rank of its gang as well."""
        self._deliveries.setdefault(container_id, []).append(call.task_id)

    def refuse(self, letter: Letter, failure: Failure) -> None:
        """Answer a request that is refused."""
        self.answer(letter, client.RequestRefused(failure=failure))

    # What comes out

    def take(self, worker_of: Callable[[str], str], workspace_of: Callable[[str], str], now_s: float) -> Plan | None:
        """The plan, or None when there is nothing to do. `worker_of` names the worker of a container."""
        plan = Plan(sends=self._sends, finished=self._finished, deliveries=self._deliveries)
        plan.sends.extend(self._accepted_due())
        plan.acks = self._acks_due({f"worker/{worker_of(container_id)}" for container_id in self._deliveries})
        self._add_accepts(plan, worker_of, workspace_of, now_s)
        self._add_changes(plan, now_s)
        self._add_reads(plan)
        self._add_taken(plan, now_s)
        self.flush = False
        self._reset()
        return plan if plan.operations or plan.sends or plan.finished or plan.acks else None

    def _add_accepts(
        self, plan: Plan, worker_of: Callable[[str], str], workspace_of: Callable[[str], str], now_s: float
    ) -> None:
        plan.operations.extend(ops.PutStub(stub=row) for row in self._stubs)
        for stub_id, calls in self.accepting.items():
            tasks = tuple(_to_accept(call, worker_of) for call in calls.values())
            plan.accepts.append((len(plan.operations), tuple(calls.values())))
            plan.operations.append(
                ops.AcceptTasks(workspace_id=workspace_of(stub_id), stub_id=stub_id, tasks=tasks, now_s=now_s)
            )

    def _add_changes(self, plan: Plan, now_s: float) -> None:
        """Ends, then cancels, then starts: within a group a cancel always comes before a start."""
        if self._ends:
            plan.ends = len(plan.operations)
            plan.operations.append(ops.EndAttempts(ends=tuple(self._ends.values()), now_s=now_s))
        for source, correlation, cancel in self._cancels:
            plan.cancels.append((len(plan.operations), source, correlation))
            plan.operations.append(cancel)
        if self._requests:
            plan.requests = len(plan.operations)
            plan.operations.append(ops.PutContainers(containers=tuple(self._requests)))
        if self._starts:
            plan.starts = len(plan.operations)
            plan.operations.append(ops.StartAttempts(starts=tuple(self._starts), now_s=now_s))

    def _add_reads(self, plan: Plan) -> None:
        asked: dict[tuple[str, str], list[str]] = {}
        for _ in range(min(READS_A_PLAN, len(self._reads))):
            source, workspace_id, task_id = self._reads.popleft()
            asked.setdefault((source, workspace_id), []).append(task_id)
        for (source, workspace_id), task_ids in asked.items():
            plan.reads.append((len(plan.operations), source))
            plan.operations.append(ops.ReadTasks(task_ids=tuple(task_ids), workspace_id=workspace_id))

    def _add_taken(self, plan: Plan, now_s: float) -> None:
        if self._taken and self.flush:
            plan.operations.append(ops.MarkTaken(task_ids=tuple(self._taken), now_s=now_s))
            self._taken.clear()

    def _accepted_due(self) -> list[Send]:
        sources = [
            source
            for source, sends in self._accepted.items()
            if self.flush or source in self._finished or len(sends) >= OWED_MAX
        ]
        return [send for source in sources for send in self._accepted.pop(source)]

    def _acks_due(self, spoken_to: set[str]) -> dict[tuple[str, str], list[work.AttemptKey]]:
        due = [seat for seat, keys in self._acks.items() if self.flush or seat[0] in spoken_to or len(keys) >= OWED_MAX]
        return {seat: self._acks.pop(seat) for seat in due}


def _to_accept(call: Call, worker_of: Callable[[str], str]) -> ops.TaskToAccept:
    return ops.TaskToAccept(
        task_id=call.task_id,
        arguments=call.arguments,
        container_id=call.container_id,
        worker_id=worker_of(call.container_id) if call.container_id else "",
    )
