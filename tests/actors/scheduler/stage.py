"""`scheduler` on a stage: its policy and its truth, with `tasks`, pools, gateways and workers that a test plays."""

from __future__ import annotations

from levers9_test_deciding import SIZE, Sent, Truth, numbered, numbered_tokens, sends_of, spec_of

from levers9.actors.scheduler import SchedulerPolicy
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, End, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import control, scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message
from levers9.wire.scheduling import ContainerReport


class Stage:
    def __init__(
        self,
        pools: tuple[str, ...] = ("default",),
        keep: dict[str, int] | None = None,
        sizes: dict[str, Capacity] | None = None,
        serves: dict[str, str] | None = None,
    ) -> None:
        self.truth = Truth()
        self.now_s = 1000.0
        declared = tuple(
            scheduling.PoolDeclared(
                pool=pool,
                size=(sizes or {}).get(pool, SIZE),
                serves=(serves or {}).get(pool, ""),
                keep_workers=(keep or {}).get(pool, 0),
                rank=rank,
            )
            for rank, pool in enumerate(pools)
        )
        self.arguments = (numbered(), numbered_tokens(), declared)
        self.policy = SchedulerPolicy(*self.arguments)

    def say(self, *letters: Letter) -> Sent:
        return sends_of(self.policy, self.truth, letters, self.now_s)

    def tick(self, seconds: float = 0.0) -> Sent:
        """One tick after so long; our own loop did not stand still meanwhile."""
        while seconds > 1.0:
            self.now_s += 1.0
            seconds -= 1.0
            self.policy.tick(self.now_s)
        self.now_s += seconds
        self.policy.tick(self.now_s)
        return self.say()

    def restart(self) -> None:
        self.policy = SchedulerPolicy(*self.arguments)
        stubs = rows_of(self.truth.ask(ops.ReadStubs()), ops.StubRow)
        workers = rows_of(self.truth.ask(ops.LoadWorkers()), ops.WorkerRow)
        containers = rows_of(self.truth.ask(ops.LoadContainers()), ops.ContainerRow)
        self.policy.load(workers, containers, {row.stub_id: row.spec for row in stubs}, self.now_s)

    # tasks

    def request(self, *container_ids: str, stub: str = "f", shape: Shape | None = None) -> Letter:
        """Rows first, then the request, as `tasks` does it."""
        spec = spec_of(stub) if shape is None else spec_of(stub, shape=shape)
        row = ops.StubRow(stub_id=stub, workspace_id="w", spec=spec, created_at_s=0.0)
        rows = tuple(
            ops.ContainerRow(
                container_id=container_id,
                stub_id=stub,
                workspace_id="w",
                state=ContainerState.REQUESTED,
                requested_at_s=self.now_s,
            )
            for container_id in container_ids
        )
        self.truth.commit([ops.PutStub(stub=row), ops.PutContainers(containers=rows)])
        message = scheduling.RequestContainers(
            stub_id=stub, workspace_id="w", spec=spec, container_ids=tuple(container_ids)
        )
        return Letter(message, source="tasks", target="scheduler")

    @staticmethod
    def release(*container_ids: str) -> Letter:
        message = scheduling.ReleaseContainers(container_ids=tuple(container_ids), why="idle")
        return Letter(message, source="tasks", target="scheduler")

    # A pool

    def order(self, worker_id: str = "one", pool: str = "default", size: Capacity = SIZE) -> Letter:
        row = ops.WorkerRow(
            worker_id=worker_id, pool=pool, state=WorkerState.ORDERED, capacity=size, ordered_at_s=self.now_s
        )
        self.truth.ask(ops.PutWorkers(workers=(row,)))
        message = scheduling.WorkerOrdered(worker_id=worker_id, pool=pool, capacity=size)
        return Letter(message, source=f"pool/{pool}", target="scheduler")

    @staticmethod
    def evidence(worker_id: str = "one") -> Letter:
        message = scheduling.WorkerGone(worker_id=worker_id, evidence="its process exited with 1")
        return Letter(message, source="pool/default", target="scheduler")

    # A gateway

    @staticmethod
    def quiet(worker_id: str = "one") -> Letter:
        message = control.PeerQuiet(peer=f"worker/{worker_id}", closed=False)
        return Letter(message, source="gateway/g", target="scheduler")

    # A worker

    @staticmethod
    def of_worker(message: Message, worker_id: str = "one") -> Letter:
        return Letter(message, source=f"worker/{worker_id}", target="scheduler")

    def report(
        self,
        *containers: ContainerReport,
        worker_id: str = "one",
        epoch: int = 1,
        size: Capacity = SIZE,
        lacks: str = "",
    ) -> Letter:
        message = scheduling.WorkerReported(
            worker_id=worker_id, pool="default", epoch=epoch, capacity=size, containers=containers, lacks=lacks
        )
        return self.of_worker(message, worker_id)

    def ready(self, container_id: str, worker_id: str = "one", window: int = 1) -> Letter:
        return self.of_worker(scheduling.ContainerReady(container_id=container_id, window=window), worker_id)

    def ended(self, container_id: str, worker_id: str = "one", end: End = End.ERROR) -> Letter:
        message = scheduling.ContainerEnded(container_id=container_id, end=end, why="it fell over")
        return self.of_worker(message, worker_id)

    def worker(self, worker_id: str = "one", size: Capacity = SIZE, pool: str = "default") -> Sent:
        """A worker that was ordered and reports."""
        return self.say(self.order(worker_id, pool, size), self.report(worker_id=worker_id, size=size))

    def running(self, *container_ids: str) -> None:
        """Containers that are ready on worker one."""
        self.worker()
        self.say(self.request(*container_ids))
        self.say(*(self.ready(container_id) for container_id in container_ids))


def held(container_id: str, state: ContainerState = ContainerState.READY, window: int = 1) -> ContainerReport:
    return ContainerReport(container_id, "f", state, window)


def placed(sent: Sent) -> list[tuple[str, str]]:
    return [
        (send.message.container_id, send.target.removeprefix("worker/"))
        for send in sent
        if isinstance(send.message, scheduling.StartContainer)
    ]


def gone(sent: Sent) -> dict[str, End]:
    return {message.container_id: message.end for message in sent.of(scheduling.ContainerGone)}
