"""The worker Jobs of one cluster, level-triggered: what is wanted, held against what its agent reports.

A Job that is wanted and in no report is ordered again, one that is reported and not wanted is deleted again: an agent
keeps how a worker ended in its reports until then. A worker has ended only where there is evidence: its Job says so; or
complete reports lack it, and its Node is ready, or is no more, or nobody has told of its Node for as long as a lease
lasts. Silence, and a Node that is not ready, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ...model.figures import REPORT_STALE_S, WORKER_LEASE_S
from ...model.nodes import NodeState
from ...model.resources import Capacity
from ...wire.cluster import ClusterReported, JobPhase, JobReport, NodeReport
from .recognising import Recognised

SETTLED_S: Final = 90.0  # what an agent was told so long ago has become a Job in its reports, or never will
DELETES_MAX: Final = 200  # of Jobs that nobody wants, a report: the rest is in the next one
_NOT_STARTED: Final = (JobPhase.NO_POD, JobPhase.PENDING)
_LACKED: Final = f"neither its Job nor its node has been there for {WORKER_LEASE_S:g} s"
_NOTHING: Final = Capacity(cpu_milli=0, memory_mib=0)


class Job(msgspec.Struct, kw_only=True):
    """A worker that was ordered and has not ended, as far as is known.

    `token` is "" for one of an earlier leader: its Job cannot be created again. `seen` says that its Job was there,
    `ordered` that it may be, or may come: nobody has seen it yet.
    """

    worker_id: str
    node: str
    capacity: Capacity = _NOTHING
    token: str = ""
    node_uid: str = ""
    job_uid: str = ""
    wanted: bool = True
    seen: bool = False
    ordered: bool = False
    why: str = ""  # it is not wanted
    refused: bool = False  # by its agent
    phase: JobPhase | None = None
    waits: str = ""  # why it does not start
    address: str = ""  # of its pod
    told: bool = False  # its pool knows its handle
    said_at_s: float | None = None  # of one not seen: since when its agent hears nothing that could bring it
    lacked_at_s: float | None = None  # since when complete reports have neither the Job nor its Node


class Create(msgspec.Struct, frozen=True):
    """Order this Job."""

    job: Job


class Delete(msgspec.Struct, frozen=True):
    """Delete this worker's Job."""

    worker_id: str
    why: str


class Started(msgspec.Struct, frozen=True):
    """A worker's Job is there; `handle` finds it again."""

    worker_id: str
    handle: str


class Exited(msgspec.Struct, frozen=True):
    """There is evidence that a worker has ended, or never was; `expected` and `left` as in `JobReport`."""

    worker_id: str
    evidence: str
    expected: bool
    left: bool = False


Effect = Create | Delete | Started | Exited


class Jobs:
    """Those of one cluster. `epoch` is the leader's: an agent that has heard of it takes no older one's orders."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._jobs: dict[str, Job] = {}
        self._by_node: dict[str, list[str]] = {}  # workers in the order in which they came
        self.strange = 0  # Jobs in the last report that nobody wants
        self._recognised = Recognised()
        self._is_ours = True  # the report that is being heard: it is of the cluster where these Jobs are
        self._complete_at_s = 0.0  # when the newest complete report was heard

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs.values()))

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._jobs

    @property
    def pending(self) -> int:
        """How many have not started, as far as is known."""
        return sum(job.phase is not JobPhase.RUNNING for job in self._jobs.values())

    def on(self, node: str) -> Job | None:
        """The worker that stands on a node, or will."""
        there = self._by_node.get(node)
        return self._jobs[there[0]] if there else None

    # What pools say

    def want(self, worker_id: str, node: str, capacity: Capacity, token: str) -> None:
        """A worker was ordered. Told again it changes nothing."""
        known = self._jobs.get(worker_id)
        if known is None:
            self._add(Job(worker_id=worker_id, node=node, capacity=capacity, token=token))
        elif not known.token:
            known.token, known.capacity = token, capacity

    def adopt(self, worker_id: str, node: str, handle: str, *, wanted: bool, capacity: Capacity = _NOTHING) -> None:
        """A worker of an earlier leader: its Job is there, or is not, or is on its way."""
        if worker_id in self._jobs:
            return
        node_uid, job_uid = read_handle(handle)
        there = bool(job_uid)
        job = Job(worker_id=worker_id, node=node, node_uid=node_uid, job_uid=job_uid, wanted=wanted, capacity=capacity)
        job.seen, job.told, job.ordered = there, there, not there
        job.why = "" if wanted else "it was given up: nothing was heard of it for too long"
        self._add(job)

    def unwant(self, worker_id: str, why: str) -> None:
        """A worker is of no use: its Job is to go. It counts until there is evidence that it did."""
        job = self._jobs.get(worker_id)
        if job is not None and job.wanted:
            job.wanted, job.why = False, why

    def _add(self, job: Job) -> None:
        self._jobs[job.worker_id] = job
        self._by_node.setdefault(job.node, []).append(job.worker_id)

    def _remove(self, job: Job) -> None:
        del self._jobs[job.worker_id]
        self._by_node[job.node].remove(job.worker_id)
        if not self._by_node[job.node]:
            del self._by_node[job.node]

    # What is to be done

    def say(self, worker_id: str, report: ClusterReported | None, now_s: float) -> Iterator[Effect]:
        """What its agent is told of one worker at once, without waiting for the next report."""
        job = self._jobs.get(worker_id)
        if job is None:
            return
        if not job.wanted:
            yield Delete(worker_id, job.why)
        elif report is not None and not job.seen:
            nodes = {node.name: node for node in report.nodes if node.name == job.node}
            yield from self._create(job, nodes.get(job.node), now_s)

    def hear(self, report: ClusterReported, now_s: float) -> list[Effect]:
        """What a report means for all workers: what is to be said again, and of whose end there is evidence."""
        nodes = {node.name: node for node in report.nodes}
        reported = {one.worker_id: one for one in report.jobs}
        self._is_ours = self._recognised.hear(report, self._uids())
        if _is_complete(report):
            self._begin_leases_anew(now_s)
        unknown = [one for key, one in reported.items() if key not in self._jobs]
        effects: list[Effect] = []
        for job in self:
            there = reported.get(job.worker_id)
            if there is not None:
                effects += self._there(job, there, nodes.get(job.node))
            else:
                effects += self._missing(job, report, nodes.get(job.node), now_s)
        self.strange = len(unknown)
        effects += _unknown(unknown[:DELETES_MAX])
        return effects

    def doubt(self) -> None:
        """Another agent is to come, and perhaps of another cluster: nothing follows of what it lacks at first."""
        self._recognised.doubt()

    def _uids(self) -> Iterator[str]:
        for job in self._jobs.values():
            if job.seen:
                yield job.node_uid
                yield job.job_uid

    def _begin_leases_anew(self, now_s: float) -> None:
        """Where reports stayed away for a while, ours or theirs was the outage."""
        if now_s - self._complete_at_s >= REPORT_STALE_S:
            for job in self._jobs.values():
                job.lacked_at_s = None
        self._complete_at_s = now_s

    def _there(self, job: Job, there: JobReport, node: NodeReport | None) -> Iterator[Effect]:
        if there.phase is JobPhase.REFUSED:
            yield from self._refused(job, there)
        elif there.phase is JobPhase.ENDED:
            expected = there.expected or not job.wanted
            yield self._exit(job, there.why or "its pod has ended", expected=expected, left=there.left)
        else:
            yield from self._stands(job, there, node)

    def _stands(self, job: Job, there: JobReport, node: NodeReport | None) -> Iterator[Effect]:
        job.phase, job.seen, job.lacked_at_s = there.phase, True, None
        job.job_uid = job.job_uid or there.job_uid
        job.address = there.address or job.address
        job.node_uid = job.node_uid or (node.uid if node is not None else "")
        job.waits = there.why if there.phase in _NOT_STARTED else ""
        if job.job_uid and not job.told:
            job.told = True
            yield Started(job.worker_id, handle_of(job))
        if not job.wanted:
            yield Delete(job.worker_id, job.why)

    def _refused(self, job: Job, there: JobReport) -> Iterator[Effect]:
        """The agent did not create it: the order is given up. Of a Job that was there that says nothing.

        The same order may be on its way once more, and be taken then: it is over when the agent has forgotten it, on
        our word that came after all of these.
        """
        if job.seen:
            return
        if not job.refused:
            job.refused, job.wanted = True, False
            job.why = f"its agent did not create it: {there.why or 'it did not say why'}"
        yield Delete(job.worker_id, job.why)

    def _missing(self, job: Job, report: ClusterReported, node: NodeReport | None, now_s: float) -> Iterator[Effect]:
        evidence = self._evidence(job, report, node, now_s)
        if evidence:
            yield self._exit(job, evidence, expected=not job.refused)
        elif not job.wanted:
            yield Delete(job.worker_id, job.why)
        elif not job.seen:
            yield from self._create(job, node, now_s)

    def _evidence(self, job: Job, report: ClusterReported, node: NodeReport | None, now_s: float) -> str:
        """Why a worker whose Job is in no report has ended; "" when that is not known."""
        if not _is_complete(report):
            return ""
        if report.leader_epoch < self._epoch:
            return ""  # its agent had not heard of us: it may be older than what an earlier leader was told
        if job.refused and not job.seen:
            return job.why
        if not job.seen:
            return "" if self._may_come(job, now_s) else "its Job was never created"
        if node is not None and (not job.node_uid or not node.uid or node.uid == job.node_uid):
            job.lacked_at_s = None
            return "its Job is gone, and its node is there" if node.state is NodeState.READY else ""
        return self._without_node(job, report, node, now_s)

    def _without_node(self, job: Job, report: ClusterReported, node: NodeReport | None, now_s: float) -> str:
        """Its Node, by UID, is not told of either: it is no more, or the selector leaves it out, or it is elsewhere.

        What nobody can know is not waited for longer than a lease: its token ends with it, and its node gets no other
        worker before it is told of again, ready and without this Job.
        """
        if self._is_ours and node is not None:
            return "its node was replaced by another of the same name"
        if self._is_ours and report.every:
            return "its node is gone"
        if job.lacked_at_s is None:
            job.lacked_at_s = now_s
        return _LACKED if now_s - job.lacked_at_s >= WORKER_LEASE_S else ""

    def _may_come(self, job: Job, now_s: float) -> bool:
        """Whether the Job of an order that no report has may still be created: its agent has heard of us."""
        if job.wanted and job.token:
            return True
        if not job.ordered:
            return False
        if job.said_at_s is None:
            job.said_at_s = now_s
        return now_s - job.said_at_s < SETTLED_S

    def _create(self, job: Job, node: NodeReport | None, now_s: float) -> Iterator[Effect]:
        """Where its node is reported, and no other worker of ours is there."""
        first = self.on(job.node)
        if node is None or not job.token or first is not job:
            return
        job.node_uid, job.ordered, job.said_at_s = node.uid, True, now_s
        yield Create(job)

    def _exit(self, job: Job, evidence: str, *, expected: bool, left: bool = False) -> Exited:
        self._remove(job)
        known = not job.why or job.why == evidence
        return Exited(job.worker_id, evidence if known else f"{job.why}: {evidence}", expected, left)


def _is_complete(report: ClusterReported) -> bool:
    """Whether what it lacks was not there. One that is blind is not heard at all."""
    return not report.problem and report.view_age_s < REPORT_STALE_S


def _unknown(reported: Iterable[JobReport]) -> Iterator[Effect]:
    """Jobs that nobody wants; and of those that ended and were refused, that we have heard of it."""
    for one in reported:
        over = one.phase in (JobPhase.ENDED, JobPhase.REFUSED)
        yield Delete(one.worker_id, "its end is known" if over else "nobody wants this worker")


def handle_of(job: Job) -> str:
    """What finds a worker's Job again: names are not identities."""
    return f"job/{job.node_uid}/{job.job_uid}"


def read_handle(handle: str) -> tuple[str, str]:
    """The identities of the Node and of the Job in a handle, "" where there is none."""
    kind, _, rest = handle.partition("/")
    node_uid, _, job_uid = rest.rpartition("/")
    return (node_uid, job_uid) if kind == "job" else ("", "")
