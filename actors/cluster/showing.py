"""What of a cluster who may see: its owner and the platform's admins all, others of a shared one what can run there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from ...model.clusters import ClusterSpec, ClusterState, Origin
from ...model.nodes import NodeState
from ...model.resources import Capacity
from ...model.states import TokenKind
from ...wire.cluster import ClusterStanding, JobPhase, NodeReport, NodeShown
from ...wire.letter import Letter
from .book import Cluster, ClusterBook
from .jobs import DELETES_MAX, Job
from .paging import page
from .rivals import RIVALS
from .settings import ClusterSettings

WAITS_TOLD: Final = 20
_NOTHING: Final = Capacity(cpu_milli=0, memory_mib=0)
_PROBLEM: Final = "its agent has a problem that its owner is told of"
_NOT_STARTED: Final = "a worker that was ordered has not started"


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. Clusters of an admin are those of the workspace that it names, or of the platform's default one."""

    workspace: str
    admin: bool

    @classmethod
    def of(cls, letter: Letter, default_workspace: str) -> Asker:
        """As the gateway says."""
        admin = letter.kind == TokenKind.CLUSTER_ADMIN
        return cls(workspace=letter.workspace or (default_workspace if admin else ""), admin=admin)

    def owns(self, cluster: Cluster) -> bool:
        """Whether it attached it."""
        return bool(self.workspace) and cluster.owner == self.workspace

    def sees(self, cluster: Cluster) -> bool:
        """Whether it may know that it is there."""
        return not cluster.row.leaving and (self.owns(cluster) or self.admin or _is_shared(cluster))

    def knows(self, cluster: Cluster) -> bool:
        """Whether it may know the names of its nodes, its namespace and its image."""
        return self.owns(cluster) or self.admin


def _is_shared(cluster: Cluster) -> bool:
    return cluster.row.shared and cluster.origin is Origin.ATTACHED


class Shown(msgspec.Struct, frozen=True):
    """A cluster under the name by which its asker knows it."""

    name: str
    cluster: Cluster


def named(book: ClusterBook, asker: Asker) -> tuple[Shown, ...]:
    """What the asker may see: its own first, then others. Of several of one name all but the first go by their pool.

    A name of one's own is never another's, not even where it is that of another's pool.
    """
    seen = [cluster for cluster in book.all() if asker.sees(cluster)]
    ordered = sorted(seen, key=lambda one: (not asker.owns(one), one.row.spec.name, one.pool))
    shown: dict[str, Shown] = {}
    for cluster in ordered:
        name = next(name for name in _names(cluster) if name not in shown)
        shown[name] = Shown(name, cluster)
    return tuple(shown.values())


def _names(cluster: Cluster) -> Iterator[str]:
    yield cluster.row.spec.name
    yield cluster.pool
    for number in count(2):
        yield f"{cluster.pool}-{number}"


class Showing:
    """Makes standings. `workspaces` are names by identity."""

    def __init__(self, settings: ClusterSettings, book: ClusterBook, workspaces: Mapping[str, str]) -> None:
        self._settings = settings
        self._book = book
        self._workspaces = workspaces

    def nodes(self, cluster: Cluster, asker: Asker, start: int) -> tuple[NodeShown, ...]:
        """A page of its nodes as their asker may know them."""
        knows = asker.knows(cluster)
        found = cluster.report.nodes if cluster.report is not None else ()
        return page(found, start, lambda node: _node(node, cluster, knows=knows))

    def standing(self, shown: Shown, asker: Asker, now_s: float) -> ClusterStanding:
        """A cluster as its asker may know it, without its nodes: those are counted."""
        cluster, row, report = shown.cluster, shown.cluster.row, shown.cluster.report
        knows, counts = asker.knows(cluster), _Counts(cluster)
        version = report.version if report is not None else ""
        return ClusterStanding(
            cluster_id=cluster.cluster_id,
            name=shown.name,
            pool=cluster.pool,
            gpu_type=row.spec.gpu_type,
            state=cluster.state(now_s),
            shared=not self._book.serves(cluster),
            owned=asker.owns(cluster),
            origin=cluster.origin,
            spec=_spec(cluster) if knows else None,
            workspace=self._workspaces.get(row.workspace_id, row.workspace_id) if asker.admin else "",
            matched=report.matched if report is not None else 0,
            last_seen_s=max(row.seen_at_s, cluster.heard_at_s),
            created_at_s=row.created_at_s,
            agent_version=version if knows else "",
            agent_started_at_s=report.started_at_s if report is not None and knows else 0.0,
            agent_outdated=knows and is_older(version, self._settings.version),
            workers=len(cluster.jobs),
            pending=cluster.jobs.pending,
            problem=problem_of(cluster, knows=knows),
            waits=tuple(waits_of(cluster, knows=knows))[:WAITS_TOLD],
            nodes_total=counts.nodes,
            nodes_ready=counts.ready,
            cards=counts.cards,
            cards_ours=counts.ours,
            cards_free=counts.free,
            nodes_known=cluster.nodes_known,
            agent_silent=cluster.nodes_known and not cluster.open and cluster.state(now_s) is ClusterState.ONLINE,
        )


class _Counts:
    """What the nodes of a cluster come to."""

    def __init__(self, cluster: Cluster) -> None:
        found = cluster.report.nodes if cluster.report is not None else ()
        self.nodes = len(found)
        self.ready = self.cards = self.ours = self.free = 0
        for node in found:
            job = cluster.jobs.on(node.name)
            ours = job.capacity.gpu_count if job is not None else 0
            self.cards += node.allocatable.gpu_count
            self.ours += ours
            if node.state is NodeState.READY:
                self.ready += 1
                self.free += max(0, node.free.gpu_count - ours)


def _node(node: NodeReport, cluster: Cluster, *, knows: bool) -> NodeShown:
    job = cluster.jobs.on(node.name)
    gpu_type = cluster.row.spec.gpu_type if node.allocatable.gpu_count else ""
    return NodeShown(
        name=node.name if knows else "",
        state=node.state,
        allocatable=msgspec.structs.replace(node.allocatable, gpu_type=gpu_type),
        free=msgspec.structs.replace(node.free, gpu_type=gpu_type),
        ours=job.capacity if job is not None else _NOTHING,
        worker_id=job.worker_id if job is not None and knows else "",
        worker_state=_worker_state(job),
        labels=node.labels if knows else (),
        why=node.why if knows else "",
    )


def _worker_state(job: Job | None) -> str:
    if job is None:
        return ""
    if not job.wanted:
        return "ending"
    return "running" if job.phase is JobPhase.RUNNING else "pending"


def _spec(cluster: Cluster) -> ClusterSpec:
    """What was said of it; whose Kubernetes it is, where nobody said, is what its agent has found."""
    spec, report = cluster.row.spec, cluster.report
    if spec.flavour or report is None:
        return spec
    return msgspec.structs.replace(spec, flavour=report.flavour)


def problem_of(cluster: Cluster, *, knows: bool) -> str:
    """Why its agent cannot see its cluster as it should, or why nothing is offered there."""
    report = cluster.report
    if cluster.refused:
        return f"what its agent says is refused: {cluster.refused}" if knows else _PROBLEM
    if report is None:
        return ""
    if cluster.rivals.are_there(cluster.heard_at_s):
        return RIVALS if knows else _PROBLEM
    if report.problem:
        return report.problem if knows else _PROBLEM
    if cluster.jobs.strange > DELETES_MAX and knows:
        return f"{cluster.jobs.strange} Jobs of workers that nobody wants: they are deleted, {DELETES_MAX} at a time"
    if not report.matched and not report.nodes:
        return "its selector names no node"
    if not any(node.allocatable.gpu_count for node in report.nodes):
        return f"none of the {max(report.matched, len(report.nodes))} nodes that its selector names has a card"
    return ""


def waits_of(cluster: Cluster, *, knows: bool) -> Iterator[str]:
    """Why workers that were ordered do not start, each reason once, that of those ordered first first."""
    waiting: dict[str, list[str]] = {}
    for job in cluster.jobs:
        if job.waits and job.wanted:
            waiting.setdefault(job.waits if knows else _NOT_STARTED, []).append(job.worker_id)
    for why, workers in waiting.items():
        yield f"{why} ({_workers(workers)})" if knows else why


def _workers(worker_ids: Sequence[str]) -> str:
    more = len(worker_ids) - 1
    return f"worker {worker_ids[0]}{f' and {more} more' if more else ''}"


def is_older(version: str, ours: str) -> bool:
    """Whether an agent is of an earlier release than the platform; of what is no version nothing is said."""
    theirs, own = _numbers(version), _numbers(ours)
    return bool(theirs) and bool(own) and theirs < own


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
