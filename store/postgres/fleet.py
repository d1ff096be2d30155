"""Containers, workers and the outbox in SQL."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from ...model.nodes import Traits
from ...model.resources import Capacity
from ...model.states import ContainerState, End, WorkerState
from ..operations import (
    AckOutbox,
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
    WorkerRow,
)
from ..text import storable
from .plans import Arguments, Record, nothing, read, write

_by_container: Final = attrgetter("container_id")
_by_worker: Final = attrgetter("worker_id")
_encode: Final = msgspec.json.Encoder().encode
_decode_traits: Final = msgspec.json.Decoder(Traits).decode


def _put_container_arguments(operation: PutContainers) -> Arguments:
    rows = sorted(operation.containers, key=_by_container)
    return (
        [row.container_id for row in rows],
        [row.stub_id for row in rows],
        [row.workspace_id for row in rows],
        [row.state.value for row in rows],
        [row.worker_id for row in rows],
        [row.requested_at_s for row in rows],
        [row.placed_at_s for row in rows],
        [row.ready_at_s for row in rows],
        [row.ended_at_s for row in rows],
        [None if row.end is None else row.end.value for row in rows],
        [storable(row.why) for row in rows],
        [row.gang_id for row in rows],
        [row.rank for row in rows],
        [_numbers(row.cards) for row in rows],
        [row.flavor for row in rows],
    )


def _numbers(cards: tuple[int, ...]) -> str:
    """Arrays of arrays must be of one length each: they go as text."""
    return ",".join(map(str, cards))


write(
    PutContainers,
    """
    done AS (
        INSERT INTO containers (container_id, stub_id, workspace_id, state, worker_id, requested_at_s, placed_at_s,
            ready_at_s, ended_at_s, how, why, gang_id, rank, cards, flavor)
        SELECT container_id, stub_id, workspace_id, state, worker_id, requested_at_s, placed_at_s, ready_at_s,
            ended_at_s, how, why, gang_id, rank, string_to_array(cards, ',')::int[], flavor
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::float8[],
            $9::float8[], $10::float8[], $11::text[], $12::text[], $13::text[], $14::int[], $15::text[], $16::text[])
            AS g(container_id, stub_id, workspace_id, state, worker_id, requested_at_s, placed_at_s, ready_at_s,
                ended_at_s, how, why, gang_id, rank, cards, flavor)
        WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING container_id
    )
    """,
    _put_container_arguments,
    ids="container_id",
    given=lambda o: [row.container_id for row in o.containers],
)


def _move_container_arguments(operation: MoveContainers) -> Arguments:
    moves = sorted(operation.moves, key=_by_container)
    return (
        [move.container_id for move in moves],
        [",".join(state.value for state in move.sources) for move in moves],
        [move.state.value for move in moves],
        [move.worker_id for move in moves],
        [None if move.end is None else move.end.value for move in moves],
        [storable(move.why) for move in moves],
        operation.now_s,
        [None if move.cards is None else _numbers(move.cards) for move in moves],
        [move.flavor for move in moves],
    )


# Of several moves of one container, the first that applies counts.
write(
    MoveContainers,
    """
    given AS (
        SELECT DISTINCT ON (g.container_id) g.*
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $9::text[], $10::text[])
            WITH ORDINALITY AS g(container_id, sources, state, worker_id, how, why, cards, flavor, n)
        JOIN containers c ON c.container_id = g.container_id AND c.state = ANY(string_to_array(g.sources, ','))
        WHERE (SELECT yes FROM allowed)
        ORDER BY g.container_id, g.n
    ),
    done AS (
        UPDATE containers c SET
            state = g.state,
            worker_id = coalesce(g.worker_id, c.worker_id),
            placed_at_s = CASE WHEN g.state = 'placed' AND c.placed_at_s = 0 THEN $8::float8 ELSE c.placed_at_s END,
            ready_at_s = CASE WHEN g.state = 'ready' AND c.ready_at_s = 0 THEN $8::float8 ELSE c.ready_at_s END,
            ended_at_s = CASE WHEN g.state = 'ended' AND c.ended_at_s = 0 THEN $8::float8 ELSE c.ended_at_s END,
            how = coalesce(g.how, c.how),
            why = CASE g.why WHEN '' THEN c.why ELSE g.why END,
            cards = coalesce(string_to_array(g.cards, ',')::int[], c.cards),
            flavor = coalesce(g.flavor, c.flavor)
        FROM given g
        WHERE c.container_id = g.container_id AND c.state = ANY(string_to_array(g.sources, ','))
        RETURNING c.container_id
    )
    """,
    _move_container_arguments,
    ids="container_id",
    given=lambda o: [move.container_id for move in o.moves],
)


def _container(row: Record) -> ContainerRow:
    return ContainerRow(
        container_id=row[0],
        stub_id=row[1],
        workspace_id=row[2],
        state=ContainerState(row[3]),
        worker_id=row[4],
        requested_at_s=row[5],
        placed_at_s=row[6],
        ready_at_s=row[7],
        ended_at_s=row[8],
        end=None if row[9] is None else End(row[9]),
        why=row[10],
        gang_id=row[11],
        rank=row[12],
        cards=tuple(row[13]),
        flavor=row[14],
    )


_CONTAINER: Final = """
container_id, stub_id, workspace_id, state, worker_id, requested_at_s, placed_at_s, ready_at_s, ended_at_s, how, why,
    gang_id, rank, cards, flavor
"""

read(
    LoadContainers,
    f"""
    SELECT * FROM (
        SELECT {_CONTAINER} FROM containers
        WHERE state <> 'ended' AND ($1::text IS NULL OR workspace_id = $1)
        UNION ALL
        (SELECT {_CONTAINER} FROM containers
        WHERE state = 'ended' AND ($1::text IS NULL OR workspace_id = $1)
        ORDER BY ended_at_s DESC, container_id DESC LIMIT $2)
    ) AS chosen ORDER BY requested_at_s, container_id
    """,
    lambda o: (o.workspace_id, o.ended),
    lambda _, rows: tuple([_container(row) for row in rows]),
)

read(
    ReadContainers,
    f"""
    SELECT {_CONTAINER} FROM containers
    WHERE container_id = ANY($1::text[]) AND ($3::text IS NULL OR workspace_id = $3)
    UNION
    (SELECT {_CONTAINER} FROM containers
    WHERE worker_id = $2 AND $2 <> '' AND ($3::text IS NULL OR workspace_id = $3)
    ORDER BY requested_at_s DESC, container_id DESC LIMIT $4)
    ORDER BY requested_at_s DESC, container_id DESC
    """,
    lambda o: (o.container_ids, o.worker_id, o.workspace_id, o.limit),
    lambda _, rows: tuple([_container(row) for row in rows]),
)


def _put_worker_arguments(operation: PutWorkers) -> Arguments:
    rows = sorted(operation.workers, key=_by_worker)
    return (
        [row.worker_id for row in rows],
        [row.pool for row in rows],
        [row.state.value for row in rows],
        [row.capacity.cpu_milli for row in rows],
        [row.capacity.memory_mib for row in rows],
        [row.capacity.gpu_count for row in rows],
        [row.capacity.gpu_type for row in rows],
        [row.epoch for row in rows],
        [row.handle for row in rows],
        [row.ordered_at_s for row in rows],
        [row.seen_at_s for row in rows],
        [row.gone_at_s for row in rows],
        [storable(row.why) for row in rows],
        [_encode(row.traits) for row in rows],
        [row.gang_id for row in rows],
    )


_WORKER: Final = """
worker_id, pool, state, cpu_milli, memory_mib, gpu_count, gpu_type, epoch, handle, ordered_at_s, seen_at_s,
    gone_at_s, why, traits, gang_id
"""

write(
    PutWorkers,
    f"""
    done AS (
        INSERT INTO workers ({_WORKER})
        SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::int[], $8::text[],
            $9::int8[], $10::text[], $11::float8[], $12::float8[], $13::float8[], $14::text[], $15::bytea[],
            $16::text[])
        WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING worker_id
    )
    """,
    _put_worker_arguments,
    ids="worker_id",
    given=lambda o: [row.worker_id for row in o.workers],
)


def _move_worker_arguments(operation: MoveWorkers) -> Arguments:
    moves = sorted(operation.moves, key=_by_worker)
    sizes = [move.capacity for move in moves]
    return (
        [move.worker_id for move in moves],
        [",".join(state.value for state in move.sources) for move in moves],
        [move.state.value for move in moves],
        [move.epoch for move in moves],
        [move.handle for move in moves],
        [None if size is None else size.cpu_milli for size in sizes],
        [None if size is None else size.memory_mib for size in sizes],
        [None if size is None else size.gpu_count for size in sizes],
        [None if size is None else size.gpu_type for size in sizes],
        [storable(move.why) for move in moves],
        operation.now_s,
        [None if move.traits is None else _encode(move.traits) for move in moves],
    )


_MAY_MOVE: Final = """
CASE g.sources WHEN '' THEN w.state <> 'gone' ELSE w.state = ANY(string_to_array(g.sources, ',')) END
    AND (g.epoch IS NULL OR w.epoch <= g.epoch)
"""

write(
    MoveWorkers,
    f"""
    given AS (
        SELECT DISTINCT ON (g.worker_id) g.*
        FROM unnest($2::text[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::int[], $8::int[], $9::int[],
            $10::text[], $11::text[], $13::bytea[]) WITH ORDINALITY
            AS g(worker_id, sources, state, epoch, handle, cpu_milli, memory_mib, gpu_count, gpu_type, why, traits, n)
        JOIN workers w ON w.worker_id = g.worker_id AND {_MAY_MOVE}
        WHERE (SELECT yes FROM allowed)
        ORDER BY g.worker_id, g.n
    ),
    done AS (
        UPDATE workers w SET
            state = g.state,
            epoch = coalesce(g.epoch, w.epoch),
            handle = coalesce(g.handle, w.handle),
            cpu_milli = coalesce(g.cpu_milli, w.cpu_milli),
            memory_mib = coalesce(g.memory_mib, w.memory_mib),
            gpu_count = coalesce(g.gpu_count, w.gpu_count),
            gpu_type = coalesce(g.gpu_type, w.gpu_type),
            seen_at_s = CASE WHEN g.state IN ('pending', 'available', 'cordoned', 'draining') THEN $12::float8
                ELSE w.seen_at_s END,
            gone_at_s = CASE g.state WHEN 'gone' THEN $12::float8 ELSE w.gone_at_s END,
            why = g.why,
            traits = coalesce(g.traits, w.traits)
        FROM given g
        WHERE w.worker_id = g.worker_id AND {_MAY_MOVE}
        RETURNING w.worker_id
    )
    """,
    _move_worker_arguments,
    ids="worker_id",
    given=lambda o: [move.worker_id for move in o.moves],
)


def _worker(row: Record) -> WorkerRow:
    return WorkerRow(
        worker_id=row[0],
        pool=row[1],
        state=WorkerState(row[2]),
        capacity=Capacity(cpu_milli=row[3], memory_mib=row[4], gpu_count=row[5], gpu_type=row[6]),
        epoch=row[7],
        handle=row[8],
        ordered_at_s=row[9],
        seen_at_s=row[10],
        gone_at_s=row[11],
        why=row[12],
        traits=_decode_traits(row[13]),
        gang_id=row[14],
    )


read(
    LoadWorkers,
    f"""
    SELECT * FROM (
        SELECT {_WORKER} FROM workers WHERE state <> 'gone'
        UNION ALL
        (SELECT {_WORKER} FROM workers WHERE state = 'gone' ORDER BY gone_at_s DESC, worker_id DESC LIMIT $1)
    ) AS chosen ORDER BY ordered_at_s, worker_id
    """,
    lambda o: (o.gone,),
    lambda _, rows: tuple([_worker(row) for row in rows]),
)


def _put_outbox_arguments(operation: PutOutbox) -> Arguments:
    newest = {row.key: row for row in operation.rows}
    rows = [newest[key] for key in sorted(newest)]
    return (
        [row.key for row in rows],
        [row.target for row in rows],
        [row.payload for row in rows],
        [row.created_at_s for row in rows],
    )


write(
    PutOutbox,
    """
    done AS (
        INSERT INTO outbox (key, target, payload, created_at_s)
        SELECT * FROM unnest($2::text[], $3::text[], $4::bytea[], $5::float8[]) WHERE (SELECT yes FROM allowed)
        ON CONFLICT (key) DO UPDATE SET
            target = excluded.target, payload = excluded.payload, created_at_s = excluded.created_at_s
        RETURNING key
    )
    """,
    _put_outbox_arguments,
    ids="key",
    given=lambda o: [row.key for row in o.rows],
)
write(
    AckOutbox,
    """
    done AS (
        DELETE FROM outbox WHERE key = ANY($2::text[]) AND (SELECT yes FROM allowed) RETURNING key
    )
    """,
    lambda o: (sorted(o.keys),),
    ids="key",
    given=lambda o: o.keys,
)
read(
    LoadOutbox,
    "SELECT key, target, payload, created_at_s FROM outbox ORDER BY created_at_s, key",
    nothing,
    lambda _, rows: tuple([OutboxRow(key=row[0], target=row[1], payload=row[2], created_at_s=row[3]) for row in rows]),
)
