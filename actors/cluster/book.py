"""The clusters there are: their rows, what their agents said last, and the workers that were ordered there."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.clusters import ClusterState, Origin, pool_of
from ...store import operations as ops
from ...wire.cluster import ClusterReported, DeleteWorkerJob, NodeReport
from .decisions import serves
from .jobs import Jobs
from .pace import Pace
from .reports import Parts
from .rivals import Rivals
from .settings import ClusterSettings, Configured
from .states import state_of


class Cluster(msgspec.Struct, kw_only=True):
    """A cluster, and what is known of it now. `as_of_s` is when its agent saw it last, by our clock.

    `sequence` is that of its agent's newest report in the life `row.agent_epoch`.
    """

    row: ops.ClusterRow
    pool: str
    jobs: Jobs
    origin: Origin = Origin.ATTACHED
    parts: Parts = msgspec.field(default_factory=Parts)
    rivals: Rivals = msgspec.field(default_factory=Rivals)
    report: ClusterReported | None = None  # the newest; of a blind agent with what was known before
    as_of_s: float = 0.0
    heard_at_s: float = 0.0
    sequence: int = -1
    open: bool = False
    refused: str = ""  # why what its agent said last counts for nothing
    pace: Pace = msgspec.field(default_factory=Pace)
    held: ClusterReported | None = None  # the newest, where it is not its turn yet
    leaves_at_s: float | None = None  # it is detached then, at the latest
    told: tuple[tuple[NodeReport, ...], str, str, ClusterState] | None = None  # what its pool knows is made of this
    told_waits: str = ""
    told_state: ClusterState = ClusterState.WAITING

    @property
    def cluster_id(self) -> str:
        """Its identity."""
        return self.row.cluster_id

    @property
    def agent(self) -> str:
        """The address of its agent."""
        return f"agent/{self.row.cluster_id}"

    @property
    def owner(self) -> str:
        """The workspace that attached it, "" for the platform's own."""
        return self.row.workspace_id if self.origin is Origin.ATTACHED else ""

    @property
    def leaving(self) -> bool:
        """Whether it is detached, or about to be: nothing more is started there."""
        return self.row.leaving or self.leaves_at_s is not None

    @property
    def nodes_known(self) -> bool:
        """Whether we know its nodes: a new leader does not before a report, and no report of a blind agent has them."""
        return self.report is not None and bool(self.report.nodes or not self.report.blind)

    def state(self, now_s: float) -> ClusterState:
        """Where it stands."""
        reported = self.row.agent_epoch > 0
        return state_of(reported=reported, as_of_s=self.as_of_s, is_open=self.open, now_s=now_s)

    def deletion(self, leader_epoch: int, worker_id: str, why: str) -> DeleteWorkerJob:
        """What its agent is told of a worker that is to go."""
        namespace = self.row.spec.namespace
        return DeleteWorkerJob(namespace=namespace, leader_epoch=leader_epoch, worker_id=worker_id, why=why)

    def forget_agent(self) -> None:
        """Another agent is to come: nothing counts any more that the one before has said."""
        self.report, self.sequence, self.open, self.told = None, -1, False, None
        self.refused, self.held = "", None
        self.parts, self.rivals = Parts(), Rivals()
        self.jobs.doubt()

    def change(self, **changes: object) -> ops.PutCluster:
        """Another row in place of the one that it has."""
        self.row = msgspec.structs.replace(self.row, **changes)
        return ops.PutCluster(cluster=self.row)


class ClusterBook:
    """All clusters, in the order in which they were attached; those of the configuration come first."""

    def __init__(self, settings: ClusterSettings, configured: Iterable[Configured], epoch: int) -> None:
        self._settings = settings
        self._epoch = epoch
        self._clusters: dict[str, Cluster] = {}
        self._by_pool: dict[str, Cluster] = {}
        for one in configured:
            row = ops.ClusterRow(
                cluster_id=one.pool, workspace_id=one.serves, spec=one.spec, shared=not one.serves, created_at_s=0.0
            )
            self._add(Cluster(row=row, pool=one.pool, jobs=Jobs(epoch), origin=one.origin))

    def add(self, row: ops.ClusterRow) -> Cluster:
        """A cluster that is attached. When it was seen is about known, how it is now is not."""
        pool = pool_of(row.workspace_id, row.spec.name)
        return self._add(Cluster(row=row, pool=pool, jobs=Jobs(self._epoch), as_of_s=row.seen_at_s))

    def _add(self, cluster: Cluster) -> Cluster:
        self._clusters[cluster.cluster_id] = cluster
        self._by_pool[cluster.pool] = cluster
        return cluster

    def remove(self, cluster: Cluster) -> None:
        """It is no more, and nor is its pool."""
        del self._clusters[cluster.cluster_id]
        del self._by_pool[cluster.pool]

    def get(self, cluster_id: str) -> Cluster | None:
        """By its identity."""
        return self._clusters.get(cluster_id)

    def of_pool(self, pool: str) -> Cluster | None:
        """By its pool."""
        return self._by_pool.get(pool)

    def of_agent(self, address: str) -> Cluster | None:
        """By its agent's address; one that is leaving has none any more."""
        kind, _, cluster_id = address.partition("/")
        cluster = self._clusters.get(cluster_id) if kind == "agent" else None
        return None if cluster is None or cluster.row.leaving else cluster

    def of_workspace(self, workspace_id: str) -> tuple[Cluster, ...]:
        """Those that a workspace attached, also such as are about to go."""
        return tuple(one for one in self._clusters.values() if workspace_id and one.owner == workspace_id)

    def all(self) -> tuple[Cluster, ...]:
        """All, also those that are about to go."""
        return tuple(self._clusters.values())

    def serves(self, cluster: Cluster) -> str:
        """The one workspace whose work goes there from now on, "" for any."""
        return serves(cluster.row, trusted=self._settings.trusted or cluster.origin is not Origin.ATTACHED)
