"""An agent whose watches are cut after every event, beside one whose watches are not, on one real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import msgspec
import pytest
import trio
from levers9_test_lab import RunningLab, until

from levers9.actors.agent import AgentActor, Place, events
from levers9.errors import KubeUnavailable
from levers9.kube.client import KubeClient
from levers9.kube.face import Change, Kind, Kube
from levers9.kube.kinds import JOBS, PODS
from levers9.model.clusters import ClusterSpec
from levers9.model.ids import Chance
from levers9.model.resources import Capacity
from levers9.wire.cluster import (
    AgentSettings,
    ClusterReported,
    CreateWorkerJob,
    DeleteWorkerJob,
    JobPhase,
    JobReport,
    NodeReport,
    WorkerJob,
)
from levers9.wire.message import Message

pytestmark = pytest.mark.slow
T = TypeVar("T", bound=msgspec.Struct)
SETTLED_S = 45.0  # each of a dozen events costs a second, since who is cut off dials again after that


class CutAtEveryEvent:
    """A real API server behind a line that breaks whenever something was said over it."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self.cuts = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._kube, name)

    @asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        async with self._kube.watch(kind, namespace, since=since, labels=labels, fields=fields) as changes:
            yield self._one_of(changes)

    async def _one_of(self, changes: AsyncIterator[Change[T]]) -> AsyncIterator[Change[T]]:
        async for change in changes:
            yield change
            self.cuts += 1
            raise KubeUnavailable("the line broke")


class Told:
    """An agent, and what it tells."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.last = ClusterReported(cluster_id=namespace, epoch=0, sequence=0, blind=True)
        place = Place(cluster_id=namespace, namespace=namespace)
        self.agent = AgentActor(kube=kube, place=place, say=self.say, epoch=1, version="1", chance=Chance())
        spec = ClusterSpec(name="cut", gpu_type="GB200", namespace=namespace)
        self.settings = AgentSettings(
            cluster_id=namespace,
            leader_epoch=1,
            spec=spec,
            stream_url="ws://127.0.0.1:9",
            http_url="http://127.0.0.1:9",
        )

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.agent.run)
        self.agent.hear(events.LinkOpened())
        self.hears(self.settings)

    def hears(self, message: Message) -> None:
        self.agent.hear(events.LetterCame(message))

    async def say(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, ClusterReported):
            self.last = message

    @property
    def nodes(self) -> tuple[NodeReport, ...]:
        return self.last.nodes

    def job(self, worker_id: str) -> JobReport | None:
        return next((one for one in self.last.jobs if one.worker_id == worker_id), None)

    def why(self, worker_id: str) -> str:
        job = self.job(worker_id)
        return job.why if job is not None else ""

    def phase(self, worker_id: str) -> JobPhase | None:
        job = self.job(worker_id)
        return job.phase if job is not None else None


def pod(name: str, node: str, cards: int) -> dict[str, object]:
    limits = {"nvidia.com/gpu": str(cards)}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": limits}}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def order(told: Told, worker_id: str, namespace: str) -> CreateWorkerJob:
    node = told.nodes[0]
    job = WorkerJob(
        worker_id=worker_id,
        token="l9_worker_x",
        pool="cut",
        node=node.name,
        node_uid=node.uid,
        capacity=Capacity(cpu_milli=1000, memory_mib=1024, gpu_count=1, gpu_type="GB200"),
        image="nobody/has-it:1",
    )
    return CreateWorkerJob(namespace=namespace, leader_epoch=1, job=job)


async def settled(condition: Callable[[], bool], within_s: float = SETTLED_S) -> None:
    async def look() -> bool:
        return condition()

    await until(look, within_s)


async def test_its_reports_are_those_of_an_agent_whose_watches_last(lab: RunningLab) -> None:
    with trio.fail_after(180):
        async with lab.kube() as kube, lab.namespace(kube) as namespace, trio.open_nursery() as nursery:
            await lab.calm(kube)
            behind = CutAtEveryEvent(kube)
            cut, whole = Told(cast("Kube", behind), namespace), Told(kube, namespace)
            await cut.start(nursery)
            await whole.start(nursery)
            await settled(lambda: len(cut.nodes) == 2 and cut.nodes == whole.nodes)
            for number in range(8):
                await kube.create(PODS, pod(f"p{number}", f"tray-{number % 2}", 1), namespace)
            lab.verb("cordon", "tray-1")
            await settled(lambda: [node.free.gpu_count for node in cut.nodes] == [0, 0] and cut.nodes == whole.nodes)
            for number in range(3):
                await kube.delete(PODS, f"p{number}", namespace)
            lab.verb("uncordon", "tray-1")
            await settled(lambda: [node.free.gpu_count for node in cut.nodes] == [2, 1] and cut.nodes == whole.nodes)
            cut.hears(order(cut, "w-cut", namespace))
            await settled(
                lambda: "cannot be pulled" in (cut.job("w-cut") or JobReport(worker_id="", phase=JobPhase.NO_POD)).why
            )
            cut.hears(DeleteWorkerJob(namespace=namespace, leader_epoch=1, worker_id="w-cut", why="enough"))
            await settled(lambda: cut.phase("w-cut") is JobPhase.ENDED)
            assert behind.cuts > 20
            nursery.cancel_scope.cancel()


async def test_an_order_for_another_namespace_is_refused_and_makes_nothing(lab: RunningLab) -> None:
    with trio.fail_after(60):
        async with lab.kube() as kube, lab.namespace(kube) as namespace, trio.open_nursery() as nursery:
            async with lab.namespace(kube) as elsewhere:
                told = Told(kube, namespace)
                await told.start(nursery)
                await settled(lambda: len(told.nodes) == 2)
                told.hears(order(told, "w-elsewhere", elsewhere))
                await settled(lambda: told.phase("w-elsewhere") is JobPhase.REFUSED)
                refused = told.job("w-elsewhere")
                assert refused is not None
                assert f"this agent keeps to {namespace}" in refused.why
                for where in (namespace, elsewhere):
                    assert (await kube.list(JOBS, where)).items == ()
                nursery.cancel_scope.cancel()
