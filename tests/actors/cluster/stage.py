"""Clusters on a stage: their policy and its truth, with people, agents and pools that a test plays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from levers9_test_deciding import Sent, Truth, decide, numbered, numbered_tokens

from levers9.actors.cluster import ClusterSettings, Configured
from levers9.actors.cluster.decisions import Change
from levers9.actors.cluster.policy import ClustersPolicy
from levers9.model.clusters import ClusterSpec, pool_of
from levers9.model.nodes import NodeState, Traits
from levers9.model.resources import Capacity
from levers9.model.states import TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import cluster as said
from levers9.wire import scheduling
from levers9.wire.client import RequestRefused
from levers9.wire.control import PeerQuiet
from levers9.wire.letter import Letter
from levers9.wire.message import Message

M = TypeVar("M", bound=Message)
ROOM = Capacity(cpu_milli=8000, memory_mib=32_768, gpu_count=4)
SPEC = ClusterSpec(name="lab", gpu_type="GB200", worker_image="secret.example/worker:1")
SETTINGS = ClusterSettings(
    default_workspace="default", version="1.2.0", agent_image="agent:1", worker_image="worker:1", trusted=True
)
ADMIN = ("", TokenKind.CLUSTER_ADMIN)
ANN = ("ann", TokenKind.WORKSPACE)
BEN = ("ben", TokenKind.WORKSPACE_PRIMARY)
Who = tuple[str, TokenKind]


def a_node(name: str, cards: int = 4, **changes: object) -> said.NodeReport:
    room = msgspec.structs.replace(ROOM, gpu_count=cards)
    node = said.NodeReport(name=name, uid=f"uid-{name}", allocatable=room, free=room, labels=(("rack", "r1"),))
    return msgspec.structs.replace(node, **changes)


def a_job(worker_id: str, phase: said.JobPhase = said.JobPhase.RUNNING, **changes: object) -> said.JobReport:
    job = said.JobReport(worker_id=worker_id, phase=phase, job_uid=f"uid-{worker_id}", node="n1")
    return msgspec.structs.replace(job, **changes)


class Stage:
    """One leader after the other over one truth; `now_s` is the time."""

    def __init__(self, settings: ClusterSettings = SETTINGS, configured: Iterable[Configured] = ()) -> None:
        self.truth = Truth()
        self.now_s = 10_000.0
        self.epoch = 0
        self._settings = settings
        self._configured = tuple(configured)
        self._new_id, self._new_token = numbered(), numbered_tokens()
        for workspace in ("default", "ann", "ben"):
            self.truth.ask(ops.CreateWorkspace(workspace_id=workspace, name=f"{workspace}'s", now_s=1.0))
        self._sequence = 0
        self.begin()

    def begin(self) -> Sent:
        """A new leader."""
        self.epoch += 1
        self.changes: list[Change] = []
        self.policy = ClustersPolicy(self._settings, self._configured, self.epoch, self._new_id, self._new_token)
        rows = rows_of(self.truth.ask(ops.ListClusters()), ops.ClusterRow)
        workers = rows_of(self.truth.ask(ops.LoadWorkers()), ops.WorkerRow)
        workspaces = rows_of(self.truth.ask(ops.ListWorkspaces()), ops.WorkspaceRow)
        self.policy.load(rows, workers, workspaces)
        return self.say()

    def say(self, *letters: Letter, how: str = "well") -> Sent:
        sent = Sent()
        for plan, sends in decide(self.policy, self.truth, letters, self.now_s, how):
            sent += sends
            self.changes += plan.changes
        return sent

    def tick(self, seconds: float) -> Sent:
        self.now_s += seconds
        self.policy.tick(self.now_s)
        return self.say()

    # People

    def wishes(self, who: Who, message: Message) -> Sent:
        return self.say(Letter(message, "gateway/g", "clusters", workspace=who[0], kind=who[1], id="asked"))

    def asks(self, who: Who, message: Message, kind: type[M]) -> M:
        return self.wishes(who, message).only(kind)

    def refused(self, who: Who, message: Message) -> str:
        return self.asks(who, message, RequestRefused).failure.code

    def joins(self, who: Who = ANN, spec: ClusterSpec = SPEC) -> said.ClusterJoined:
        return self.asks(who, said.JoinCluster(spec=spec), said.ClusterJoined)

    def lists(self, who: Who = ANN, name: str = "") -> tuple[said.ClusterStanding, ...]:
        return self.asks(who, said.ReadClusters(name=name), said.ClustersStand).clusters

    def shares(self, name: str, *, off: bool = False) -> Sent:
        return self.wishes(ADMIN, said.ShareCluster(name=name, shared=not off))

    def leaves(self, who: Who, name: str) -> Sent:
        """Asked, and its time has come."""
        sent = self.wishes(who, said.LeaveCluster(name=name))
        sent += self.tick(5.0)
        return sent

    # Agents

    def agent(self, cluster_id: str, message: Message) -> Sent:
        return self.say(Letter(message, f"agent/{cluster_id}", "clusters"))

    def report(self, cluster_id: str, *nodes: said.NodeReport, **changes: object) -> said.ClusterReported:
        self._sequence += 1
        report = said.ClusterReported(
            cluster_id=cluster_id,
            epoch=1,
            sequence=self._sequence,
            nodes=nodes,
            matched=len(nodes),
            leader_epoch=self.epoch,
            version="1.2.0",
        )
        return msgspec.structs.replace(report, **changes)

    def reports(self, cluster_id: str, *nodes: said.NodeReport, **changes: object) -> Sent:
        return self.agent(cluster_id, self.report(cluster_id, *nodes, **changes))

    def hushes(self, cluster_id: str, source: str = "gateway/g") -> Sent:
        return self.say(Letter(PeerQuiet(peer=f"agent/{cluster_id}", closed=True), source, "clusters"))

    # Pools

    def pool(self, message: Message, pool: str = "") -> Sent:
        pool = pool or pool_of("ann", "lab")
        return self.say(Letter(message, f"pool/{pool}", "clusters"))

    def orders(self, worker_id: str = "w1", node: str = "n1") -> Sent:
        """The pool of Ann's lab has committed an order."""
        row = ops.WorkerRow(
            worker_id=worker_id,
            pool=pool_of("ann", "lab"),
            state=WorkerState.ORDERED,
            capacity=ROOM,
            traits=Traits(node=node),
        )
        self.truth.ask(ops.PutWorkers(workers=(row,)))
        return self.pool(
            said.RunWorkerJob(pool=row.pool, worker_id=worker_id, token="t", capacity=ROOM, traits=row.traits)
        )

    def ready(self, *nodes: said.NodeReport) -> str:
        """Ann's lab is there, and its agent has reported; returns its identity."""
        cluster_id = self.joins().cluster.cluster_id
        self.reports(cluster_id, *(nodes or (a_node("n1"), a_node("n2"))))
        return cluster_id


def exits(sent: Sent) -> list[tuple[str, str]]:
    return [(one.worker_id, one.evidence) for one in sent.of(scheduling.WorkerExited)]


def deleted(sent: Sent) -> list[str]:
    return [one.worker_id for one in sent.of(said.DeleteWorkerJob)]


def created(sent: Sent) -> list[str]:
    return [one.job.worker_id for one in sent.of(said.CreateWorkerJob)]


def states(known: said.NodesKnown) -> list[NodeState]:
    return [offer.state for offer in known.offers]
