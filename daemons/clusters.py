"""From a configuration and the rows of attached clusters to what their actors are given."""

from __future__ import annotations

from pathlib import Path

from .. import __version__
from ..actors.cluster import ClusterPool, ClusterSettings
from ..actors.pool import PoolSettings
from ..actors.pool.settings import retiring
from ..errors import ConfigError
from .orders import BrainOrders


def cluster_settings(orders: BrainOrders, workspace_id: str) -> ClusterSettings:
    """What the platform says of attached clusters. Their workers dial where everybody else does.

    Raises `ConfigError` when the file of certificates cannot be read.
    """
    settings, table = orders.settings, orders.settings.attached_clusters
    return ClusterSettings(
        default_workspace=workspace_id,
        version=__version__,
        agent_image=table.agent_image,
        worker_image=table.worker_image,
        clusters_per_workspace=table.clusters_per_workspace,
        host_network=table.host_network,
        trusted=table.isolation == "trusted",
        stream_url=settings.external_url or next(iter(orders.worker_urls), ""),
        http_url=settings.external_url or orders.worker_http_url,
        ca_pem=_certificates(settings.external_ca),
        cache_max_gb=table.node_cache.max_gb,
        cache_min_free_pct=table.node_cache.min_free_pct,
    )


def _certificates(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"external_ca: {path} cannot be read: {error.strerror}. Name a file in PEM.") from error


def settings_of(pool: ClusterPool, rank: int) -> PoolSettings:
    """What the actor of a cluster's pool is given: its nodes are told it later. Pools of the file are asked first."""
    if pool.retiring:
        return retiring(pool.name, attached=True)
    return PoolSettings(
        name=pool.name,
        worker=None,
        max_workers=0,
        serves=pool.serves,
        rank=rank,
        owner=pool.owner,
        known_as=pool.known_as,
        gpu_type=pool.gpu_type,
        attached=True,
    )
