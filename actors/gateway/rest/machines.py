"""What the platform runs on: workers, containers, and the live tree of the brain."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from ....errors import LeversError
from ....model.states import ContainerState, End, TokenKind, WorkerState
from ....model.tokens import Principal
from ....store.operations import ContainerRow, LoadContainers, LoadWorkers, ReadStubs, StubRow, WorkerRow, rows_of
from ....wire.control import ChildStanding, Inspect, Inspected, Totals
from ....wire.operating import PoolsStand, ReadPools
from .answers import Answer, json_answer
from .desk import Call
from .tasks import names_of

ENDED_SHOWN: Final = 50
_ASKER: Final = Principal(token_id="workers", workspace_id="", kind=TokenKind.CLUSTER_ADMIN)


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker."""

    worker_id: str
    pool: str
    state: WorkerState
    cpu_milli: int
    memory_mib: int
    gpu_count: int
    gpu_type: str
    ordered_at_s: float
    seen_at_s: float
    gone_at_s: float
    why: str
    node: str = ""  # told to the platform's admin only


class WorkerList(Answer, frozen=True, kw_only=True):
    """Workers, oldest first, of pools that serve the caller.

    The platform's admin sees all, with `?gone=1` the newest that are gone as well.
    """

    workers: tuple[WorkerView, ...]


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """A container."""

    container_id: str
    stub_id: str
    name: str
    workspace_id: str
    state: ContainerState
    worker_id: str
    requested_at_s: float
    placed_at_s: float
    ready_at_s: float
    ended_at_s: float
    end: End | None
    why: str


class ContainerList(Answer, frozen=True, kw_only=True):
    """Containers, oldest first; with `?ended=1` the newest that ended as well."""

    containers: tuple[ContainerView, ...]


class Tree(Answer, frozen=True, kw_only=True):
    """The supervision tree, depth first."""

    children: tuple[ChildStanding, ...]
    dead_letters: int
    latest_dead: tuple[str, ...]
    totals: Totals


async def workers(call: Call) -> Response:
    """The workers; a caller who is not the platform's admin sees those that may serve them, and none that are gone."""
    gone = ENDED_SHOWN if call.query("gone") and call.scope is None else 0
    (found,) = await call.desk.store.apply(LoadWorkers(gone=gone))
    rows = rows_of(found, WorkerRow)
    if call.scope is None:
        return json_answer(WorkerList(workers=tuple(_worker(row, all_seen=True) for row in rows)))
    pools = await _pools_serving(call, call.scope)
    return json_answer(WorkerList(workers=tuple(_worker(row, all_seen=False) for row in rows if row.pool in pools)))


async def _pools_serving(call: Call, workspace_id: str) -> frozenset[str]:
    """The pools that take a workspace's work. Of one that is leaving nobody knows any more whom it served."""
    answer = await call.desk.questions.ask(ReadPools(), _ASKER)
    if not isinstance(answer, PoolsStand):
        raise LeversError(f"the brain answered a question about pools with {type(answer).__name__}")
    return frozenset(pool.name for pool in answer.pools if pool.serves in ("", workspace_id) and not pool.leaving)


async def containers(call: Call) -> Response:
    """The containers of the caller's workspace."""
    ended = ENDED_SHOWN if call.query("ended") else 0
    question = LoadContainers(workspace_id=call.scope, ended=ended)
    found, stubs = await call.desk.store.apply(question, ReadStubs(workspace_id=call.scope))
    names = names_of(rows_of(stubs, StubRow))
    return json_answer(ContainerList(containers=tuple(_container(row, names) for row in rows_of(found, ContainerRow))))


async def inspect(call: Call) -> Response:
    """The live tree, as the brain tells it."""
    answer = await call.desk.questions.ask(Inspect(), call.principal)
    if not isinstance(answer, Inspected):
        raise LeversError(f"the brain answered an inspection with {type(answer).__name__}")
    tree = Tree(
        children=answer.children,
        dead_letters=answer.dead_letters,
        latest_dead=answer.latest_dead,
        totals=answer.totals,
    )
    return json_answer(tree)


def _worker(row: WorkerRow, all_seen: bool) -> WorkerView:
    capacity = row.capacity
    return WorkerView(
        worker_id=row.worker_id,
        pool=row.pool,
        state=row.state,
        cpu_milli=capacity.cpu_milli,
        memory_mib=capacity.memory_mib,
        gpu_count=capacity.gpu_count,
        gpu_type=capacity.gpu_type,
        ordered_at_s=row.ordered_at_s,
        seen_at_s=row.seen_at_s,
        gone_at_s=row.gone_at_s,
        why=row.why,
        node=row.traits.node if all_seen else "",
    )


def _container(row: ContainerRow, names: dict[str, str]) -> ContainerView:
    return ContainerView(
        container_id=row.container_id,
        stub_id=row.stub_id,
        name=names.get(row.stub_id, ""),
        workspace_id=row.workspace_id,
        state=row.state,
        worker_id=row.worker_id,
        requested_at_s=row.requested_at_s,
        placed_at_s=row.placed_at_s,
        ready_at_s=row.ready_at_s,
        ended_at_s=row.ended_at_s,
        end=row.end,
        why=row.why,
    )
