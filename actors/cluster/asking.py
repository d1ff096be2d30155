"""What people ask about clusters: to attach, share, show and detach them, and who may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ...errors import FORBIDDEN, INVALID, NOT_FOUND, Refused
from ...model.clusters import ClusterSpec, Origin
from ...model.sentences import plural
from ...model.states import TokenKind
from ...store import operations as ops
from ...wire.client import RequestRefused
from ...wire.cluster import (
    ClusterJoined,
    ClustersStand,
    ClusterStanding,
    JoinCluster,
    LeaveCluster,
    ReadClusters,
    ShareCluster,
)
from ...wire.letter import Letter
from ...wire.message import Failure, Message
from ...wire.operating import TermsChanged
from .book import Cluster, ClusterBook
from .decisions import BeginPool, ClusterPlan, ClusterPool, TermsOfPool
from .paging import page
from .settings import ClusterSettings
from .showing import Asker, Showing, Shown, named
from .specs import check

CONFLICT: Final = "conflict"
LEAVE_WITHIN_S: Final = 2.0  # for its agent to delete the Jobs of its workers, before its token ends
_PEOPLE: Final = (TokenKind.CLUSTER_ADMIN, TokenKind.WORKSPACE_PRIMARY, TokenKind.WORKSPACE)
Request = JoinCluster | ReadClusters | ShareCluster | LeaveCluster


class Asking:
    """Answers people. What it decides is added to `plan`, which its owner commits."""

    def __init__(
        self,
        settings: ClusterSettings,
        book: ClusterBook,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        epoch: int,
    ) -> None:
        self._settings = settings
        self._book = book
        self._new_id = new_id
        self._new_token = new_token
        self._epoch = epoch
        self.workspaces: dict[str, str] = {}
        self._showing = Showing(settings, book, self.workspaces)
        self._waiting: dict[str, list[Letter]] = {}  # by pool, until it is no more
        self._leaving: dict[str, list[Letter]] = {}  # by cluster, until it is detached
        self.plan = ClusterPlan()

    def handle(self, letter: Letter, message: Request, now_s: float) -> None:
        """Take a wish in; it is answered once it is committed."""
        try:
            said = self._judge(letter, message, now_s)
        except Refused as refused:
            said = RequestRefused(failure=Failure.of(refused))
        if said is not None:
            self.plan.send(letter.source, said, letter.id)

    def _judge(self, letter: Letter, message: Request, now_s: float) -> Message | None:
        if letter.kind not in _PEOPLE:
            what = "A token of a container, a worker or an agent can do nothing about clusters."
            raise Refused(what, fix="Use a token of your own: levers9 login.", code=FORBIDDEN)
        asker = Asker.of(letter, self._settings.default_workspace)
        match message:
            case JoinCluster(spec=spec):
                return self._join(letter, asker, spec, now_s)
            case ReadClusters(name="", start=start):
                return self._stand(asker, now_s, start)
            case ReadClusters(name=name, start=start):
                return self._one(self._find(asker, name), asker, now_s, start)
            case ShareCluster(name=name, shared=shared):
                return self._share(asker, name, shared=shared, now_s=now_s)
            case LeaveCluster(name=name) if self._has_left(asker, name):
                return self._stand(asker, now_s)
            case LeaveCluster(name=name):
                self._leave(letter, asker, name, now_s)
                return None

    def _pool(self, cluster: Cluster) -> ClusterPool:
        return ClusterPool.of(cluster.row, trusted=self._settings.trusted)

    # Reading

    def _stand(self, asker: Asker, now_s: float, start: int = 0) -> ClustersStand:
        """A page of all that the asker may see."""
        found = named(self._book, asker)
        clusters = page(found, start, lambda one: self._showing.standing(one, asker, now_s))
        return self._stood(clusters, len(found))

    def _one(self, shown: Shown, asker: Asker, now_s: float, start: int) -> ClustersStand:
        """One cluster, with a page of its nodes."""
        standing = self._showing.standing(shown, asker, now_s)
        nodes = self._showing.nodes(shown.cluster, asker, start)
        return self._stood((msgspec.structs.replace(standing, nodes=nodes),), 1)

    def _stood(self, clusters: tuple[ClusterStanding, ...], total: int) -> ClustersStand:
        return ClustersStand(
            clusters=clusters,
            agent_image=self._settings.agent_image,
            worker_image=self._settings.worker_image,
            total=total,
        )

    def _find(self, asker: Asker, name: str) -> Shown:
        """By the name under which the asker knows it, or by its pool's."""
        seen = named(self._book, asker)
        for shown in seen:
            if shown.name == name:
                return shown
        for shown in seen:
            if shown.cluster.pool == name:
                return shown
        raise Refused(f"There is no cluster {name[:60]!r}.", fix="See: levers9 cluster list.", code=NOT_FOUND)

    # Attaching

    def _join(self, letter: Letter, asker: Asker, spec: ClusterSpec, now_s: float) -> Message | None:
        if not asker.workspace:
            raise Refused("Which workspace attaches it?", fix="Use a token of that workspace.", code=INVALID)
        check(spec)
        known = next((one for one in self._book.of_workspace(asker.workspace) if one.row.spec.name == spec.name), None)
        if known is not None and known.leaving:
            self._waiting.setdefault(known.pool, []).append(letter)  # its pool has that name too
            return None
        self.plan.operations.append(ops.ListWorkspaces())
        if known is not None:
            return self._renew(known, asker, spec, now_s)
        return self._attach(asker, spec, now_s)

    def _attach(self, asker: Asker, spec: ClusterSpec, now_s: float) -> ClusterJoined:
        most = self._settings.clusters_per_workspace
        have = sum(not one.leaving for one in self._book.of_workspace(asker.workspace))
        if most and have >= most:
            raise Refused(
                f"This workspace has {have} {plural('cluster', have)} already, and may have {most}.",
                "The platform sets that limit: clusters_per_workspace in [attached_clusters].",
                "Detach one with `levers9 cluster leave NAME`, or ask the platform's admin to raise the limit.",
                CONFLICT,
            )
        row = ops.ClusterRow(
            cluster_id=self._new_id("cluster"), workspace_id=asker.workspace, spec=spec, created_at_s=now_s
        )
        cluster = self._book.add(row)
        self.plan.operations.append(ops.PutCluster(cluster=row))
        self.plan.changes.append(BeginPool(self._pool(cluster)))
        return self._joined(cluster, asker, now_s, renewed=False)

    def _renew(self, cluster: Cluster, asker: Asker, spec: ClusterSpec, now_s: float) -> ClusterJoined:
        """Its token ends and another begins; it keeps its sharing, and waits for the agent that has the new one."""
        if spec.namespace != cluster.row.spec.namespace and len(cluster.jobs):
            raise Refused(
                f"Workers of cluster {spec.name!r} run in namespace {cluster.row.spec.namespace!r}.",
                "An agent acts in one namespace only: nobody could delete their Jobs.",
                "Keep the namespace, or detach the cluster first.",
                CONFLICT,
            )
        cluster.forget_agent()
        self.plan.operations += [
            cluster.change(spec=spec, agent_epoch=0),
            ops.RevokeTokens(subjects=(cluster.cluster_id,)),
        ]
        return self._joined(cluster, asker, now_s, renewed=True)

    def _joined(self, cluster: Cluster, asker: Asker, now_s: float, *, renewed: bool) -> ClusterJoined:
        token = self._new_token(TokenKind.AGENT)
        self.plan.operations.append(ops.CreateToken(token=self._token_row(cluster, token, now_s)))
        standing = self._showing.standing(Shown(cluster.row.spec.name, cluster), asker, now_s)
        return ClusterJoined(
            cluster=standing,
            token=token,
            agent_image=self._settings.agent_image,
            worker_image=self._settings.worker_image,
            renewed=renewed,
        )

    def _token_row(self, cluster: Cluster, token: str, now_s: float) -> ops.TokenRow:
        return ops.TokenRow.of(
            token,
            TokenKind.AGENT,
            cluster.row.workspace_id,
            f"agent of cluster {cluster.row.spec.name}",
            token_id=self._new_id("token"),
            now_s=now_s,
            subject=cluster.cluster_id,
        )

    # Sharing

    def _share(self, asker: Asker, name: str, *, shared: bool, now_s: float) -> ClustersStand:
        """New workers serve everybody, or the next job is their owner's again; those that run keep their tokens."""
        if not asker.admin:
            what = "Only a platform admin shares a cluster, or takes it back."
            raise Refused(what, fix="Use a token of kind cluster_admin.", code=FORBIDDEN)
        shown = self._find(asker, name)
        cluster = shown.cluster
        _refuse_configured(cluster)
        if shared and not self._settings.trusted:
            raise Refused(
                f"Cluster {name!r} cannot serve every workspace.",
                "Code runs as plain processes there, so that work of one workspace could reach another's.",
                'Where all workspaces trust each other, set isolation = "trusted" in [attached_clusters].',
                FORBIDDEN,
            )
        if cluster.row.shared != shared:
            self.plan.operations.append(cluster.change(shared=shared))
            self.plan.changes.append(TermsOfPool(self._pool(cluster)))
            self.plan.send("tasks", TermsChanged())  # before the answer: what is asked after it is judged by them
        return self._stood((self._showing.standing(shown, asker, now_s),), 1)

    # Detaching

    def _has_left(self, asker: Asker, name: str) -> bool:
        """Whether it is detached already, and its pool still ends: who lost the answer asks again."""
        if any(name in (shown.name, shown.cluster.pool) for shown in named(self._book, asker)):
            return False
        left = [one for one in self._book.all() if one.row.leaving and asker.knows(one)]
        return any(name in (one.row.spec.name, one.pool) for one in left)

    def _leave(self, letter: Letter, asker: Asker, name: str, now_s: float) -> None:
        cluster = self._find(asker, name).cluster
        _refuse_configured(cluster)
        if cluster.row.shared and not asker.admin:
            raise Refused(
                f"Cluster {name!r} is shared: only a platform admin can detach it.",
                "Jobs of other workspaces run there.",
                "Ask for it to be taken back first.",
                FORBIDDEN,
            )
        self._leaving.setdefault(cluster.cluster_id, []).append(letter)
        if cluster.leaves_at_s is not None:
            return
        cluster.leaves_at_s = now_s + (LEAVE_WITHIN_S if cluster.open and len(cluster.jobs) else 0.0)
        for job in cluster.jobs if cluster.open else ():
            self.plan.send(cluster.agent, cluster.deletion(self._epoch, job.worker_id, "its cluster is detached"))

    def detach(self, cluster: Cluster, now_s: float) -> None:
        """Its time is up, or its Jobs are gone: its tokens and its workers' end, and its pool retires."""
        cluster.leaves_at_s = None
        subjects = (cluster.cluster_id, *(job.worker_id for job in cluster.jobs))
        self.plan.operations += [
            cluster.change(leaving=True),
            ops.RevokeTokens(subjects=subjects),
            ops.DropPool(pool=cluster.pool),
        ]
        self.plan.changes.append(BeginPool(self._pool(cluster)))
        for letter in self._leaving.pop(cluster.cluster_id, []):
            asker = Asker.of(letter, self._settings.default_workspace)
            self.plan.send(letter.source, self._stand(asker, now_s), letter.id)

    def retired(self, cluster: Cluster, now_s: float) -> None:
        """Its pool is no more: who waits to attach a cluster of that name may now."""
        for letter in self._waiting.pop(cluster.pool, []):
            if isinstance(letter.message, JoinCluster):
                self.handle(letter, letter.message, now_s)


def _refuse_configured(cluster: Cluster) -> None:
    if cluster.origin is not Origin.ATTACHED:
        what = f"Pool {cluster.pool!r} is in the configuration file: nobody attached it."
        raise Refused(what, fix="Change it there, under [[pools]].", code=CONFLICT)
