"""From an agent's report to what a pool may start workers on: a worker takes all that a node has free."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.clusters import ClusterState
from ...model.figures import JOB_RESERVE_CPU_MILLI, JOB_RESERVE_MEMORY_MIB
from ...model.nodes import NodeOffer, NodeState, Traits
from ...model.resources import Capacity
from ...wire.cluster import ClusterReported, NodeReport, NodesKnown
from .book import Cluster

RUNTIMES: Final = ("process",)  # how code is run there


def nodes_known(cluster: Cluster, report: ClusterReported, serves: str, state: ClusterState) -> NodesKnown:
    """The nodes with cards: what a new worker there would have, and what the node has in all."""
    gpu_type = cluster.row.spec.gpu_type
    nodes = [node for node in report.nodes if node.allocatable.gpu_count > 0]
    offers = tuple(_offer(node, node.free, gpu_type, serves, _state(node, state)) for node in nodes)
    return NodesKnown(
        pool=cluster.pool,
        serves=serves,
        offers=offers if state is ClusterState.ONLINE else tuple(_since(offer, cluster.as_of_s) for offer in offers),
        whole=tuple(_offer(node, node.allocatable, gpu_type, serves, NodeState.READY) for node in nodes),
    )


def _since(offer: NodeOffer, as_of_s: float) -> NodeOffer:
    return msgspec.structs.replace(offer, since_s=as_of_s)


def _offer(node: NodeReport, size: Capacity, gpu_type: str, serves: str, state: NodeState) -> NodeOffer:
    capacity = Capacity(
        cpu_milli=max(0, size.cpu_milli - JOB_RESERVE_CPU_MILLI),
        memory_mib=max(0, size.memory_mib - JOB_RESERVE_MEMORY_MIB),
        gpu_count=size.gpu_count,
        gpu_type=gpu_type if size.gpu_count else "",
    )
    traits = Traits(node=node.name, labels=tuple(sorted(node.labels)), runtimes=RUNTIMES, serves=serves)
    return NodeOffer(capacity=capacity, traits=traits, state=state)


def _state(node: NodeReport, state: ClusterState) -> NodeState:
    """Nobody knows how the nodes of a cluster are whose agent is away; one whose cards others have is full."""
    if state is not ClusterState.ONLINE:
        return NodeState.STALE
    free = node.free
    has_room = free.gpu_count and free.cpu_milli > JOB_RESERVE_CPU_MILLI and free.memory_mib > JOB_RESERVE_MEMORY_MIB
    return NodeState.FULL if node.state is NodeState.READY and not has_room else node.state
