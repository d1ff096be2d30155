"""Operations on containers, workers, pools, queues and quotas; part of the closed set in `operations`."""

from __future__ import annotations

import msgspec

from ..model.clusters import ClusterSpec
from ..model.nodes import NodeOffer, Traits
from ..model.queues import Queueing
from ..model.resources import Capacity
from ..model.states import ContainerState, End, WorkerState
from .operation import Operation, Row

__all__ = [
    "ClusterRow",
    "ContainerMove",
    "ContainerRow",
    "DropCluster",
    "DropPool",
    "DropPoolSpec",
    "ListClusters",
    "ListPoolSpecs",
    "ListPools",
    "LoadContainers",
    "LoadWorkers",
    "MoveContainers",
    "MoveWorkers",
    "PoolRecord",
    "PoolSpecRow",
    "PutCluster",
    "PutContainers",
    "PutPool",
    "PutPoolSpec",
    "PutQueueing",
    "PutWorkers",
    "QueueingRow",
    "ReadContainers",
    "ReadQueueing",
    "WorkerMove",
    "WorkerRow",
]

# Containers


class ContainerRow(Row, frozen=True, kw_only=True):
    """A container request and what became of it."""

    container_id: str
    stub_id: str
    workspace_id: str
    state: ContainerState
    worker_id: str = ""
    requested_at_s: float = 0.0
    placed_at_s: float = 0.0
    ready_at_s: float = 0.0
    ended_at_s: float = 0.0
    end: End | None = None
    why: str = ""
    gang_id: str = ""  # the gang that it is a member of, "" for none
    rank: int = 0  # its number in the gang
    cards: tuple[int, ...] = ()  # the cards of its worker that it was given, by number
    flavor: str = ""  # of the quota that it counts against


class PutContainers(Operation, frozen=True, kw_only=True):
    """Commit requests; known ids are left as they are. Answers `Applied` with the new ids."""

    containers: tuple[ContainerRow, ...]


class ContainerMove(msgspec.Struct, frozen=True, kw_only=True):
    """Move a container from one of `sources` to `state`; None, and an empty `why`, leave a field as it is."""

    container_id: str
    sources: tuple[ContainerState, ...]
    state: ContainerState
    worker_id: str | None = None
    end: End | None = None
    why: str = ""
    cards: tuple[int, ...] | None = None
    flavor: str | None = None


class MoveContainers(Operation, frozen=True, kw_only=True):
    """Answers `Applied` with those whose state was among their sources. Of several moves of one, the first counts.

    Each time (placed, ready, ended) is that of the first move into its state.
    """

    moves: tuple[ContainerMove, ...]
    now_s: float


class LoadContainers(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `ContainerRow`, oldest first: those that have not ended, and the newest `ended` ones."""

    workspace_id: str | None = None
    ended: int = 0


class ReadContainers(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `ContainerRow`, newest first, within a workspace (None: any).

    Those with these ids, and the newest `limit` that are or were on this worker ("" for none).
    """

    container_ids: tuple[str, ...] = ()
    worker_id: str = ""
    workspace_id: str | None = None
    limit: int = 100


# Workers


class WorkerRow(Row, frozen=True, kw_only=True):
    """A worker and its order; `worker_id` is the order's key. `handle` finds its process again (boot:pid:ticks)."""

    worker_id: str
    pool: str
    state: WorkerState
    capacity: Capacity
    epoch: int = 0
    handle: str = ""
    ordered_at_s: float = 0.0
    seen_at_s: float = 0.0
    gone_at_s: float = 0.0
    why: str = ""
    traits: Traits = Traits()
    gang_id: str = ""  # the gang that it was ordered for


class PutWorkers(Operation, frozen=True, kw_only=True):
    """Commit orders; known ids are left as they are. Answers `Applied` with the new ids."""

    workers: tuple[WorkerRow, ...]


class WorkerMove(msgspec.Struct, frozen=True, kw_only=True):
    """Move a worker from one of `sources` (empty: any but GONE) to `state`; None leaves a field as it is."""

    worker_id: str
    sources: tuple[WorkerState, ...]
    state: WorkerState
    epoch: int | None = None
    handle: str | None = None
    capacity: Capacity | None = None
    why: str = ""
    traits: Traits | None = None


class MoveWorkers(Operation, frozen=True, kw_only=True):
    """Answers `Applied` with those whose state was among their sources and whose epoch is not newer than the move's.

    `seen_at_s` moves with each state but UNKNOWN and GONE.
    """

    moves: tuple[WorkerMove, ...]
    now_s: float


class LoadWorkers(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `WorkerRow`, oldest first: those that are not gone, and the newest `gone` ones as well."""

    gone: int = 0


class PoolRecord(Row, frozen=True, kw_only=True):
    """The largest worker that a pool declares or ever had, by pool and card type; and the nodes that it declared last.

    An offer without a node's name stands for `max_workers` such workers, for any number where that is 0: unknown.
    """

    pool: str
    largest: Capacity
    offers: tuple[NodeOffer, ...] = ()
    max_workers: int = 0


class PutPool(Operation, frozen=True, kw_only=True):
    """Keep the largest worker of a pool; each number, also `max_workers`, only grows; a card type is a row of its own.

    `offers` replaces what was declared before; empty leaves it: a pool that is away still counts.
    Answers `Applied` with the pool if anything grew, or the offers are others.
    """

    pool: str
    largest: Capacity
    offers: tuple[NodeOffer, ...] = ()
    max_workers: int = 0


class DropPool(Operation, frozen=True, kw_only=True):
    """Forget all that a pool declared or ever had. Answers `Applied` with the pool if there was any."""

    pool: str


class ListPools(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `PoolRecord`, by pool."""


class PoolSpecRow(Row, frozen=True, kw_only=True):
    """A pool that somebody created while the platform ran: the keys of `[[pools]]` as JSON."""

    name: str
    table: str


class PutPoolSpec(Operation, frozen=True, kw_only=True):
    """Keep a pool's declaration; a known name is replaced. Answers `Applied` with the name."""

    name: str
    table: str


class DropPoolSpec(Operation, frozen=True, kw_only=True):
    """Forget a pool's declaration. Answers `Applied` with the name if there was one."""

    name: str


class ListPoolSpecs(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `PoolSpecRow`, by name."""


# Attached clusters


class ClusterRow(Row, frozen=True, kw_only=True):
    """An attached cluster. `agent_epoch` is the newest life of its agent that was heard, `seen_at_s` about when.

    One that is `leaving` is detached already: its row goes with the last worker of its pool.
    """

    cluster_id: str
    workspace_id: str
    spec: ClusterSpec
    shared: bool = False
    created_at_s: float = 0.0
    agent_epoch: int = 0
    seen_at_s: float = 0.0
    leaving: bool = False


class PutCluster(Operation, frozen=True, kw_only=True):
    """Keep a cluster; a known id is replaced. Answers `Applied` with the id.

    Another cluster of its workspace with its name is not replaced: then nothing is done.
    """

    cluster: ClusterRow


class DropCluster(Operation, frozen=True, kw_only=True):
    """Forget a cluster. Answers `Applied` with the id if there was one."""

    cluster_id: str


class ListClusters(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `ClusterRow`, oldest first."""


# Queues and quotas


class QueueingRow(Row, frozen=True, kw_only=True):
    """The part of the configuration of queues and quotas that came over REST; the rest is in files."""

    queueing: Queueing = Queueing()


class PutQueueing(Operation, frozen=True, kw_only=True):
    """Keep this in place of what was kept before. Answers `Applied` with "queueing"."""

    queueing: Queueing


class ReadQueueing(Operation, frozen=True, kw_only=True):
    """Answers `QueueingRow`, an empty one where nothing was kept yet."""
