"""Pools, and what people want of workers: cordon, uncordon, drain. All of it is the platform's."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ....errors import INVALID, NOT_FOUND, LeversError, Refused
from ....store.operations import LoadWorkers, WorkerRow, rows_of
from ....wire.message import Message
from ....wire.operating import (
    CreatePool,
    DeletePool,
    PoolSpec,
    PoolsStand,
    PoolStanding,
    ReadPools,
    TellWorkers,
    WorkersTold,
    WorkerWish,
)
from ....wire.rest.pools import NodeView, PoolList, PoolNames, PoolShown, PoolView, PoolWorker, WorkerWished
from .answers import json_answer
from .bodies import read_json
from .desk import Call


async def list_pools(call: Call) -> Response:
    """All pools."""
    stand = await _ask(call, ReadPools())
    return json_answer(PoolList(pools=tuple(map(_view, stand.pools))))


async def show(call: Call) -> Response:
    """One pool: its nodes, its workers, what is wanted of it and what holds that."""
    name = call.parameter("name")
    stand = await _ask(call, ReadPools())
    pool = next((one for one in stand.pools if one.name == name), None)
    if pool is None:
        raise Refused(f"There is no pool {name!r}.", fix="See: levers9 pool list.", code=NOT_FOUND)
    (rows,) = await call.desk.store.apply(LoadWorkers())
    workers = tuple(_worker(row) for row in rows_of(rows, WorkerRow) if row.pool == name)
    return json_answer(PoolShown(pool=_view(pool), workers=workers))


async def create(call: Call) -> Response:
    """Add a pool. The body has the keys of `[[pools]]`."""
    keys = await read_json(call.request, dict[str, msgspec.Raw])
    try:
        name = msgspec.json.decode(keys.get("name", msgspec.Raw(b'""')), type=str)
    except msgspec.ValidationError as error:
        raise Refused(f"A pool's name: {error}.", fix='Write one such as "default".', code=INVALID) from error
    spec = PoolSpec(name=name, table=msgspec.json.encode(keys).decode())
    return json_answer(PoolNames(names=(await _ask(call, CreatePool(spec=spec))).names))


async def delete(call: Call) -> Response:
    """Take a pool away: it starts no worker any more, those that run finish."""
    return json_answer(PoolNames(names=(await _ask(call, DeletePool(name=call.parameter("name")))).names))


async def cordon(call: Call) -> Response:
    """Nothing new is placed on the worker."""
    return await _wish(call, WorkerWish.CORDON)


async def uncordon(call: Call) -> Response:
    """It takes work again."""
    return await _wish(call, WorkerWish.UNCORDON)


async def drain(call: Call) -> Response:
    """It finishes what runs, and leaves."""
    return await _wish(call, WorkerWish.DRAIN)


async def _wish(call: Call, wish: WorkerWish) -> Response:
    worker_id = call.parameter("worker_id")
    answer = await call.desk.questions.ask(TellWorkers(worker_ids=(worker_id,), wish=wish), call.principal)
    if not isinstance(answer, WorkersTold):
        raise LeversError(f"the scheduler answered a wish with {type(answer).__name__}")
    state = dict(answer.states).get(worker_id)
    if state is None:
        raise Refused(f"There is no worker {worker_id}.", fix="See: levers9 worker list.", code=NOT_FOUND)
    return json_answer(WorkerWished(worker_id=worker_id, state=state))


async def _ask(call: Call, message: Message) -> PoolsStand:
    answer = await call.desk.questions.ask(message, call.principal)
    if not isinstance(answer, PoolsStand):
        raise LeversError(f"the brain answered {type(message).__name__} with {type(answer).__name__}")
    return answer


def _view(pool: PoolStanding) -> PoolView:
    nodes = tuple(
        NodeView(
            name=node.name,
            state=str(node.state),
            capacity=node.capacity,
            labels=dict(node.labels),
            worker_id=node.worker_id,
        )
        for node in pool.nodes
    )
    return PoolView(
        name=pool.name,
        size=pool.size,
        min_workers=pool.min_workers,
        max_workers=pool.max_workers,
        workers=pool.workers,
        pending=pool.pending,
        wanted=pool.wanted,
        wanted_gangs=pool.wanted_gangs,
        beyond=pool.beyond,
        holds=pool.holds,
        serves=pool.serves,
        placement=pool.placement,
        created=pool.created,
        leaving=pool.leaving,
        nodes=nodes,
    )


def _worker(row: WorkerRow) -> PoolWorker:
    return PoolWorker(
        worker_id=row.worker_id,
        state=str(row.state),
        node=row.traits.node,
        capacity=row.capacity,
        gang_id=row.gang_id,
        ordered_at_s=row.ordered_at_s,
        why=row.why,
    )
