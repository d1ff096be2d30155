"""What a worker says of itself, and of what it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.resources import Capacity
from ...wire.scheduling import ContainerReport, WorkerReported
from .ledger import Held


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this worker is; a restarted one has a newer epoch."""

    worker_id: str
    pool: str
    epoch: int
    capacity: Capacity
    host: str = ""  # the address at which other workers reach its containers
    lacks: str = ""  # why it has fewer cards than were ordered

    def address(self, port: int) -> str:
        """`host:port`, as it is written in URLs."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def whole_truth(identity: Identity, containers: Iterable[Held]) -> WorkerReported:
    """The report of a worker: its containers that have not ended."""
    return WorkerReported(
        worker_id=identity.worker_id,
        pool=identity.pool,
        epoch=identity.epoch,
        capacity=identity.capacity,
        containers=tuple(
            ContainerReport(held.container_id, held.stub_id, held.state, held.window, held.address)
            for held in containers
            if held.ended is None
        ),
        host=identity.host,
        lacks=identity.lacks,
    )
