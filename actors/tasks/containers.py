"""Containers of stubs: how many are wanted, which stand idle, and what follows when they fail to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...errors import INVALID, Refused
from ...model.figures import CRASH_LOOP_FAILURES, CRASH_LOOP_FIRST_S, CRASH_LOOP_MAX_S
from ...model.states import ContainerState, End, TaskEvent
from ...store import operations as ops
from ...wire import client, scheduling
from ...wire.letter import Letter
from ...wire.message import Failure
from .demand import containers_wanted
from .group import Group
from .ledger import Call, Ledger, Stub, Warm
from .outcomes import lost_with
from .workers import WorkersSide

COMING_MAX: Final = 256  # requests of one stub that wait for room: more would not be placed sooner
_NO_FAILURE: Final = frozenset({End.CANCELLED, End.DISCONNECTED})  # ends of a container that say nothing of its code
_HOPELESS: Final = frozenset({End.APP_FAILED_TO_LOAD, End.IMAGE_INVALID, End.REFUSED})  # trying again changes nothing


class ContainersSide:
    """Takes what the scheduler says about containers, and asks it for more or gives them back."""

    def __init__(self, ledger: Ledger, group: Group, workers: WorkersSide, new_id: Callable[[str], str]) -> None:
        self._ledger = ledger
        self._group = group
        self._workers = workers
        self._new_id = new_id

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter of the scheduler in."""
        match letter.message:
            case scheduling.ContainerAvailable() as message:
                self._available(message, now_s)
            case scheduling.ContainerGone() as message:
                self._gone(message, now_s)
            case scheduling.ContainerHeld() as message:
                self._held(message, now_s)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__} of the scheduler.", code=INVALID)

    def _held(self, message: scheduling.ContainerHeld, now_s: float) -> None:
        stub = self._ledger.stubs.get(message.stub_id)
        if stub is not None:
            stub.why_held = message.why
            stub.machines_only = message.machines_only
            stub.progress_due = True
            stub.count_held(now_s)

    def _available(self, message: scheduling.ContainerAvailable, now_s: float) -> None:
        warm = self._ledger.containers.get(message.container_id)
        if warm is None:
            release = scheduling.ReleaseContainers(container_ids=(message.container_id,), why="nobody asked for it")
            self._group.send("scheduler", release)
            return
        if not warm.available:
            warm.idle_since_s = now_s
        warm.worker_id = message.worker_id
        warm.available = True
        warm.window = message.window
        self._ledger.stubs[warm.stub_id].progress_due = True
        self._ledger.stubs[warm.stub_id].count_held(now_s)
        self._ledger.touch(warm.stub_id)

    def _gone(self, message: scheduling.ContainerGone, now_s: float) -> None:
        warm = self._ledger.drop_container(message.container_id)
        if warm is None:
            return
        held = tuple(warm.holding)
        for task_id in reversed(held):  # each goes to the front, so that the oldest ends up first
            self._workers.lose(self._ledger.calls[task_id], lost_with(message.end), message.why, now_s)
        # Calls that it held have used a retry each, which bounds them; nothing else bounds one that never works.
        if not (warm.proved or warm.leaving or held or message.end in _NO_FAILURE):
            self._count_failure(self._ledger.stubs[warm.stub_id], message, now_s)
        self._ledger.stubs[warm.stub_id].count_held(now_s)

    # Failures to start

    def _count_failure(self, stub: Stub, message: scheduling.ContainerGone, now_s: float) -> None:
        """Those that were asked for together fail together: while a stub is blocked no further one counts."""
        if now_s < stub.blocked_until_s:
            return
        stub.failed_starts += 1
        stub.why_failed = message.why
        over = stub.failed_starts - CRASH_LOOP_FAILURES
        if over < 0:
            return
        if message.end in _HOPELESS:
            self._fail_waiting(stub, message, now_s)
            stub.failed_starts = CRASH_LOOP_FAILURES - 1  # whoever calls again gets one more try
        else:
            stub.blocked_until_s = now_s + min(CRASH_LOOP_FIRST_S * 2.0**over, CRASH_LOOP_MAX_S)

    def _fail_waiting(self, stub: Stub, message: scheduling.ContainerGone, now_s: float) -> None:
        what = f"{stub.spec.handler} could not be started: {message.end.value}."
        failure = Failure(message.end.value.replace(" ", "_"), what, message.why, "Mend it and call again.")
        for task_id in tuple(stub.waiting):
            self._end_waiting(self._ledger.calls[task_id], TaskEvent.FAILED, message.end, failure)

    def _end_waiting(self, call: Call, event: TaskEvent, end: End, failure: Failure) -> None:
        call.move(event)
        self._group.end(ops.AttemptEnd(task_id=call.task_id, attempt=0, state=call.state, end=end, failure=failure))
        self._ledger.forget(call)
        self._group.finish(call, client.TaskResult(call.task_id, call.state, call.attempt, failure=failure))

    # Demand

    def ask(self, stub: Stub, now_s: float) -> None:
        """Ask for the containers that a stub lacks. After a failed start one container shows whether it works again."""
        if stub.blocked_until_s > now_s or not stub.unfinished:
            return
        running_for_s = 0.0 if stub.first_started_at_s is None else now_s - stub.first_started_at_s
        wanted = containers_wanted(stub.unfinished, stub.mean_s, running_for_s, stub.spec.max_containers)
        coming, available = stub.coming, stub.available
        if stub.failed_starts and not available:
            wanted = min(wanted, 1)
        missing = min(wanted - available - coming, COMING_MAX - coming)
        if missing > 0:
            self._request(stub, missing, now_s)

    def _request(self, stub: Stub, count: int, now_s: float) -> None:
        container_ids = tuple(self._new_id("container") for _ in range(count))
        for container_id in container_ids:
            self._ledger.add_container(Warm(container_id=container_id, stub_id=stub.stub_id))
        self._group.request([self._row(stub, container_id, now_s) for container_id in container_ids])
        request = scheduling.RequestContainers(
            stub_id=stub.stub_id, workspace_id=stub.workspace_id, spec=stub.spec, container_ids=container_ids
        )
        self._group.send("scheduler", request)

    @staticmethod
    def _row(stub: Stub, container_id: str, now_s: float) -> ops.ContainerRow:
        return ops.ContainerRow(
            container_id=container_id,
            stub_id=stub.stub_id,
            workspace_id=stub.workspace_id,
            state=ContainerState.REQUESTED,
            requested_at_s=now_s,
        )

    def deliver(self, stub: Stub, now_s: float) -> None:
        """Hand waiting calls to containers with credits, evenly, those with most credits first."""
        free = sorted((warm for warm in stub.containers.values() if warm.credits), key=lambda warm: -warm.credits)
        for place, warm in enumerate(free):
            share = -(-len(stub.waiting) // (len(free) - place))
            for _ in range(min(warm.credits, share)):
                call = self._ledger.calls[next(iter(stub.waiting))]
                self._ledger.start(call, warm, now_s)
                self._group.deliver(call, warm.worker_id)

    # Time

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
            self._end_waiting(call, TaskEvent.WAITED_TOO_LONG, End.REFUSED, failure)

    def release_idle(self, stub: Stub, now_s: float, pressed: bool) -> None:
        """Give back what stands idle; at once where others wait for room and this stub has no call."""
        keep_s = 0.0 if pressed and not stub.unfinished else stub.spec.keep_warm_s
        idle = [warm for warm in stub.containers.values() if _is_idle(warm, stub, now_s - keep_s)]
        for warm in idle:
            warm.leaving = True
        if idle:
            container_ids = tuple(warm.container_id for warm in idle)
            self._group.send("scheduler", scheduling.ReleaseContainers(container_ids=container_ids, why="idle"))


def _is_idle(warm: Warm, stub: Stub, since_s: float) -> bool:
    if warm.leaving or warm.holding:
        return False
    if warm.available:
        return not stub.waiting and warm.idle_since_s <= since_s
    return not stub.unfinished
