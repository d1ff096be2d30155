"""The callers' side: functions made known, calls taken in, watched and cancelled."""

from __future__ import annotations

from typing import Final

import msgspec

from ...errors import INVALID, NOT_FOUND, Refused
from ...model.entitlement import Wish, check_entitled
from ...model.feasibility import check_feasible, pool_meant
from ...model.states import TaskEvent
from ...store import operations as ops
from ...wire import client
from ...wire.letter import Letter
from ...wire.message import Message
from .explaining import holds, reasons
from .group import Group
from .identity import stub_id
from .ledger import Call, Ledger, Stub
from .outcomes import CANCELLED
from .workers import WorkersSide

UNFINISHED_MAX: Final = 2_000_000  # about 1 KiB each: beyond that a submission is refused, never half taken


def _check_identities(message: Message) -> None:
    """What no row can hold would end the group that it came with, and the reign."""
    match message:
        case client.SubmitTasks(tasks=tasks):
            identities = tuple([task.task_id for task in tasks])
        case client.ResultsTaken() | client.WatchTasks() | client.CancelTasks():
            identities = message.task_ids
        case _:
            return
    joined = "".join(identities)
    if not (joined.isascii() and joined.isprintable()):
        raise Refused("A task's identity has odd characters.", "It is of printable ASCII characters.", code=INVALID)


def _wish(spec: client.StubSpec, workspace: str) -> Wish:
    return Wish(
        workspace=workspace,
        shape=spec.shape,
        nodes=spec.nodes,
        together=spec.together,
        queue=spec.queue,
        priority=spec.priority,
    )


class CallersSide:
    """Takes what callers say. Raises `Refused` for what a caller may get wrong."""

    def __init__(self, ledger: Ledger, group: Group, workers: WorkersSide) -> None:
        self._ledger = ledger
        self._group = group
        self._workers = workers

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter of a caller in."""
        _check_identities(letter.message)
        match letter.message:
            case client.SubmitTasks() as message:
                self._submit(message, letter, now_s)
            case client.ResultsTaken(task_ids=task_ids):
                self._group.take_results(task_ids)
            case client.RegisterStub(spec=spec):
                self._register(spec, letter, now_s)
            case client.WatchTasks(task_ids=task_ids):
                self._watch(task_ids, letter)
            case client.CancelTasks(task_ids=task_ids):
                self._cancel(task_ids, letter, now_s)
            case client.ExplainTask(task_id=task_id):
                self._explain(task_id, letter, now_s)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__}.", code=INVALID)

    def _register(self, spec: client.StubSpec, letter: Letter, now_s: float) -> None:
        # What was meant is kept: that a cluster of that name is attached, or shared, later changes nothing of it.
        pool = pool_meant(spec.shape.pool, self._ledger.offers, letter.workspace)
        spec = msgspec.structs.replace(spec, shape=msgspec.structs.replace(spec.shape, pool=pool))
        check_feasible(spec.shape, self._ledger.offers, letter.workspace, spec.nodes, spec.together)
        check_entitled(_wish(spec, letter.workspace), self._ledger.queueing)
        if spec.timeout_s < 0 or spec.retries < 0 or spec.max_containers < 0 or spec.wait_s < 0:
            raise Refused("A time or a number of this function is below zero.", fix="Give 0 or more.", code=INVALID)
        if 0 < spec.max_containers < spec.nodes:
            raise Refused(
                f"A call of this function runs on {spec.nodes} containers, and it may have {spec.max_containers}.",
                fix="Raise max_containers, or give fewer nodes.",
                code=INVALID,
            )
        row = ops.StubRow(
            stub_id=stub_id(letter.workspace, spec), workspace_id=letter.workspace, spec=spec, created_at_s=now_s
        )
        if row.stub_id not in self._ledger.stubs:
            self._ledger.add_stub(row)
            self._group.put_stub(row)
        self._group.answer(letter, client.StubRegistered(stub_id=row.stub_id))

    def _submit(self, message: client.SubmitTasks, letter: Letter, now_s: float) -> None:
        stub = self._stub_of(message.stub_id, letter.workspace)
        self._check_submission(message, stub)
        for task in message.tasks:
            known = self._ledger.calls.get(task.task_id)
            if known is not None:
                self._ledger.watch(known, letter.source)
            elif task.task_id in self._group.ended:
                self._group.read(letter.source, (task.task_id,), stub.workspace_id)
            else:
                self._take(task, stub, letter.source, now_s)
        self._ledger.touch(stub.stub_id)
        stub.progress_due = True
        accepted = client.TasksAccepted(task_ids=tuple(task.task_id for task in message.tasks))
        self._group.accepted(letter, accepted)

    def _stub_of(self, stub_id: str, workspace: str) -> Stub:
        stub = self._ledger.stubs.get(stub_id)
        if stub is None or stub.workspace_id != workspace:
            raise Refused(
                f"There is no function {stub_id} in this workspace.", fix="Register it again.", code=NOT_FOUND
            )
        return stub

    def _check_submission(self, message: client.SubmitTasks, stub: Stub) -> None:
        calls = self._ledger.calls
        if len(calls) + len(message.tasks) > UNFINISHED_MAX:
            raise Refused(
                f"{len(calls)} calls have not ended yet.", "That is the most this control plane keeps.", "Wait."
            )
        for task in message.tasks:
            if task.task_id in calls and self._ledger.of_workspace(task.task_id, stub.workspace_id) is None:
                raise Refused(f"{task.task_id} is taken.", fix="Give each call a new identity.", code=INVALID)

    def _take(self, task: client.NewTask, stub: Stub, source: str, now_s: float) -> None:
        call = Call(
            task_id=task.task_id,
            stub_id=stub.stub_id,
            arguments=task.arguments,
            waiting_since_s=now_s,
            held_before_s=stub.count_held(now_s),
            watchers=(source,),
        )
        self._ledger.add_call(call)
        self._group.accept(call)

    def _watch(self, task_ids: tuple[str, ...], letter: Letter) -> None:
        missing: list[str] = []
        for task_id in task_ids:
            call = self._ledger.of_workspace(task_id, letter.workspace)
            if call is None:
                missing.append(task_id)
            else:
                self._ledger.watch(call, letter.source)
        self._group.read(letter.source, tuple(missing), letter.workspace)

    def _cancel(self, task_ids: tuple[str, ...], letter: Letter, now_s: float) -> None:
        operation = ops.CancelTasks(task_ids=task_ids, now_s=now_s, workspace_id=letter.workspace)
        self._group.cancel(letter, operation)
        for task_id in dict.fromkeys(task_ids):
            call = self._ledger.of_workspace(task_id, letter.workspace)
            if call is None:
                continue
            call.move(TaskEvent.CANCEL_ASKED)
            if call.state.terminal:
                self._ledger.forget(call)
                self._group.finish(call, client.TaskResult(task_id, call.state, call.attempt, failure=CANCELLED))
            else:
                self._workers.tell_cancel(call)

    def _explain(self, task_id: str, letter: Letter, now_s: float) -> None:
        call = self._ledger.of_workspace(task_id, letter.workspace)
        if call is None:
            raise Refused(
                f"No unfinished task {task_id} in this workspace.", fix="See `levers9 task show`.", code=NOT_FOUND
            )
        stub = self._ledger.stubs[call.stub_id]
        message = client.TaskExplained(
            task_id=task_id,
            state=call.state,
            reasons=tuple(reasons(call, stub, now_s)),
            holds=holds(call, stub, now_s),
        )
        self._group.answer(letter, message)
