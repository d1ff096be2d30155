"""What `tasks` remembers between messages: calls that have not ended, their stubs, and the containers that run them.

The ledger alone changes these; the parts of the policy ask it to, so that its counts always agree with its rows.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from ...model.feasibility import PoolOffer
from ...model.queues import Queueing
from ...model.reasons import Reason
from ...model.states import TASK_TRANSITIONS, TaskEvent, TaskState
from ...store.operations import StubRow
from ...wire.client import StubSpec
from ...wire.message import Payload
from .warm import Gang, Warm

WATCHERS_MAX = 4  # callers of one task that hear its result; the newest count


class Call(msgspec.Struct, kw_only=True):
    """A task that has not ended. `attempt` counts the attempts started so far.

    Where a gang runs it, `container_id` is that of its rank 0.
    """

    task_id: str
    stub_id: str
    arguments: Payload
    state: TaskState = TaskState.PENDING
    attempt: int = 0
    retries_used: int = 0
    container_id: str = ""
    gang_id: str = ""
    waiting_since_s: float = 0.0
    held_before_s: float = 0.0  # what its stub had been held in all when this call began to wait
    watchers: tuple[str, ...] = ()

    def move(self, event: TaskEvent) -> None:
        """Follow the table of task states. Raises KeyError for a pair that the table does not know."""
        self.state = TASK_TRANSITIONS[self.state, event]

    @property
    def waits(self) -> bool:
        """Whether the call may be delivered."""
        return self.state in (TaskState.PENDING, TaskState.RETRY)


class Stub(msgspec.Struct, kw_only=True):
    """A function, its waiting calls in order, its containers, and what is known of its durations and failures."""

    stub_id: str
    workspace_id: str
    spec: StubSpec
    waiting: OrderedDict[str, None] = msgspec.field(default_factory=OrderedDict)
    watching: dict[str, int] = msgspec.field(default_factory=dict)  # callers, and how many calls each one watches
    unfinished: int = 0
    containers: dict[str, Warm] = msgspec.field(default_factory=dict)
    gangs: dict[str, Gang] = msgspec.field(default_factory=dict)
    mean_s: float | None = None
    first_started_at_s: float | None = None
    failed_starts: int = 0
    blocked_until_s: float = 0.0
    why_failed: str = ""
    why_held: str = ""
    holds: tuple[Reason, ...] = ()  # what `why_held` says, as data
    machines_only: bool = False
    held_s: float = 0.0  # how long in all nothing but missing machines held this stub, up to `held_since_s`
    held_since_s: float | None = None
    progress_due: bool = False
    yields: bool = False  # some of its containers make room for others once their calls have ended

    def learn_duration(self, duration_s: float, now_s: float) -> None:
        """Keep a moving mean of how long a call takes."""
        self.mean_s = duration_s if self.mean_s is None else 0.8 * self.mean_s + 0.2 * duration_s
        self.first_started_at_s = None if self.first_started_at_s is None else now_s

    def running_for_s(self, now_s: float) -> float:
        """For how long something has run, and nothing has ended: so long does a call last at least."""
        idle = self.mean_s is not None and self.unfinished == len(self.waiting)
        return 0.0 if idle or self.first_started_at_s is None else now_s - self.first_started_at_s

    def count_held(self, now_s: float) -> float:
        """How many seconds in all nothing but missing machines held it; to be called whenever that may change."""
        if self.held_since_s is not None:
            self.held_s += max(0.0, now_s - self.held_since_s)
        held = bool(self.why_held) and self.machines_only and not self.available and now_s >= self.blocked_until_s
        self.held_since_s = now_s if held else None
        return self.held_s

    @property
    def available(self) -> int:
        """How many containers are warm and stay; of gangs only whole ones count."""
        if self.spec.nodes > 1:
            return sum(gang.size for gang in self.gangs.values() if gang.whole)
        return sum(warm.stays for warm in self.containers.values())

    @property
    def coming(self) -> int:
        """How many containers are asked for and not warm yet, or wait for the others of their gang."""
        if self.spec.nodes > 1:
            staying = [gang for gang in self.gangs.values() if not (gang.leaving or gang.whole)]
            return sum(not member.leaving for gang in staying for member in gang.members.values())
        return sum(not warm.available and not warm.leaving for warm in self.containers.values())


class Ledger:
    """Every call that has not ended, every stub, every container that has not ended; `touched` stubs are looked at."""

    def __init__(self) -> None:
        self.stubs: dict[str, Stub] = {}
        self.calls: dict[str, Call] = {}
        self.containers: dict[str, Warm] = {}
        self.touched: dict[str, None] = {}
        self.offers: tuple[PoolOffer, ...] = ()
        self.queueing = Queueing()

    def add_stub(self, row: StubRow) -> Stub:
        """Know a stub; knowing it twice is knowing it once."""
        stub = Stub(stub_id=row.stub_id, workspace_id=row.workspace_id, spec=row.spec)
        return self.stubs.setdefault(row.stub_id, stub)

    def touch(self, stub_id: str) -> None:
        """Something changed for this stub: the next plan looks at its demand and delivers its calls."""
        self.touched[stub_id] = None

    def add_container(self, warm: Warm) -> None:
        """Know a container of a known stub; of those with one rank of a gang the newest is its member."""
        stub = self.stubs[warm.stub_id]
        stub.containers[warm.container_id] = self.containers[warm.container_id] = warm
        if warm.gang_id:
            new = Gang(gang_id=warm.gang_id, stub_id=warm.stub_id, size=stub.spec.nodes)
            stub.gangs.setdefault(warm.gang_id, new).members[warm.rank] = warm

    def drop_container(self, container_id: str) -> Warm | None:
        """A container has ended; what it holds is still in `holding`."""
        warm = self.containers.pop(container_id, None)
        if warm is not None:
            del self.stubs[warm.stub_id].containers[container_id]
            gang = self.gang_of(warm)
            if gang is not None and gang.members.get(warm.rank) is warm:
                del gang.members[warm.rank]
            self.touch(warm.stub_id)
        return warm

    def gang_of(self, one: Call | Warm) -> Gang | None:
        """The gang that runs a call, or of which a container is a member."""
        return self.stubs[one.stub_id].gangs.get(one.gang_id) if one.gang_id else None

    def holders(self, call: Call) -> list[Warm]:
        """The containers that run a call, as far as they are known, in order of their ranks."""
        gang = self.gang_of(call)
        if gang is not None:
            members = [gang.members[rank] for rank in sorted(gang.members)]
            return [member for member in members if call.task_id in member.holding]
        warm = self.containers.get(call.container_id)
        return [] if warm is None else [warm]

    def add_call(self, call: Call, holder: Warm | None = None) -> None:
        """Know a call that has not ended; it waits, or its container holds it (`holder`: or held it, with its gang)."""
        stub = self.stubs[call.stub_id]
        self.calls[call.task_id] = call
        stub.unfinished += 1
        for source in call.watchers:
            stub.watching[source] = stub.watching.get(source, 0) + 1
        if call.waits:
            stub.waiting[call.task_id] = None
        else:
            self._hold(call, holder or self.containers[call.container_id])

    def _hold(self, call: Call, warm: Warm) -> None:
        """This container has the call, and with it all others of its gang."""
        call.container_id, call.gang_id = warm.container_id, warm.gang_id
        gang = self.gang_of(warm)
        if gang is not None:
            gang.task_id = call.task_id
        for one in (warm,) if gang is None else gang.members.values():
            one.holding[call.task_id] = None

    def watch(self, call: Call, source: str) -> None:
        """This caller hears the result as well."""
        if source in call.watchers:
            return
        stub = self.stubs[call.stub_id]
        if len(call.watchers) == WATCHERS_MAX:
            self._unwatch(stub, call.watchers[0])
        call.watchers = (*call.watchers[1 - WATCHERS_MAX :], source)
        stub.watching[source] = stub.watching.get(source, 0) + 1

    @staticmethod
    def _unwatch(stub: Stub, source: str) -> None:
        stub.watching[source] -= 1
        if not stub.watching[source]:
            del stub.watching[source]

    def start(self, call: Call, warm: Warm, now_s: float) -> None:
        """The next attempt of a waiting call begins in this container, or in the gang of which it is rank 0."""
        stub = self.stubs[call.stub_id]
        call.move(TaskEvent.STARTED)
        call.attempt += 1
        del stub.waiting[call.task_id]
        self._hold(call, warm)
        alone = stub.mean_s is not None and stub.unfinished - len(stub.waiting) == 1
        if alone or stub.first_started_at_s is None:
            stub.first_started_at_s = now_s

    def let_go(self, call: Call, now_s: float) -> None:
        """The container of this call, or its gang, holds it no more."""
        for warm in self.holders(call):
            warm.holding.pop(call.task_id, None)
            warm.idle_since_s = now_s
        gang = self.gang_of(call)
        if gang is not None:
            gang.task_id, gang.failed_at_s, gang.culprit, gang.idle_since_s = "", None, None, now_s
            gang.ended.clear()
            gang.owed.clear()

    def wait_again(self, call: Call, now_s: float) -> None:
        """A call that was let go and goes on is the next of its stub; its waiting time begins anew."""
        waiting = self.stubs[call.stub_id].waiting
        call.container_id = call.gang_id = ""
        call.waiting_since_s = now_s
        call.held_before_s = self.stubs[call.stub_id].count_held(now_s)
        waiting[call.task_id] = None
        waiting.move_to_end(call.task_id, last=False)

    def forget(self, call: Call) -> None:
        """A call has ended."""
        stub = self.stubs[call.stub_id]
        del self.calls[call.task_id]
        stub.waiting.pop(call.task_id, None)
        for source in call.watchers:
            self._unwatch(stub, source)
        stub.unfinished -= 1
        stub.progress_due = True
        if not stub.unfinished:
            stub.first_started_at_s = None
        self.touch(stub.stub_id)

    def of_workspace(self, task_id: str, workspace_id: str) -> Call | None:
        """The unfinished call with this identity, if it belongs to the workspace."""
        call = self.calls.get(task_id)
        return call if call is not None and self.stubs[call.stub_id].workspace_id == workspace_id else None
