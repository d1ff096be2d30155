"""What the platform says of attached clusters, and of those that are in its configuration."""

from __future__ import annotations

import msgspec

from ...model.clusters import ClusterSpec, Origin
from ...model.figures import CLUSTERS_PER_WORKSPACE


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's part. `trusted` says that all workspaces trust each other, so that a cluster may be shared."""

    default_workspace: str  # whose clusters are those that an admin joins
    version: str = ""
    agent_image: str = ""
    worker_image: str = ""
    clusters_per_workspace: int = CLUSTERS_PER_WORKSPACE  # 0: no limit
    host_network: bool = True
    trusted: bool = False
    stream_url: str = ""
    http_url: str = ""
    ca_pem: str = ""
    cache_max_gb: int = 0
    cache_min_free_pct: int = 0


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of the configuration: its pool is declared there, and its agent runs in our own process.

    `serves` is the one workspace whose work it takes, "" for any.
    """

    pool: str
    spec: ClusterSpec
    origin: Origin
    serves: str = ""
