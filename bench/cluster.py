"""From an order to the Job of a worker, and what idle workers cost: a whole brain on a Postgres with fsync.

One attached cluster in memory with a real agent: calls come one at a time, each for a node that has no worker yet, then
200 at once. An order begins when it is committed, and ends when the API server has its Job; from the call on, queues,
placement and the commit are in it as well. There is no network between. Then a brain with 200 clusters of 50 nodes,
each with an idle worker, whose agents report every 10 s.
"""

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar, cast

import msgspec
import trio
from harness import Figure, Options, percentile, run_bench

from levers9.actors.agent.actor import AgentActor
from levers9.actors.agent.jobs import Place
from levers9.daemons.brain import Brain
from levers9.daemons.collector import settle
from levers9.daemons.orders import BrainOrders
from levers9.daemons.pools import machines_of
from levers9.daemons.settings import GuardTable, Settings
from levers9.kube.face import Body, Kind
from levers9.kube.kinds import JOBS
from levers9.kube.memory import MemoryCluster
from levers9.kube.objects import Job
from levers9.model.clusters import NAMESPACE, ClusterSpec, pool_of
from levers9.model.ids import Chance
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity, Shape
from levers9.model.states import TokenKind, WorkerState
from levers9.model.tokens import SECRET_BYTES, make_token
from levers9.store import operations as ops
from levers9.store.embedded import run_embedded_postgres
from levers9.store.face import Store
from levers9.store.postgres import open_postgres
from levers9.wire.carrier import Carrier
from levers9.wire.client import NewTask, RegisterStub, StubRegistered, StubSpec, SubmitTasks
from levers9.wire.cluster import (
    ClusterJoined,
    ClusterReported,
    ClustersStand,
    JobPhase,
    JobReport,
    JoinCluster,
    NodeReport,
    ReadClusters,
    RunWorkerJob,
)
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import WorkerReported

T = TypeVar("T", bound=msgspec.Struct)
M = TypeVar("M", bound=Message)

WORKSPACE: Final = "bench"
CARDS: Final = 8
ROOM: Final = Capacity(cpu_milli=64_000, memory_mib=524_288, gpu_count=CARDS, gpu_type="H100")
GOAL_MS: Final = 50.0
ONE_BY_ONE: Final = 60
AT_ONCE: Final = 200
REPORT_EVERY_S: Final = 10.0
SETTLED_S: Final = 20.0
WATCHED_S: Final = 30.0
LETTERS_MAX: Final = 1_000_000
WITHIN_S: Final = 120.0
HERE: Final = "gateway/bench"


class Timed(MemoryCluster):
    """Notes when each Job was created."""

    def __init__(self) -> None:
        super().__init__("bench", namespaces=("default", NAMESPACE))
        self.jobs_at_s: dict[str, float] = {}  # by worker

    async def create(self, kind: Kind[T], body: Body, namespace: str = "") -> T:
        made = await super().create(kind, body, namespace)
        if kind.plural == JOBS.plural:
            self.jobs_at_s[cast(Job, made).metadata.name] = time.perf_counter()
        return made

    async def until(self, jobs: int) -> None:
        """Until so many were created."""
        with trio.fail_after(WITHIN_S):
            while len(self.jobs_at_s) < jobs:  # noqa: ASYNC110 (what is measured is noted above)
                await trio.sleep(0.001)


class Plane:
    """A brain, and who asks it."""

    def __init__(self, store: Store, folder: Path) -> None:
        chance = self.chance = Chance()
        guard = GuardTable(pending=-1, per_minute=-1)
        orders = BrainOrders(
            settings=Settings(run_dir=str(folder), provisioning_guard=guard),
            root_pid=1,
            worker_urls=(),
            worker_http_url="",
            replica_id="bench",
            replica_token=make_token(TokenKind.REPLICA, chance.secret(SECRET_BYTES)),
            admin_token=make_token(TokenKind.CLUSTER_ADMIN, chance.secret(SECRET_BYTES)),
        )
        machines = machines_of(orders, time.time)
        self.brain = Brain(
            orders=orders,
            store=store,
            chance=chance,
            clock=time.time,
            machines=machines,
            listen=_nobody,
            journals=folder / "journal",
        )
        self.ordered_at_s: dict[str, float] = {}  # by worker, once its order is committed
        self._note_orders()
        self._mailbox = Mailbox(HERE, LETTERS_MAX, local_slots=LETTERS_MAX)
        self.brain.post.register(HERE, self._mailbox)
        self._numbers = count(1)

    def _note_orders(self) -> None:
        send = self.brain.post.send

        async def noted(letter: Letter) -> None:
            if isinstance(letter.message, RunWorkerJob):
                self.ordered_at_s[letter.message.worker_id] = time.perf_counter()
            await send(letter)

        self.brain.post.send = noted  # type: ignore[method-assign]

    async def say(self, message: Message, source: str = HERE) -> None:
        """A letter to whoever takes such messages."""
        letter = Letter(
            message,
            source,
            message.receiver,
            workspace=WORKSPACE,
            kind=TokenKind.WORKSPACE,
            id=f"letter-{next(self._numbers)}",
        )
        await self.brain.post.send(letter)

    async def ask(self, message: Message, kind: type[M]) -> M:
        """The answer, however often it must be asked for while nobody leads."""
        with trio.fail_after(WITHIN_S):
            while True:
                await self.say(message)
                with trio.move_on_after(2.0):
                    while True:
                        answer = (await self._mailbox.take()).message
                        if isinstance(answer, kind):
                            return answer


async def _nobody(
    url: str, handler: Callable[[Carrier], Awaitable[None]], *, task_status: trio.TaskStatus[None]
) -> None:
    """No gateway comes: callers, agents and workers are in this process."""
    task_status.started()
    await trio.sleep_forever()


@asynccontextmanager
async def open_plane(*before: ops.Operation) -> AsyncIterator[tuple[Plane, trio.Nursery]]:
    """A brain that leads, on a store in which these were applied before."""
    with tempfile.TemporaryDirectory(prefix="levers9-bench-") as name:
        folder = Path(name)
        async with trio.open_nursery() as nursery:
            server = await nursery.start(run_embedded_postgres, folder / "data", folder / "run")
            async with open_postgres(server.url) as store:
                for operation in before:
                    await store.apply(operation)
                async with trio.open_nursery() as living:
                    plane = Plane(store, folder)
                    await living.start(plane.brain.run)
                    yield plane, living
                    living.cancel_scope.cancel(reason="the bench has ended")
            nursery.cancel_scope.cancel(reason="its server as well")


# From a call to a Job


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from order to Job, and from call to Job."""

    order_s: list[float]
    call_s: list[float]


async def measure_orders(ones: int, at_once: int) -> tuple[Took, Took]:
    """One call at a time, and so many at once."""
    made = ops.CreateWorkspace(workspace_id=WORKSPACE, name=WORKSPACE, now_s=time.time())
    async with open_plane(made) as (plane, nursery):
        joined = await plane.ask(JoinCluster(spec=ClusterSpec(name="lab", gpu_type="H100")), ClusterJoined)
        api = Timed()
        for number in range(ones + at_once + 8):
            api.add_node(f"node-{number:04}", cards=CARDS, labels={"nvidia.com/gpu.product": "NVIDIA-H100"})
        await _run_agent(plane, nursery, api, joined.cluster.cluster_id)
        stubs = [await _register(plane, number) for number in range(ones + at_once)]
        settle()
        each = [await _took(plane, api, [stub_id]) for stub_id in stubs[:ones]]
        singly = Took(order_s=[one.order_s[0] for one in each], call_s=[one.call_s[0] for one in each])
        return singly, await _took(plane, api, stubs[ones:])


async def _took(plane: Plane, api: Timed, stubs: list[str]) -> Took:
    before = set(api.jobs_at_s)
    began_s = time.perf_counter()
    for stub_id in stubs:
        await _submit(plane, stub_id)
    await api.until(len(before) + len(stubs))
    made = {worker_id: at_s for worker_id, at_s in api.jobs_at_s.items() if worker_id not in before}
    return Took(
        order_s=[at_s - plane.ordered_at_s[worker_id] for worker_id, at_s in made.items()],
        call_s=[at_s - began_s for at_s in made.values()],
    )


async def _run_agent(plane: Plane, nursery: trio.Nursery, api: Timed, cluster_id: str) -> None:
    """Until the cluster has reported its nodes."""
    place = Place(cluster_id=cluster_id, namespace=NAMESPACE)
    say = partial(plane.say, source=f"agent/{cluster_id}")
    agent = AgentActor(kube=api, place=place, say=say, epoch=1, version="bench", chance=plane.chance)
    mailbox = Mailbox(f"agent/{cluster_id}")
    plane.brain.post.register(mailbox.name, mailbox)
    await nursery.start(agent.serve, mailbox)
    with trio.fail_after(WITHIN_S):
        while not (await plane.ask(ReadClusters(), ClustersStand)).clusters[0].nodes_total:  # noqa: ASYNC110 (asked of others)
            await trio.sleep(0.1)


async def _register(plane: Plane, number: int) -> str:
    spec = StubSpec(
        app="bench",
        name=f"f{number}",
        kind="job",
        handler="bench:nothing",
        code_key="",
        python="3.11",
        shape=Shape(cpu_milli=1000, memory_mib=1024, gpu_count=CARDS),
        timeout_s=60.0,
        retries=0,
    )
    return (await plane.ask(RegisterStub(spec=spec), StubRegistered)).stub_id


async def _submit(plane: Plane, stub_id: str) -> None:
    task = NewTask(plane.chance.id("task"), Payload("msgpack", b"\x90"))
    await plane.say(SubmitTasks(stub_id=stub_id, tasks=(task,)))


# Idle workers


class Idle(msgspec.Struct, frozen=True):
    """A cluster whose nodes all have an idle worker, in rows and as its agent reports it."""

    row: ops.ClusterRow
    workers: tuple[ops.WorkerRow, ...]
    nodes: tuple[NodeReport, ...]
    jobs: tuple[JobReport, ...]


def idle_cluster(number: int, nodes: int) -> Idle:
    """One of them."""
    cluster_id, name, now_s = f"cluster-{number}", f"lab-{number}", time.time()
    names = [f"node-{each}" for each in range(nodes)]
    row = ops.ClusterRow(
        cluster_id=cluster_id,
        workspace_id=WORKSPACE,
        spec=ClusterSpec(name=name, gpu_type="H100"),
        created_at_s=now_s,
        agent_epoch=1,
        seen_at_s=now_s,
    )
    workers = tuple(
        ops.WorkerRow(
            worker_id=f"worker-{number}-{node}",
            pool=pool_of(WORKSPACE, name),
            state=WorkerState.AVAILABLE,
            capacity=ROOM,
            epoch=1,
            handle=f"uid-{number}-{node}",
            ordered_at_s=now_s,
            traits=Traits(node=node, serves=WORKSPACE),
        )
        for node in names
    )
    return Idle(
        row,
        workers,
        tuple(NodeReport(name=node, uid=f"uid-{node}", allocatable=ROOM, free=ROOM) for node in names),
        tuple(
            JobReport(worker_id=worker.worker_id, phase=JobPhase.RUNNING, job_uid=worker.handle, node=node)
            for worker, node in zip(workers, names)
        ),
    )


async def measure_idle(clusters: int, nodes: int, watched_s: float) -> float:
    """Seconds of CPU a second that a brain takes for so many clusters whose workers all stand idle."""
    all_of = [idle_cluster(number, nodes) for number in range(clusters)]
    before: list[ops.Operation] = [
        ops.CreateWorkspace(workspace_id=WORKSPACE, name=WORKSPACE, now_s=time.time()),
        *[ops.PutCluster(cluster=one.row) for one in all_of],
        *[ops.PutWorkers(workers=one.workers) for one in all_of],
    ]
    async with open_plane(*before) as (plane, nursery):
        ears = Mailbox("ears", LETTERS_MAX, local_slots=LETTERS_MAX)
        for one in all_of:
            for address in (f"agent/{one.row.cluster_id}", *[f"worker/{worker.worker_id}" for worker in one.workers]):
                plane.brain.post.register(address, ears)
        nursery.start_soon(_hear, ears)
        await plane.ask(ReadClusters(), ClustersStand)
        for number, one in enumerate(all_of):
            nursery.start_soon(_report, plane, one, REPORT_EVERY_S * number / clusters)
        await trio.sleep(SETTLED_S)
        stand = await plane.ask(ReadClusters(), ClustersStand)
        workers = sum(one.workers for one in stand.clusters)
        if workers != clusters * nodes:
            raise RuntimeError(f"{workers} of {clusters * nodes} workers are there")
        settle()
        began_s, used_s = time.perf_counter(), time.process_time()
        await trio.sleep(watched_s)
        return (time.process_time() - used_s) / (time.perf_counter() - began_s)


async def _hear(ears: Mailbox) -> None:
    while True:
        await ears.take_batch()


async def _report(plane: Plane, one: Idle, after_s: float) -> None:
    """Its workers report once, its agent every now and then."""
    for worker in one.workers:
        said = WorkerReported(worker_id=worker.worker_id, pool=worker.pool, epoch=1, capacity=ROOM, containers=())
        await plane.say(said, f"worker/{worker.worker_id}")
    await trio.sleep(after_s)
    for sequence in count(1):
        report = ClusterReported(
            cluster_id=one.row.cluster_id,
            epoch=1,
            sequence=sequence,
            nodes=one.nodes,
            jobs=one.jobs,
            matched=len(one.nodes),
            leader_epoch=1 << 30,
        )
        await plane.say(report, f"agent/{one.row.cluster_id}")
        await trio.sleep(REPORT_EVERY_S)


def measure(options: Options) -> list[Figure]:
    """Orders first, then idle workers."""
    ones, at_once = (10, 20) if options.short else (ONE_BY_ONE, AT_ONCE)
    singly, together = trio.run(measure_orders, ones, at_once)
    clusters, nodes, watched_s = (10, 10, 5.0) if options.short else (200, 50, WATCHED_S)
    cores = trio.run(measure_idle, clusters, nodes, watched_s)
    ms = partial(Figure, unit="ms", better="lower")
    return [
        ms(name="order to Job, p50", value=1e3 * percentile(singly.order_s, 50), goal=GOAL_MS),
        ms(name="order to Job, p99", value=1e3 * percentile(singly.order_s, 99)),
        ms(name="call to Job, p50", value=1e3 * percentile(singly.call_s, 50)),
        ms(name="call to Job, p99", value=1e3 * percentile(singly.call_s, 99)),
        ms(name=f"order to Job, {at_once} in flight, p50", value=1e3 * percentile(together.order_s, 50)),
        ms(name=f"{at_once} calls at once, the last Job", value=1e3 * max(together.call_s)),
        Figure(
            name=f"{clusters * nodes:,} idle workers, {clusters} agents",
            value=cores,
            unit="cores",
            better="lower",
            goal=1.0,
        ),
    ]


if __name__ == "__main__":
    run_bench("Clusters", measure)
