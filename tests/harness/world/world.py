"""A world: put together, driven by its plan, watched, and brought to rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import trio
import trio.lowlevel
import trio.testing

from levers9.actors.pool import PoolSettings, Processes
from levers9.daemons.settings import NodeTable, PoolTable, Settings
from levers9.store import operations as ops
from levers9.wire.post import Post

from .caller import Caller
from .functions import Behaviour
from .machines import Attempts, MemoryObjects, Worker, WorldWorkers
from .plan import Fault, FaultKind, WorldPlan, with_faults
from .plane import RUN_DIR, ControlPlane, counted, deterministic, fewest, silence
from .truth import StoreFault

T = TypeVar("T")
ALL_ENDED_WITHIN_S: Final = 1_500.0  # of virtual time after the last fault: leases and loops of crashes are in it
AT_REST_WITHIN_S: Final = 900.0  # idle workers wind down after 300 s
ISOLATED_S: Final = 60.0
LOST_S: Final = 400.0  # longer than a lease and what comes before it
CANCEL_AFTER_S: Final = 305.0  # its lease has run out
STORE_AWAY_S: Final = 3.0
POOL: Final = "local"
_ACTORS: Final = ((ops.AcceptTasks, ops.StartAttempts, ops.EndAttempts), (ops.MoveContainers,), (ops.PutWorkers,))


@dataclass(frozen=True)
class Report:
    """What became of a world."""

    journal: bytes
    digest: str
    ends: dict[str, int]
    took_s: float
    attempts: int
    retries: int


class World(ControlPlane):
    """One world. `run` is its whole life."""

    def __init__(self, seed: int, plan: WorldPlan) -> None:
        super().__init__(seed)
        self.plan = plan
        self.objects = MemoryObjects(self.chance("objects"))
        self.behaviour = Behaviour(seed)
        self.attempts = Attempts(self.violated, self.network.isolated_for_s)
        self.truth.runs_now = self.attempts.may_not_be_given_up
        self.workers: dict[str, Worker] = {}
        self.caller = Caller(self)
        self._luck = self.chance("faults")

    # Life

    async def run(self) -> Report:
        """From the first process to rest. Raises `Violation`."""
        await self.live(self._live)
        return self._report()

    async def _live(self) -> None:
        self.nursery.start_soon(self.caller.connection.run)
        await self.caller.connection.is_open.wait()
        async with trio.open_nursery() as doing:
            for plan in self.plan.maps:
                doing.start_soon(self.caller.submit, plan)
            doing.start_soon(self._faults)
        with trio.move_on_after(ALL_ENDED_WITHIN_S) as scope:
            await self.caller.until_all_ended()
        if scope.cancelled_caught:
            missing = self.caller.missing()
            rows = [str(self.truth.tables.tasks.get(task_id)) for task_id in missing[:3]]
            self.violated(f"I3: {len(missing)} calls never ended; the store says {rows}")
            await trio.lowlevel.checkpoint()
        await self.until_at_rest(AT_REST_WITHIN_S)

    def _unrest(self) -> list[str]:
        living = [worker.worker_id for worker in self.workers.values() if not worker.process.dead]
        found = [f"the process of {worker_id} lives" for worker_id in living]
        if self.caller.connection.open_work():
            found.append(self.caller.connection.open_work())
        return super()._unrest() + found

    def _report(self) -> Report:
        return Report(
            journal=self.journal.to_bytes(),
            digest=self.journal.digest(),
            ends=counted(self.caller.ends.values()),
            took_s=trio.current_time(),
            attempts=len(self.attempts.begun),
            retries=sum(attempt > 1 for _, attempt in self.attempts.begun),
        )

    def _settings(self) -> Settings:
        return Settings(run_dir=RUN_DIR, pools=(self._pool(),))

    def _machines(self, kind: str, pool: PoolSettings, post: Post) -> Processes:
        return WorldWorkers(self, pool.name)

    def _pool(self) -> PoolTable:
        """Workers that are all alike, or one on each of as many named nodes."""
        count = self.plan.max_workers
        nodes = tuple(NodeTable(name=f"node-{number}") for number in range(count)) if self.plan.named_nodes else ()
        return PoolTable(name=POOL, max_workers=count, cpu=2.0, memory=2048, nodes=nodes)

    # Faults

    async def _faults(self) -> None:
        for fault in self.plan.faults:
            await trio.sleep_until(fault.at_s)
            self.journal.note("fault", fault.kind)
            await self.happen(fault)

    async def happen(self, fault: Fault) -> None:
        """Have one fault happen now."""
        await trio.lowlevel.checkpoint()
        if fault.kind in _STORE_FAULTS:
            self.truth.fail_next(_STORE_FAULTS[fault.kind], *self._one_of(_ACTORS))
        elif fault.kind in (FaultKind.SILENCE, FaultKind.CUT):
            self._disturb_a_cable(fault.kind)
        elif fault.kind in (FaultKind.SUBMIT_AGAIN, FaultKind.CANCEL):
            self._disturb_calls(fault.kind)
        elif fault.kind is FaultKind.LOSE_AND_CANCEL:
            self._kill(FaultKind.LOSE_WORKER)
            self.nursery.start_soon(self._cancel_after_the_lease)
        elif fault.kind is FaultKind.STORE_AWAY:
            self.truth.away_until = trio.current_time() + STORE_AWAY_S
        else:
            self._kill(fault.kind)

    def _one_of(self, things: Sequence[T]) -> T:
        return things[int(self._luck.uniform(0, len(things) - 1e-9))]

    def _disturb_a_cable(self, kind: FaultKind) -> None:
        if not self.network.cables():
            return
        cable = self._one_of(self.network.cables()).cable
        if kind is FaultKind.CUT:
            cable.cut("bad luck")
        else:
            self.nursery.start_soon(silence, cable)

    def _disturb_calls(self, kind: FaultKind) -> None:
        where, share = self._luck.uniform(0, 1), self._luck.uniform(0, 1)
        if kind is FaultKind.CANCEL:
            self.nursery.start_soon(self.caller.cancel, where, share)
        else:
            self.caller.submit_again(where)

    async def _cancel_after_the_lease(self) -> None:
        await trio.sleep(CANCEL_AFTER_S)
        await self.caller.cancel_all()

    def _kill(self, kind: FaultKind) -> None:
        living = self._living()
        containers = [one for worker in living for one in worker.runtime.containers.values()]
        if kind is FaultKind.KILL_BRAIN and self.brain is not None:
            self.brain.kill()
        elif kind is FaultKind.KILL_GATEWAY and self.gateway is not None:
            self.gateway.kill()
        elif kind is FaultKind.KILL_WORKER and living:
            self._one_of(living).process.kill()
        elif kind is FaultKind.ISOLATE_WORKER and living:
            self.network.isolate(self._one_of(living).worker_id, ISOLATED_S)
        elif kind is FaultKind.LOSE_WORKER and living:
            self.network.isolate(self._one_of(living).worker_id, LOST_S)
        elif kind is FaultKind.KILL_CONTAINER and containers:
            self._one_of(containers).kill()

    def _living(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if not worker.process.dead]


_STORE_FAULTS: Final = {
    FaultKind.CRASH_ACTOR: StoreFault.CRASH,
    FaultKind.FAIL_COMMIT: StoreFault.BEFORE,
    FaultKind.LOSE_ANSWER: StoreFault.AFTER,
}


def run_world(seed: int, plan: WorldPlan) -> Report:
    """Live one world to its end. Raises `Violation`."""

    async def live() -> Report:
        return await World(seed, plan).run()

    with deterministic(seed):
        return trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))


def shrink(seed: int, plan: WorldPlan) -> tuple[int, ...]:
    """The numbers of a few faults that still break the world of this seed."""
    return fewest(len(plan.faults), lambda kept: run_world(seed, with_faults(plan, kept)))
