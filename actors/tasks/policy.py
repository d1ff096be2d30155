"""The whole decision about calls, pure: letters in, one plan out, which is committed before any of it is sent.

The actor feeds every letter that is ready through `handle`, asks for one `plan`, commits its operations as one
transaction, and gives the answers to `settle`, which says what to send. Starts are decided last, so that within a
group a cancel always comes before a start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...errors import INVALID, NOT_FOUND, Refused
from ...model.feasibility import PoolOffer, check_feasible
from ...model.figures import CRASH_LOOP_FAILURES, CRASH_LOOP_FIRST_S, CRASH_LOOP_MAX_S
from ...model.states import ContainerState, End, TaskEvent, TaskState
from ...store import operations as ops
from ...wire import client, scheduling, work
from ...wire.letter import Letter
from ...wire.message import Failure, Message, Payload, Send
from .demand import containers_wanted
from .ledger import Call, Stub, Warm
from .outcomes import judge_end, loss_failure

UNFINISHED_MAX: Final = 2_000_000  # about 1 KiB each: beyond that a submission is refused, never half taken
RETRY_DELAY_S: Final = 0.0  # a loss says nothing about the call: it runs again at once


class Plan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and what follows from it."""

    operations: list[ops.Operation]
    sends: list[Send]
    accepts: list[tuple[int, ops.AcceptTasks]]
    cancels: list[tuple[int, str, str]]
    reads: list[tuple[int, str]]
    deliveries: dict[str, list[str]]


class TasksPolicy:
    """Owns every call that has not ended. `new_id(kind)` makes identities; times are Unix seconds."""

    def __init__(self, new_id: Callable[[str], str]) -> None:
        self._new_id = new_id
        self.stubs: dict[str, Stub] = {}
        self.calls: dict[str, Call] = {}
        self.offers: tuple[PoolOffer, ...] = ()
        self._containers: dict[str, Warm] = {}
        self._touched: dict[str, None] = {}
        self._reset_group()

    def _reset_group(self) -> None:
        self._put_stubs: list[ops.StubRow] = []
        self._accepting: dict[str, dict[str, Call]] = {}
        self._ends: list[ops.AttemptEnd] = []
        self._finished: dict[str, list[client.TaskResult]] = {}
        self._acks: dict[tuple[str, str], list[work.AttemptKey]] = {}
        self._cancels: list[tuple[str, str, ops.CancelTasks]] = []
        self._reads: list[tuple[str, ops.ReadTasks]] = []
        self._taken: list[str] = []
        self._sends: list[Send] = []

    # Recovery

    def load(
        self,
        stubs: Iterable[ops.StubRow],
        containers: Iterable[ops.ContainerRow],
        tasks: Iterable[ops.TaskRow],
        now_s: float,
    ) -> None:
        """Begin from the store: what waited waits, what ran is held by its container until that says otherwise."""
        for row in stubs:
            self._know_stub(row)
        for container in containers:
            self._know_container(container, now_s)
        for task in tasks:
            self._know_task(task)

    def _know_stub(self, row: ops.StubRow) -> Stub:
        stub = Stub(stub_id=row.stub_id, workspace_id=row.workspace_id, spec=row.spec)
        return self.stubs.setdefault(row.stub_id, stub)

    def _know_container(self, row: ops.ContainerRow, now_s: float) -> None:
        stub = self.stubs.get(row.stub_id)
        if stub is None or row.state is ContainerState.ENDED:
            return
        warm = Warm(
            container_id=row.container_id,
            stub_id=row.stub_id,
            requested_at_s=row.requested_at_s,
            worker_id=row.worker_id,
            available=row.state is ContainerState.READY,
            idle_since_s=now_s,
            leaving=row.state is ContainerState.STOPPING,
        )
        stub.containers[row.container_id] = self._containers[row.container_id] = warm

    def _know_task(self, row: ops.TaskRow) -> None:
        stub = self.stubs[row.stub_id]
        call = Call(
            task_id=row.task_id,
            stub_id=row.stub_id,
            arguments=row.arguments or Payload("msgpack"),
            state=row.state,
            attempt=row.attempt,
            retries_used=row.retries_used,
            container_id=row.container_id,
            accepted_at_s=row.accepted_at_s,
            retry_at_s=row.retry_at_s,
        )
        self.calls[row.task_id] = call
        stub.unfinished += 1
        self._touched[stub.stub_id] = None
        if call.waits:
            stub.waiting.append(call.task_id)
            return
        warm = self._containers.get(call.container_id)
        if warm is None:
            self._end(stub, call, End.DISCONNECTED, why="its container ended while nobody led")
        else:
            warm.holding[call.task_id] = None

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in. Refusals become answers; nothing is raised for what a caller may get wrong."""
        try:
            if type(letter.message).sender == "client":
                self._from_caller(letter, now_s)
            else:
                self._from_platform(letter, now_s)
        except Refused as refused:
            failure = Failure(refused.code, refused.what, refused.why, refused.fix)
            self._answer(letter, client.RequestRefused(failure=failure))

    def _answer(self, letter: Letter, message: Message) -> None:
        self._sends.append(Send(letter.source, message, letter.id))

    def _from_caller(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case client.SubmitTasks() as message:
                self._submit(message, letter, now_s)
            case client.ResultsTaken() as message:
                self._taken.extend(message.task_ids)
            case client.RegisterStub() as message:
                self._register(message.spec, letter, now_s)
            case client.WatchTasks() as message:
                self._watch(message.task_ids, letter.source, letter.workspace)
            case client.CancelTasks() as message:
                self._cancel(message.task_ids, letter, now_s)
            case client.ExplainTask() as message:
                self._explain(message.task_id, letter, now_s)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__}.", code=INVALID)

    def _from_platform(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case work.AttemptsFinished() as message:
                self._attempts_finished(message, letter.source, now_s)
            case work.AttemptsHeld() as message:
                self._attempts_held(message, letter.source)
            case scheduling.ContainerAvailable() as message:
                self._available(message, now_s)
            case scheduling.ContainerGone() as message:
                self._gone(message, now_s)
            case scheduling.ContainerHeld() as message:
                self._held(message)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__}.", code=INVALID)

    def _register(self, spec: client.StubSpec, letter: Letter, now_s: float) -> None:
        workspace = letter.workspace
        check_feasible(spec.shape, self.offers)
        digest = hashlib.blake2b(msgspec.msgpack.encode((workspace, spec)), digest_size=12).hexdigest()
        stub_id = f"stub-{digest}"
        if stub_id not in self.stubs:
            row = ops.StubRow(stub_id=stub_id, workspace_id=workspace, spec=spec, created_at_s=now_s)
            self._know_stub(row)
            self._put_stubs.append(row)
        self._answer(letter, client.StubRegistered(stub_id=stub_id))

    def _stub_of(self, stub_id: str, workspace: str) -> Stub:
        stub = self.stubs.get(stub_id)
        if stub is None or stub.workspace_id != workspace:
            raise Refused(
                f"There is no function {stub_id} in this workspace.", fix="Register it again.", code=NOT_FOUND
            )
        return stub

    def _submit(self, message: client.SubmitTasks, letter: Letter, now_s: float) -> None:
        source = letter.source
        stub = self._stub_of(message.stub_id, letter.workspace)
        if len(self.calls) + len(message.tasks) > UNFINISHED_MAX:
            raise Refused(
                f"{len(self.calls)} calls have not ended yet.", "That is the most this control plane keeps.", "Wait."
            )
        accepting = self._accepting.setdefault(stub.stub_id, {})
        calls = self.calls
        for task in message.tasks:
            known = calls.get(task.task_id)
            if known is not None:
                self._add_watcher(known, source)
                continue
            call = Call(
                task_id=task.task_id,
                stub_id=stub.stub_id,
                arguments=task.arguments,
                accepted_at_s=now_s,
                watchers=(source,),
            )
            accepting[task.task_id] = calls[task.task_id] = call
            stub.waiting.append(task.task_id)
            stub.unfinished += 1
        self._touched[stub.stub_id] = None
        accepted = client.TasksAccepted(task_ids=tuple(task.task_id for task in message.tasks))
        self._answer(letter, accepted)

    @staticmethod
    def _add_watcher(call: Call, source: str) -> None:
        if source not in call.watchers:
            call.watchers = (*call.watchers[-3:], source)

    def _watch(self, task_ids: tuple[str, ...], source: str, workspace: str) -> None:
        missing: list[str] = []
        for task_id in task_ids:
            call = self.calls.get(task_id)
            if call is not None and self.stubs[call.stub_id].workspace_id == workspace:
                self._add_watcher(call, source)
            else:
                missing.append(task_id)
        if missing:
            self._reads.append((source, ops.ReadTasks(task_ids=tuple(missing), workspace_id=workspace)))

    def _cancel(self, task_ids: tuple[str, ...], letter: Letter, now_s: float) -> None:
        workspace = letter.workspace
        operation = ops.CancelTasks(task_ids=task_ids, now_s=now_s, workspace_id=workspace)
        self._cancels.append((letter.source, letter.id, operation))
        for task_id in task_ids:
            call = self.calls.get(task_id)
            if call is None or self.stubs[call.stub_id].workspace_id != workspace:
                continue
            call.move(TaskEvent.CANCEL_ASKED)
            if call.state.terminal:
                self._forget(call, client.TaskResult(task_id, call.state, call.attempt, failure=_CANCELLED))
            else:
                self._tell_cancel(call)

    def _tell_cancel(self, call: Call) -> None:
        warm = self._containers.get(call.container_id)
        if warm is not None:
            keys = (work.AttemptKey(call.task_id, call.attempt),)
            message = work.CancelAttempts(container_id=call.container_id, attempts=keys)
            self._sends.append(Send(f"worker/{warm.worker_id}", message))

    def _explain(self, task_id: str, letter: Letter, now_s: float) -> None:
        call = self.calls.get(task_id)
        if call is None or self.stubs[call.stub_id].workspace_id != letter.workspace:
            raise Refused(
                f"No unfinished task {task_id} in this workspace.", fix="See `levers9 task show`.", code=NOT_FOUND
            )
        reasons = tuple(self._reasons(call, self.stubs[call.stub_id], now_s))
        message = client.TaskExplained(task_id=task_id, state=call.state, reasons=reasons)
        self._answer(letter, message)

    def _reasons(self, call: Call, stub: Stub, now_s: float) -> Iterable[str]:
        if call.state is TaskState.RUNNING:
            yield f"It runs as attempt {call.attempt} in {call.container_id}."
        elif call.state is TaskState.CANCELLING:
            yield f"It was cancelled, and {call.container_id} has not confirmed yet that its code stopped."
        else:
            ahead = next((place for place, other in enumerate(stub.waiting) if other == call.task_id), 0)
            yield (
                f"It waits for a free container of {stub.spec.name}: "
                f"{stub.available} are warm, {len(stub.containers) - stub.available} on their way, "
                f"{ahead} calls are ahead."
            )
            if stub.blocked_until_s > now_s:
                left_s = round(stub.blocked_until_s - now_s)
                yield f"Its containers failed to start {stub.failed_starts} times in a row; next try in {left_s} s."
                yield stub.why_failed
            elif stub.why_held:
                yield stub.why_held

    # Containers

    def _available(self, message: scheduling.ContainerAvailable, now_s: float) -> None:
        stub = self.stubs.get(message.stub_id)
        if stub is None:
            return
        warm = self._containers.get(message.container_id)
        if warm is None:
            warm = Warm(container_id=message.container_id, stub_id=stub.stub_id, requested_at_s=now_s)
            stub.containers[message.container_id] = self._containers[message.container_id] = warm
        if not warm.available:
            warm.idle_since_s = now_s
        warm.worker_id = message.worker_id
        warm.available = True
        warm.window = message.window
        stub.failed_starts = 0
        stub.blocked_until_s = 0.0
        self._touched[stub.stub_id] = None

    def _gone(self, message: scheduling.ContainerGone, now_s: float) -> None:
        warm = self._containers.pop(message.container_id, None)
        if warm is None:
            return
        stub = self.stubs[warm.stub_id]
        del stub.containers[message.container_id]
        self._touched[stub.stub_id] = None
        for task_id in tuple(warm.holding):
            self._end(stub, self.calls[task_id], _loss(message.end), why=message.why)
        if not warm.available and message.end in _FAILED_STARTS:
            self._failed_start(stub, message, now_s)

    def _failed_start(self, stub: Stub, message: scheduling.ContainerGone, now_s: float) -> None:
        stub.failed_starts += 1
        stub.why_failed = message.why
        over = stub.failed_starts - CRASH_LOOP_FAILURES
        if over < 0:
            return
        stub.blocked_until_s = now_s + min(CRASH_LOOP_FIRST_S * 2**over, CRASH_LOOP_MAX_S)
        if message.end is End.APP_FAILED_TO_LOAD:
            failure = Failure(
                message.end.value, f"{stub.spec.handler} failed to load.", message.why, "Mend it and call again."
            )
            self._fail_waiting(stub, message.end, failure)

    def _fail_waiting(self, stub: Stub, end: End, failure: Failure) -> None:
        for task_id in tuple(stub.waiting):
            call = self.calls.get(task_id)
            if call is not None and call.waits:
                call.move(TaskEvent.FAILED)
                self._ends.append(
                    ops.AttemptEnd(task_id=task_id, attempt=0, state=call.state, end=end, failure=failure)
                )
                self._forget(call, client.TaskResult(task_id, call.state, call.attempt, failure=failure))
        stub.waiting.clear()

    def _held(self, message: scheduling.ContainerHeld) -> None:
        stub = self.stubs.get(message.stub_id)
        if stub is not None:
            stub.why_held = message.why
            stub.progress_due = True

    # Attempts

    def _attempts_finished(self, message: work.AttemptsFinished, source: str, now_s: float) -> None:
        acks = self._acks.setdefault((source, message.container_id), [])
        warm = self._containers.get(message.container_id)
        for result in message.results:
            acks.append(work.AttemptKey(result.task_id, result.attempt))
            call = self.calls.get(result.task_id)
            if call is None or call.attempt != result.attempt or call.container_id != message.container_id:
                continue
            stub = self.stubs[call.stub_id]
            self._touched[stub.stub_id] = None
            if result.end is End.OK:
                stub.learn_duration(result.duration_s)
            self._end(stub, call, result.end, result=result)
        if warm is not None:
            warm.window = message.window
            if not warm.holding:
                warm.idle_since_s = now_s

    def _end(self, stub: Stub, call: Call, end: End, result: work.AttemptResult | None = None, why: str = "") -> None:
        warm = self._containers.get(call.container_id)
        if warm is not None:
            warm.holding.pop(call.task_id, None)
        verdict = judge_end(call, end, result is None or result.started, stub.spec.retries)
        attempt = call.attempt
        call.move(verdict.event)
        failure = result.failure if result is not None else None
        if failure is None and call.state is TaskState.ERROR:
            failure = loss_failure(end, why, stub.spec.retries)
        elif failure is None and call.state is TaskState.CANCELLED:
            failure = _CANCELLED
        value = result.result if result is not None and call.state is TaskState.COMPLETE else None
        last_line = result.last_log_line if result is not None else 0
        self._ends.append(
            ops.AttemptEnd(
                task_id=call.task_id,
                attempt=attempt,
                state=call.state,
                end=end,
                result=value,
                failure=failure,
                last_log_line=last_line,
                uses_retry=verdict.uses_retry,
            )
        )
        if call.state.terminal:
            self._forget(call, client.TaskResult(call.task_id, call.state, attempt, value, failure, last_line))
        else:
            self._wait_again(stub, call, verdict.uses_retry)

    @staticmethod
    def _wait_again(stub: Stub, call: Call, uses_retry: bool) -> None:
        call.retries_used += uses_retry
        call.container_id = ""
        stub.waiting.appendleft(call.task_id)

    def _forget(self, call: Call, result: client.TaskResult) -> None:
        del self.calls[call.task_id]
        stub = self.stubs[call.stub_id]
        stub.unfinished -= 1
        stub.progress_due = True
        if not stub.unfinished:
            stub.first_started_at_s = None
        for watcher in call.watchers:
            self._finished.setdefault(watcher, []).append(result)

    def _attempts_held(self, message: work.AttemptsHeld, source: str) -> None:
        """What a worker lost on the way is delivered again; what it holds and no longer owns is stopped."""
        warm = self._containers.get(message.container_id)
        theirs = {(key.task_id, key.attempt) for key in message.attempts}
        if warm is not None:
            warm.window = message.window
            self._touched[warm.stub_id] = None
            again = [task_id for task_id in warm.holding if (task_id, self.calls[task_id].attempt) not in theirs]
            self._redeliver(warm, again, source)
        ours = set() if warm is None else {(task_id, self.calls[task_id].attempt) for task_id in warm.holding}
        foreign = tuple(key for key in message.attempts if (key.task_id, key.attempt) not in ours)
        if foreign:
            stop = work.CancelAttempts(container_id=message.container_id, attempts=foreign, superseded=True)
            self._sends.append(Send(source, stop))

    def _redeliver(self, warm: Warm, task_ids: list[str], source: str) -> None:
        orders = []
        for task_id in task_ids:
            call = self.calls[task_id]
            orders.append(self._order(call))
        if orders:
            message = work.RunAttempts(container_id=warm.container_id, attempts=tuple(orders))
            self._sends.append(Send(source, message))
        for task_id in warm.holding:
            if self.calls[task_id].state is TaskState.CANCELLING:
                self._tell_cancel(self.calls[task_id])

    def _order(self, call: Call) -> work.AttemptOrder:
        timeout_s = self.stubs[call.stub_id].spec.timeout_s
        return work.AttemptOrder(call.task_id, call.attempt, call.arguments, timeout_s)

    # Time

    def tick(self, now_s: float) -> None:
        """What only time brings: waiting limits, containers that stand idle, blocked stubs, news for callers."""
        pressed = any(stub.why_held and stub.waiting for stub in self.stubs.values())
        for stub in self.stubs.values():
            if stub.waiting:
                self._expire(stub, now_s)
                self._touched[stub.stub_id] = None
            if stub.containers:
                self._release_idle(stub, now_s, pressed)
            if stub.progress_due:
                self._tell_progress(stub)

    def _expire(self, stub: Stub, now_s: float) -> None:
        limit_s = stub.spec.wait_s
        if not limit_s or stub.available:
            return
        for task_id in tuple(stub.waiting):
            call = self.calls.get(task_id)
            if call is None or not call.waits or now_s - call.accepted_at_s < limit_s:
                continue
            call.move(TaskEvent.WAITED_TOO_LONG)
            failure = Failure("expired", f"No machine came within {limit_s:g} s.", stub.why_held, "Raise `wait_s`.")
            end = ops.AttemptEnd(task_id=task_id, attempt=0, state=call.state, end=End.REFUSED, failure=failure)
            self._ends.append(end)
            self._forget(call, client.TaskResult(task_id, call.state, call.attempt, failure=failure))

    def _release_idle(self, stub: Stub, now_s: float, pressed: bool) -> None:
        keep_s = 0.0 if pressed and not stub.unfinished else stub.spec.keep_warm_s
        idle = [
            warm.container_id
            for warm in stub.containers.values()
            if not warm.leaving
            and not warm.holding
            and (
                (warm.available and not stub.waiting and now_s - warm.idle_since_s >= keep_s)
                or (not warm.available and not stub.unfinished)
            )
        ]
        if idle:
            for container_id in idle:
                stub.containers[container_id].leaving = True
            release = scheduling.ReleaseContainers(container_ids=tuple(idle), why="idle")
            self._sends.append(Send("scheduler", release))

    def _tell_progress(self, stub: Stub) -> None:
        stub.progress_due = False
        watchers: dict[str, None] = {}
        pending = 0
        for task_id in stub.waiting:
            call = self.calls.get(task_id)
            if call is not None and call.waits:
                pending += 1
                watchers.update(dict.fromkeys(call.watchers))
        for warm in stub.containers.values():
            for task_id in warm.holding:
                watchers.update(dict.fromkeys(self.calls[task_id].watchers))
        message = client.TasksProgressed(
            stub_id=stub.stub_id,
            pending=pending,
            running=max(0, stub.unfinished - pending),
            containers=stub.available,
            waiting_because=stub.why_held if pending else "",
        )
        self._sends.extend(Send(watcher, message) for watcher in watchers)

    # The plan

    def plan(self, now_s: float) -> Plan | None:
        """All that the letters since the last plan amount to, or None when there is nothing to do."""
        requests = self._demand(now_s)
        deliveries, starts = self._deliver(now_s)
        plan = Plan(operations=[], sends=self._sends, accepts=[], cancels=[], reads=[], deliveries=deliveries)
        add = plan.operations.append
        for row in self._put_stubs:
            add(ops.PutStub(stub=row))
        for stub_id, calls in self._accepting.items():
            plan.accepts.append((len(plan.operations), self._accept_operation(stub_id, calls, now_s)))
            add(plan.accepts[-1][1])
        if self._ends:
            add(ops.EndAttempts(ends=tuple(self._ends), now_s=now_s))
        for source, correlation, cancel in self._cancels:
            plan.cancels.append((len(plan.operations), source, correlation))
            add(cancel)
        if requests:
            add(ops.PutContainers(containers=tuple(requests)))
        if self._taken:
            add(ops.MarkTaken(task_ids=tuple(self._taken), now_s=now_s))
        if starts:
            add(ops.StartAttempts(starts=tuple(starts), now_s=now_s))
        for source, read in self._reads:
            plan.reads.append((len(plan.operations), source))
            add(read)
        self._send_results(plan)
        self._reset_group()
        return plan if plan.operations or plan.sends else None

    def _send_results(self, plan: Plan) -> None:
        for watcher, results in self._finished.items():
            plan.sends.append(Send(watcher, client.TasksFinished(results=tuple(results))))
        for (worker, container_id), keys in self._acks.items():
            plan.sends.append(Send(worker, work.ResultsCommitted(container_id=container_id, attempts=tuple(keys))))

    def _accept_operation(self, stub_id: str, calls: dict[str, Call], now_s: float) -> ops.AcceptTasks:
        tasks = []
        for call in calls.values():
            warm = self._containers.get(call.container_id)
            worker_id = warm.worker_id if warm is not None else ""
            tasks.append(
                ops.TaskToAccept(
                    task_id=call.task_id,
                    arguments=call.arguments,
                    container_id=call.container_id,
                    worker_id=worker_id,
                )
            )
        workspace = self.stubs[stub_id].workspace_id
        return ops.AcceptTasks(workspace_id=workspace, stub_id=stub_id, tasks=tuple(tasks), now_s=now_s)

    def _demand(self, now_s: float) -> list[ops.ContainerRow]:
        rows: list[ops.ContainerRow] = []
        for stub_id in self._touched:
            stub = self.stubs[stub_id]
            if stub.blocked_until_s > now_s or not stub.unfinished:
                continue
            running_for_s = 0.0 if stub.first_started_at_s is None else now_s - stub.first_started_at_s
            wanted = containers_wanted(stub.unfinished, stub.mean_s, running_for_s, stub.spec.max_containers)
            missing = wanted - sum(not warm.leaving for warm in stub.containers.values())
            if missing > 0:
                rows.extend(self._request(stub, missing, now_s))
        return rows

    def _request(self, stub: Stub, count: int, now_s: float) -> list[ops.ContainerRow]:
        rows = []
        for _ in range(count):
            container_id = self._new_id("container")
            warm = Warm(container_id=container_id, stub_id=stub.stub_id, requested_at_s=now_s)
            stub.containers[container_id] = self._containers[container_id] = warm
            rows.append(
                ops.ContainerRow(
                    container_id=container_id,
                    stub_id=stub.stub_id,
                    workspace_id=stub.workspace_id,
                    state=ContainerState.REQUESTED,
                    requested_at_s=now_s,
                )
            )
        request = scheduling.RequestContainers(
            stub_id=stub.stub_id,
            workspace_id=stub.workspace_id,
            spec=stub.spec,
            container_ids=tuple(row.container_id for row in rows),
        )
        self._sends.append(Send("scheduler", request))
        return rows

    def _deliver(self, now_s: float) -> tuple[dict[str, list[str]], list[ops.AttemptStart]]:
        deliveries: dict[str, list[str]] = {}
        starts: list[ops.AttemptStart] = []
        for stub_id in self._touched:
            stub = self.stubs[stub_id]
            if stub.waiting:
                self._deliver_stub(stub, deliveries, starts, now_s)
        self._touched.clear()
        return deliveries, starts

    def _deliver_stub(
        self, stub: Stub, deliveries: dict[str, list[str]], starts: list[ops.AttemptStart], now_s: float
    ) -> None:
        free = [warm for warm in stub.containers.values() if warm.credits]
        free.sort(key=lambda warm: -warm.credits)
        accepting = self._accepting.get(stub.stub_id, {})
        for place, warm in enumerate(free):
            share = -(-len(stub.waiting) // (len(free) - place))
            for _ in range(min(warm.credits, share)):
                call = self._next_waiting(stub)
                if call is None:
                    return
                self._start(stub, call, warm, now_s)
                deliveries.setdefault(warm.container_id, []).append(call.task_id)
                if call.task_id not in accepting:
                    starts.append(
                        ops.AttemptStart(
                            task_id=call.task_id,
                            attempt=call.attempt,
                            container_id=warm.container_id,
                            worker_id=warm.worker_id,
                        )
                    )

    def _next_waiting(self, stub: Stub) -> Call | None:
        while stub.waiting:
            call = self.calls.get(stub.waiting.popleft())
            if call is not None and call.waits:
                return call
        return None

    @staticmethod
    def _start(stub: Stub, call: Call, warm: Warm, now_s: float) -> None:
        call.move(TaskEvent.STARTED)
        call.attempt += 1
        call.container_id = warm.container_id
        warm.holding[call.task_id] = None
        if stub.first_started_at_s is None:
            stub.first_started_at_s = now_s

    # After the commit

    def settle(self, plan: Plan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed. Calls that the store knew before are answered, not run again."""
        sends = plan.sends
        known_before: list[str] = []
        for index, operation in plan.accepts:
            known_before.extend(self._known_before(operation, answers[index], sends))
        for index, source, correlation in plan.cancels:
            rows = ops.rows_of(answers[index], ops.TaskRow)
            standings = tuple(client.TaskStanding(row.task_id, row.state) for row in rows)
            sends.append(Send(source, client.CancelAccepted(standings=standings), correlation))
        for index, source in plan.reads:
            asked = plan.operations[index]
            assert isinstance(asked, ops.ReadTasks)
            results = _results_of(asked.task_ids, ops.rows_of(answers[index], ops.TaskRow))
            sends.append(Send(source, client.TasksFinished(results=results)))
        for container_id, task_ids in plan.deliveries.items():
            self._send_delivery(container_id, task_ids, sends)
        return sends

    def _known_before(self, operation: ops.AcceptTasks, answer: ops.Answer, sends: list[Send]) -> list[str]:
        assert isinstance(answer, ops.Applied)
        if len(answer.ids) == len(operation.tasks):
            return []
        new = set(answer.ids)
        old = [task.task_id for task in operation.tasks if task.task_id not in new]
        for task_id in old:
            self._drop_known(task_id)
        return old

    def _drop_known(self, task_id: str) -> None:
        """The store has this call already, ended: forget our copy and let the caller read what became of it."""
        call = self.calls.pop(task_id, None)
        if call is None:
            return
        stub = self.stubs[call.stub_id]
        stub.unfinished -= 1
        warm = self._containers.get(call.container_id)
        if warm is not None:
            warm.holding.pop(task_id, None)
        for watcher in call.watchers:
            self._reads.append((watcher, ops.ReadTasks(task_ids=(task_id,), workspace_id=stub.workspace_id)))

    def _send_delivery(self, container_id: str, task_ids: list[str], sends: list[Send]) -> None:
        warm = self._containers.get(container_id)
        if warm is None:
            return
        orders = tuple(self._order(self.calls[task_id]) for task_id in task_ids if task_id in warm.holding)
        if orders:
            message = work.RunAttempts(container_id=container_id, attempts=orders)
            sends.append(Send(f"worker/{warm.worker_id}", message))

    @property
    def owes_reads(self) -> bool:
        """Whether `settle` found something that needs another plan at once."""
        return bool(self._reads)


_CANCELLED: Final = Failure("cancelled", "The task was cancelled.")
_UNKNOWN: Final = Failure(
    "expired", "Nothing is known of this task.", "Results are kept for 600 s once read, 12 h unread.", "Call again."
)
_FAILED_STARTS: Final = frozenset({End.APP_FAILED_TO_LOAD, End.ERROR, End.OUT_OF_MEMORY, End.IMAGE_INVALID, End.KILLED})


def _loss(end: End) -> End:
    """What a container's end is to the calls it still held: out of memory stays that, the rest is a loss."""
    return end if end in (End.OUT_OF_MEMORY, End.KILLED) else End.DISCONNECTED


def _results_of(task_ids: tuple[str, ...], rows: tuple[ops.TaskRow, ...]) -> tuple[client.TaskResult, ...]:
    found = {row.task_id: row for row in rows}
    results = []
    for task_id in task_ids:
        row = found.get(task_id)
        if row is None:
            results.append(client.TaskResult(task_id, TaskState.EXPIRED, 0, failure=_UNKNOWN))
        elif row.state.terminal:
            results.append(
                client.TaskResult(task_id, row.state, row.attempt, row.result, row.failure, row.last_log_line)
            )
    return tuple(results)
