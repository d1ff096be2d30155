"""Attached clusters, pure: what agents report, people wish and pools order, and what follows from all of it.

Reports are levels: whatever was lost, doubled or late is set right by the next one. Nobody is believed about a cluster
but its own agent, in the newest of its lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ...model.clusters import ClusterState, Origin
from ...model.states import TokenKind, WorkerState
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire import scheduling
from ...wire.cluster import (
    AdoptWorkerJob,
    AgentReady,
    AgentSettings,
    ClusterReported,
    CreateWorkerJob,
    EndWorkerJob,
    JobPhase,
    JobWaits,
    JoinCluster,
    LeaveCluster,
    ReadClusters,
    RunWorkerJob,
    ShareCluster,
    WorkerJob,
)
from ...wire.control import PeerQuiet
from ...wire.letter import Letter
from ...wire.message import Send
from ..applied import require_all
from .asking import Asking
from .book import Cluster, ClusterBook
from .decisions import BeginPool, ClusterPlan, ClusterPool, FinishPool
from .dialling import Dialled
from .jobs import Create, Delete, Effect, Exited, Job, Started
from .offers import nodes_known
from .reports import clipped, fault_in_sum, fault_of, sighted
from .settings import ClusterSettings, Configured
from .showing import problem_of, waits_of
from .states import AWAY

SEEN_KEPT_S: Final = 60.0  # how exactly it is kept when an agent was heard
DETACHED: Final = "its cluster was detached"


class ClustersPolicy:
    """Owns the clusters in one epoch of leadership. `new_id(kind)` makes identities, `new_token(kind)` token values."""

    def __init__(
        self,
        settings: ClusterSettings,
        configured: Iterable[Configured],
        epoch: int,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
    ) -> None:
        self._settings = settings
        self._epoch = epoch
        self.book = ClusterBook(settings, configured, epoch)
        self._asking = Asking(settings, self.book, new_id, new_token, epoch)
        self._dialled = Dialled()
        self._changed: dict[str, Cluster] = {}  # of which pools may have to be told

    def load(
        self,
        rows: Iterable[ops.ClusterRow],
        workers: Iterable[ops.WorkerRow],
        workspaces: Iterable[ops.WorkspaceRow] = (),
    ) -> None:
        """Begin from the store: the pools of all clusters begin, and those of detached ones go on retiring."""
        self._know_workspaces(workspaces)
        for here in self.book.all():  # of the configuration: their agents need not ask
            self._tell_settings(here)
        for row in rows:
            self.book.add(row)
            self._plan.changes.append(BeginPool(ClusterPool.of(row, trusted=self._settings.trusted)))
        for worker in workers:
            cluster = self.book.of_pool(worker.pool)
            if cluster is not None and worker.state is not WorkerState.GONE:
                cluster.jobs.adopt(
                    worker.worker_id, worker.traits.node, worker.handle, wanted=True, capacity=worker.capacity
                )

    def _know_workspaces(self, rows: Iterable[ops.WorkspaceRow]) -> None:
        self._asking.workspaces.update((row.workspace_id, row.name) for row in rows)

    @property
    def _plan(self) -> ClusterPlan:
        return self._asking.plan

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in: of people, agents, gateways and pools. Others are not listened to."""
        match letter.message:
            case JoinCluster() | ReadClusters() | ShareCluster() | LeaveCluster() as message:
                self._asking.handle(letter, message, now_s)
            case PeerQuiet(peer=peer) if letter.source.startswith("gateway/"):
                self._hushed(peer)
            case AgentReady() | ClusterReported() as message:
                cluster = self.book.of_agent(letter.source)
                if cluster is not None and message.cluster_id == cluster.cluster_id:
                    self._from_agent(cluster, message, now_s)
            case _ if letter.source.startswith("pool/"):
                self._from_pool(letter, letter.source.removeprefix("pool/"), now_s)

    def _hushed(self, peer: str) -> None:
        cluster = self.book.of_agent(peer)
        if cluster is not None:
            cluster.open = False

    # Agents

    def _from_agent(self, cluster: Cluster, message: AgentReady | ClusterReported, now_s: float) -> None:
        """Of a life that another has superseded nothing counts, and it is told; nor does an overtaken report.

        What no agent of ours would say counts for nothing either: its cluster's owner is told.
        """
        if fault := fault_of(message):
            self._refuse(cluster, fault)
        elif message.epoch < cluster.row.agent_epoch:
            cluster.rivals.hear(message.epoch, now_s)
            self._tell_settings(cluster)
        elif isinstance(message, AgentReady):
            cluster.open = True
            self._tell_settings(cluster)
        elif message.epoch > cluster.row.agent_epoch or message.sequence > cluster.sequence:
            cluster.open = True
            report = cluster.parts.hear(clipped(message))
            if report is not None:
                self._hear_if_well(cluster, report, fault_in_sum(report) if message.parts > 1 else "", now_s)

    def _hear_if_well(self, cluster: Cluster, report: ClusterReported, fault: str, now_s: float) -> None:
        """Parts that are well may make a report that is not."""
        if fault:
            self._refuse(cluster, fault)
        elif cluster.held is None or _age(cluster.held) < _age(report):
            cluster.held = report
            self._hear_held(cluster, now_s)

    def _refuse(self, cluster: Cluster, fault: str) -> None:
        """It is as if it had not been said; shown until a report comes that counts."""
        cluster.refused = fault
        self._changed[cluster.cluster_id] = cluster

    def _hear_held(self, cluster: Cluster, now_s: float) -> None:
        """Once its turn has come, unless its agent was superseded meanwhile."""
        report = cluster.held
        if report is not None and report.epoch < cluster.row.agent_epoch:
            cluster.held = None
        elif report is not None and cluster.pace.takes(report, now_s):
            self._hear(cluster, report, now_s)

    def _hear(self, cluster: Cluster, report: ClusterReported, now_s: float) -> None:
        cluster.refused, cluster.held = "", None
        if report.epoch > cluster.row.agent_epoch or now_s - cluster.row.seen_at_s >= SEEN_KEPT_S:
            self._keep(cluster, report.epoch, now_s)
        cluster.report, cluster.sequence = sighted(report, cluster.report), report.sequence
        cluster.heard_at_s = now_s
        if report.leader_epoch < self._epoch:
            self._tell_settings(cluster)
        self._changed[cluster.cluster_id] = cluster
        if not report.blind:
            cluster.as_of_s = now_s - max(0.0, report.view_age_s)
            self._carry_out(cluster, cluster.jobs.hear(report, now_s) if not cluster.leaving else ())

    def _keep(self, cluster: Cluster, epoch: int, now_s: float) -> None:
        """What a new leader has to know of its agent; of a cluster of the configuration nothing is kept."""
        put = cluster.change(agent_epoch=epoch, seen_at_s=now_s)
        if cluster.owner:
            self._plan.operations.append(put)

    def _tell_settings(self, cluster: Cluster) -> None:
        given = self._settings
        settings = AgentSettings(
            cluster_id=cluster.cluster_id,
            leader_epoch=self._epoch,
            spec=cluster.row.spec,
            stream_url=given.stream_url,
            http_url=given.http_url,
            ca_pem=given.ca_pem,
            cache_max_gb=given.cache_max_gb,
            cache_min_free_pct=given.cache_min_free_pct,
            agent_epoch=cluster.row.agent_epoch,
        )
        self._plan.send(cluster.agent, settings)

    # Pools

    def _from_pool(self, letter: Letter, pool: str, now_s: float) -> None:
        cluster = self.book.of_pool(pool)
        match letter.message:
            case RunWorkerJob() | AdoptWorkerJob() as message if cluster is None or cluster.row.leaving:
                self._exited(pool, Exited(message.worker_id, DETACHED, expected=True))
            case scheduling.PoolRetired() if cluster is not None and cluster.row.leaving:
                self._retired(cluster, now_s)
            case _ if cluster is not None and not cluster.row.leaving:
                self._of_cluster(cluster, letter, now_s)

    def _of_cluster(self, cluster: Cluster, letter: Letter, now_s: float) -> None:
        match letter.message:
            case RunWorkerJob() as order:
                cluster.jobs.want(order.worker_id, order.traits.node, order.capacity, order.token)
                self._say(cluster, order.worker_id, now_s)
            case AdoptWorkerJob() as order if _is_of_one_that_was_left(order, cluster):
                self._exited(cluster.pool, Exited(order.worker_id, DETACHED, expected=True))
            case AdoptWorkerJob() as order:
                wanted = order.state is not WorkerState.GONE
                cluster.jobs.adopt(order.worker_id, order.node, order.handle, wanted=wanted)
            case EndWorkerJob(worker_id=worker_id, why=why):
                cluster.jobs.unwant(worker_id, why)
                self._say(cluster, worker_id, now_s)
            case scheduling.PoolDeclared():  # it has begun, and knows nothing yet
                cluster.told, cluster.told_waits = None, ""
                self._changed[cluster.cluster_id] = cluster

    def _say(self, cluster: Cluster, worker_id: str, now_s: float) -> None:
        """At once where its agent hears it; else its next report brings it about."""
        if cluster.open and not cluster.leaving:
            self._carry_out(cluster, cluster.jobs.say(worker_id, cluster.report, now_s))

    def _retired(self, cluster: Cluster, now_s: float) -> None:
        self.book.remove(cluster)
        self._changed.pop(cluster.cluster_id, None)
        self._plan.operations += [ops.DropPool(pool=cluster.pool), ops.DropCluster(cluster_id=cluster.cluster_id)]
        self._plan.changes.append(FinishPool(cluster.pool))
        self._asking.retired(cluster, now_s)

    # Jobs

    def _carry_out(self, cluster: Cluster, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Create(job=job):
                    self._plan.send(cluster.agent, self._order(cluster, job))
                case Delete(worker_id=worker_id, why=why):
                    self._plan.send(cluster.agent, cluster.deletion(self._epoch, worker_id, why))
                case Started(worker_id=worker_id, handle=handle):
                    at_s = cluster.heard_at_s
                    started = scheduling.WorkerStarted(worker_id=worker_id, handle=handle, at_s=at_s)
                    self._plan.send(f"pool/{cluster.pool}", started)
                case Exited() as ended:
                    self._exited(cluster.pool, ended)

    def _exited(self, pool: str, ended: Exited) -> None:
        exited = scheduling.WorkerExited(
            worker_id=ended.worker_id, evidence=ended.evidence, expected=ended.expected, left=ended.left
        )
        self._plan.send(f"pool/{pool}", exited)

    def _order(self, cluster: Cluster, job: Job) -> CreateWorkerJob:
        spec = cluster.row.spec
        worker = WorkerJob(
            worker_id=job.worker_id,
            token=job.token,
            pool=cluster.pool,
            node=job.node,
            node_uid=job.node_uid,
            capacity=job.capacity,
            image=spec.worker_image or self._settings.worker_image,
            pull_secret=spec.pull_secret,
            host_network=self._settings.host_network if spec.host_network is None else spec.host_network,
            listens=cluster.origin is Origin.CREDENTIAL,
        )
        return CreateWorkerJob(namespace=spec.namespace, leader_epoch=self._epoch, job=worker)

    # Time

    def tick(self, now_s: float) -> None:
        """Reports that grow stale, and clusters whose time to leave has come."""
        for cluster in self.book.all():
            if cluster.held is not None and not cluster.row.leaving:
                self._hear_held(cluster, now_s)
            if cluster.leaves_at_s is not None and (now_s >= cluster.leaves_at_s or _has_no_job(cluster)):
                self._asking.detach(cluster, now_s)
            elif cluster.state(now_s) is not cluster.told_state:
                self._changed[cluster.cluster_id] = cluster

    # The plan

    def plan(self, now_s: float) -> ClusterPlan | None:
        """What all that was taken in amounts to; None when there is nothing to do."""
        for change in self._plan.changes:
            if not isinstance(change, FinishPool) and (cluster := self.book.of_pool(change.pool.name)) is not None:
                self._changed[cluster.cluster_id] = cluster
        for cluster in self._changed.values():
            if not cluster.row.leaving:
                self._tell_pool(cluster, now_s)
        if self._changed and (dial := self._dialled.news(self.book.all())) is not None:
            self._plan.send("leader", dial)
        self._changed.clear()
        plan, self._asking.plan = self._plan, ClusterPlan()
        return None if plan.empty else plan

    def _tell_pool(self, cluster: Cluster, now_s: float) -> None:
        """What has changed for the pool: its nodes, and why workers do not start there."""
        state = cluster.told_state = cluster.state(now_s)
        serves = self.book.serves(cluster)
        report = cluster.report
        if report is not None and cluster.nodes_known:
            told = (report.nodes, cluster.row.spec.gpu_type, serves, state)
            if told != cluster.told:
                cluster.told = told
                self._plan.send(f"pool/{cluster.pool}", nodes_known(cluster, report, serves, state))
        waits = _waits(cluster, state, knows=bool(serves or cluster.owner))
        if waits != cluster.told_waits:
            cluster.told_waits = waits
            self._plan.send(f"pool/{cluster.pool}", JobWaits(pool=cluster.pool, why=waits))

    def settle(self, plan: ClusterPlan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed. Raises `OutcomeUnknown` when a cluster could not be kept."""
        for operation, answer in zip(plan.operations, answers, strict=True):
            if isinstance(operation, ops.PutCluster):
                require_all(operation, {operation.cluster.cluster_id}, answer)
            elif isinstance(operation, ops.ListWorkspaces):
                self._know_workspaces(rows_of(answer, ops.WorkspaceRow))
        return plan.sends


def _age(report: ClusterReported) -> tuple[int, int]:
    return report.epoch, report.sequence


def _has_no_job(cluster: Cluster) -> bool:
    """Whether its agent has reported that none is left, since it was asked to delete them."""
    jobs = cluster.report.jobs if cluster.report is not None else ()
    return all(one.phase is JobPhase.ENDED for one in jobs)


def _waits(cluster: Cluster, state: ClusterState, *, knows: bool) -> str:
    """Why workers do not start. Of a cluster that has an owner the scheduler tells it to nobody else."""
    if state is not ClusterState.ONLINE:
        return AWAY[state]
    return problem_of(cluster, knows=knows) or next(waits_of(cluster, knows=knows), "")


def _is_of_one_that_was_left(order: AdoptWorkerJob, cluster: Cluster) -> bool:
    """Of a cluster that was detached with its workers, whose name this one has now: it waits for none of them."""
    return order.state is WorkerState.GONE and 0 < order.ordered_at_s < cluster.row.created_at_s
