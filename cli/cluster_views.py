"""Attached clusters as the control plane tells them."""

from __future__ import annotations

import msgspec


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `name` is "" for who may not know it."""

    name: str
    state: str
    ready: bool
    gpus: int
    gpus_free: int
    gpus_ours: int = 0
    cpu_ours_millis: int = 0
    memory_ours_mb: int = 0
    gpu_type: str = ""
    cpu_free_millis: int = 0
    memory_free_mb: int = 0
    worker_id: str = ""
    worker_state: str = ""
    why: str = ""

    @property
    def spare(self) -> int:
        """Cards that nobody has: neither others, nor a worker of ours."""
        return max(0, self.gpus_free - self.gpus_ours)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, as far as we may know it. A list has no `nodes`: they are counted."""

    name: str
    gpu_type: str
    status: str
    shared: bool
    owned: bool
    cluster_id: str
    pool: str = ""
    origin: str = "attached"
    workspace: str = ""
    nodes: tuple[Node, ...] = ()
    matched: int = 0
    last_seen_s: float = 0.0
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
    cards_ours: int = 0  # of our workers, be they at work or idle
    cards_free: int = 0  # that nobody has, on nodes that take work
    namespace: str = ""
    selector: str = ""


class Clusters(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `cluster list`."""

    clusters: tuple[Cluster, ...]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `cluster nodes` and `cluster manifest`."""

    cluster: Cluster
    manifest: str = ""


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `cluster join`; the manifest holds the token."""

    cluster: Cluster
    manifest: str
    url: str = ""
    renewed: bool = False


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `cluster share`."""

    name: str
    shared: bool


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `cluster leave`."""

    name: str
