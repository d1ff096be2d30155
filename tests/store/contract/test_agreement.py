"""Memory is the model: whatever groups of operations come, Postgres answers the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy, booleans, builds, floats, integers, just, none, sampled_from, tuples
from levers9_test_servers import empty

from levers9.errors import EpochSuperseded
from levers9.model.clusters import ClusterSpec
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.queues import Flavor, Queue, Queueing
from levers9.model.resources import Capacity
from levers9.model.states import ContainerState, End, TaskState, TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.face import Store
from levers9.store.memory import MemoryStore
from levers9.store.postgres import open_postgres
from levers9.wire.message import Failure, Payload

pytestmark = pytest.mark.slow


def several(one: SearchStrategy[object]) -> SearchStrategy[tuple[object, ...]]:
    return st.lists(one, max_size=4).map(tuple)


def names(kind: str) -> SearchStrategy[str]:
    return sampled_from([f"{kind}-{letter}" for letter in "aBcé"])


now_s = sampled_from([1.0, 2.0, 2.5, 3.0, 7.0, 1e9 + 0.123456])
words = st.text(max_size=5)
plain_words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
task_id, container_id, worker_id, stub_id = names("task"), names("container"), names("worker"), names("stub")
workspace_id = names("workspace")
maybe_workspace = none() | workspace_id
payload = builds(Payload, sampled_from(["msgpack", "pickle"]), st.binary(max_size=4), plain_words, integers(0, 9))
failure = none() | builds(Failure, just("error"), plain_words | just("nul \0"), plain_words, plain_words, st.binary())
capacity = builds(
    Capacity, cpu_milli=integers(0, 3), memory_mib=integers(0, 3), gpu_count=integers(0, 2), gpu_type=names("gpu")
)
traits = builds(
    Traits,
    node=just("") | names("node"),
    labels=several(tuples(plain_words, plain_words)),
    gpu_sharing=booleans(),
    runtimes=several(names("runtime")),
)
cards = several(integers(0, 7))
attempt = integers(0, 3)
limit = integers(0, 5)

tasks = st.one_of(
    builds(
        ops.AcceptTasks,
        workspace_id=workspace_id,
        stub_id=stub_id,
        tasks=several(
            builds(
                ops.TaskToAccept,
                task_id=task_id,
                arguments=payload,
                container_id=just("") | container_id,
                worker_id=worker_id,
            )
        ),
        now_s=now_s,
    ),
    builds(
        ops.StartAttempts,
        starts=several(
            builds(
                ops.AttemptStart,
                task_id=task_id,
                attempt=integers(1, 3),
                container_id=container_id,
                worker_id=worker_id,
            )
        ),
        now_s=now_s,
    ),
    builds(
        ops.EndAttempts,
        ends=several(
            builds(
                ops.AttemptEnd,
                task_id=task_id,
                attempt=attempt,
                state=sampled_from(
                    [s for s in TaskState if s.terminal or s is TaskState.RETRY] + [TaskState.RETRY] * 3
                ),
                end=sampled_from(End),
                result=none() | payload,
                failure=failure,
                last_log_line=integers(0, 9),
                uses_retry=booleans(),
                retry_at_s=now_s,
            )
        ).map(lambda ends: tuple({(end.task_id, end.attempt): end for end in ends}.values())),  # type: ignore[attr-defined]
        now_s=now_s,
    ),
    builds(ops.CancelTasks, task_ids=several(task_id), now_s=now_s, workspace_id=maybe_workspace),
    builds(ops.ReadTasks, task_ids=several(task_id), workspace_id=maybe_workspace),
    builds(
        ops.ListTasks,
        workspace_id=maybe_workspace,
        states=several(sampled_from(TaskState)),
        stub_id=just("") | stub_id,
        limit=limit,
        before_s=just(0.0) | now_s,
    ),
    builds(ops.LoadUnfinished, after=tuples(just(0.0) | now_s, just("") | task_id), limit=limit),
    builds(ops.MarkTaken, task_ids=several(task_id), now_s=now_s),
    builds(ops.PruneTasks, taken_before_s=now_s, ended_before_s=now_s, limit=limit),
    builds(ops.ListAttempts, task_id=task_id),
)

token = builds(
    ops.TokenRow,
    token_id=names("token"),
    workspace_id=just("") | workspace_id,
    kind=sampled_from(TokenKind),
    name=plain_words,
    hash=sampled_from([b"\0", b"\1", b"\2"]),
    hint=plain_words,
    active=booleans(),
    created_at_s=now_s,
    subject=just("") | worker_id,
)
accounts = st.one_of(
    builds(
        ops.TakeLeadership,
        holder=sampled_from("ab"),
        url=plain_words,
        now_s=now_s,
        silent_epoch=integers(0, 3),
        silent_since_s=now_s,
    ),
    builds(ops.RenewLeadership, epoch=integers(1, 3), now_s=now_s),
    builds(ops.ResignLeadership, epoch=integers(1, 3)),
    just(ops.ReadLeadership()),
    builds(ops.CreateWorkspace, workspace_id=workspace_id, name=names("name"), now_s=now_s),
    just(ops.ListWorkspaces()),
    builds(ops.CreateToken, token=token),
    builds(ops.CreateTokens, tokens=several(token)),
    builds(ops.FindToken, hash=sampled_from([b"\0", b"\1", b"\2"])),
    builds(ops.FindTokenOf, subject=worker_id),
    builds(ops.ListTokens, workspace_id=maybe_workspace),
    builds(
        ops.RevokeTokens,
        token_ids=several(names("token")),
        subjects=several(worker_id),
        workspace_id=maybe_workspace,
    ),
    builds(ops.ReadStubs, stub_ids=several(stub_id), workspace_id=maybe_workspace),
)

container = builds(
    ops.ContainerRow,
    container_id=container_id,
    stub_id=stub_id,
    workspace_id=workspace_id,
    state=sampled_from(ContainerState),
    worker_id=just("") | worker_id,
    requested_at_s=now_s,
    placed_at_s=just(0.0) | now_s,
    ready_at_s=just(0.0) | now_s,
    ended_at_s=just(0.0) | now_s,
    end=none() | sampled_from(End),
    why=plain_words,
    gang_id=just("") | names("gang"),
    rank=integers(0, 3),
    cards=cards,
    flavor=just("") | names("flavor"),
)
container_move = builds(
    ops.ContainerMove,
    container_id=container_id,
    sources=several(sampled_from(ContainerState)),
    state=sampled_from(ContainerState),
    worker_id=none() | worker_id,
    end=none() | sampled_from(End),
    why=words,
    cards=none() | cards,
    flavor=none() | names("flavor"),
)
worker = builds(
    ops.WorkerRow,
    worker_id=worker_id,
    pool=names("pool"),
    state=sampled_from(WorkerState),
    capacity=capacity,
    epoch=integers(0, 3),
    handle=plain_words,
    ordered_at_s=now_s,
    seen_at_s=floats(0, 9),
    gone_at_s=just(0.0) | now_s,
    why=plain_words,
    traits=traits,
    gang_id=just("") | names("gang"),
)
worker_move = builds(
    ops.WorkerMove,
    worker_id=worker_id,
    sources=several(sampled_from(WorkerState)),
    state=sampled_from(WorkerState),
    epoch=none() | integers(0, 3),
    handle=none() | plain_words,
    capacity=none() | capacity,
    why=words,
    traits=none() | traits,
)
offers = several(builds(NodeOffer, capacity=capacity, traits=traits))
queueing = builds(
    Queueing,
    queues=several(builds(Queue, name=plain_words, workspace=workspace_id)),
    flavors=several(builds(Flavor, name=names("flavor"), labels=st.dictionaries(plain_words, plain_words, max_size=2))),
)
outbox_row = builds(
    ops.OutboxRow, key=names("key"), target=plain_words, payload=st.binary(max_size=4), created_at_s=now_s
)
cluster = builds(
    ops.ClusterRow,
    cluster_id=names("cluster"),
    workspace_id=workspace_id,
    spec=builds(ClusterSpec, name=names("lab"), gpu_type=plain_words, host_network=none() | booleans()),
    shared=booleans(),
    created_at_s=now_s,
    agent_epoch=integers(0, 3),
    leaving=booleans(),
)
fleet = st.one_of(
    builds(ops.PutContainers, containers=several(container)),
    builds(ops.MoveContainers, moves=several(container_move), now_s=now_s),
    builds(ops.LoadContainers, workspace_id=maybe_workspace, ended=limit),
    builds(
        ops.ReadContainers,
        container_ids=several(container_id),
        worker_id=just("") | worker_id,
        workspace_id=maybe_workspace,
        limit=limit,
    ),
    builds(ops.PutWorkers, workers=several(worker)),
    builds(ops.MoveWorkers, moves=several(worker_move), now_s=now_s),
    builds(ops.LoadWorkers, gone=limit),
    builds(ops.PutPool, pool=names("pool"), largest=capacity, offers=offers, max_workers=limit),
    just(ops.ListPools()),
    builds(ops.PutPoolSpec, name=names("pool"), table=plain_words),
    builds(ops.DropPoolSpec, name=names("pool")),
    just(ops.ListPoolSpecs()),
    builds(ops.DropPool, pool=names("pool")),
    builds(ops.PutCluster, cluster=cluster),
    builds(ops.DropCluster, cluster_id=names("cluster")),
    just(ops.ListClusters()),
    builds(ops.PutQueueing, queueing=queueing),
    just(ops.ReadQueueing()),
    builds(ops.PutOutbox, rows=several(outbox_row)),
    builds(ops.AckOutbox, keys=several(names("key"))),
    just(ops.LoadOutbox()),
)


def scripts(operation: SearchStrategy[object]) -> SearchStrategy[list[tuple[tuple[object, ...], int | None]]]:
    group = tuples(st.lists(operation, min_size=1, max_size=3).map(tuple), none() | none() | integers(1, 2))
    return st.lists(group, max_size=30)


async def heard(store: Store, group: tuple[ops.Operation, ...], epoch: int | None) -> object:
    try:
        return await store.apply(*group, epoch=epoch)
    except EpochSuperseded as error:
        return str(error)


async def everything(store: Store) -> object:
    loads = (ops.ListTasks(), ops.LoadUnfinished(), ops.LoadContainers(ended=99), ops.LoadWorkers(gone=99))
    lists = (ops.ListTokens(), ops.ListWorkspaces(), ops.ListPools(), ops.ListPoolSpecs(), ops.ReadQueueing())
    return await store.apply(*loads, *lists, ops.ListClusters(), ops.LoadOutbox())


Script = list[tuple[tuple[ops.Operation, ...], int | None]]
EXAMPLES = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
TAKE = ops.TakeLeadership(holder="a", url="", now_s=1.0)


async def agree(url: str, script: Script) -> None:
    await empty(url)
    model = MemoryStore()
    async with open_postgres(url) as real:
        for group, epoch in [((TAKE,), None), *script]:
            expected = await heard(model, group, epoch)
            assert (group, await heard(real, group, epoch)) == (group, expected)
        assert await everything(real) == await everything(model)


@EXAMPLES
@given(script=scripts(tasks))
async def test_postgres_and_memory_agree_on_tasks(postgres_url: str, script: Script) -> None:
    await agree(postgres_url, script)


@EXAMPLES
@given(script=scripts(accounts))
async def test_postgres_and_memory_agree_on_accounts(postgres_url: str, script: Script) -> None:
    await agree(postgres_url, script)


@EXAMPLES
@given(script=scripts(fleet))
async def test_postgres_and_memory_agree_on_the_fleet(postgres_url: str, script: Script) -> None:
    await agree(postgres_url, script)
