"""Containers, workers and the outbox in dicts."""

from __future__ import annotations

from msgspec.structs import replace

from ...model.states import ContainerState, WorkerState
from ..operations import (
    AckOutbox,
    Applied,
    ContainerMove,
    ContainerRow,
    LoadContainers,
    LoadOutbox,
    LoadWorkers,
    MoveContainers,
    MoveWorkers,
    OutboxRow,
    PutContainers,
    PutOutbox,
    PutWorkers,
    ReadContainers,
    WorkerMove,
    WorkerRow,
)
from ..text import storable
from .tables import Tables, carries_out, in_given_order, insert_new

_SEEN = frozenset({WorkerState.PENDING, WorkerState.AVAILABLE, WorkerState.CORDONED, WorkerState.DRAINING})


@carries_out(PutContainers)
def _put_containers(tables: Tables, operation: PutContainers) -> Applied:
    return Applied(ids=insert_new(tables.containers, [(row.container_id, row) for row in operation.containers]))


@carries_out(MoveContainers)
def _move_containers(tables: Tables, operation: MoveContainers) -> Applied:
    hits: dict[str, ContainerMove] = {}
    for move in operation.moves:
        row = tables.containers.get(move.container_id)
        if row is not None and row.state in move.sources:
            hits.setdefault(move.container_id, move)
    for move in hits.values():
        tables.containers[move.container_id] = _moved(tables.containers[move.container_id], move, operation.now_s)
    return Applied(ids=in_given_order([move.container_id for move in operation.moves], hits))


def _moved(row: ContainerRow, move: ContainerMove, now_s: float) -> ContainerRow:
    """Each time is that of the first move into its state."""
    return replace(
        row,
        state=move.state,
        worker_id=row.worker_id if move.worker_id is None else move.worker_id,
        placed_at_s=row.placed_at_s or (now_s if move.state is ContainerState.PLACED else 0.0),
        ready_at_s=row.ready_at_s or (now_s if move.state is ContainerState.READY else 0.0),
        ended_at_s=row.ended_at_s or (now_s if move.state is ContainerState.ENDED else 0.0),
        end=row.end if move.end is None else move.end,
        why=storable(move.why) or row.why,
        cards=row.cards if move.cards is None else move.cards,
        flavor=row.flavor if move.flavor is None else move.flavor,
    )


@carries_out(LoadContainers)
def _load_containers(tables: Tables, operation: LoadContainers) -> tuple[ContainerRow, ...]:
    rows = [row for row in tables.containers.values() if operation.workspace_id in (None, row.workspace_id)]
    ended = [row for row in rows if row.state is ContainerState.ENDED]
    ended.sort(key=lambda row: (row.ended_at_s, row.container_id), reverse=True)
    chosen = [row for row in rows if row.state is not ContainerState.ENDED] + ended[: operation.ended]
    return tuple(sorted(chosen, key=lambda row: (row.requested_at_s, row.container_id)))


@carries_out(ReadContainers)
def _read_containers(tables: Tables, operation: ReadContainers) -> tuple[ContainerRow, ...]:
    rows = [row for row in tables.containers.values() if operation.workspace_id in (None, row.workspace_id)]
    rows.sort(key=lambda row: (row.requested_at_s, row.container_id), reverse=True)
    there = [row for row in rows if row.worker_id == operation.worker_id != ""][: operation.limit]
    return tuple([row for row in rows if row in there or row.container_id in operation.container_ids])


@carries_out(PutWorkers)
def _put_workers(tables: Tables, operation: PutWorkers) -> Applied:
    return Applied(ids=insert_new(tables.workers, [(row.worker_id, row) for row in operation.workers]))


@carries_out(MoveWorkers)
def _move_workers(tables: Tables, operation: MoveWorkers) -> Applied:
    hits: dict[str, WorkerMove] = {}
    for move in operation.moves:
        row = tables.workers.get(move.worker_id)
        if row is not None and _may_move(row, move):
            hits.setdefault(move.worker_id, move)
    for move in hits.values():
        tables.workers[move.worker_id] = _moved_worker(tables.workers[move.worker_id], move, operation.now_s)
    return Applied(ids=in_given_order([move.worker_id for move in operation.moves], hits))


def _may_move(row: WorkerRow, move: WorkerMove) -> bool:
    from_here = row.state in move.sources if move.sources else row.state is not WorkerState.GONE
    return from_here and (move.epoch is None or row.epoch <= move.epoch)


def _moved_worker(row: WorkerRow, move: WorkerMove, now_s: float) -> WorkerRow:
    return replace(
        row,
        state=move.state,
        epoch=row.epoch if move.epoch is None else move.epoch,
        handle=row.handle if move.handle is None else move.handle,
        capacity=row.capacity if move.capacity is None else move.capacity,
        seen_at_s=now_s if move.state in _SEEN else row.seen_at_s,
        gone_at_s=now_s if move.state is WorkerState.GONE else row.gone_at_s,
        why=storable(move.why),
        traits=row.traits if move.traits is None else move.traits,
    )


@carries_out(LoadWorkers)
def _load_workers(tables: Tables, operation: LoadWorkers) -> tuple[WorkerRow, ...]:
    rows = list(tables.workers.values())
    gone = [row for row in rows if row.state is WorkerState.GONE]
    gone.sort(key=lambda row: (row.gone_at_s, row.worker_id), reverse=True)
    chosen = [row for row in rows if row.state is not WorkerState.GONE] + gone[: operation.gone]
    return tuple(sorted(chosen, key=lambda row: (row.ordered_at_s, row.worker_id)))


@carries_out(PutOutbox)
def _put_outbox(tables: Tables, operation: PutOutbox) -> Applied:
    for row in operation.rows:
        tables.outbox[row.key] = row
    return Applied(ids=tuple(dict.fromkeys(row.key for row in operation.rows)))


@carries_out(AckOutbox)
def _ack_outbox(tables: Tables, operation: AckOutbox) -> Applied:
    keys = dict.fromkeys(operation.keys)
    return Applied(ids=tuple(key for key in keys if tables.outbox.pop(key, None) is not None))


@carries_out(LoadOutbox)
def _load_outbox(tables: Tables, _: LoadOutbox) -> tuple[OutboxRow, ...]:
    return tuple(sorted(tables.outbox.values(), key=lambda row: (row.created_at_s, row.key)))
