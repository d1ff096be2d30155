"""Pools of the configuration in Kubernetes clusters: a whole brain, its agent within, and a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import pytest
import trio
from levers9_test_clusters import Plane
from trio.testing import MockClock

from levers9.actors.pool import ReplayWorkers
from levers9.actors.pool.policy import StartWorker
from levers9.daemons.inner_agents import OpenCluster
from levers9.daemons.pools import read_table
from levers9.daemons.settings import PoolTable, wrong_in_pool
from levers9.errors import ConfigError, Refused
from levers9.kube.face import Kube
from levers9.kube.kinds import JOBS
from levers9.kube.memory import MemoryCluster
from levers9.model.clusters import ClusterState, Origin
from levers9.model.ids import Chance
from levers9.model.resources import Capacity
from levers9.model.states import TaskState, TokenKind
from levers9.wire import cluster as said
from levers9.wire.client import TasksFinished


def table(kind: str = "local", **keys: object) -> PoolTable:
    return msgspec.convert({"name": "near", "kind": kind, "gpu": "GB200", "isolation": "trusted", **keys}, PoolTable)


@asynccontextmanager
async def kubelets(plane: Plane, cluster: MemoryCluster, nursery: trio.Nursery) -> AsyncIterator[None]:
    """Pods of Jobs start as workers that are only messages."""

    async def look() -> None:
        known: dict[str, None] = {}
        while True:
            await trio.sleep(0.2)
            for job in (await cluster.list(JOBS, "levers9")).items:
                for pod in cluster.pods_of_job(job.metadata.name, "levers9"):
                    if pod.metadata.name not in known:
                        known[pod.metadata.name] = None
                        cluster.start_pod(f"levers9/{pod.metadata.name}")
                        workers = ReplayWorkers(plane.brain.post, "near", trio.current_time)
                        size = Capacity(cpu_milli=8000, memory_mib=8192, gpu_count=8, gpu_type="GB200")
                        order = StartWorker(worker_id=job.metadata.name, token="", capacity=size)
                        nursery.start_soon(workers.start, order, lambda message: None)

    nursery.start_soon(look)
    yield


def opening(cluster: MemoryCluster, *failures: str) -> OpenCluster:
    """Opens that cluster, once those failures are over."""
    left = list(failures)

    @asynccontextmanager
    async def open_cluster(table: PoolTable, chance: Chance) -> AsyncIterator[Kube]:
        if left:
            raise ConfigError(left.pop(0))
        yield cast("Kube", cluster)

    return open_cluster


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "origin"), [("local", Origin.LOCAL), ("kubernetes", Origin.CREDENTIAL)])
async def test_a_call_runs_on_a_card_of_the_cluster(autojump_clock: MockClock, kind: str, origin: Origin) -> None:
    cluster = MemoryCluster(namespaces=("default", "levers9"))
    cluster.add_node("n1")
    plane = Plane(pools=(table(kind),), open_cluster=opening(cluster))
    async with plane.reigning() as nursery, kubelets(plane, cluster, nursery):
        await trio.sleep(3.0)
        await plane.submit()
        finished = await plane.heard(TasksFinished)
        stand = await plane.ask(said.ReadClusters(name="near"), said.ClustersStand, "", TokenKind.CLUSTER_ADMIN)
        (job,) = (await cluster.list(JOBS, "levers9")).items
    assert [result.state for result in finished.results] == [TaskState.COMPLETE]
    (standing,) = stand.clusters
    assert (standing.name, standing.origin, standing.state) == ("near", origin, ClusterState.ONLINE)
    (node,) = standing.nodes
    assert (node.name, node.worker_id) == ("n1", job.metadata.name)


@pytest.mark.slow
async def test_a_cluster_that_cannot_be_reached_troubles_nobody_and_says_why(autojump_clock: MockClock) -> None:
    cluster = MemoryCluster(namespaces=("default", "levers9"))
    cluster.add_node("n1")
    plane = Plane(pools=(table(),), open_cluster=opening(cluster, "There is no kubeconfig."))
    async with plane.reigning():
        stand = await plane.ask(said.ReadClusters(), said.ClustersStand, "", TokenKind.CLUSTER_ADMIN)
        assert (stand.clusters[0].problem, stand.clusters[0].nodes_total) == ("There is no kubeconfig.", 0)
        await trio.sleep(45.0)
        stand = await plane.ask(said.ReadClusters(), said.ClustersStand, "", TokenKind.CLUSTER_ADMIN)
    assert (stand.clusters[0].problem, stand.clusters[0].nodes_total) == ("", 1)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"gpu": ""}, "gpu"),
        ({"name": "Near"}, "name"),
        ({"namespace": ""}, "namespace"),
        ({"nodes": [{"name": "n1"}]}, "nodes"),
        ({"max_workers": 3}, "max_workers"),
        ({"kubeconfig": "/k"}, "kind"),
    ],
)
def test_what_such_a_pool_cannot_say_is_told(keys: dict[str, object], key: str) -> None:
    assert [wrong for wrong, _ in wrong_in_pool(table(**keys))] == [key]
    assert list(wrong_in_pool(table())) == []


def test_such_a_pool_is_declared_in_the_file_only() -> None:
    with pytest.raises(Refused, match="in the file only"):
        read_table("near", msgspec.json.encode(table()).decode(), ())
