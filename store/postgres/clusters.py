"""Attached clusters in SQL."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.clusters import ClusterSpec
from ..operations import ClusterRow, DropCluster, ListClusters, PutCluster
from .plans import Arguments, Record, nothing, read, write

_encode: Final = msgspec.json.Encoder().encode
_decode_spec: Final = msgspec.json.Decoder(ClusterSpec).decode


def _put_arguments(operation: PutCluster) -> Arguments:
    row = operation.cluster
    return (
        row.cluster_id,
        row.workspace_id,
        row.spec.name,
        _encode(row.spec),
        row.shared,
        row.created_at_s,
        row.agent_epoch,
        row.seen_at_s,
        row.leaving,
    )


write(
    PutCluster,
    """
    done AS (
        INSERT INTO clusters (cluster_id, workspace_id, name, spec, shared, created_at_s, agent_epoch, seen_at_s,
            leaving)
        SELECT $2, $3, $4, $5::bytea, $6::boolean, $7::float8, $8::bigint, $9::float8, $10::boolean
        WHERE (SELECT yes FROM allowed) AND NOT EXISTS (
            SELECT FROM clusters WHERE workspace_id = $3 AND name = $4 AND cluster_id <> $2)
        ON CONFLICT (cluster_id) DO UPDATE SET
            workspace_id = excluded.workspace_id, name = excluded.name, spec = excluded.spec,
            shared = excluded.shared, created_at_s = excluded.created_at_s, agent_epoch = excluded.agent_epoch,
            seen_at_s = excluded.seen_at_s, leaving = excluded.leaving
        RETURNING cluster_id
    )
    """,
    _put_arguments,
    ids="cluster_id",
)
write(
    DropCluster,
    "done AS (DELETE FROM clusters WHERE cluster_id = $2 AND (SELECT yes FROM allowed) RETURNING cluster_id)",
    lambda o: (o.cluster_id,),
    ids="cluster_id",
)


def _cluster(row: Record) -> ClusterRow:
    return ClusterRow(
        cluster_id=row[0],
        workspace_id=row[1],
        spec=_decode_spec(row[2]),
        shared=row[3],
        created_at_s=row[4],
        agent_epoch=row[5],
        seen_at_s=row[6],
        leaving=row[7],
    )


read(
    ListClusters,
    """
    SELECT cluster_id, workspace_id, spec, shared, created_at_s, agent_epoch, seen_at_s, leaving
    FROM clusters ORDER BY created_at_s, cluster_id
    """,
    nothing,
    lambda _, rows: tuple([_cluster(row) for row in rows]),
)
