"""Calls that wait, where waiting is of no use: no container of theirs ever starts, or no machine comes in time."""

from __future__ import annotations

from typing import Final

from ...model.doubling import doubled_s
from ...model.figures import CRASH_LOOP_FAILURES, CRASH_LOOP_FIRST_S, CRASH_LOOP_MAX_S
from ...model.states import End, TaskEvent
from ...store import operations as ops
from ...wire import client, scheduling
from ...wire.message import Failure
from .group import Group
from .ledger import Call, Ledger, Stub
from .warm import Warm

_NO_FAILURE: Final = frozenset({End.CANCELLED, End.DISCONNECTED})  # ends of a container that say nothing of its code
_HOPELESS: Final = frozenset({End.APP_FAILED_TO_LOAD, End.IMAGE_INVALID, End.REFUSED})  # trying again changes nothing


class WaitingSide:
    """Counts starts that failed, and ends calls that wait in vain."""

    def __init__(self, ledger: Ledger, group: Group) -> None:
        self._ledger = ledger
        self._group = group

    def count_failure(self, stub: Stub, warm: Warm, message: scheduling.ContainerGone, now_s: float) -> bool:
        """Whether a container that held no call failed to start; that is counted.

        Those that were asked for together fail together: while a stub is blocked no further one counts.
        """
        if warm.proved or warm.leaving or message.preempted or message.end in _NO_FAILURE:
            return False
        if now_s >= stub.blocked_until_s:
            self._count(stub, message, now_s)
        return True

    def _count(self, stub: Stub, message: scheduling.ContainerGone, now_s: float) -> None:
        stub.failed_starts += 1
        stub.why_failed = message.why
        over = stub.failed_starts - CRASH_LOOP_FAILURES
        if over < 0:
            return
        if message.end in _HOPELESS:
            self._fail_all(stub, message)
            stub.failed_starts = CRASH_LOOP_FAILURES - 1  # whoever calls again gets one more try
        else:
            stub.blocked_until_s = now_s + doubled_s(CRASH_LOOP_FIRST_S, over, CRASH_LOOP_MAX_S)

    def _fail_all(self, stub: Stub, message: scheduling.ContainerGone) -> None:
        what = f"{stub.spec.handler} could not be started: {message.end.value}."
        failure = Failure(message.end.value.replace(" ", "_"), what, message.why, "Mend it and call again.")
        for task_id in tuple(stub.waiting):
            self._end(self._ledger.calls[task_id], TaskEvent.FAILED, message.end, failure)

    def _end(self, call: Call, event: TaskEvent, end: End, failure: Failure) -> None:
        call.move(event)
        self._group.end(ops.AttemptEnd(task_id=call.task_id, attempt=0, state=call.state, end=end, failure=failure))
        self._ledger.forget(call)
        self._group.finish(call, client.TaskResult(call.task_id, call.state, call.attempt, failure=failure))

    def expire(self, stub: Stub, now_s: float) -> None:
        """End calls that no machine came for within their waiting limit; those at the front wait longest.

        Only time counts in which nothing but missing machines holds the stub, as far as this reign has seen it.
        """
        limit_s = stub.spec.wait_s
        held_s = stub.count_held(now_s)
        if not limit_s or stub.held_since_s is None:
            return
        failure = Failure("expired", f"No machine came within {limit_s:g} s.", stub.why_held, "Raise `wait_s`.")
        while stub.waiting:
            call = self._ledger.calls[next(iter(stub.waiting))]
            if held_s - call.held_before_s < limit_s:
                return
            self._end(call, TaskEvent.WAITED_TOO_LONG, End.REFUSED, failure)
