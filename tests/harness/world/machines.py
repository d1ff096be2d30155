"""Workers of a world: real actors, each in a process that can be killed, on the simulated runtime."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from levers9.actors.pool.policy import Adopt, EndWorker, StartWorker
from levers9.actors.worker.actor import WorkerActor
from levers9.actors.worker.events import Launch
from levers9.actors.worker.objects import Owner
from levers9.actors.worker.policy import WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.actors.worker.runtime.face import Exit, RunningContainer, Sink
from levers9.actors.worker.runtime.simulated import Ran, SimulatedRuntime
from levers9.errors import BrokenByPeer, ClosedByUs, Refused
from levers9.model.blobs import blob_key
from levers9.model.figures import WORKER_LEASE_S
from levers9.model.ids import Chance
from levers9.model.states import WorkerState
from levers9.wire import scheduling
from levers9.wire.carrier import Carrier
from levers9.wire.link import DialledLink
from levers9.wire.message import Message
from levers9.wire.work import AttemptOrder

if TYPE_CHECKING:
    from .plane import ControlPlane
    from .world import World


class Process:
    """One process of a world: `kill` ends it as SIGKILL does, as far as anybody outside can tell."""

    def __init__(self, world: ControlPlane, name: str) -> None:
        self._world = world
        self.name = name
        self.dead = False
        self.ended = trio.Event()
        self.code = 0
        self._scope = trio.CancelScope()

    async def run(self, main: Callable[[], Awaitable[int]]) -> None:
        """Live until `main` returns, or until it is killed."""
        with self._scope:
            try:
                self.code = await main()
            except Exception as error:  # the edge of a process; a killed one may fail in any way
                if not self.dead:
                    self._world.violated(f"{self.name} crashed: {_words(error)}")
        self.dead = True
        self._world.network.cut_process(self.name)
        self._world.journal.note("process ended", self.name, self.code)
        self.ended.set()

    def kill(self) -> None:
        """End it: nothing that it does from now on reaches anybody."""
        if not self.dead:
            self.dead = True
            self.code = -9
            self._world.network.cut_process(self.name)
            self._scope.cancel(reason="killed")


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{error!r}{place}"


class MemoryObjects:
    """The object store, as workers see it."""

    def __init__(self, chance: Chance) -> None:
        self.kept: dict[str, bytes] = {}
        self._chance = chance

    async def get_many(self, owner: Owner, keys: tuple[str, ...]) -> dict[str, bytes]:
        return {key: await self.get(owner, key) for key in keys}

    async def get(self, owner: Owner, key: str) -> bytes:
        await trio.sleep(self._chance.uniform(0.001, 0.02))
        if key not in self.kept:
            raise Refused(f"There is no object {key}.")
        return self.kept[key]

    async def put(self, owner: Owner, key: str, data: bytes) -> None:
        await trio.sleep(self._chance.uniform(0.001, 0.05))
        self.kept[key] = data


async def key_at_once(data: bytes) -> str:
    """Hashing without a thread."""
    await trio.lowlevel.checkpoint()
    return blob_key(data)


class WorldRuntime:
    """The simulated runtime, with what a world needs: containers that can be found, and code that does not load."""

    def __init__(self, world: World, process: Process, chance: Chance) -> None:
        self._world = world
        self._process = process
        self._chance = chance
        self.containers: dict[str, RunningContainer] = {}

    async def run(self, launch: Launch, sink: Sink, *, task_status: trio.TaskStatus[RunningContainer]) -> Exit:
        """See `Runtime`."""
        start_s, stop_s = self._chance.uniform(0.01, 0.2), self._chance.uniform(0.0, 0.5)
        if not self._world.behaviour.loads(launch):
            await trio.sleep(start_s)
            raise ClosedByUs("ImportError: No module named 'luck'")
        watched = _Watched(self, launch.container_id, task_status)
        runtime = SimulatedRuntime(self._starts, start_s=start_s, stop_s=stop_s)
        try:
            seen = _Sink(self._world.attempts, launch.container_id, sink)
            return await runtime.run(launch, seen, task_status=watched)
        finally:
            self.containers.pop(launch.container_id, None)
            self._world.attempts.container_ended(launch.container_id)

    def _starts(self, launch: Launch, order: AttemptOrder) -> Ran:
        if not self._process.dead:
            self._world.attempts.started(self._process.name, launch, order)
        return self._world.behaviour.ran(launch, order)


class _Watched:
    def __init__(self, runtime: WorldRuntime, container_id: str, inner: trio.TaskStatus[RunningContainer]) -> None:
        self._runtime = runtime
        self._container_id = container_id
        self._inner = inner

    def started(self, container: RunningContainer) -> None:
        self._runtime.containers[self._container_id] = container
        self._inner.started(container)


class _Sink:
    def __init__(self, attempts: Attempts, container_id: str, inner: Sink) -> None:
        self._attempts = attempts
        self._container_id = container_id
        self._inner = inner

    def loaded(self) -> None:
        self._inner.loaded()

    def finished(self, results: tuple[object, ...]) -> None:
        for result in results:
            self._attempts.finished(self._container_id, result.task_id, result.attempt)  # type: ignore[attr-defined]
        self._inner.finished(results)  # type: ignore[arg-type]


class Attempts:
    """Which code runs where now, rank by rank. `violated` hears when code starts that may not."""

    def __init__(self, violated: Callable[[str], None], isolated_for_s: Callable[[str], float]) -> None:
        self._violated = violated
        self._running: dict[tuple[str, int], dict[str, str]] = {}  # attempt -> container -> worker
        self.begun: dict[tuple[str, int], dict[int, None]] = {}  # ranks
        self._isolated_for_s = isolated_for_s
        self.cancelled: dict[str, None] = {}

    def started(self, worker: str, launch: Launch, order: AttemptOrder) -> None:
        """The first line of a call is about to run."""
        key = (order.task_id, order.attempt)
        if order.task_id in self.cancelled:
            self._violated(f"I5: attempt {order.attempt} of {order.task_id} starts after its cancel was acknowledged")
        ranks = self.begun.setdefault(key, {})
        if launch.rank in ranks:
            self._violated(f"I3: rank {launch.rank} of attempt {order.attempt} of {order.task_id} starts a second time")
        if launch.gang_id and not order.rank0:
            self._violated(f"a rank of {order.task_id} starts and does not know where the others are")
        ranks[launch.rank] = None
        self._check_ranks_before(order)
        self._running.setdefault(key, {})[launch.container_id] = worker

    def _check_ranks_before(self, order: AttemptOrder) -> None:
        for attempt in range(1, order.attempt):
            if self.may_not_be_given_up(order.task_id, attempt):
                self._violated(f"attempt {order.attempt} of {order.task_id} starts while {attempt} runs")

    def finished(self, container_id: str, task_id: str, attempt: int) -> None:
        """A call has returned."""
        self._running.get((task_id, attempt), {}).pop(container_id, None)

    def container_ended(self, container_id: str) -> None:
        """Nothing of it is left."""
        for places in self._running.values():
            places.pop(container_id, None)

    def worker_ended(self, worker: str) -> None:
        """Nothing of it is left."""
        for key, places in self._running.items():
            self._running[key] = {container_id: name for container_id, name in places.items() if name != worker}

    def may_not_be_given_up(self, task_id: str, attempt: int) -> bool:
        """Whether code of this attempt runs now, and nobody has a reason to think that it does not."""
        return any(self._isolated_for_s(worker) < WORKER_LEASE_S for worker in self.places_of(task_id, attempt))

    def places_of(self, task_id: str, attempt: int) -> tuple[str, ...]:
        """The workers on which code of this attempt runs now."""
        return tuple(self._running.get((task_id, attempt), {}).values())


class WorldWorkers:
    """What runs a pool's workers, as `Processes`: they outlive the brain that started them."""

    def __init__(self, world: World, pool: str) -> None:
        self._world = world
        self._pool = pool

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Start the worker of an order and stay until it has ended."""
        chance = self._world.chance("worker", order.worker_id)
        if chance.uniform(0, 1) < self._world.plan.failed_starts:
            await trio.sleep(0.01)
            tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence="it could not be started: bad luck"))
            return
        worker = Worker(self._world, self._pool, order, chance)
        self._world.workers[order.worker_id] = worker
        self._world.nursery.start_soon(worker.process.run, worker.run)
        handle = f"world:{order.worker_id}"
        tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle, at_s=self._world.clock()))
        await self._watch(worker, tell)

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Watch the worker of an earlier leader's order."""
        worker = self._world.workers.get(order.worker_id)
        if worker is None:
            await trio.sleep(0.001)
            tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence="its process was never started"))
            return
        if order.state is WorkerState.ORDERED:
            handle = f"world:{order.worker_id}"
            tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle, at_s=self._world.clock()))
        await self._watch(worker, tell)

    async def end(self, order: EndWorker) -> None:
        """Kill one worker."""
        worker = self._world.workers.get(order.worker_id)
        if worker is not None:
            worker.process.kill()
        await trio.lowlevel.checkpoint()

    async def stop_all(self) -> None:
        """Nobody owns the workers of a world."""
        await trio.lowlevel.checkpoint()

    async def _watch(self, worker: Worker, tell: Callable[[Message], None]) -> None:
        await worker.process.ended.wait()
        code = worker.process.code
        evidence = f"its process exited with {code}" if code >= 0 else f"its process was ended by signal {-code}"
        tell(scheduling.WorkerExited(worker_id=worker.worker_id, evidence=evidence, expected=code == 0))


class Worker:
    """One worker process."""

    def __init__(self, world: World, pool: str, order: StartWorker, chance: Chance) -> None:
        self._world = world
        self._pool = pool
        self._order = order
        self._chance = chance
        self.worker_id = order.worker_id
        self.process = Process(world, order.worker_id)
        self.runtime = WorldRuntime(world, self.process, chance)
        self._code = 0

    async def run(self) -> int:
        """Work until the worker has left; the exit code."""
        try:
            await self._work()
        except* (Refused, BrokenByPeer) as errors:
            self._world.journal.note("worker refused", self.worker_id, repr(errors.exceptions))
            self._code = 1
        finally:
            self._world.attempts.worker_ended(self.worker_id)
        return self._code

    async def _work(self) -> None:
        await trio.sleep(self._chance.uniform(0.05, 0.3))
        identity = Identity(
            worker_id=self.worker_id,
            pool=self._pool,
            epoch=1,
            capacity=self._order.capacity,
            host=self.worker_id,
        )
        link = DialledLink(name=f"worker/{self.worker_id}", dial=self._dial(), chance=self._chance)
        actor = WorkerActor(
            policy=WorkerPolicy(identity),
            link=link,
            runtime=self.runtime,
            objects=self._world.objects,
            chance=self._chance,
            key_of=key_at_once,
            new_port=itertools.count(7001).__next__,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            await actor.run()
            await link.aclose()
            nursery.cancel_scope.cancel()

    def _dial(self) -> Callable[[], Awaitable[Carrier]]:
        return partial(self._world.dial_gateway, "worker", self.worker_id, self._order.token)
