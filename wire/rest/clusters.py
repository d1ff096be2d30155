"""Attached clusters, as REST shows them: our own words, and beside them those that the published client reads.

What another release of the control plane may leave out has a default.
"""

from __future__ import annotations

import msgspec

from .answer import Answer


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node. `name` is "" for who may not know it; `gpus` and the rest are what it has in all, and has free.

    What others leave is free; of that, a worker of ours has `gpus_ours` cards and so on.
    """

    name: str
    ready: bool
    gpus: int
    gpus_free: int
    gpus_ours: int = 0
    cpu_ours_millis: int = 0
    memory_ours_mb: int = 0
    cpu_free_millis: int = 0
    memory_free_mb: int = 0
    state: str
    gpu_type: str = ""
    cpu_millis: int = 0
    memory_mb: int = 0
    worker_id: str = ""
    worker_state: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    why: str = ""

    @property
    def spare(self) -> int:
        """Cards that nobody has: neither others, nor a worker of ours."""
        return max(0, self.gpus_free - self.gpus_ours)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as far as the caller may know it. `selector` and what follows is its owner's to see.

    A list may have no `nodes`: they are counted. Of cards, `cards_ours` are those of our workers, at work or idle, and
    `cards_free` those that nobody has, on nodes that take work. `last_seen_at` is ISO 8601, "" for never; `last_seen_s`
    is the same in Unix seconds. Where not `nodes_known`, its agent has not reported them since the control plane
    restarted, or never: counts are 0.
    """

    name: str
    gpu_type: str
    status: str
    shared: bool
    owned: bool
    last_seen_at: str = ""
    nodes: tuple[NodeView, ...] = ()
    cluster_id: str
    pool: str = ""
    origin: str = "attached"
    workspace: str = ""
    matched: int = 0
    last_seen_s: float = 0.0
    created_at_s: float = 0.0
    agent_version: str = ""
    agent_started_at_s: float = 0.0
    agent_outdated: bool = False
    workers: int = 0
    pending: int = 0
    problem: str = ""
    waits: tuple[str, ...] = ()
    nodes_total: int = 0
    nodes_ready: int = 0
    cards: int = 0
    cards_ours: int = 0
    cards_free: int = 0
    nodes_known: bool = True
    agent_silent: bool = False
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
    manifest: str = ""


class ClusterAttached(Answer, frozen=True, kw_only=True):
    """A cluster that was attached, or whose token was renewed. `manifest` holds the token: it is shown this once.

    `url` is where the agent dials.
    """

    cluster: ClusterView
    manifest: str
    url: str = ""
    renewed: bool = False


class ClusterShared(Answer, frozen=True, kw_only=True):
    """Whom a cluster serves after a change."""

    name: str
    shared: bool


class ClusterLeft(Answer, frozen=True, kw_only=True):
    """A cluster that was detached."""

    name: str
