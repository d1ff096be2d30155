"""The workers' side: attempts handed out and taken back, results, and what each end means."""

from __future__ import annotations

from ...errors import INVALID, Refused
from ...model.states import End, TaskState
from ...store import operations as ops
from ...wire import client, work
from ...wire.letter import Letter
from .group import Group
from .ledger import Call, Ledger, Stub, Warm
from .outcomes import CANCELLED, judge_end, loss_failure
from .parts import order_bytes, parts

_RAN: frozenset[End] = frozenset({End.OK, End.ERROR, End.TIMED_OUT, End.OUT_OF_MEMORY})  # their durations tell


class WorkersSide:
    """Takes what workers say about attempts. A worker is heard about its own containers only."""

    def __init__(self, ledger: Ledger, group: Group) -> None:
        self._ledger = ledger
        self._group = group

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter of a worker in."""
        match letter.message:
            case work.AttemptsFinished() as message:
                self._finished(message, letter.source, now_s)
            case work.AttemptsHeld() as message:
                self._held(message, letter.source)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__} of a worker.", code=INVALID)

    def _may_speak(self, container_id: str, source: str) -> bool:
        """Of an ended container any worker may speak: it is told that nobody wants to know."""
        warm = self._ledger.containers.get(container_id)
        return warm is None or source == f"worker/{warm.worker_id}"

    # Results

    def _finished(self, message: work.AttemptsFinished, source: str, now_s: float) -> None:
        if not self._may_speak(message.container_id, source):
            return
        warm = self._ledger.containers.get(message.container_id)
        if warm is not None:
            warm.window = message.window
            self._ledger.touch(warm.stub_id)
        for result in message.results:
            self._take_result(result, message.container_id, warm, now_s)
        keys = [work.AttemptKey(result.task_id, result.attempt) for result in message.results]
        self._group.acknowledge(source, message.container_id, keys)

    def _take_result(self, result: work.AttemptResult, container_id: str, warm: Warm | None, now_s: float) -> None:
        """A result counts for the attempt that owns its task; any other comes too late, or twice.

        The container of a call that waits again is history: nothing that it still says counts.
        """
        call = self._ledger.calls.get(result.task_id)
        if call is None or call.attempt != result.attempt or call.container_id != container_id or call.waits:
            return
        stub = self._ledger.stubs[call.stub_id]
        if result.started and result.end in _RAN:
            stub.learn_duration(result.duration_s)
        if result.started and warm is not None:
            warm.proved = True
            stub.failed_starts = 0
            stub.blocked_until_s = 0.0
        self.end(stub, call, result, now_s)

    def lose(self, call: Call, end: End, why: str, now_s: float) -> None:
        """The container of a call is gone, and its worker never told how the call itself ended."""
        lost = work.AttemptResult(call.task_id, call.attempt, end)
        self.end(self._ledger.stubs[call.stub_id], call, lost, now_s, why)

    def end(self, stub: Stub, call: Call, result: work.AttemptResult, now_s: float, why: str = "") -> None:
        """An attempt has ended: its task ends with it, or goes on."""
        verdict = judge_end(call, result.end, result.started, stub.spec.retries)
        self._ledger.let_go(call, now_s)
        call.move(verdict.event)
        told = _as_told(call, result, why)
        self._group.end(
            ops.AttemptEnd(
                task_id=call.task_id,
                attempt=call.attempt,
                state=call.state,
                end=result.end,
                result=told.result,
                failure=told.failure,
                last_log_line=told.last_log_line,
                retry_at_s=0.0 if call.state.terminal else now_s,
                uses_retry=verdict.uses_retry,
            )
        )
        if call.state.terminal:
            self._ledger.forget(call)
            self._group.finish(call, told)
        else:
            call.retries_used += verdict.uses_retry
            self._ledger.wait_again(call, now_s)
            self._ledger.touch(stub.stub_id)

    # Attempts handed out

    def order(self, call: Call) -> work.AttemptOrder:
        """The order for the newest attempt of a call."""
        timeout_s = self._ledger.stubs[call.stub_id].spec.timeout_s
        return work.AttemptOrder(call.task_id, call.attempt, call.arguments, timeout_s)

    def tell_cancel(self, call: Call) -> None:
        """Tell the worker of a call in CANCELLING; it hears again whenever it says that it holds the call."""
        worker_id = self._ledger.containers[call.container_id].worker_id
        keys = (work.AttemptKey(call.task_id, call.attempt),)
        message = work.CancelAttempts(container_id=call.container_id, attempts=keys)
        self._group.send(f"worker/{worker_id}", message)

    def _held(self, message: work.AttemptsHeld, source: str) -> None:
        """What a worker lost on the way is sent again; what it holds and no longer owns is stopped."""
        if not self._may_speak(message.container_id, source):
            return
        warm = self._ledger.containers.get(message.container_id)
        ours: set[work.AttemptKey] = set()
        if warm is not None:
            warm.window = message.window
            self._ledger.touch(warm.stub_id)
            ours = {work.AttemptKey(task_id, self._ledger.calls[task_id].attempt) for task_id in warm.holding}
            self._send_again(warm, set(message.attempts), source)
        foreign = tuple(key for key in message.attempts if key not in ours)
        if foreign:
            stop = work.CancelAttempts(container_id=message.container_id, attempts=foreign, superseded=True)
            self._group.send(source, stop)
        if message.question:
            kept = tuple(key for key in message.attempts if key in ours)
            confirmed = work.AttemptsConfirmed(
                container_id=message.container_id, attempts=kept, question=message.question
            )
            self._group.send(source, confirmed)

    def _send_again(self, warm: Warm, theirs: set[work.AttemptKey], source: str) -> None:
        """A cancelled attempt is never sent again: its worker hears of the cancel instead, and answers that."""
        calls = [self._ledger.calls[task_id] for task_id in warm.holding]
        lacking = [
            self.order(call)
            for call in calls
            if call.state is TaskState.RUNNING and work.AttemptKey(call.task_id, call.attempt) not in theirs
        ]
        for part in parts(lacking, order_bytes):
            self._group.send(source, work.RunAttempts(container_id=warm.container_id, attempts=part))
        for call in calls:
            if call.state is TaskState.CANCELLING:
                self.tell_cancel(call)


def _as_told(call: Call, result: work.AttemptResult, why: str) -> client.TaskResult:
    """An attempt's result as its caller hears it, in the words that fit the task's state."""
    failure = result.failure
    if call.state is TaskState.CANCELLED:
        failure = failure or CANCELLED
    elif call.state is TaskState.ERROR:
        failure = failure or loss_failure(result.end, why, call.retries_used)
    value = result.result if call.state is TaskState.COMPLETE else None
    return client.TaskResult(call.task_id, call.state, result.attempt, value, failure, result.last_log_line)
