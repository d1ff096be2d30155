"""The order keeper: worker Jobs of its own namespace, at most one a node, and no more pending ones than nodes.

Whatever the control plane says, these hold (specification, "How the nodes are sized"). What it says is a level: an
order is given until a report has its worker, and a removal until no report has it. So a worker that ended stays in
reports until its removal is asked for, and its evidence cannot be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from ...kube.objects import Job, Meta, Pod
from ...model.figures import JOB_START_LIMIT_S
from ...wire.cluster import AgentSettings, CreateWorkerJob, DeleteWorkerJob, JobReport, WorkerJob
from .events import Decision, DropJob, JobDropped, JobMade, JobNotMade, MakeJob
from .inventory import Inventory
from .jobs import NODE, NODE_UID, Place, body_of, worker_of
from .standing import pod_standing
from .workers import NODE_GONE, Asked, Worker

OVER_KEPT: Final = 1000  # workers that ended or were refused, until the control plane has heard of it
OVER_KEPT_S: Final = 3600.0
FRESH_S: Final = 60.0  # a list that began before a Job was made may still come for so long
_NEVER_STARTED: Final = f"It was removed: its pod had not started within {JOB_START_LIMIT_S / 60:.0f} minutes"


class OrderKeeper:
    """Worker Jobs, from order to end. `unix` turns our clock into Unix time."""

    def __init__(self, place: Place, inventory: Inventory, unix: Callable[[float], float]) -> None:
        self._place = place
        self._inventory = inventory
        self._unix = unix
        self._workers: dict[str, Worker] = {}
        self.complete = False  # whether nodes, pods and Jobs were all seen once: before, nothing follows of an absence
        self._ahead_s: float | None = None  # of the API server's clock before ours; None: it has not said
        self._unseen_jobs: dict[str, None] = {}
        self._unseen_pods: dict[str, str] = {}  # the worker of each pod, by UID
        self.changed = False

    # Orders

    def order(self, asked: CreateWorkerJob, settings: AgentSettings, now_s: float) -> list[Decision]:
        """An order; one that is being carried out, or was, changes nothing."""
        job = asked.job
        known = self._workers.get(job.worker_id)
        if known is not None and known.refused is None and (known.told or known.asked is not Asked.NOTHING):
            return []
        why = self._why_refused(asked, now_s)
        if why:
            return self._refuse(job, why, now_s)
        worker = Worker(job.worker_id, job.node, job.node_uid, began_s=now_s, asked=Asked.CREATE)
        self._workers[job.worker_id] = worker
        return [MakeJob(job.worker_id, body_of(job, settings, self._place, self._inventory.ground(job.node)))]

    def _why_refused(self, asked: CreateWorkerJob, now_s: float) -> str:
        job = asked.job
        if asked.namespace != self._place.namespace:
            return f"It was ordered for the namespace {asked.namespace}; this agent keeps to {self._place.namespace}."
        unnamed = self._inventory.named(job.node, job.node_uid)
        if unnamed:
            return unnamed
        others = [each for each in self._workers.values() if each.worker_id != job.worker_id and each.holds_node]
        there = next((worker for worker in others if worker.node == job.node), None)
        if there is not None:
            return f"The worker {there.worker_id} is on the node {job.node} already."
        pending = sum(1 for worker in others if worker.pending)
        if pending >= self._inventory.matched:
            return f"{pending} workers are pending here, as many as there are nodes."
        return ""

    def _refuse(self, job: WorkerJob, why: str, now_s: float) -> list[Decision]:
        known = self._workers.get(job.worker_id)
        if known is None or known.refused != why:
            refused = Worker(job.worker_id, job.node, job.node_uid, began_s=now_s, refused=why, over_s=now_s)
            self._workers[job.worker_id] = refused
            self.changed = True
        return []

    def remove(self, asked: DeleteWorkerJob, now_s: float) -> list[Decision]:
        """A worker is not wanted: its Job goes, and what is over is forgotten."""
        worker = self._workers.get(asked.worker_id)
        if worker is None or asked.namespace != self._place.namespace:
            return []
        if worker.over and not worker.job_uid and worker.alive is None:
            del self._workers[asked.worker_id]
            self.changed = True
            return []
        worker.removing = worker.removing or asked.why
        return self._drop(worker)

    def _drop(self, worker: Worker) -> list[Decision]:
        if worker.asked is not Asked.NOTHING or not (worker.job_uid or worker.unsure):
            return []
        worker.asked = Asked.DELETE
        return [DropJob(worker.worker_id, worker.job_uid, worker.removing)]

    # What became of what was asked

    def made(self, event: JobMade, now_s: float) -> list[Decision]:
        """A Job was made, or had been."""
        worker = self._workers.get(event.worker_id)
        if worker is None or worker.asked is not Asked.CREATE:
            return []
        worker.asked = Asked.NOTHING
        worker.has_job(event.job)
        self.changed = True
        return self._drop(worker) if worker.removing else self._judge(worker, now_s)

    def not_made(self, event: JobNotMade, now_s: float) -> list[Decision]:
        """A Job was not made, or nobody knows."""
        worker = self._workers.get(event.worker_id)
        if worker is None or worker.asked is not Asked.CREATE:
            return []
        worker.asked = Asked.NOTHING
        if worker.job_seen:
            return self._drop(worker) if worker.removing else []
        if event.unsure:
            worker.unsure = True
            return self._drop(worker) if worker.removing else []
        worker.refused, worker.over_s, self.changed = event.why, now_s, True
        return []

    def dropped(self, event: JobDropped, now_s: float) -> list[Decision]:
        """A Job was asked to go, or was not there; that it went is seen, not assumed."""
        worker = self._workers.get(event.worker_id)
        if worker is None or worker.asked is not Asked.DELETE:
            return []
        worker.asked = Asked.NOTHING
        if event.why or event.found:
            return []
        if worker.unsure and not worker.told:
            worker.refused, worker.over_s, worker.unsure, self.changed = worker.removing, now_s, False, True
            return []
        return self._job_went(worker, worker.job_uid, now_s)

    # What is seen

    def job(self, job: Job, now_s: float, *, gone: bool, listed: bool) -> list[Decision]:
        """A Job as it is. `listed`: it was there before we looked, so that its age is its own."""
        worker_id = worker_of(job.metadata, self._place)
        if not worker_id or worker_id != job.metadata.name:
            return []
        self._unseen_jobs.pop(worker_id, None)
        worker = self._workers.get(worker_id)
        if gone:
            return self._job_went(worker, job.metadata.uid, now_s)
        if worker is None or worker.refused is not None:
            worker = self._found(job.metadata, worker_id, now_s, listed=listed)
        worker.has_job(job)
        self.changed = True
        return self._judge(worker, now_s)

    def pod(self, pod: Pod, now_s: float, *, gone: bool) -> list[Decision]:
        """A pod of ours as it is, or as it was when it went."""
        worker_id = worker_of(pod.metadata, self._place)
        standing = pod_standing(pod)
        self._unseen_pods.pop(standing.uid, None)
        worker = self._workers.get(worker_id)
        if worker is None or worker.refused is not None:
            if gone or standing.ended:
                return []
            worker = self._found(pod.metadata, worker_id, now_s, listed=True, node=standing.node)
        if not gone or standing.ended or standing.uid not in worker.pods:
            worker.has_pod(standing)
        if gone:
            worker.pod_went(standing.uid)
        self.changed = True
        return self._judge(worker, now_s)

    def _found(self, meta: Meta, worker_id: str, now_s: float, *, listed: bool, node: str = "") -> Worker:
        node = meta.annotations.get(NODE, node)
        uid = meta.annotations.get(NODE_UID) or self._inventory.uid_of(node)
        worker = Worker(worker_id, node, uid, began_s=now_s - (self._age_s(meta, now_s) if listed else 0.0))
        self._workers[worker_id] = worker
        return worker

    def served(self, at_s: float, now_s: float) -> None:
        """The API server's clock shows this Unix time."""
        self._ahead_s = at_s - now_s

    def _age_s(self, meta: Meta, now_s: float) -> float:
        """By the clock that wrote when it was made. Ours may be wrong: by it alone, a Job is as old as we know it."""
        if self._ahead_s is None:
            return 0.0
        try:
            return max(0.0, now_s + self._ahead_s - datetime.fromisoformat(meta.creation_timestamp).timestamp())
        except ValueError:
            return 0.0

    def _job_went(self, worker: Worker | None, uid: str, now_s: float) -> list[Decision]:
        if worker is None or worker.job_uid not in ("", uid):
            return []
        worker.job_uid = ""
        self.changed = True
        return self._judge(worker, now_s)

    def jobs_began(self) -> None:
        """All Jobs are about to be told anew."""
        self._unseen_jobs = {id_: None for id_, worker in self._workers.items() if worker.job_uid}

    def jobs_ended(self, now_s: float) -> list[Decision]:
        """They were: those that were not told are gone."""
        gone = [self._workers[id_] for id_ in self._unseen_jobs if id_ in self._workers]
        self._unseen_jobs.clear()
        return [
            decision
            for worker in gone
            if now_s - worker.began_s >= FRESH_S or worker.alive is not None or worker.over
            for decision in self._job_went(worker, worker.job_uid, now_s)
        ]

    def pods_began(self) -> None:
        """All pods are about to be told anew."""
        self._unseen_pods = {uid: id_ for id_, worker in self._workers.items() for uid in worker.pods}

    def pods_ended(self, now_s: float) -> list[Decision]:
        """They were: those that were not told are gone."""
        decisions: list[Decision] = []
        for uid, worker_id in self._unseen_pods.items():
            worker = self._workers.get(worker_id)
            if worker is not None:
                worker.pod_went(uid)
                self.changed = True
                decisions += self._judge(worker, now_s)
        self._unseen_pods.clear()
        return decisions

    # Time

    def review(self, now_s: float, *, seeing: bool) -> list[Decision]:
        """Look at all workers: nodes came, went, or are heard again; or time passed. `seeing`: nothing is hidden."""
        decisions: list[Decision] = []
        for worker in tuple(self._workers.values()):
            decisions += self._judge(worker, now_s)
            if seeing and worker.unsure and worker.asked is Asked.NOTHING and now_s - worker.began_s >= FRESH_S:
                del self._workers[worker.worker_id]  # had it been made, it would have been seen
        self._forget_oldest(now_s)
        return decisions

    def _judge(self, worker: Worker, now_s: float) -> list[Decision]:
        """What follows of what is known of a worker: it has ended, or is to be removed."""
        if not self.complete:
            return []
        misplaced = self._misplaced(worker)
        if not worker.over:
            there = not worker.node_uid or self._inventory.there(worker.node_uid)
            ended = worker.evidence(there, self._inventory.ready(worker.node_uid))
            if ended is not None:
                worker.end(ended, now_s, node_there=there)
                self.changed = True
                misplaced = "" if worker.finished else ended
        if worker.overdue(now_s):
            worker.late = True
            pod = worker.alive
            misplaced = f"{_NEVER_STARTED}. {pod.why if pod is not None else ''}".rstrip()
        if not misplaced:
            return []
        worker.removing = worker.removing or misplaced
        return self._drop(worker)

    def _misplaced(self, worker: Worker) -> str:
        """Why its Job is to go: a Job is pinned to the name of a node, and would start on another one of that name."""
        if not worker.node_uid or self._inventory.there(worker.node_uid):
            return ""
        if self._inventory.uid_of(worker.node):
            worker.node_uid = self._inventory.uid_of(worker.node)
            return "Its node was replaced by another one of its name"
        return NODE_GONE

    def _forget_oldest(self, now_s: float) -> None:
        over = sorted((worker.over_s, id_) for id_, worker in self._workers.items() if worker.over)
        for place, (over_s, worker_id) in enumerate(over):
            if len(over) - place > OVER_KEPT or now_s - over_s >= OVER_KEPT_S:
                del self._workers[worker_id]

    # What is told

    def reports(self, now_s: float) -> tuple[JobReport, ...]:
        """Where each worker stands, by its id."""
        told = sorted((id_, worker) for id_, worker in self._workers.items() if worker.told)
        return tuple(worker.report(now_s, self._unix) for _, worker in told)

    @property
    def pending(self) -> int:
        """How many workers take room and have not started."""
        return sum(1 for worker in self._workers.values() if worker.pending)
