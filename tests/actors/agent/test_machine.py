"""The order keeper under every sequence of orders, effects, changes and restarts: the agent's side of I1.

The truth is a plain cluster beside it: what really runs on which node. The agent sees it late, by watches that may be
listed anew at any moment, and its requests may succeed, fail, or be carried out without anybody hearing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from levers9_test_agent import Watched, marks, node, order, removal, told
from levers9_test_agent import job as kube_job
from levers9_test_agent import pod as kube_pod

from levers9.actors.agent import events
from levers9.actors.agent.events import DropJob, Event, MakeJob, View
from levers9.wire.cluster import JobPhase

NODES = st.sampled_from(["a", "b", "c"])
NODE_OF = {"w0": "a", "w1": "a", "w2": "b", "w3": "b", "w4": "c", "w5": "c"}  # an order names its node once and for all
WORKERS = st.sampled_from(sorted(NODE_OF))


@dataclass
class _Job:
    uid: str
    node: str
    node_uid: str
    pod: str = ""  # its pod's phase; "" without one
    pod_uid: str = ""
    pod_made: bool = False
    gone: bool = False  # the Job itself was deleted; its pod may be terminating still


@dataclass
class _Cluster:
    nodes: dict[str, str] = field(default_factory=dict)  # name → UID
    ready: dict[str, bool] = field(default_factory=dict)
    jobs: dict[str, _Job] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)  # worker → UID of the node on which it really runs
    uids: int = 0

    def uid(self) -> str:
        self.uids += 1
        return f"u{self.uids}"


class Keeping(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.truth = _Cluster()
        self.late: list[Event] = []
        self.effects: list[MakeJob | DropJob] = []
        self.made: dict[str, tuple[str, str]] = {}  # the node of each worker that was asked for
        self.agent = Watched()
        for name in ("a", "b", "c"):
            self.truth.nodes[name], self.truth.ready[name] = self.truth.uid(), True
        self.list_anew()

    # The agent

    def say(self, event: Event) -> None:
        for decision in self.agent.say(event):
            if isinstance(decision, MakeJob | DropJob):
                self.effects.append(decision)

    def list_anew(self) -> None:
        self.late.clear()
        for view in View:
            self.say(events.ListBegan(view))
            for event in self.seen(view):
                self.say(event)
            self.say(events.ListEnded(view))

    def seen(self, view: View) -> list[Event]:
        truth = self.truth
        if view is View.NODES:
            return [self.node_event(name) for name in truth.nodes]
        if view is View.JOBS:
            return [self.job_event(id_) for id_, one in truth.jobs.items() if not one.gone]
        return [self.pod_event(id_) for id_, one in truth.jobs.items() if one.pod]

    def node_event(self, name: str, *, gone: bool = False) -> events.NodeIs:
        ready = "True" if self.truth.ready[name] else "Unknown"
        return events.NodeIs(node(name, uid=self.truth.nodes[name], ready=ready), gone)

    def job_event(self, id_: str, *, gone: bool = False) -> events.JobIs:
        one = self.truth.jobs[id_]
        ended = "Failed" if one.pod == "Failed" else ""
        return events.JobIs(kube_job(id_, uid=one.uid, node=one.node, node_uid=one.node_uid, ended=ended), gone)

    def pod_event(self, id_: str, *, gone: bool = False) -> events.PodIs:
        one = self.truth.jobs[id_]
        pod = kube_pod(id_, one.node, uid=one.pod_uid, namespace="levers9", phase=one.pod, labels=marks(id_))
        return events.PodIs(pod, gone)

    @rule(worker=WORKERS, wrong=st.sampled_from(["", "namespace", "epoch", "uid"]))
    def order(self, worker: str, wrong: str) -> None:
        node = NODE_OF[worker]
        uid = "another" if wrong == "uid" else self.truth.nodes.get(node, "gone")
        before = len(self.effects)
        self.say(
            order(
                worker,
                node,
                uid,
                namespace="kube-system" if wrong == "namespace" else "levers9",
                leader_epoch=0 if wrong == "epoch" else 1,
            )
        )
        assert not wrong or len(self.effects) == before
        for effect in self.effects[before:]:
            self.made[effect.worker_id] = (node, uid)

    @rule(worker=WORKERS)
    def starts_at_once(self, worker: str) -> None:
        """What usually happens, so that what is odd happens to workers that run."""
        self.order(worker, wrong="")
        while self.effects:
            self.perform("done")
        self.pod_is_made(worker)
        self.pod_starts(worker)
        self.hear()

    @rule(worker=WORKERS, job_too=st.booleans())
    def ends_unheard(self, worker: str, job_too: bool) -> None:
        """Its node goes silent, and its pod is deleted by force: what runs there runs on."""
        job = self.truth.jobs.get(worker)
        if job is not None and worker in self.truth.runs:
            self.node_goes_silent(job.node)
            self.pod_is_deleted(worker)
            if job_too:
                self.job_is_deleted(worker)
            self.hear()

    @rule(worker=WORKERS)
    def remove(self, worker: str) -> None:
        self.say(removal(worker))

    @rule(seconds=st.sampled_from([1.0, 11.0, 1300.0]))
    def time_passes(self, seconds: float) -> None:
        if seconds > 1.0:
            self.hear()
        self.agent.now_s += seconds
        self.say(events.TimePassed())

    @rule()
    def hear(self) -> None:
        late, self.late = self.late, []
        for event in late:
            self.say(event)

    @rule()
    def relist(self) -> None:
        self.list_anew()

    @rule()
    def restart(self) -> None:
        while self.effects:
            self.perform("lost")
        self.agent = Watched(now_s=self.agent.now_s)
        self.list_anew()

    # The API server

    @rule(how=st.sampled_from(["done", "lost", "failed", "refused"]))
    def perform(self, how: str) -> None:
        if not self.effects:
            return
        effect = self.effects.pop(0)
        if isinstance(effect, MakeJob):
            self.make(effect, how)
        else:
            self.drop(effect, how)

    def make(self, effect: MakeJob, how: str) -> None:
        id_ = effect.worker_id
        if how in ("done", "lost"):
            there = self.truth.jobs.get(id_)
            if there is None or (there.gone and not there.pod):
                node_name, node_uid = self.made[id_]
                self.truth.jobs[id_] = _Job(self.truth.uid(), node_name, node_uid)
                self.late.append(self.job_event(id_))
        if how == "done":
            self.say(events.JobMade(id_, self.job_event(id_).job))
        else:
            self.say(events.JobNotMade(id_, "no", unsure=how != "refused"))

    def drop(self, effect: DropJob, how: str) -> None:
        job = self.truth.jobs.get(effect.worker_id)
        found = job is not None and not job.gone and effect.uid in ("", job.uid)
        if found and how in ("done", "lost"):
            self.delete(effect.worker_id)
        self.say(events.JobDropped(effect.worker_id, found, "" if how == "done" else "no"))

    def delete(self, id_: str) -> None:
        job = self.truth.jobs[id_]
        self.late.append(self.job_event(id_, gone=True))
        job.gone = True
        if job.pod == "Pending":
            self.lose_pod(id_)

    def lose_pod(self, id_: str) -> None:
        self.late.append(self.pod_event(id_, gone=True))
        self.truth.jobs[id_].pod = ""

    # The cluster

    @rule(worker=WORKERS)
    def pod_is_made(self, worker: str) -> None:
        job = self.truth.jobs.get(worker)
        if job is not None and not job.gone and not job.pod_made:
            job.pod, job.pod_uid, job.pod_made = "Pending", self.truth.uid(), True
            self.late.append(self.pod_event(worker))

    @rule(worker=WORKERS)
    def pod_starts(self, worker: str) -> None:
        job = self.truth.jobs.get(worker)
        if job is not None and job.pod == "Pending" and self.truth.ready.get(job.node):
            job.pod = "Running"
            self.truth.runs[worker] = self.truth.nodes[job.node]
            self.late.append(self.pod_event(worker))

    @rule(worker=WORKERS)
    def pod_ends(self, worker: str) -> None:
        job = self.truth.jobs.get(worker)
        if job is not None and job.pod == "Running" and self.truth.ready.get(job.node):
            job.pod = "Failed"
            self.truth.runs.pop(worker, None)
            self.late.append(self.pod_event(worker))

    @rule(worker=WORKERS)
    def pod_is_deleted(self, worker: str) -> None:
        """By force, too: on a node that is not heard it runs on."""
        job = self.truth.jobs.get(worker)
        if job is not None and job.pod:
            if self.truth.ready.get(job.node, True):
                self.truth.runs.pop(worker, None)
            self.lose_pod(worker)

    @rule(worker=WORKERS)
    def job_is_deleted(self, worker: str) -> None:
        job = self.truth.jobs.get(worker)
        if job is not None and not job.gone:
            self.delete(worker)

    @rule(name=NODES)
    def node_goes_silent(self, name: str) -> None:
        if name in self.truth.nodes:
            self.truth.ready[name] = False
            self.late.append(self.node_event(name))
            self.hear()  # a pod is deleted by force long after its node went silent

    @rule(name=NODES)
    def node_is_heard(self, name: str) -> None:
        """Its kubelet ends what has no pod any more."""
        if name in self.truth.nodes:
            self.truth.ready[name] = True
            for worker in [one for one, uid in self.truth.runs.items() if uid == self.truth.nodes[name]]:
                if not self.truth.jobs[worker].pod:
                    del self.truth.runs[worker]
            self.late.append(self.node_event(name))

    @rule(name=NODES)
    def node_is_replaced(self, name: str) -> None:
        if name in self.truth.nodes:
            self.late.append(self.node_event(name, gone=True))
            uid = self.truth.nodes[name]
            for worker in [one for one, on in self.truth.runs.items() if on == uid]:
                del self.truth.runs[worker]
            for id_, job in self.truth.jobs.items():
                if job.node == name and job.pod and job.node_uid == uid:
                    self.lose_pod(id_)
        self.truth.nodes[name], self.truth.ready[name] = self.truth.uid(), True
        self.late.append(self.node_event(name))

    # What holds

    @invariant()
    def at_most_one_worker_a_node(self) -> None:
        for name in self.truth.nodes:
            on = [id_ for id_, job in self.truth.jobs.items() if job.node == name and self.may_run(id_, job)]
            assert len(on) <= 1, f"{on} are on {name}"

    def may_run(self, id_: str, job: _Job) -> bool:
        return id_ in self.truth.runs or (not job.gone and job.pod != "Failed" and not (job.pod_made and not job.pod))

    @invariant()
    def who_is_said_to_have_ended_has(self) -> None:
        for report in told(self.agent):
            assert report.phase is not JobPhase.ENDED or report.worker_id not in self.truth.runs, report


TestKeeping = pytest.mark.slow(Keeping.TestCase)
TestKeeping.settings = settings(settings.get_profile("property"), stateful_step_count=40)
