"""Attached clusters in the words of REST."""

from __future__ import annotations

from datetime import UTC, datetime

from ....model.clusters import ClusterSpec
from ....model.nodes import NodeState
from ....wire.cluster import ClusterStanding, NodeShown
from ....wire.rest.clusters import ClusterView, NodeView


def cluster_view(one: ClusterStanding) -> ClusterView:
    """What is shown of a cluster; what the caller may not know is missing already."""
    spec = one.spec or ClusterSpec(name=one.name, gpu_type=one.gpu_type, namespace="")
    return ClusterView(
        name=one.name,
        gpu_type=one.gpu_type,
        status=str(one.state),
        shared=one.shared,
        owned=one.owned,
        last_seen_at=_iso(one.last_seen_s),
        nodes=tuple(_node(node) for node in one.nodes),
        cluster_id=one.cluster_id,
        pool=one.pool,
        origin=str(one.origin),
        workspace=one.workspace,
        matched=one.matched,
        last_seen_s=one.last_seen_s,
        created_at_s=one.created_at_s,
        agent_version=one.agent_version,
        agent_started_at_s=one.agent_started_at_s,
        agent_outdated=one.agent_outdated,
        workers=one.workers,
        pending=one.pending,
        problem=one.problem,
        waits=one.waits,
        nodes_total=one.nodes_total,
        nodes_ready=one.nodes_ready,
        cards=one.cards,
        cards_ours=one.cards_ours,
        cards_free=one.cards_free,
        nodes_known=one.nodes_known,
        agent_silent=one.agent_silent,
        selector=spec.selector,
        namespace=spec.namespace,
        flavor=str(spec.flavour),
        worker_image=spec.worker_image,
        image_pull_secret=spec.pull_secret,
        host_network=spec.host_network,
    )


def _node(node: NodeShown) -> NodeView:
    return NodeView(
        name=node.name,
        ready=node.state is NodeState.READY,
        gpus=node.allocatable.gpu_count,
        gpus_free=node.free.gpu_count,
        gpus_ours=node.ours.gpu_count,
        cpu_ours_millis=node.ours.cpu_milli,
        memory_ours_mb=node.ours.memory_mib,
        cpu_free_millis=node.free.cpu_milli,
        memory_free_mb=node.free.memory_mib,
        state=str(node.state),
        gpu_type=node.allocatable.gpu_type,
        cpu_millis=node.allocatable.cpu_milli,
        memory_mb=node.allocatable.memory_mib,
        worker_id=node.worker_id,
        worker_state=node.worker_state,
        labels=dict(node.labels),
        why=node.why,
    )


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(int(time_s), UTC).isoformat().replace("+00:00", "Z") if time_s else ""
