"""The conversation about clusters: agents report nodes and start worker Jobs, people attach, share and detach.

`clusters` is the control plane's side of it. What an agent says is a level, not an edge: each report has all nodes and
all worker Jobs, so that whatever was lost, doubled or late is set right by the next one.
"""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from ..model.clusters import ClusterSpec, ClusterState, Flavour, Origin
from ..model.nodes import NodeOffer, NodeState, Traits
from ..model.resources import Capacity
from ..model.states import WorkerState
from .message import Message, WhenFull

# The agent's words


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that the selector names. `free` leaves out what our own worker has there; both are whole cards.

    `labels` are those of the allow-list. `why` says what is odd about it, in words.
    """

    name: str
    uid: str
    state: NodeState = NodeState.READY
    allocatable: Capacity = Capacity(cpu_milli=0, memory_mib=0)
    free: Capacity = Capacity(cpu_milli=0, memory_mib=0)
    labels: tuple[tuple[str, str], ...] = ()
    why: str = ""


class JobPhase(enum.StrEnum):
    """Where a worker's Job stands."""

    REFUSED = "refused"  # the agent did not create it; `why` says why
    NO_POD = "no pod"  # nobody made a pod of it yet
    PENDING = "pending"  # its pod has not started
    RUNNING = "running"
    ENDED = "ended"  # its pod, by UID, is terminal or was deleted with its Node; or the Job was removed


class JobReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's Job as the agent sees it. `why` is the reason why it has not started, or how it ended.

    Of one that has ended `expected` says that it was asked to, or that its place was taken from it, `left` that it
    ended by itself, and well.
    """

    worker_id: str
    phase: JobPhase
    job_uid: str = ""
    pod_uid: str = ""
    node: str = ""
    since_s: float = 0.0
    why: str = ""
    address: str = ""  # its pod's, once it has one
    expected: bool = False
    left: bool = False


class ClusterReported(Message, frozen=True, kw_only=True):
    """All nodes that the selector names, and all worker Jobs there are; the newest replaces older ones.

    `view_age_s` is how old the agent's own view of its cluster is: it grows while the API server is away. `matched`
    counts the nodes that the selector names, with or without cards. `leader_epoch` is the newest leader's that the
    agent has heard. A `blind` agent has not seen all of its cluster yet: its report says nothing of nodes and Jobs.
    The report of a large cluster comes as several `parts` of one sequence, numbered from 0: it counts with the last.
    Where the selector names `every` node, one that is not told of is not there.
    """

    sender: ClassVar[str] = "agent"
    receiver: ClassVar[str] = "clusters"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    cluster_id: str
    epoch: int
    sequence: int
    nodes: tuple[NodeReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    view_age_s: float = 0.0
    matched: int = 0
    version: str = ""
    started_at_s: float = 0.0
    flavour: Flavour = Flavour.PLAIN
    leader_epoch: int = 0
    problem: str = ""  # why it cannot see its cluster as it should, in words
    blind: bool = False
    part: int = 0
    parts: int = 1
    every: bool = False

    def coalesce_key(self) -> str:
        """One a cluster, or one of each part."""
        return f"{self.cluster_id}/{self.part}" if self.part else self.cluster_id


class AgentReady(Message, frozen=True, kw_only=True):
    """An agent opened its stream and knows nothing yet. Answered by `AgentSettings`."""

    sender: ClassVar[str] = "agent"
    receiver: ClassVar[str] = "clusters"
    cluster_id: str
    epoch: int
    version: str = ""


# The control plane's words to an agent


class AgentSettings(Message, frozen=True, kw_only=True):
    """Which nodes to report, and how workers are started there. Sent when an agent is ready, and when they change.

    `agent_epoch` is the newest life of this cluster's agent that was heard: an older one is superseded, and ends.
    """

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "agent"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    cluster_id: str
    leader_epoch: int
    spec: ClusterSpec
    stream_url: str = ""  # that workers dial
    http_url: str = ""
    ca_pem: str = ""  # certificates that workers trust beside the system's
    cache_max_gb: int = 0
    cache_min_free_pct: int = 0
    agent_epoch: int = 0

    def coalesce_key(self) -> str:
        """There is one cluster."""
        return ""


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """A worker to start: `worker_id` is the key of its Job. It has so much, on this very node."""

    worker_id: str
    token: str
    pool: str
    node: str
    node_uid: str
    capacity: Capacity
    image: str
    pull_secret: str = ""
    host_network: bool = True
    listens: bool = False  # we dial it, instead of it us


class CreateWorkerJob(Message, frozen=True, kw_only=True):
    """Create this Job in the agent's own namespace, unless it is there; again until a report has it."""

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "agent"
    namespace: str
    leader_epoch: int
    job: WorkerJob


class DeleteWorkerJob(Message, frozen=True, kw_only=True):
    """Delete this worker's Job and its pod; again until no report has it."""

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "agent"
    namespace: str
    leader_epoch: int
    worker_id: str
    why: str


# Pools and their clusters


class RunWorkerJob(Message, frozen=True, kw_only=True):
    """A worker of a cluster's pool was ordered, and its order is committed.

    What follows of it is told as `WorkerStarted` and `WorkerExited`.
    """

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "clusters"
    pool: str
    worker_id: str
    token: str
    capacity: Capacity
    traits: Traits


class AdoptWorkerJob(Message, frozen=True, kw_only=True):
    """A worker that an earlier leader ordered: its token is not known any more, its Job may be there or not.

    `ordered_at_s` in Unix seconds, 0 where nobody knows.
    """

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "clusters"
    pool: str
    worker_id: str
    handle: str
    state: WorkerState
    node: str
    ordered_at_s: float = 0.0


class EndWorkerJob(Message, frozen=True, kw_only=True):
    """A worker is of no use: delete its Job. Its end is told as any other's."""

    sender: ClassVar[str] = "pool"
    receiver: ClassVar[str] = "clusters"
    pool: str
    worker_id: str
    why: str


class NodesKnown(Message, frozen=True, kw_only=True):
    """The nodes of a cluster's pool: `offers` is what a new worker there would have, `whole` what the node has in all.

    A node that our own worker stands on is among them. `whole` is what can ever fit. `serves` is the one workspace
    whose work the pool takes from now on, "" for any: a worker that is ordered gets a token for that.
    """

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "pool"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    offers: tuple[NodeOffer, ...]
    whole: tuple[NodeOffer, ...] = ()
    serves: str = ""

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


class JobWaits(Message, frozen=True, kw_only=True):
    """Why workers of a pool that were ordered do not start, in words; empty when nothing is odd."""

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "pool"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    pool: str
    why: str

    def coalesce_key(self) -> str:
        """One a pool."""
        return self.pool


# Workers that are dialled


class WorkerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker listens: `url` is wss://HOST:PORT, or ws:// on loopback."""

    worker_id: str
    url: str


class DialWorkers(Message, frozen=True, kw_only=True):
    """All workers that gateways dial, of clusters whose API we call ourselves; who is not named is dialled no more.

    The leader hands it on to each gateway, and again to one that comes. All of them dial: a worker takes one stream,
    and the rest knock until it is free.
    """

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "leader"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    workers: tuple[WorkerAddress, ...]

    def coalesce_key(self) -> str:
        """There is one list."""
        return ""


# People and their clusters


class NodeShown(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is shown. `name` is "" for who may not know it; of what is `free`, a worker of ours has `ours`."""

    name: str
    state: NodeState
    allocatable: Capacity
    free: Capacity
    ours: Capacity = Capacity(cpu_milli=0, memory_mib=0)
    worker_id: str = ""
    worker_state: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    why: str = ""


class ClusterStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as of now, as far as who asks may know it: of another workspace's shared one, no names, no image.

    `name` tells clusters of one name apart: of a shared one that clashes with one's own it is its
    pool's name. `nodes` are a page of `nodes_total`, or none. Of all `cards`, workers of ours have `cards_ours`; nobody
    has `cards_free`, which are on nodes that are ready.
    """

    cluster_id: str
    name: str
    pool: str
    gpu_type: str
    state: ClusterState
    shared: bool
    owned: bool
    origin: Origin = Origin.ATTACHED
    spec: ClusterSpec | None = None  # for its owner and the platform's admin only
    workspace: str = ""  # the owner's name, for the platform's admin
    nodes: tuple[NodeShown, ...] = ()
    matched: int = 0
    last_seen_s: float = 0.0
    created_at_s: float = 0.0
    agent_version: str = ""
    agent_started_at_s: float = 0.0
    agent_outdated: bool = False
    workers: int = 0
    pending: int = 0
    problem: str = ""
    waits: tuple[str, ...] = ()  # why workers that were ordered do not start
    nodes_total: int = 0
    nodes_ready: int = 0
    cards: int = 0
    cards_ours: int = 0
    cards_free: int = 0
    nodes_known: bool = True  # false: whoever leads has not heard of its nodes yet, and what is counted is nothing
    agent_silent: bool = False  # its stream is closed or still, and its last report is not stale yet


class JoinCluster(Message, frozen=True, kw_only=True):
    """Attach a cluster to the asker's workspace, or renew the token of one that is attached.

    Answered by `ClusterJoined`, or by `RequestRefused`.
    """

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "clusters"
    spec: ClusterSpec


class ClusterJoined(Message, frozen=True, kw_only=True):
    """It is attached: `token` is the agent's, shown once. `renewed` when it was attached before."""

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "client"
    cluster: ClusterStanding
    token: str
    agent_image: str
    worker_image: str
    renewed: bool = False


class ReadClusters(Message, frozen=True, kw_only=True):
    """Which clusters may the asker see? Answered by `ClustersStand`: by a page of them from the `start`-th on.

    With a `name` it is that cluster alone, and a page of its nodes from the `start`-th on; others come without nodes.
    """

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "clusters"
    name: str = ""
    start: int = 0


class ShareCluster(Message, frozen=True, kw_only=True):
    """Let a cluster serve every workspace, or its own again. Answered by `ClustersStand`, or by `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "clusters"
    name: str
    shared: bool


class LeaveCluster(Message, frozen=True, kw_only=True):
    """Detach a cluster: its tokens and those of its workers end, its pool is forgotten. Answered by `ClustersStand`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "clusters"
    name: str


class ClustersStand(Message, frozen=True, kw_only=True):
    """Clusters as of now, by name: one's own first, then shared ones. There are `total` in all."""

    sender: ClassVar[str] = "clusters"
    receiver: ClassVar[str] = "client"
    clusters: tuple[ClusterStanding, ...]
    agent_image: str = ""
    worker_image: str = ""
    total: int = 0
