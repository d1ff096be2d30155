"""After the commit: what the answers mean, and what to send."""

from __future__ import annotations

from typing import Final

from ...model.states import TaskState
from ...store import operations as ops
from ...wire import client, work
from ...wire.message import Failure, Send
from ..applied import applied_to, require_all
from .group import Group, Plan
from .ledger import Ledger
from .parts import order_bytes, parts, result_bytes
from .workers import WorkersSide

_UNKNOWN: Final = Failure(
    "expired", "Nothing is known of this task.", "Results are kept for 600 s once read, 12 h unread.", "Call again."
)


def settle(
    plan: Plan, answers: tuple[ops.Answer, ...], ledger: Ledger, group: Group, workers: WorkersSide
) -> list[Send]:
    """The sends of a committed plan, in order. Raises `OutcomeUnknown` when it left out rows that it was made for."""
    known_before = _drop_known_before(plan, answers, ledger, group)
    _check(plan, answers, known_before)
    sends = plan.sends
    for container_id, task_ids in plan.deliveries.items():
        sends.extend(_delivery(container_id, task_ids, ledger, workers))
    for watcher, results in plan.finished.items():
        sends.extend(_finished(watcher, [result for result in results if result.task_id not in known_before]))
    for (worker, container_id), keys in plan.acks.items():
        sends.append(Send(worker, work.ResultsCommitted(container_id=container_id, attempts=tuple(keys))))
    for index, source, correlation in plan.cancels:
        rows = ops.rows_of(answers[index], ops.TaskRow)
        standings = tuple(client.TaskStanding(row.task_id, row.state) for row in rows)
        sends.append(Send(source, client.CancelAccepted(standings=standings), correlation))
    for index, source in plan.reads:
        sends.extend(_finished(source, _results_read(plan.operations[index], answers[index], source, ledger)))
    return sends


def _drop_known_before(plan: Plan, answers: tuple[ops.Answer, ...], ledger: Ledger, group: Group) -> set[str]:
    """Calls that the store has already, ended: forget our copies, and let their callers read what became of them."""
    known: set[str] = set()
    for index, calls in plan.accepts:
        new = applied_to(answers[index])
        for call in calls if len(new) < len(calls) else ():
            if call.task_id in new:
                continue
            known.add(call.task_id)
            if ledger.calls.get(call.task_id) is call:
                ledger.let_go(call, call.waiting_since_s)
                ledger.forget(call)
            for watcher in call.watchers:
                group.read(watcher, (call.task_id,), ledger.stubs[call.stub_id].workspace_id)
    return known


def _check(plan: Plan, answers: tuple[ops.Answer, ...], known_before: set[str]) -> None:
    """Only this actor moves tasks, so a row that did not move is one that we are wrong about.

    Legitimate is a miss for a call that the store knew before: it was accepted, and perhaps ended, in this very plan.
    """
    for index in (plan.ends, plan.starts, plan.requests):
        if index >= 0:
            require_all(plan.operations[index], _ids(plan.operations[index]) - known_before, answers[index])


def _ids(operation: ops.Operation) -> set[str]:
    match operation:
        case ops.EndAttempts(ends=ends):
            return {end.task_id for end in ends}
        case ops.StartAttempts(starts=starts):
            return {start.task_id for start in starts}
        case _:
            assert isinstance(operation, ops.PutContainers)
            return {row.container_id for row in operation.containers}


def _finished(watcher: str, results: list[client.TaskResult]) -> list[Send]:
    return [Send(watcher, client.TasksFinished(results=part)) for part in parts(results, result_bytes)]


def _results_read(asked: ops.Operation, answer: ops.Answer, source: str, ledger: Ledger) -> list[client.TaskResult]:
    """What is terminal is told; what was submitted again meanwhile is watched; what nobody knows has expired."""
    assert isinstance(asked, ops.ReadTasks)
    found = {row.task_id: row for row in ops.rows_of(answer, ops.TaskRow)}
    results = []
    for task_id in asked.task_ids:
        row = found.get(task_id)
        if row is None:
            results.append(client.TaskResult(task_id, TaskState.EXPIRED, 0, failure=_UNKNOWN))
        elif row.state.terminal:
            results.append(
                client.TaskResult(task_id, row.state, row.attempt, row.result, row.failure, row.last_log_line)
            )
        else:
            ledger.watch(ledger.calls[task_id], source)
    return results


def _delivery(container_id: str, task_ids: list[str], ledger: Ledger, workers: WorkersSide) -> list[Send]:
    warm = ledger.containers[container_id]
    orders = [workers.order(ledger.calls[task_id]) for task_id in task_ids if task_id in warm.holding]
    return [
        Send(f"worker/{warm.worker_id}", work.RunAttempts(container_id=container_id, attempts=part))
        for part in parts(orders, order_bytes)
    ]
