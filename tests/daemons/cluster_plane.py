"""A whole brain, and agents and workers that exist only as messages: what tests of clusters share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

import msgspec
import trio

from levers9.actors.pool import ReplayWorkers
from levers9.actors.pool.policy import StartWorker
from levers9.daemons.brain import Brain
from levers9.daemons.cluster_tables import AttachedClustersTable
from levers9.daemons.inner_agents import OpenCluster, open_cluster
from levers9.daemons.orders import BrainOrders
from levers9.daemons.pools import machines_of
from levers9.daemons.settings import PoolTable, Settings
from levers9.model.clusters import ClusterSpec
from levers9.model.ids import Chance
from levers9.model.resources import Capacity, Shape
from levers9.model.states import TokenKind
from levers9.model.tokens import SECRET_BYTES, make_token
from levers9.store import operations as ops
from levers9.store.memory import MemoryStore
from levers9.store.operations import rows_of
from levers9.wire import cluster as said
from levers9.wire.carrier import Carrier
from levers9.wire.client import (
    NewTask,
    RegisterStub,
    RequestRefused,
    StubRegistered,
    StubSpec,
    SubmitTasks,
    TasksAccepted,
)
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message, Payload

M = TypeVar("M", bound=Message)
WITHIN_S = 120.0
SPEC = ClusterSpec(name="lab", gpu_type="GB200")
STUB = StubSpec(
    app="a",
    name="f",
    kind="job",
    handler="m:f",
    code_key="",
    python="3.11",
    shape=Shape(cpu_milli=1000, memory_mib=512, gpu_count=1),
    timeout_s=60.0,
    retries=0,
    keep_warm_s=30.0,
)


async def nobody_comes(
    url: str, handler: Callable[[Carrier], Awaitable[None]], *, task_status: trio.TaskStatus[None]
) -> None:
    task_status.started()
    await trio.sleep_forever()


def a_node(name: str, cards: int = 4, **changes: object) -> said.NodeReport:
    room = Capacity(cpu_milli=8000, memory_mib=32_768, gpu_count=cards)
    return msgspec.structs.replace(
        said.NodeReport(name=name, uid=f"uid-{name}", allocatable=room, free=room, labels=(("rack", "r1"),)), **changes
    )


class Agent:
    """An agent and its cluster: Jobs become workers that are only messages, unless `stuck` says why they do not."""

    def __init__(self, plane: Plane, cluster_id: str, *nodes: said.NodeReport, epoch: int = 1) -> None:
        self.cluster_id = cluster_id
        self.nodes = list(nodes)
        self.jobs: dict[str, said.JobReport] = {}
        self.created: list[said.WorkerJob] = []
        self.settings: said.AgentSettings | None = None
        self.stuck = ""
        self._plane = plane
        self._epoch = epoch
        self._sequence = 0
        self._leader = 0
        self._pods: dict[str, ReplayWorkers] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        mailbox = Mailbox(f"agent/{self.cluster_id}")
        self._plane.brain.post.register(mailbox.name, mailbox)
        await self._say(said.AgentReady(cluster_id=self.cluster_id, epoch=self._epoch))
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                letters: tuple[Letter, ...] = ()
                with trio.move_on_after(10.0):
                    letters = await mailbox.take_batch()
                for letter in letters:
                    self._hear(letter.message, nursery)
                await self.report()

    def _hear(self, message: Message, nursery: trio.Nursery) -> None:
        match message:
            case said.AgentSettings(leader_epoch=epoch):
                self.settings, self._leader = message, epoch
            case said.CreateWorkerJob(job=job) if job.worker_id not in self.jobs:
                self.created.append(job)
                phase = said.JobPhase.PENDING if self.stuck else said.JobPhase.RUNNING
                self.jobs[job.worker_id] = said.JobReport(
                    worker_id=job.worker_id, phase=phase, job_uid=f"uid-{job.worker_id}", node=job.node, why=self.stuck
                )
                if not self.stuck:
                    nursery.start_soon(self._pod, job)
            case said.DeleteWorkerJob(worker_id=worker_id):
                self.jobs.pop(worker_id, None)
                if worker_id in self._pods:
                    self._pods[worker_id].kill(worker_id)

    async def _pod(self, job: said.WorkerJob) -> None:
        pods = self._pods[job.worker_id] = ReplayWorkers(self._plane.brain.post, job.pool, trio.current_time)
        order = StartWorker(worker_id=job.worker_id, token=job.token, capacity=job.capacity)
        await pods.start(order, lambda message: None)
        if job.worker_id in self.jobs:
            ended = msgspec.structs.replace(self.jobs[job.worker_id], phase=said.JobPhase.ENDED, why="it exited with 0")
            self.jobs[job.worker_id] = ended
            await self.report()

    async def report(self) -> None:
        self._sequence += 1
        await self._say(
            said.ClusterReported(
                cluster_id=self.cluster_id,
                epoch=self._epoch,
                sequence=self._sequence,
                nodes=tuple(self.nodes),
                jobs=tuple(self.jobs.values()),
                matched=len(self.nodes),
                leader_epoch=self._leader,
            )
        )

    async def _say(self, message: Message) -> None:
        await self._plane.brain.post.send(Letter(message, f"agent/{self.cluster_id}", "clusters"))


class Plane:
    """A brain over a store, and people who ask it."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        isolation: str = "trusted",
        pools: tuple[PoolTable, ...] = (),
        open_cluster: OpenCluster = open_cluster,
    ) -> None:
        chance = Chance(3)
        clusters = msgspec.convert({"isolation": isolation, "worker_image": "worker:1"}, AttachedClustersTable)
        orders = BrainOrders(
            settings=Settings(
                run_dir="/run/nowhere", attached_clusters=clusters, external_url="https://l9.example", pools=pools
            ),
            root_pid=1,
            worker_urls=(),
            worker_http_url="",
            replica_id="replica-0",
            replica_token=make_token(TokenKind.REPLICA, chance.secret(SECRET_BYTES)),
            admin_token=make_token(TokenKind.CLUSTER_ADMIN, chance.secret(SECRET_BYTES)),
        )
        self.store = store or MemoryStore()
        self.brain = Brain(
            orders=orders,
            store=self.store,
            chance=chance,
            clock=trio.current_time,
            machines=machines_of(orders, trio.current_time),
            listen=nobody_comes,
            open_cluster=open_cluster,
        )
        self._mailbox = Mailbox("gateway/g")
        self.brain.post.register("gateway/g", self._mailbox)
        self._numbers = count(1)

    @asynccontextmanager
    async def reigning(self) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.brain.run)
            await trio.sleep(8.0)  # an earlier leader's lease has run out
            yield nursery
            nursery.cancel_scope.cancel()

    async def ask(
        self, message: Message, kind: type[M], workspace: str = "w", by: TokenKind = TokenKind.WORKSPACE
    ) -> M:
        letter = Letter(
            message, "gateway/g", message.receiver, workspace=workspace, kind=by, id=f"letter-{next(self._numbers)}"
        )
        await self.brain.post.send(letter)
        return await self.heard(kind)

    async def heard(self, kind: type[M]) -> M:
        with trio.fail_after(WITHIN_S):
            while True:
                message = (await self._mailbox.take()).message
                if isinstance(message, kind):
                    return message
                assert not isinstance(message, RequestRefused), message

    async def joined(self, nursery: trio.Nursery, *nodes: said.NodeReport, workspace: str = "w") -> Agent:
        join = await self.ask(said.JoinCluster(spec=SPEC), said.ClusterJoined, workspace)
        agent = Agent(self, join.cluster.cluster_id, *nodes)
        await nursery.start(agent.run)
        await trio.sleep(3.0)
        return agent

    async def submit(self, number: int = 1, workspace: str = "w") -> str:
        registered = await self.ask(RegisterStub(spec=STUB), StubRegistered, workspace)
        task = NewTask(f"task-{number}", Payload("msgpack", b"\x92\x90\x80"))
        await self.ask(SubmitTasks(stub_id=registered.stub_id, tasks=(task,)), TasksAccepted, workspace)
        return task.task_id

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        with trio.fail_after(WITHIN_S):
            while not await true():  # noqa: ASYNC110 - the store tells nobody
                await trio.sleep(0.5)

    def paths(self) -> list[str]:
        return [child.path.removeprefix("brain/leader/reign/") for child in self.brain.standing().children]

    def paths_of_pools(self) -> list[str]:
        return [path.removeprefix("pool/") for path in self.paths() if path.startswith("pool/")]

    async def rows(self, operation: ops.Operation, kind: type[ops.Row]) -> tuple[ops.Row, ...]:
        (answer,) = await self.store.apply(operation)
        return rows_of(answer, kind)
