"""The conversation about room: `tasks` wants containers, `scheduler` places them, `pool` makes workers."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..model.figures import IDLE_WORKER_S
from ..model.nodes import NodeOffer, Traits
from ..model.reasons import Reason
from ..model.resources import NOTHING, Amount, Capacity, Shape
from ..model.states import ContainerState, End
from .client import StubSpec
from .message import Message, WhenFull


class RequestContainers(Message, frozen=True, kw_only=True):
    """Room for containers of a stub, one for each identity; the rows are committed before this is sent.

    With a `gang_id` they are one gang, in order of their ranks: all get room or none.
    """

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "scheduler"
    stub_id: str
    workspace_id: str
    spec: StubSpec
    container_ids: tuple[str, ...]
    gang_id: str = ""
    ranks: tuple[int, ...] = ()  # those of a known gang whose containers were lost, and which these replace


class ReleaseContainers(Message, frozen=True, kw_only=True):
    """These containers are no longer needed: forget the request, or stop what runs."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "scheduler"
    container_ids: tuple[str, ...]
    why: str


class ContainerAvailable(Message, frozen=True, kw_only=True):
    """A container is warm and grants its first credits."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "tasks"
    container_id: str
    stub_id: str
    worker_id: str
    window: int
    address: str = ""  # of a gang's member: host:port at which the others reach it


class YieldContainers(Message, frozen=True, kw_only=True):
    """Let these finish the calls they have, then release them: their workspace is over its share, or their pool is not
    for it any more.
    """

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "tasks"
    container_ids: tuple[str, ...]
    why: str = "its workspace is over its share"


class ContainerGone(Message, frozen=True, kw_only=True):
    """A container ended, or its worker is gone by evidence; what it held runs elsewhere and uses a retry."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "tasks"
    container_id: str
    stub_id: str
    end: End
    why: str = ""
    preempted: bool = False  # it made room for others: the calls that it had use no retry


class ContainerHeld(Message, frozen=True, kw_only=True):
    """Why a request waits, in words; the newest replaces older ones. An empty text: it waits no longer.

    `machines_only` says that nothing but missing machines holds it: that time counts towards `wait_s`.
    """

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "tasks"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    stub_id: str
    why: str
    machines_only: bool = True
    reasons: tuple[Reason, ...] = ()  # what `why` says, as data

    def coalesce_key(self) -> str:
        """One a stub."""
        return self.stub_id


class StartContainer(Message, frozen=True, kw_only=True):
    """Start a container; sent after its placement is committed. Receiving it twice is receiving it once."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "worker"
    container_id: str
    stub_id: str
    workspace_id: str
    spec: StubSpec
    token: str = ""  # what the code sees as LEVERS9_TOKEN
    cards: tuple[int, ...] = ()  # numbers of the worker's cards
    gang_id: str = ""
    rank: int = 0
    world_size: int = 1


class StopContainer(Message, frozen=True, kw_only=True):
    """Stop a container: TERM, 30 s, KILL, the whole tree. Answered by `ContainerEnded`."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "worker"
    container_id: str
    why: str
    preempted: bool = False  # it makes room for others: the calls that it has use no retry


class ContainerReady(Message, frozen=True, kw_only=True):
    """The container loaded its code and grants `window` credits."""

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "scheduler"
    container_id: str
    window: int
    address: str = ""  # host:port that it keeps free for the others of its gang


class ContainerEnded(Message, frozen=True, kw_only=True):
    """The container's whole process tree is gone. Repeated until `ContainerForgotten`."""

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "scheduler"
    container_id: str
    end: End
    why: str = ""


class ContainerForgotten(Message, frozen=True, kw_only=True):
    """The end of this container is committed."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "worker"
    container_id: str


class ContainerReport(msgspec.Struct, frozen=True, array_like=True):
    """One container as its worker sees it."""

    container_id: str
    stub_id: str
    state: ContainerState
    window: int = 0
    address: str = ""  # as in `ContainerReady`


class WorkerReported(Message, frozen=True, kw_only=True):
    """A worker's whole truth: sent when a stream opens, when a leader asks, and when its capacity changes."""

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "scheduler"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    worker_id: str
    pool: str
    epoch: int
    capacity: Capacity
    containers: tuple[ContainerReport, ...]
    host: str = ""  # the address at which other workers reach its containers
    lacks: str = ""  # why it has fewer cards than were ordered

    def coalesce_key(self) -> str:
        """One a worker."""
        return self.worker_id


class WorkerAccepted(Message, frozen=True, kw_only=True):
    """The scheduler knows the worker and what it holds; containers in `stop` are not known and must end."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "worker"
    worker_id: str
    stop: tuple[str, ...] = ()


class WorkerLeaving(Message, frozen=True, kw_only=True):
    """The worker says goodbye: its containers are gone. This is evidence."""

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "scheduler"
    worker_id: str
    why: str


class StopWorker(Message, frozen=True, kw_only=True):
    """Finish what runs, take nothing new, and leave."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "worker"
    worker_id: str
    why: str


class GangWanted(msgspec.Struct, frozen=True, array_like=True):
    """All of these workers, or none: on named nodes, or so many of the pool's size. `gang_id` is the order's key."""

    gang_id: str
    nodes: tuple[str, ...] = ()
    workers: int = 0


class RoomWanted(Message, frozen=True, kw_only=True):
    """Requests for which no worker has room, running or on its way; the newest replaces older ones.

    `orders_seen` counts the workers of this pool that were taken into account: a pool that ordered more meanwhile
    waits for the next word. The pool decides on orders.
    """

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "pool"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    shapes: tuple[Shape, ...]
    orders_seen: int = 0
    gangs: tuple[GangWanted, ...] = ()

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


class RoomFree(Message, frozen=True, kw_only=True):
    """What a pool's workers have left, those on their way included, for a pool that keeps some free.

    `orders_seen` counts the workers of this pool that were taken into account.
    """

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "pool"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    free: Amount
    orders_seen: int

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


class PoolHeld(Message, frozen=True, kw_only=True):
    """Why a pool orders no worker for the room that is wanted; empty when nothing is held.

    `backs_off` says that it would, and waits because its last workers ended early.
    """

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    why: str
    backs_off: bool = False
    reason: Reason | None = None  # what `why` says, as data
    gang_id: str = ""  # this gang alone is held

    def coalesce_key(self) -> str:
        """One a pool, and one a gang."""
        return f"{self.pool}/{self.gang_id}"


class PoolDeclared(Message, frozen=True, kw_only=True):
    """A pool as it is configured: told when its actor starts, before anything else it says.

    `size` is that of its workers where they are all alike and have no named nodes. A worker that stands idle for
    `idle_s` may wind down, as long as `keep_workers` are left, and `min_free` is free on the others.
    """

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    pool: str
    size: Capacity | None = None
    traits: Traits = Traits()
    serves: str = ""
    placement: str = ""
    rank: int = 0  # pools are asked in this order, then by name
    max_workers: int = 0  # 0: nobody knows
    keep_workers: int = 0  # never wind down
    min_free: Amount = NOTHING  # an idle worker without which less would be free stays
    idle_s: float = IDLE_WORKER_S
    owner: str = ""  # a workspace: others are not told the names of its nodes
    known_as: str = ""  # what its owner calls it: its cluster's name; "" where that is the pool's own
    gpu_type: str = ""  # the cards that its nodes are said to have, while none is known


class PoolRetired(Message, frozen=True, kw_only=True):
    """A pool is no more, and has no worker any more."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    pool: str


class PoolNodes(Message, frozen=True, kw_only=True):
    """All named nodes of a pool, free or with a worker; the newest replaces older ones."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    offers: tuple[NodeOffer, ...]

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


class GangGivenBack(Message, frozen=True, kw_only=True):
    """A gang is no longer wanted, or its workers did not all come in time: order none of them any more."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "pool"
    gang_id: str
    why: str


class WorkerOrdered(Message, frozen=True, kw_only=True):
    """A worker is on its way, with this much room."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    worker_id: str
    pool: str
    capacity: Capacity
    traits: Traits = Traits()


class WorkerGone(Message, frozen=True, kw_only=True):
    """Evidence that a worker is gone: its process exited, say. Answered by `WorkerForgotten`."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "scheduler"
    worker_id: str
    evidence: str


class WorkerForgotten(Message, frozen=True, kw_only=True):
    """It is kept that a worker of this pool is gone: its node may have another. Answers `WorkerGone`."""

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "pool"
    worker_id: str


class WorkerStarted(Message, frozen=True, kw_only=True):
    """The process of an order runs; `handle` finds it again (boot:pid:ticks)."""

    sender: ClassVar[str] = "spawner"
    receiver: ClassVar[str] = "pool"
    worker_id: str
    handle: str
    at_s: float


class WorkerExited(Message, frozen=True, kw_only=True):
    """The process of an order has ended, or never was.

    `expected` when it was told to leave, or its place was taken from it: that says nothing of how a next one starts.
    `left` when it ended by itself, and well.
    """

    sender: ClassVar[str] = "spawner"
    receiver: ClassVar[str] = "pool"
    worker_id: str
    evidence: str
    expected: bool = False
    left: bool = False


class AskGuard(Message, frozen=True, kw_only=True):
    """May this pool order so many workers now? A gang is one question. Answered by `GuardAdmits` or `GuardHolds`.

    `key` names the question: asked twice it is answered alike, and counted once.
    """

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "guard"
    pool: str
    key: str
    workers: int


class GuardAdmits(Message, frozen=True, kw_only=True):
    """It may order them now."""

    sender: ClassVar[str] = "guard"
    receiver: ClassVar[str] = "pool"
    key: str


class GuardHolds(Message, frozen=True, kw_only=True):
    """It must wait, and is told when it may: a held order is not a failed one."""

    sender: ClassVar[str] = "guard"
    receiver: ClassVar[str] = "pool"
    key: str
    why: str


class GuardForgets(Message, frozen=True, kw_only=True):
    """The question is over: its workers are counted as pending now, or nobody asks any more. A `key` "" means all."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "guard"
    pool: str
    key: str


class WorkersPending(Message, frozen=True, kw_only=True):
    """How many of a pool's workers are ordered and have not reported; the newest replaces older ones."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "guard"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    pending: int

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


class WorkerArrived(Message, frozen=True, kw_only=True):
    """A worker of this pool has reported for the first time: it is pending no more.

    `lacks` says why it has none of the cards that were ordered, and so is made to leave; "" where it has some.
    """

    sender: ClassVar[str] = "scheduler"
    receiver: ClassVar[str] = "pool"
    worker_id: str
    lacks: str = ""
