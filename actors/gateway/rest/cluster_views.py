"""What REST shows of attached clusters: our own words, and beside them those that the published client reads."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from ....model.clusters import ClusterSpec
from ....model.nodes import NodeState
from ....wire.cluster import ClusterStanding, NodeShown
from .answers import Answer


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node. `name` is "" for who may not know it; `gpus` and the rest are what it has in all, and has free.

    What others leave is free; of that, a worker of ours has `gpus_ours` cards and so on.
    """

    name: str
    ready: bool
    gpus: int
    gpus_free: int
    gpus_ours: int
    cpu_ours_millis: int
    memory_ours_mb: int
    cpu_free_millis: int
    memory_free_mb: int
    state: str
    gpu_type: str
    cpu_millis: int
    memory_mb: int
    worker_id: str
    worker_state: str
    labels: dict[str, str]
    why: str


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as far as the caller may know it. `selector` and what follows is its owner's to see.

    `last_seen_at` is ISO 8601, "" for never; `last_seen_s` is the same in Unix seconds.
    """

    name: str
    gpu_type: str
    status: str
    shared: bool
    owned: bool
    last_seen_at: str
    nodes: tuple[NodeView, ...]
    cluster_id: str
    pool: str
    origin: str
    workspace: str
    matched: int
    last_seen_s: float
    created_at_s: float
    agent_version: str
    agent_started_at_s: float
    agent_outdated: bool
    workers: int
    pending: int
    problem: str
    waits: tuple[str, ...]
    nodes_total: int
    nodes_ready: int
    cards: int
    cards_ours: int
    cards_free: int
    selector: str = ""
    namespace: str = ""
    flavor: str = ""
    worker_image: str = ""
    image_pull_secret: str = ""
    host_network: bool | None = None


class ClusterList(Answer, frozen=True, kw_only=True):
    """One's own clusters, then shared ones."""

    clusters: tuple[ClusterView, ...]


class ClusterShown(Answer, frozen=True, kw_only=True):
    """A cluster. `manifest` has no token, and is "" for who may not see it."""

    cluster: ClusterView
    manifest: str


class ClusterAttached(Answer, frozen=True, kw_only=True):
    """A cluster that was attached, or whose token was renewed. `manifest` holds the token: it is shown this once.

    `url` is where the agent dials.
    """

    cluster: ClusterView
    manifest: str
    url: str
    renewed: bool


class ClusterShared(Answer, frozen=True, kw_only=True):
    """Whom a cluster serves after a change."""

    name: str
    shared: bool


class ClusterLeft(Answer, frozen=True, kw_only=True):
    """A cluster that was detached."""

    name: str


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
