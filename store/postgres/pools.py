"""Pools, and the configuration of queues and quotas, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...model.nodes import NodeOffer
from ...model.queues import Queueing
from ...model.resources import Capacity
from ..operations import (
    DropPool,
    DropPoolSpec,
    ListPools,
    ListPoolSpecs,
    Operation,
    PoolRecord,
    PoolSpecRow,
    PutPool,
    PutPoolSpec,
    PutQueueing,
    QueueingRow,
    ReadQueueing,
)
from .plans import Arguments, Record, nothing, read, write

_encode: Final = msgspec.json.Encoder().encode
_decode_offers: Final = msgspec.json.Decoder(tuple[NodeOffer, ...]).decode
_decode_queueing: Final = msgspec.json.Decoder(Queueing).decode


def _put_pool_arguments(operation: PutPool) -> Arguments:
    size = operation.largest
    offers = _encode(operation.offers) if operation.offers else None
    return (
        operation.pool,
        size.gpu_type,
        size.cpu_milli,
        size.memory_mib,
        size.gpu_count,
        offers,
        operation.max_workers,
    )


write(
    PutPool,
    """
    done AS (
        INSERT INTO pools (pool, gpu_type, cpu_milli, memory_mib, gpu_count, offers, max_workers)
        SELECT $2, $3, $4::int, $5::int, $6::int, coalesce($7::bytea, '[]'), $8::int WHERE (SELECT yes FROM allowed)
        ON CONFLICT (pool, gpu_type) DO UPDATE SET
            cpu_milli = greatest(pools.cpu_milli, excluded.cpu_milli),
            memory_mib = greatest(pools.memory_mib, excluded.memory_mib),
            gpu_count = greatest(pools.gpu_count, excluded.gpu_count),
            offers = coalesce($7::bytea, pools.offers),
            max_workers = greatest(pools.max_workers, excluded.max_workers)
        WHERE excluded.cpu_milli > pools.cpu_milli OR excluded.memory_mib > pools.memory_mib
            OR excluded.gpu_count > pools.gpu_count OR $7::bytea <> pools.offers
            OR excluded.max_workers > pools.max_workers
        RETURNING pool
    )
    """,
    _put_pool_arguments,
    ids="pool",
)


def _pool(row: Record) -> PoolRecord:
    largest = Capacity(cpu_milli=row[2], memory_mib=row[3], gpu_count=row[4], gpu_type=row[1])
    return PoolRecord(pool=row[0], largest=largest, offers=_decode_offers(row[5]), max_workers=row[6])


read(
    ListPools,
    "SELECT pool, gpu_type, cpu_milli, memory_mib, gpu_count, offers, max_workers FROM pools ORDER BY pool, gpu_type",
    nothing,
    lambda _, rows: tuple([_pool(row) for row in rows]),
)
write(
    DropPool,
    """
    gone AS (DELETE FROM pools WHERE pool = $2 AND (SELECT yes FROM allowed) RETURNING pool),
    done AS (SELECT DISTINCT pool FROM gone)
    """,
    lambda o: (o.pool,),
    ids="pool",
)
write(
    PutPoolSpec,
    """
    done AS (
        INSERT INTO pool_specs (name, declaration) SELECT $2, $3 WHERE (SELECT yes FROM allowed)
        ON CONFLICT (name) DO UPDATE SET declaration = excluded.declaration
        RETURNING name
    )
    """,
    lambda o: (o.name, o.table),
    ids="name",
)
write(
    DropPoolSpec,
    "done AS (DELETE FROM pool_specs WHERE name = $2 AND (SELECT yes FROM allowed) RETURNING name)",
    lambda o: (o.name,),
    ids="name",
)
read(
    ListPoolSpecs,
    "SELECT name, declaration FROM pool_specs ORDER BY name",
    nothing,
    lambda _, rows: tuple([PoolSpecRow(name=row[0], table=row[1]) for row in rows]),
)
write(
    PutQueueing,
    """
    done AS (
        INSERT INTO queueing (configuration) SELECT $2::bytea WHERE (SELECT yes FROM allowed)
        ON CONFLICT (only_one) DO UPDATE SET configuration = excluded.configuration
        RETURNING 'queueing' AS what
    )
    """,
    lambda o: (_encode(o.queueing),),
    ids="what",
)


def _queueing(_: Operation, rows: Sequence[Record]) -> QueueingRow:
    return QueueingRow(queueing=_decode_queueing(rows[0][0])) if rows else QueueingRow()


read(ReadQueueing, "SELECT configuration FROM queueing", nothing, _queueing)
