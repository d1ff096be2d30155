"""Pools, attached clusters, and the configuration of queues and quotas, in dicts."""

from __future__ import annotations

from ...model.resources import Capacity
from ..operations import (
    Applied,
    ClusterRow,
    DropCluster,
    DropPool,
    DropPoolSpec,
    ListClusters,
    ListPools,
    ListPoolSpecs,
    PoolRecord,
    PoolSpecRow,
    PutCluster,
    PutPool,
    PutPoolSpec,
    PutQueueing,
    QueueingRow,
    ReadQueueing,
)
from .tables import Tables, carries_out


@carries_out(PutPool)
def _put_pool(tables: Tables, operation: PutPool) -> Applied:
    key = (operation.pool, operation.largest.gpu_type)
    before = tables.pools.get(key)
    after = PoolRecord(
        pool=operation.pool,
        largest=_larger(before.largest, operation.largest) if before else operation.largest,
        offers=operation.offers or (before.offers if before else ()),
        max_workers=max(operation.max_workers, before.max_workers if before else 0),
    )
    if after == before:
        return Applied()
    tables.pools[key] = after
    return Applied(ids=(operation.pool,))


def _larger(one: Capacity, other: Capacity) -> Capacity:
    return Capacity(
        cpu_milli=max(one.cpu_milli, other.cpu_milli),
        memory_mib=max(one.memory_mib, other.memory_mib),
        gpu_count=max(one.gpu_count, other.gpu_count),
        gpu_type=one.gpu_type,
    )


@carries_out(DropPool)
def _drop_pool(tables: Tables, operation: DropPool) -> Applied:
    keys = [key for key in tables.pools if key[0] == operation.pool]
    for key in keys:
        del tables.pools[key]
    return Applied(ids=(operation.pool,) if keys else ())


@carries_out(ListPools)
def _list_pools(tables: Tables, _: ListPools) -> tuple[PoolRecord, ...]:
    return tuple(row for _, row in sorted(tables.pools.items(), key=lambda item: item[0]))


@carries_out(PutPoolSpec)
def _put_pool_spec(tables: Tables, operation: PutPoolSpec) -> Applied:
    tables.pool_specs[operation.name] = PoolSpecRow(name=operation.name, table=operation.table)
    return Applied(ids=(operation.name,))


@carries_out(DropPoolSpec)
def _drop_pool_spec(tables: Tables, operation: DropPoolSpec) -> Applied:
    return Applied(ids=(operation.name,) if tables.pool_specs.pop(operation.name, None) else ())


@carries_out(ListPoolSpecs)
def _list_pool_specs(tables: Tables, _: ListPoolSpecs) -> tuple[PoolSpecRow, ...]:
    return tuple(row for _, row in sorted(tables.pool_specs.items()))


@carries_out(PutCluster)
def _put_cluster(tables: Tables, operation: PutCluster) -> Applied:
    new = operation.cluster
    for row in tables.clusters.values():
        same_name = (row.workspace_id, row.spec.name) == (new.workspace_id, new.spec.name)
        if same_name and row.cluster_id != new.cluster_id:
            return Applied()
    tables.clusters[new.cluster_id] = new
    return Applied(ids=(new.cluster_id,))


@carries_out(DropCluster)
def _drop_cluster(tables: Tables, operation: DropCluster) -> Applied:
    return Applied(ids=(operation.cluster_id,) if tables.clusters.pop(operation.cluster_id, None) else ())


@carries_out(ListClusters)
def _list_clusters(tables: Tables, _: ListClusters) -> tuple[ClusterRow, ...]:
    return tuple(sorted(tables.clusters.values(), key=lambda row: (row.created_at_s, row.cluster_id)))


@carries_out(PutQueueing)
def _put_queueing(tables: Tables, operation: PutQueueing) -> Applied:
    tables.queueing = QueueingRow(queueing=operation.queueing)
    return Applied(ids=("queueing",))


@carries_out(ReadQueueing)
def _read_queueing(tables: Tables, _: ReadQueueing) -> QueueingRow:
    return tables.queueing
