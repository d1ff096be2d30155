"""The workers' side: attempts handed out and taken back, results, and what each end means."""

from __future__ import annotations

import math

import msgspec

from ...errors import INVALID, Refused
from ...model import hearsay
from ...model.figures import CREDIT_WINDOW_MAX
from ...model.states import End, TaskState
from ...store import operations as ops
from ...wire import client, work
from ...wire.letter import Letter
from .group import Group
from .ledger import Call, Ledger, Stub
from .outcomes import CANCELLED, judge_end, loss_failure
from .parts import order_bytes, parts
from .ranks import Ranks
from .warm import Gang, RankEnd, Warm

_RAN: frozenset[End] = frozenset({End.OK, End.ERROR, End.TIMED_OUT, End.OUT_OF_MEMORY})  # their durations tell


class WorkersSide:
    """Takes what workers say about attempts. A worker is heard about its own containers only."""

    def __init__(self, ledger: Ledger, group: Group) -> None:
        self._ledger = ledger
        self._group = group
        self.ranks = Ranks(group)

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter of a worker in."""
        match letter.message:
            case work.AttemptsFinished() as message:
                self._finished(_as_can_be(message), letter.source, now_s)
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
            warm.window = hearsay.count(message.window, CREDIT_WINDOW_MAX)
            self._ledger.touch(warm.stub_id)
        keys = [
            work.AttemptKey(result.task_id, result.attempt)
            for result in message.results
            if self._take_result(result, message.container_id, warm, now_s)
        ]
        self._group.acknowledge(source, message.container_id, keys)

    def _take_result(self, result: work.AttemptResult, container_id: str, warm: Warm | None, now_s: float) -> bool:
        """A result counts for the attempt that owns its task; any other comes too late, or twice.

        The container of a call that waits again is history: nothing that it still says counts.
        Answers whether the worker need keep it no more: a rank's counts until its gang's attempt is over.
        """
        call = self._ledger.calls.get(result.task_id)
        if call is None or call.attempt != result.attempt or call.waits or not self._runs(call, container_id):
            return True
        stub = self._ledger.stubs[call.stub_id]
        if result.started and result.end in _RAN:
            stub.learn_duration(result.duration_s, now_s)
        if result.started and warm is not None:
            warm.proved = True
            stub.failed_starts = 0
            stub.blocked_until_s = 0.0
        gang = self._ledger.gang_of(call)
        if gang is None or warm is None:
            self.end(stub, call, result, now_s)
            return True
        self._end_rank(gang, warm, result, now_s)
        return False

    def _runs(self, call: Call, container_id: str) -> bool:
        if not call.gang_id:
            return call.container_id == container_id
        return any(warm.container_id == container_id for warm in self._ledger.holders(call))

    def lose(self, call: Call, end: End, why: str, now_s: float, preempted: bool = False) -> None:
        """The container of a call is gone, and its worker never told how the call itself ended."""
        lost = work.AttemptResult(call.task_id, call.attempt, end, preempted=preempted)
        self.end(self._ledger.stubs[call.stub_id], call, lost, now_s, why)

    # Gangs

    def lose_rank(self, gang: Gang, warm: Warm, end: End, why: str, now_s: float, preempted: bool = False) -> None:
        """The container of a rank is gone, and its worker never told how its part of the call ended."""
        call = self._ledger.calls[gang.task_id]
        lost = work.AttemptResult(call.task_id, call.attempt, end, preempted=preempted)
        self._end_rank(gang, warm, lost, now_s, why)

    def _end_rank(self, gang: Gang, warm: Warm, result: work.AttemptResult, now_s: float, why: str = "") -> None:
        end = RankEnd(container_id=warm.container_id, worker_id=warm.worker_id, result=result, why=why)
        self.ranks.note(gang, warm.rank, end, now_s)
        self.judge_gang(gang, now_s)

    def judge_gang(self, gang: Gang, now_s: float) -> None:
        """End the attempt that a gang runs, once all its ranks have."""
        call = self._ledger.calls[gang.task_id]
        end = self.ranks.judge(gang, call.state is TaskState.CANCELLING, now_s)
        if end is not None:
            self.ranks.acknowledge(gang)
            self.end(self._ledger.stubs[call.stub_id], call, end.result, now_s, end.why)

    def end(self, stub: Stub, call: Call, result: work.AttemptResult, now_s: float, why: str = "") -> None:
        """An attempt has ended: its task ends with it, or goes on."""
        judged = judge_end(call, result, stub.spec.retries)
        self._ledger.let_go(call, now_s)
        call.move(judged.event)
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
                uses_retry=judged.uses_retry,
            )
        )
        if call.state.terminal:
            self._ledger.forget(call)
            self._group.finish(call, told)
        else:
            call.retries_used += judged.uses_retry
            self._ledger.wait_again(call, now_s)
            self._ledger.touch(stub.stub_id)

    # Attempts handed out

    def order(self, call: Call) -> work.AttemptOrder:
        """The order for the newest attempt of a call."""
        timeout_s = self._ledger.stubs[call.stub_id].spec.timeout_s
        gang = self._ledger.gang_of(call)
        rank0 = "" if gang is None else gang.address
        return work.AttemptOrder(call.task_id, call.attempt, call.arguments, timeout_s, rank0)

    def tell_cancel(self, call: Call) -> None:
        """Tell each worker of a call in CANCELLING; it hears again whenever it says that it holds the call."""
        for warm in self._ledger.holders(call):
            self._tell_cancel(call, warm)

    def _tell_cancel(self, call: Call, warm: Warm) -> None:
        keys = (work.AttemptKey(call.task_id, call.attempt),)
        message = work.CancelAttempts(container_id=warm.container_id, attempts=keys)
        self._group.send(f"worker/{warm.worker_id}", message)

    def _held(self, message: work.AttemptsHeld, source: str) -> None:
        """What a worker lost on the way is sent again; what it holds and no longer owns is stopped."""
        if not self._may_speak(message.container_id, source):
            return
        warm = self._ledger.containers.get(message.container_id)
        ours: set[work.AttemptKey] = set()
        if warm is not None:
            warm.window = hearsay.count(message.window, CREDIT_WINDOW_MAX)
            self._ledger.touch(warm.stub_id)
            ours = {work.AttemptKey(task_id, self._ledger.calls[task_id].attempt) for task_id in warm.holding}
            self._send_again(warm, set(message.attempts))
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

    def _send_again(self, warm: Warm, theirs: set[work.AttemptKey]) -> None:
        """A cancelled attempt is never sent again: its worker hears of the cancel instead, and answers that."""
        calls = [self._ledger.calls[task_id] for task_id in warm.holding]
        lacking = [
            call
            for call in calls
            if call.state is TaskState.RUNNING and work.AttemptKey(call.task_id, call.attempt) not in theirs
        ]
        gang = self._ledger.gang_of(warm)
        if gang is not None and lacking and not gang.address:
            gang.owed[warm.rank] = None  # its rank 0 is heard of soon
        else:
            self._run(warm, lacking)
        for call in calls:
            if call.state is TaskState.CANCELLING:
                self._tell_cancel(call, warm)

    def _run(self, warm: Warm, calls: list[Call]) -> None:
        for part in parts(map(self.order, calls), order_bytes):
            run = work.RunAttempts(container_id=warm.container_id, attempts=part)
            self._group.send(f"worker/{warm.worker_id}", run)

    def send_owed(self, gang: Gang) -> None:
        """It is known where the ranks of this gang meet: those that had not heard of their call do now."""
        if not gang.address:
            return
        for rank in gang.owed:
            call = self._ledger.calls[gang.task_id]
            if rank in gang.members and rank not in gang.ended and call.state is TaskState.RUNNING:
                self._run(gang.members[rank], [call])
        gang.owed.clear()


def _as_can_be(message: work.AttemptsFinished) -> work.AttemptsFinished:
    """A worker's results with numbers that rows hold, and times that are some."""
    if all(0 <= one.last_log_line <= hearsay.INT4_MAX and 0.0 <= one.duration_s < math.inf for one in message.results):
        return message
    return msgspec.structs.replace(message, results=tuple(map(_clipped, message.results)))


def _clipped(result: work.AttemptResult) -> work.AttemptResult:
    last_log_line, duration_s = hearsay.count(result.last_log_line), hearsay.seconds(result.duration_s)
    return msgspec.structs.replace(result, last_log_line=last_log_line, duration_s=duration_s)


def _as_told(call: Call, result: work.AttemptResult, why: str) -> client.TaskResult:
    """An attempt's result as its caller hears it, in the words that fit the task's state."""
    failure = result.failure
    if call.state is TaskState.CANCELLED:
        failure = failure or CANCELLED
    elif call.state is TaskState.ERROR:
        failure = failure or loss_failure(result.end, why, call.retries_used)
    value = result.result if call.state is TaskState.COMPLETE else None
    return client.TaskResult(call.task_id, call.state, result.attempt, value, failure, result.last_log_line)
