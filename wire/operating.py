"""The conversation of people who run the platform: queues and quotas, cordons and drains, pools."""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from ..model.nodes import NodeState
from ..model.queues import Queueing
from ..model.resources import Amount, Capacity
from .message import Message, WhenFull


class QueueingPart(enum.StrEnum):
    """Kinds of things in `Queueing`, by the names of its fields."""

    FLAVORS = "flavors"
    COHORTS = "cohorts"
    QUOTAS = "quotas"
    QUEUES = "queues"
    SHARES = "shares"
    PRIORITIES = "priorities"
    TOPOLOGIES = "topologies"


class ChangeQueueing(Message, frozen=True, kw_only=True):
    """Put these things, by name, and drop those (part, name; queues and shares as workspace/name and workspace).

    Answered by `QueueingStands` once the whole is checked and committed, or by `RequestRefused`.
    """

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "scheduler"
    put: Queueing = Queueing()
    drop: tuple[tuple[QueueingPart, str], ...] = ()


class ReadQueueing(Message, frozen=True, kw_only=True):
    """How do queues and quotas stand? Answered by `QueueingStands`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "scheduler"


class QueueStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as of now; `share_milli` is its workspace's dominant share of everything, by weight, in thousandths."""

    name: str
    workspace: str
    quota: str
    pending: int
    admitted: int
    used: Amount
    share_milli: int = 0


class QuotaStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One flavor of a quota as of now; `borrowed` is what it uses above its nominal."""

    name: str
    cohort: str
    flavor: str
    pending: int
    admitted: int
    nominal: Amount
    used: Amount
    borrowed: Amount


class QueueingStands(Message, frozen=True, kw_only=True):
    """The configuration, and how it stands."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "client"
    queueing: Queueing
    queues: tuple[QueueStanding, ...]
    quotas: tuple[QuotaStanding, ...]


class WorkerWish(enum.StrEnum):
    """What a person wants of a worker."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"


class TellWorkers(Message, frozen=True, kw_only=True):
    """Cordon, uncordon or drain workers; answered by `WorkersTold` once committed, or by `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "scheduler"
    worker_ids: tuple[str, ...]
    wish: WorkerWish


class WorkersTold(Message, frozen=True, kw_only=True):
    """Each worker's state after that; those that nobody knows are missing."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "client"
    states: tuple[tuple[str, str], ...]


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as somebody declares it: the keys of `[[pools]]` in the configuration, as JSON."""

    name: str
    table: str


class CreatePool(Message, frozen=True, kw_only=True):
    """Add a pool; answered by `PoolsStand` once committed, or by `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "pools"
    spec: PoolSpec


class DeletePool(Message, frozen=True, kw_only=True):
    """Take a pool away: no new worker, those that run are drained. Answered by `PoolsStand`, or by `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "pools"
    name: str


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A named node of a pool, and the worker on it, "" for none."""

    name: str
    capacity: Capacity
    labels: tuple[tuple[str, str], ...] = ()
    state: NodeState = NodeState.READY
    worker_id: str = ""


class PoolStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A pool as of now. `wanted` are workers that it would order, `beyond` that more are wanted than it may have.

    `holds` are sentences without their subject, the pool.
    """

    name: str
    size: Capacity | None = None
    min_workers: int = 0
    max_workers: int = 0
    serves: str = ""
    placement: str = ""
    workers: int = 0
    pending: int = 0
    nodes: tuple[NodeStanding, ...] = ()
    wanted: int = 0
    wanted_gangs: int = 0
    beyond: bool = False
    holds: tuple[str, ...] = ()
    created: bool = False  # by somebody, while the platform ran
    leaving: bool = False  # it is gone with its last worker
    attached: bool = False  # its nodes are those of a cluster


class PoolTold(Message, frozen=True, kw_only=True):
    """How a pool stands; the newest replaces older ones."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "pools"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    standing: PoolStanding

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.standing.name


class ReadPools(Message, frozen=True, kw_only=True):
    """Which pools are there, and how do they stand? Answered by `PoolsStand`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "pools"


class PoolsStand(Message, frozen=True, kw_only=True):
    """The pools there are; in `pools` those that have said how they stand."""

    sender: ClassVar[str] = "pools"
    receiver: ClassVar[str] = "client"
    names: tuple[str, ...]
    pools: tuple[PoolStanding, ...] = ()


class TermsChanged(Message, frozen=True, kw_only=True):
    """Pools, queues or quotas are others now: what is asked for is judged by the new ones from here on."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "tasks"
