"""Small objects of Kubernetes for tests, out of plain data as an API server would send it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from levers9.actors.agent import events
from levers9.actors.agent.events import Decision, Event, Tell, View
from levers9.actors.agent.jobs import Place
from levers9.actors.agent.policy import AgentPolicy
from levers9.actors.agent.reporting import Life
from levers9.kube.objects import Job, Node, Pod
from levers9.model.clusters import ClusterSpec
from levers9.model.resources import Capacity
from levers9.wire.cluster import AgentSettings, ClusterReported, CreateWorkerJob, DeleteWorkerJob, JobReport, WorkerJob

Plain = Mapping[str, object]
SPEC = ClusterSpec(name="lab", gpu_type="T4")
UNIX_S = 1_767_225_600.0  # 2026-01-01, when agents of tests began


def node(
    name: str = "n1",
    *,
    uid: str = "",
    cards: str | int = 4,
    labels: Mapping[str, str] | None = None,
    ready: str = "True",
    spec: Plain | None = None,
    **quantities: str | int,
) -> Node:
    """A node that is ready, with cards; `quantities` such as cpu="7910m" replace those of its allocatable."""
    there = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(cards)} | quantities
    status = {
        "capacity": there,
        "allocatable": there,
        "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}],
    }
    meta = {"name": name, "uid": uid or f"uid-{name}", "labels": dict(labels or {})}
    return msgspec.convert({"metadata": meta, "spec": spec or {}, "status": status}, Node)


def pod(
    name: str = "p1",
    node: str = "n1",
    *,
    uid: str = "",
    namespace: str = "default",
    requests: Plain | None = None,
    phase: str = "Running",
    spec: Plain | None = None,
    status: Plain | None = None,
    labels: Mapping[str, str] | None = None,
) -> Pod:
    """A pod of one container."""
    containers = [{"name": "app", "image": "app:1", "resources": {"requests": requests or {}}}]
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": uid or f"uid-{name}",
                "namespace": namespace,
                "labels": dict(labels or {}),
            },
            "spec": {"nodeName": node, "containers": containers} | dict(spec or {}),
            "status": {"phase": phase} | dict(status or {}),
        },
        Pod,
    )


def job(
    name: str,
    *,
    uid: str = "",
    node: str = "n1",
    node_uid: str = "",
    cluster_id: str = "c1",
    namespace: str = "levers9",
    created: str = "2026-01-01T00:00:00Z",
    ended: str = "",
) -> Job:
    """A worker's Job."""
    conditions = [{"type": ended, "status": "True", "reason": "BackoffLimitExceeded"}] if ended else []
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"job-{name}",
                "creationTimestamp": created,
                "labels": marks(name, cluster_id),
                "annotations": {"levers9.dev/node": node, "levers9.dev/node-uid": node_uid or f"uid-{node}"},
            },
            "status": {"conditions": conditions},
        },
        Job,
    )


def marks(worker_id: str, cluster_id: str = "c1") -> dict[str, str]:
    """The labels of what is a worker's."""
    return {
        "app.kubernetes.io/managed-by": "levers9",
        "levers9.dev/worker": worker_id,
        "levers9.dev/cluster": cluster_id,
    }


# The agent and its control plane


class Watched:
    """An agent's policy with its own clock; it knows its settings, and what it decided is kept."""

    def __init__(
        self, *, now_s: float = 1000.0, unix_s: float = UNIX_S, spec: ClusterSpec = SPEC, settled: bool = True
    ) -> None:
        self.now_s = now_s
        life = Life(epoch=1, started_at_s=unix_s, started_s=now_s, version="1")
        self.policy = AgentPolicy(Place(cluster_id="c1", namespace="levers9"), life, now_s)
        self.decided: list[Decision] = []
        self.say(events.LinkOpened())
        if settled:
            self.say(events.LetterCame(AgentSettings(cluster_id="c1", leader_epoch=1, spec=spec, stream_url="wss://x")))

    def say(self, event: Event) -> list[Decision]:
        decisions = self.policy.handle(event, self.now_s)
        self.decided += decisions
        return decisions

    def see(
        self,
        *,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        jobs: Iterable[Job] = (),
        served_at_s: float = 0.0,
    ) -> list[Decision]:
        """All there is, listed anew; `served_at_s` is what the API server's clock shows."""
        parts: tuple[tuple[View, list[Event]], ...] = (
            (View.NODES, [events.NodeIs(one) for one in nodes]),
            (View.PODS, [events.PodIs(one) for one in pods]),
            (View.JOBS, [events.JobIs(one) for one in jobs]),
        )
        whole = [[events.ListBegan(view, served_at_s), *each, events.ListEnded(view)] for view, each in parts]
        return [decision for event in itertools.chain(*whole) for decision in self.say(event)]

    def wait(self, seconds: float) -> list[Decision]:
        """Time passes, with each deadline in it."""
        until_s, decisions = self.now_s + seconds, list[Decision]()
        while self.policy.next_deadline_s() <= until_s:
            self.now_s = max(self.now_s, self.policy.next_deadline_s())
            decisions += self.say(events.TimePassed())
        self.now_s = until_s
        return decisions

    @property
    def reports(self) -> list[ClusterReported]:
        """All that it has told."""
        tells = [one.message for one in self.decided if isinstance(one, Tell)]
        return [message for message in tells if isinstance(message, ClusterReported)]

    def report(self) -> ClusterReported:
        """What it tells now."""
        self.wait(11.0)
        return self.reports[-1]


def told(agent: Watched) -> tuple[JobReport, ...]:
    """What the agent would tell of its workers now."""
    return agent.policy.inspect(agent.now_s)


def order(
    worker_id: str,
    node: str = "n1",
    node_uid: str = "",
    *,
    namespace: str = "levers9",
    leader_epoch: int = 1,
    **job: object,
) -> events.LetterCame:
    """An order for a worker with four cards."""
    settled: dict[str, object] = {
        "worker_id": worker_id,
        "token": "t",
        "pool": "lab-1",
        "node": node,
        "node_uid": node_uid or f"uid-{node}",
        "capacity": Capacity(cpu_milli=8000, memory_mib=32768, gpu_count=4, gpu_type="T4"),
        "image": "levers9/worker:1",
    }
    wanted = msgspec.convert(msgspec.to_builtins(settled | job), WorkerJob)
    return events.LetterCame(CreateWorkerJob(namespace=namespace, leader_epoch=leader_epoch, job=wanted))


def removal(worker_id: str, why: str = "nobody needs it", *, leader_epoch: int = 1) -> events.LetterCame:
    """A removal."""
    message = DeleteWorkerJob(namespace="levers9", leader_epoch=leader_epoch, worker_id=worker_id, why=why)
    return events.LetterCame(message)


def ours(
    worker_id: str = "w1", *, node: str = "n1", phase: str = "Pending", uid: str = "pod-1", **more: object
) -> events.PodIs:
    return events.PodIs(
        pod(worker_id, node, uid=uid, namespace="levers9", phase=phase, labels=marks(worker_id), **more)  # type: ignore[arg-type]
    )


def running(agent: Watched, worker_id: str = "w1", node: str = "n1") -> None:
    """A worker is ordered, its Job is made and its pod runs."""
    agent.say(order(worker_id, node))
    agent.say(events.JobMade(worker_id, job(worker_id, node=node)))
    agent.say(ours(worker_id, node=node, phase="Running", uid=f"pod-{worker_id}"))


def standing(agent: Watched, worker_id: str = "w1") -> JobReport:
    return next(one for one in agent.report().jobs if one.worker_id == worker_id)


def test_where_a_worker_s_pod_is_reached_is_told_while_it_runs() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1", "n1"))
    agent.say(events.JobMade("w1", job("w1")))
    agent.say(ours("w1", phase="Pending", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == ""
    agent.say(ours("w1", phase="Running", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == "10.2.3.4"
    agent.say(ours("w1", phase="Failed", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == ""
