"""Which workers gateways dial: those of clusters whose API we call ourselves, once their pods have addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ...model.clusters import Origin
from ...model.figures import WORKER_PORT
from ...model.loopback import is_loopback
from ...wire.cluster import DialWorkers, WorkerAddress
from .book import Cluster


class Dialled:
    """The list as gateways know it. Nothing is told before each such cluster was seen: who is not named is cut off."""

    def __init__(self) -> None:
        self._told: DialWorkers | None = None

    def news(self, clusters: Iterable[Cluster]) -> DialWorkers | None:
        """The list, where it has changed."""
        ours = [cluster for cluster in clusters if cluster.origin is Origin.CREDENTIAL]
        if not ours or any(cluster.report is None or cluster.report.blind for cluster in ours):
            return None
        found = [job for cluster in ours for job in cluster.jobs if job.address]
        workers = tuple(WorkerAddress(worker_id=job.worker_id, url=_url(job.address)) for job in found)
        if self._told is not None and self._told.workers == workers:
            return None
        self._told = DialWorkers(workers=workers)
        return self._told


def _url(address: str) -> str:
    """Where a worker listens in its pod. In the clear on loopback only: pods of the lab are there."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return f"wss://{address}:{WORKER_PORT}"
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    return f"{'ws' if is_loopback(address) else 'wss'}://{host}:{WORKER_PORT}"
