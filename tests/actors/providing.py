"""A stage for scheduler, pools and the guard together: each hop, every actor takes in all that it was sent."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
from levers9_test_deciding import Truth, decide, numbered, numbered_tokens, spec_of

from levers9.actors.pool import GuardSettings, PoolPolicy, PoolSettings
from levers9.actors.pool.guard import GuardPolicy
from levers9.actors.pool.settings import declared
from levers9.actors.scheduler import SchedulerPolicy
from levers9.actors.scheduler.capacity import Standing
from levers9.model.nodes import NodeOffer, NodeState
from levers9.model.reasons import HoldKind
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, End
from levers9.store import operations as ops
from levers9.wire import control, scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Send
from levers9.wire.operating import TellWorkers, WorkerWish

HOPS = 40  # after which they are quiet
SMALL = Capacity(cpu_milli=1000, memory_mib=1000)
LARGE = Capacity(cpu_milli=2000, memory_mib=2000)
CARDS = Capacity(cpu_milli=2000, memory_mib=2000, gpu_count=2, gpu_type="A100")
ONE = Shape(cpu_milli=1000, memory_mib=100)
TWO = Shape(cpu_milli=2000, memory_mib=100)
CARD = Shape(cpu_milli=500, memory_mib=100, gpu_count=1)
SHAPES = (ONE, TWO, CARD, msgspec.structs.replace(ONE, pool="second"), Shape(cpu_milli=300, memory_mib=100))
OFF = GuardSettings(pending=-1, per_minute=-1)


class Stage:
    """The actors, what is on its way to each of them, and a world that starts workers and containers as it is told."""

    def __init__(self, *pools: PoolSettings, guard: GuardSettings = OFF) -> None:
        self.truth, self.now_s = Truth(), 1000.0
        self.settings = {pool.name: pool for pool in pools}
        self.scheduler = SchedulerPolicy(numbered(), numbered_tokens(), tuple(map(declared, pools)))
        new_id, new_token = numbered(), numbered_tokens()
        self.pools = {f"pool/{pool.name}": PoolPolicy(pool, new_id, new_token) for pool in pools}
        self.actors: dict[str, Any] = {"scheduler": self.scheduler, "guard": GuardPolicy(guard), **self.pools}
        self.inbox: dict[str, list[Letter]] = {address: [] for address in self.actors}
        self.pool_of: dict[str, str] = {}  # of each worker whose process runs
        self.reported: dict[str, None] = {}
        self.runs: dict[str, str] = {}  # containers, and on which worker
        self.shapes: dict[str, tuple[str, Shape]] = {}  # of each container that was asked for and has not ended
        self.gangs: dict[str, tuple[str, ...]] = {}  # of each container that starts together with others: all of them
        self.kinds: dict[str, list[HoldKind]] = {}  # why those of a stub wait
        self._names = count(1)
        for pool in self.pools.values():
            pool.load(())
        self.settle()

    def post(self, source: str, target: str, message: Message) -> None:
        if target in self.inbox:
            self.inbox[target].append(Letter(message, source=source, target=target))

    # Hops

    def settle(self) -> int:
        """Hop until nobody has anything to say; returns how often that was."""
        for hops in range(HOPS):
            if not self.hop():
                return hops
        raise AssertionError(f"they still talk after {HOPS} hops: {self.inbox}")

    def hop(self) -> bool:
        """Whether anybody had anything to say."""
        said: list[tuple[str, Send]] = []
        for address, actor in self.actors.items():
            letters, self.inbox[address] = self.inbox[address], []
            for plan, sends in decide(actor, self.truth, letters, self.now_s):
                said += [(address, send) for send in sends]
                for start in getattr(plan, "starts", ()):
                    self.pool_of[start.worker_id] = address
                    started = scheduling.WorkerStarted(worker_id=start.worker_id, handle="h", at_s=self.now_s)
                    self.post("spawner", address, started)
        for address, send in said:
            self.post(address, send.target, send.message)
            self.play(send)
        return bool(said) or any(self.inbox.values())

    def play(self, send: Send) -> None:
        """What `tasks` and workers do when they hear this."""
        worker_id = send.target.removeprefix("worker/")
        match send.message:
            case scheduling.ContainerHeld(stub_id=stub_id, reasons=reasons):
                self.kinds[stub_id] = [reason.kind for reason in reasons]
            case scheduling.ContainerGone(container_id=container_id):
                self.shapes.pop(container_id, None)
            case scheduling.StartContainer(container_id=container_id) if worker_id in self.pool_of:
                self.runs[container_id] = worker_id
                ready = scheduling.ContainerReady(container_id=container_id, window=1)
                self.post(send.target, "scheduler", ready)
            case scheduling.StopContainer(container_id=container_id) if container_id in self.runs:
                self.end(container_id)
            case scheduling.StopWorker() if worker_id in self.pool_of:
                self.exit(worker_id, expected=True)

    # The world

    def ask(self, *shapes: Shape, workspace: str = "w") -> list[str]:
        """Containers, each by itself."""
        return [self.ask_together(shape, 1, workspace=workspace)[0] for shape in shapes]

    def ask_together(
        self, shape: Shape, size: int, *, workspace: str = "w", priority: str = "default", limit_s: float = 60.0
    ) -> list[str]:
        """So many containers that start together or not at all; one alone is no gang."""
        number = next(self._names)
        gang_id = f"g{number}" if size > 1 else ""
        names = [f"{gang_id}-{rank}" for rank in range(size)] if gang_id else [f"c{number}"]
        others = () if (size, priority, limit_s) == (1, "default", 60.0) else (size, priority, limit_s)
        stub_id = " ".join(map(str, (workspace, SHAPES.index(shape), *others)))
        spec = spec_of(stub_id, shape=shape, nodes=size, priority=priority, timeout_s=limit_s)
        rows = tuple(
            ops.ContainerRow(
                container_id=name,
                stub_id=stub_id,
                workspace_id=workspace,
                state=ContainerState.REQUESTED,
                requested_at_s=self.now_s,
                gang_id=gang_id,
                rank=rank,
            )
            for rank, name in enumerate(names)
        )
        self.truth.commit([ops.PutContainers(containers=rows)])
        request = scheduling.RequestContainers(
            stub_id=stub_id, workspace_id=workspace, spec=spec, container_ids=tuple(names), gang_id=gang_id
        )
        self.post("tasks", "scheduler", request)
        self.shapes.update((name, (workspace, shape)) for name in names)
        self.gangs.update((name, tuple(names)) for name in names if gang_id)
        return names

    def release(self, container_id: str) -> None:
        """It is not wanted any more, nor those with which it was to start together."""
        names = self.gangs.get(container_id, (container_id,))
        self.post("tasks", "scheduler", scheduling.ReleaseContainers(container_ids=names, why="idle"))
        for name in names:
            self.shapes.pop(name, None)

    def end(self, container_id: str) -> None:
        worker_id = self.runs.pop(container_id)
        message = scheduling.ContainerEnded(container_id=container_id, end=End.OK)
        self.post(f"worker/{worker_id}", "scheduler", message)

    def report(self, *worker_ids: str) -> None:
        """Workers that have started report, all of them unless they are named."""
        for worker_id in worker_ids or tuple(self.pool_of):
            if worker_id in self.reported and not worker_ids:
                continue
            self.reported[worker_id] = None
            row = self.truth.tables.workers[worker_id]
            here = tuple(
                scheduling.ContainerReport(name, "", ContainerState.READY, 1)
                for name, where in self.runs.items()
                if where == worker_id
            )
            message = scheduling.WorkerReported(
                worker_id=worker_id, pool=row.pool, epoch=1, capacity=row.capacity, containers=here
            )
            self.post(f"worker/{worker_id}", "scheduler", message)

    def quiet(self, worker_id: str) -> None:
        self.post("gateway/g", "scheduler", control.PeerQuiet(peer=f"worker/{worker_id}", closed=False))

    def wish(self, worker_id: str, wish: WorkerWish) -> None:
        self.post("gateway/g", "scheduler", TellWorkers(worker_ids=(worker_id,), wish=wish))

    def exit(self, worker_id: str, expected: bool = False) -> None:
        """Its process ends, and what it ran."""
        self.runs = {name: where for name, where in self.runs.items() if where != worker_id}
        message = scheduling.WorkerExited(worker_id=worker_id, evidence="it exited with 1", expected=expected)
        self.post("spawner", self.pool_of.pop(worker_id), message)

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        for actor in self.actors.values():
            actor.tick(self.now_s)

    # What can be asked

    def where(self, container_id: str) -> str:
        """The pool in which it runs, "" for none."""
        worker_id = self.runs.get(container_id, "")
        return self.truth.tables.workers[worker_id].pool if worker_id else ""

    def waiting(self) -> list[str]:
        return [name for name in self.shapes if name not in self.runs]

    def could_run(self, container_id: str) -> str:
        """The pool that should run it: it has room, or may have one more worker, on which it would have."""
        workspace, shape = self.shapes[container_id]
        for pool in self.settings.values():
            if pool.serves not in ("", workspace) or shape.pool not in ("", pool.name):
                continue
            nodes = self.scheduler.core.fleet.pools[pool.name].nodes.values()
            if any(node.standing is Standing.OPEN and node.fits(shape) for node in nodes):
                return pool.name
            if self.places_left(pool) and any(one.capacity.fits(shape) for one in self.free_offers(pool)):
                return pool.name
        return ""

    def live(self, pool: PoolSettings) -> list[str]:
        return [worker_id for worker_id, where in self.pool_of.items() if where == f"pool/{pool.name}"]

    def places_left(self, pool: PoolSettings) -> int:
        return max(0, pool.max_workers - len(self.live(pool)))

    def free_offers(self, pool: PoolSettings) -> list[NodeOffer]:
        """What another worker could be: one for each free node of a name; without names there is one for all."""
        taken = [self.truth.tables.workers[worker_id].traits.node for worker_id in self.live(pool)]
        free = [one for one in pool.offers if not one.traits.node or one.traits.node not in taken]
        return [one for one in free if one.state is NodeState.READY]


def pool(name: str, worker: Capacity | None, max_workers: int, rank: int, **more: Any) -> PoolSettings:
    return PoolSettings(name=name, worker=worker, max_workers=max_workers, rank=rank, **more)


def in_order(stage: Stage) -> None:
    stage.settle()
    stage.report()
    stage.settle()
