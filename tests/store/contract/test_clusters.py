"""Attached clusters, and what goes with them."""

from msgspec.structs import replace

from levers9.model.clusters import ClusterSpec, Flavour
from levers9.model.resources import Capacity
from levers9.store.face import Store
from levers9.store.operations import (
    Applied,
    ClusterRow,
    DropCluster,
    DropPool,
    ListClusters,
    ListPools,
    PoolRecord,
    PutCluster,
    PutPool,
)

SPEC = ClusterSpec(
    name="lab",
    gpu_type="GB200",
    namespace="lévers",
    selector="pool in (a,b)",
    flavour=Flavour.EKS,
    worker_image="registry.example/worker:1",
    pull_secret="pull",
    host_network=False,
)
ROW = ClusterRow(
    cluster_id="cluster-1",
    workspace_id="workspace-1",
    spec=SPEC,
    shared=True,
    created_at_s=2.5,
    agent_epoch=1 << 60,
    seen_at_s=3.25,
    leaving=True,
)


async def test_a_cluster_comes_back_as_it_was_put(store: Store) -> None:
    assert await store.apply(PutCluster(cluster=ROW)) == (Applied(ids=("cluster-1",)),)
    plain = ClusterRow(cluster_id="cluster-0", workspace_id="w", spec=ClusterSpec(name="b", gpu_type="A"))
    await store.apply(PutCluster(cluster=plain))
    assert await store.apply(ListClusters()) == ((plain, ROW),)


async def test_a_known_cluster_is_replaced(store: Store) -> None:
    other = replace(ROW, shared=False, agent_epoch=7, leaving=False, spec=replace(SPEC, name="other"))
    await store.apply(PutCluster(cluster=ROW))
    assert await store.apply(PutCluster(cluster=other)) == (Applied(ids=("cluster-1",)),)
    assert await store.apply(ListClusters()) == ((other,),)


async def test_a_name_belongs_to_one_cluster_of_a_workspace(store: Store) -> None:
    second = replace(ROW, cluster_id="cluster-2")
    elsewhere = replace(ROW, cluster_id="cluster-3", workspace_id="workspace-2")
    await store.apply(PutCluster(cluster=ROW))
    assert await store.apply(PutCluster(cluster=second), PutCluster(cluster=elsewhere)) == (
        Applied(),
        Applied(ids=("cluster-3",)),
    )
    assert await store.apply(ListClusters()) == ((ROW, elsewhere),)
    await store.apply(DropCluster(cluster_id="cluster-1"))
    assert await store.apply(PutCluster(cluster=second)) == (Applied(ids=("cluster-2",)),)


async def test_a_cluster_takes_no_name_from_another_by_being_put_again(store: Store) -> None:
    second = replace(ROW, cluster_id="cluster-2", spec=replace(SPEC, name="second"))
    await store.apply(PutCluster(cluster=ROW), PutCluster(cluster=second))
    assert await store.apply(PutCluster(cluster=replace(second, spec=SPEC))) == (Applied(),)
    assert await store.apply(ListClusters()) == ((ROW, second),)


async def test_a_cluster_is_dropped_once(store: Store) -> None:
    await store.apply(PutCluster(cluster=ROW))
    drop = DropCluster(cluster_id="cluster-1")
    assert await store.apply(drop, drop) == (Applied(ids=("cluster-1",)), Applied())
    assert await store.apply(ListClusters()) == ((),)


async def test_a_pool_that_is_dropped_is_forgotten_with_all_its_types_of_cards(store: Store) -> None:
    size = Capacity(cpu_milli=1, memory_mib=1)
    await store.apply(
        PutPool(pool="lab", largest=size),
        PutPool(pool="lab", largest=replace(size, gpu_count=1, gpu_type="A")),
        PutPool(pool="other", largest=size),
    )
    assert await store.apply(DropPool(pool="lab"), DropPool(pool="lab")) == (Applied(ids=("lab",)), Applied())
    assert await store.apply(ListPools()) == ((PoolRecord(pool="other", largest=size),),)
