"""Containers of stubs: how many are wanted, which stand idle, and what follows when they fail to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...errors import INVALID, Refused
from ...model.states import ContainerState
from ...store import operations as ops
from ...wire import scheduling
from ...wire.letter import Letter
from .demand import COMING_MAX, containers_wanted
from .gangs import GangsSide
from .group import Group
from .ledger import Ledger, Stub
from .outcomes import lost_with
from .waiting import WaitingSide
from .warm import Warm
from .workers import WorkersSide

ADDRESS_MAX: Final = 300  # characters: the longest host name, a colon, a port


class ContainersSide:
    """Takes what the scheduler says about containers, and asks it for more or gives them back."""

    def __init__(self, ledger: Ledger, group: Group, workers: WorkersSide, new_id: Callable[[str], str]) -> None:
        self._ledger = ledger
        self._group = group
        self._workers = workers
        self._waiting = WaitingSide(ledger, group)
        self._gangs = GangsSide(ledger, group, workers, self._waiting, new_id)
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
            case scheduling.YieldContainers(container_ids=container_ids, why=why):
                self._yield(container_ids, why)
            case message:
                raise Refused(f"tasks does not take {type(message).__name__} of the scheduler.", code=INVALID)

    def _held(self, message: scheduling.ContainerHeld, now_s: float) -> None:
        stub = self._ledger.stubs.get(message.stub_id)
        if stub is not None:
            stub.why_held = message.why
            stub.holds = message.reasons
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
        warm.address = message.address if _is_address(message.address) else ""
        gang = self._ledger.gang_of(warm)
        if gang is not None:
            self._gangs.available(gang, now_s)
        self._ledger.stubs[warm.stub_id].progress_due = True
        self._ledger.stubs[warm.stub_id].count_held(now_s)
        self._ledger.touch(warm.stub_id)

    def _gone(self, message: scheduling.ContainerGone, now_s: float) -> None:
        warm = self._ledger.drop_container(message.container_id)
        if warm is None:
            return
        gang = self._ledger.gang_of(warm)
        if gang is None:
            self._lose(warm, message, now_s)
        else:
            self._gangs.gone(gang, warm, message, now_s)
        self._ledger.stubs[warm.stub_id].count_held(now_s)

    def _lose(self, warm: Warm, message: scheduling.ContainerGone, now_s: float) -> None:
        held = tuple(warm.holding)
        for task_id in reversed(held):  # each goes to the front, so that the oldest ends up first
            call = self._ledger.calls[task_id]
            self._workers.lose(call, lost_with(message.end), message.why, now_s, message.preempted)
        # Calls that it held have used a retry each, which bounds them; nothing else bounds one that never works.
        if not held:
            self._waiting.count_failure(self._ledger.stubs[warm.stub_id], warm, message, now_s)

    def _yield(self, container_ids: tuple[str, ...], why: str) -> None:
        """They take no further call, and are released when they have finished those that they have."""
        for container_id in container_ids:
            warm = self._ledger.containers.get(container_id)
            if warm is not None:
                warm.yielding = self._ledger.stubs[warm.stub_id].yields = True
                warm.why_yields = why
                self._ledger.touch(warm.stub_id)

    # Demand

    def ask(self, stub: Stub, now_s: float) -> None:
        """Ask for the containers that a stub lacks. After a failed start one container shows whether it works again."""
        if stub.blocked_until_s > now_s or not stub.unfinished:
            return
        if stub.spec.nodes > 1:
            return self._gangs.ask(stub, now_s)
        wanted = containers_wanted(stub.unfinished, stub.mean_s, stub.running_for_s(now_s), stub.spec.max_containers)
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
        if stub.spec.nodes > 1:
            return self._gangs.deliver(stub, now_s)
        free = sorted((warm for warm in stub.containers.values() if warm.credits), key=lambda warm: -warm.credits)
        for place, warm in enumerate(free):
            share = -(-len(stub.waiting) // (len(free) - place))
            for _ in range(min(warm.credits, share)):
                call = self._ledger.calls[next(iter(stub.waiting))]
                self._ledger.start(call, warm, now_s)
                self._group.deliver(call, warm.worker_id)

    def release_yielded(self, stub: Stub) -> None:
        """Release those that make room for others and have no call any more."""
        if not stub.yields:
            return
        if stub.spec.nodes > 1:
            return self._gangs.release_yielded(stub)
        yielding = [warm for warm in stub.containers.values() if warm.yielding and not warm.leaving]
        done = [warm for warm in yielding if not warm.holding]
        for why in dict.fromkeys(warm.why_yields for warm in done):
            self._release([warm for warm in done if warm.why_yields == why], why)
        stub.yields = any(warm.holding for warm in yielding)

    # Time

    def pass_time(self, stub: Stub, now_s: float, pressed: bool) -> None:
        """What time brings to a stub: waiting limits, failures of gangs, containers that stand idle."""
        if stub.waiting:
            self._waiting.expire(stub, now_s)
            self._ledger.touch(stub.stub_id)
        self._gangs.judge(stub, now_s)
        if stub.containers:
            self.release_idle(stub, now_s, pressed)

    def release_idle(self, stub: Stub, now_s: float, pressed: bool) -> None:
        """Give back what stands idle; at once where others wait for room and this stub has no call."""
        keep_s = 0.0 if pressed and not stub.unfinished else stub.spec.keep_warm_s
        if stub.spec.nodes > 1:
            return self._gangs.release_idle(stub, now_s - keep_s)
        self._release([warm for warm in stub.containers.values() if _is_idle(warm, stub, now_s - keep_s)], "idle")

    def _release(self, warms: list[Warm], why: str) -> None:
        for warm in warms:
            warm.leaving = True
        if warms:
            container_ids = tuple(warm.container_id for warm in warms)
            self._group.send("scheduler", scheduling.ReleaseContainers(container_ids=container_ids, why=why))


def _is_address(address: str) -> bool:
    """Whether it can be told to other workers, which put it into their containers' environment."""
    return len(address) <= ADDRESS_MAX and address.isascii() and address.isprintable()


def _is_idle(warm: Warm, stub: Stub, since_s: float) -> bool:
    if warm.leaving or warm.holding:
        return False
    if warm.available:
        return not stub.waiting and warm.idle_since_s <= since_s
    return not stub.unfinished
