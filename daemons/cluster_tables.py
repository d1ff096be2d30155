"""`[attached_clusters]`: what the platform says of clusters that people attach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from .. import __version__
from ..model.figures import CLUSTERS_PER_WORKSPACE

IMAGE: Final = f"levers9:{__version__}"
CACHE_MAX_GB: Final = 100  # figures, "Clusters and pools"
CACHE_MIN_FREE_PCT: Final = 20
_WHOLE_PCT: Final = 100


class NodeCacheTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[attached_clusters.node_cache]`: how large the cache of images on a node grows, and how much it leaves free."""

    max_gb: int = CACHE_MAX_GB
    min_free_pct: int = CACHE_MIN_FREE_PCT


class AttachedClustersTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[attached_clusters]`. Code runs as plain processes there: a cluster may be shared where all workspaces trust
    each other, which `isolation = "trusted"` says.
    """

    agent_image: str = IMAGE
    worker_image: str = IMAGE
    clusters_per_workspace: int = CLUSTERS_PER_WORKSPACE  # 0: no limit
    host_network: bool = True
    isolation: Literal["none", "trusted"] = "none"
    node_cache: NodeCacheTable = NodeCacheTable()


def wrong_in_clusters(table: AttachedClustersTable) -> Iterator[tuple[str, str]]:
    """Which keys have values that no platform can have, and what is right instead."""
    for key, image in (("agent_image", table.agent_image), ("worker_image", table.worker_image)):
        if not image or image != "".join(image.split()) or "://" in image:
            yield key, f'{image!r} is no image: write one such as "{IMAGE}"'
    if table.clusters_per_workspace < 0:
        yield "clusters_per_workspace", f"{table.clusters_per_workspace} is too few: write 1 or more, or 0 for no limit"
    cache = table.node_cache
    if cache.max_gb < 1:
        yield "node_cache.max_gb", f"{cache.max_gb} is too small: write 1 or more"
    if not 0 <= cache.min_free_pct < _WHOLE_PCT:
        yield "node_cache.min_free_pct", f"{cache.min_free_pct} is no share of a disk: write 0 to {_WHOLE_PCT - 1}"
