"""A whole brain and attached clusters, on agents and workers that exist only as messages."""

from __future__ import annotations

import trio
from levers9_test_clusters import SPEC, STUB, Agent, Plane, a_node
from trio.testing import MockClock

from levers9.model.clusters import ClusterState
from levers9.model.nodes import NodeState
from levers9.model.resources import Capacity
from levers9.model.states import TaskState, TokenKind
from levers9.model.tokens import hash_of
from levers9.store import operations as ops
from levers9.wire import cluster as said
from levers9.wire import operating
from levers9.wire.client import ExplainTask, RegisterStub, RequestRefused, TaskExplained, TasksFinished


async def test_a_call_runs_on_a_card_of_a_cluster_that_was_just_attached(autojump_clock: MockClock) -> None:
    plane = Plane()
    async with plane.reigning() as nursery:
        agent = await plane.joined(nursery, a_node("n1"), a_node("n2", 0))
        await plane.submit()
        finished = await plane.heard(TasksFinished)
    assert [result.state for result in finished.results] == [TaskState.COMPLETE]
    (job,) = agent.created
    assert (job.node, job.node_uid, job.image, job.host_network) == ("n1", "uid-n1", "worker:1", True)
    assert job.capacity == Capacity(cpu_milli=7500, memory_mib=31_744, gpu_count=4, gpu_type="GB200")
    assert agent.settings is not None
    assert (agent.settings.http_url, agent.settings.cache_max_gb) == ("https://l9.example", 100)


async def test_the_workers_of_a_private_cluster_carry_a_token_for_its_workspace_alone(
    autojump_clock: MockClock,
) -> None:
    plane = Plane()
    async with plane.reigning() as nursery:
        agent = await plane.joined(nursery, a_node("n1"))
        await plane.submit()
        await plane.heard(TasksFinished)
        (job,) = agent.created
        (token,) = await plane.store.apply(ops.FindToken(hash=hash_of(job.token)))
    assert isinstance(token, ops.TokenRow)
    assert (token.kind, token.workspace_id, token.subject) == (TokenKind.WORKER_PRIVATE, "w", job.worker_id)


async def test_nobody_else_s_work_goes_to_a_private_cluster_before_it_is_shared(autojump_clock: MockClock) -> None:
    plane = Plane()
    async with plane.reigning() as nursery:
        agent = await plane.joined(nursery, a_node("n1"))
        refused = await plane.ask(RegisterStub(spec=STUB), RequestRefused, "other")
        assert refused.failure.code == "forbidden"
        assert agent.created == []
        share = said.ShareCluster(name=plane.paths_of_pools()[0], shared=True)
        stand = await plane.ask(share, said.ClustersStand, "", TokenKind.CLUSTER_ADMIN)
        assert stand.clusters[0].shared
        await plane.submit(2, "other")
        finished = await plane.heard(TasksFinished)
    assert [result.state for result in finished.results] == [TaskState.COMPLETE]
    assert len(agent.created) == 1


async def test_why_says_what_keeps_a_worker_from_starting(autojump_clock: MockClock) -> None:
    plane = Plane()
    async with plane.reigning() as nursery:
        agent = await plane.joined(nursery, a_node("n1"))
        agent.stuck = "image worker:1 cannot be pulled on node n1"
        task_id = await plane.submit()
        await trio.sleep(15.0)
        explained = await plane.ask(ExplainTask(task_id=task_id), TaskExplained)
    assert any("image worker:1 cannot be pulled on node n1" in reason for reason in explained.reasons)


async def test_a_cluster_that_is_left_is_forgotten_with_its_pool_and_all_its_tokens(autojump_clock: MockClock) -> None:
    plane = Plane()
    async with plane.reigning() as nursery:
        agent = await plane.joined(nursery, a_node("n1"))
        await plane.submit()
        await plane.heard(TasksFinished)
        (pool,) = plane.paths_of_pools()
        stand = await plane.ask(said.LeaveCluster(name="lab"), said.ClustersStand)
        assert stand.clusters == ()

        async def gone() -> bool:
            return f"pool/{pool}" not in plane.paths() and not await plane.rows(ops.LoadWorkers(), ops.WorkerRow)

        await plane.until(gone)
        tokens = await plane.rows(ops.ListTokens(), ops.TokenRow)
        assert await plane.rows(ops.ListClusters(), ops.ClusterRow) == ()
        assert await plane.rows(ops.ListPools(), ops.PoolRecord) == ()
        assert agent.jobs == {}
        again = await plane.ask(said.JoinCluster(spec=SPEC), said.ClusterJoined)
    left = [one for one in tokens if isinstance(one, ops.TokenRow) and one.active]
    assert [one.kind for one in left] == [TokenKind.CLUSTER_ADMIN]
    assert (again.renewed, again.cluster.shared, again.cluster.state) == (False, False, ClusterState.WAITING)
    assert again.cluster.cluster_id != agent.cluster_id


async def test_a_leader_that_begins_finds_clusters_workers_and_what_runs_there(autojump_clock: MockClock) -> None:
    first = Plane()
    async with first.reigning() as nursery:
        agent = await first.joined(nursery, a_node("n1"))
        await first.submit()
        await first.heard(TasksFinished)
    second = Plane(first.store)
    async with second.reigning() as nursery:
        successor = Agent(second, agent.cluster_id, *agent.nodes)
        successor.jobs = agent.jobs
        await nursery.start(successor.run)
        await trio.sleep(20.0)
        stand = await second.ask(said.ReadClusters(), said.ClustersStand)
        pools = await second.ask(operating.ReadPools(), operating.PoolsStand, "", TokenKind.CLUSTER_ADMIN)
    (standing,) = stand.clusters
    assert (standing.state, standing.workers, standing.pending) == (ClusterState.ONLINE, 1, 0)
    assert list(successor.jobs) == [agent.created[0].worker_id]
    (pool,) = pools.pools
    assert (pool.attached, pool.workers, [node.state for node in pool.nodes]) == (True, 1, [NodeState.READY])


async def test_an_agent_that_says_what_no_row_holds_ends_no_reign_and_others_go_on(autojump_clock: MockClock) -> None:
    plane = Plane()
    huge = Capacity(cpu_milli=2**31, memory_mib=2**31, gpu_count=2**31)
    async with plane.reigning() as nursery:
        await plane.joined(nursery, a_node("n\0"), a_node("n1", allocatable=huge, free=huge), workspace="other")
        agent = await plane.joined(nursery, a_node("n1"))
        await trio.sleep(60.0)
        await plane.submit()
        finished = await plane.heard(TasksFinished)
        (reign,) = [child for child in plane.brain.standing().children if child.path == "brain/leader/reign"]
        stands = await plane.ask(said.ReadClusters(), said.ClustersStand, "other")
    assert reign.restarts == 0
    assert [result.state for result in finished.results] == [TaskState.COMPLETE]
    assert len(agent.created) == 1
    assert "is no node's name" in stands.clusters[0].problem
