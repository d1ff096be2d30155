"""One worker as its agent knows it: its order, its Job, its pods by UID, and how it ended."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...kube.objects import Job
from ...model.figures import JOB_START_LIMIT_S, JOB_WITHOUT_POD_S
from ...wire.cluster import JobPhase, JobReport
from .standing import PodStanding, job_end

CREATING_LONG_S: Final = 60.0  # then it is told that a container is still being created
NODE_GONE: Final = "Its node is gone"
NOT_ADMITTED: Final = "Its Job has no pod: it was not admitted (quota or webhook)"
_NOBODY_KNOWS: Final = "its node is not ready: nobody knows whether it still runs"


class Asked(enum.Enum):
    """What the agent asked the API server for, and has not heard of."""

    NOTHING = "nothing"
    CREATE = "create"
    DELETE = "delete"


@dataclass(slots=True)
class Worker:
    """A worker that was ordered, or whose Job or pod was found.

    `began_s` is when its Job was made, on our clock. `unsure` when nobody knows whether it was. `refused` and `ended`
    are why, None while it is neither.
    """

    worker_id: str
    node: str
    node_uid: str
    began_s: float
    job_uid: str = ""  # "" while its Job is not there
    job_seen: bool = False
    job_end: str | None = None
    pods: dict[str, PodStanding] = field(default_factory=dict)
    lost_pod: str = ""  # the UID of one that went without an end
    pod_uid: str = ""
    started: bool = False
    asked: Asked = Asked.NOTHING
    unsure: bool = False
    removing: str = ""  # why its Job is to go
    refused: str | None = None
    ended: str | None = None
    expected: bool = False  # its end, which says nothing of how another one would start
    left: bool = False  # by itself, and well
    late: bool = False  # it is removed since it has not started
    over_s: float = 0.0  # when it was refused, or ended
    phase: JobPhase = JobPhase.NO_POD
    since_s: float = 0.0

    @property
    def over(self) -> bool:
        """Whether it takes no room any more: it was refused, or has ended."""
        return self.refused is not None or self.ended is not None

    @property
    def holds_node(self) -> bool:
        """Whether no other may stand on its node: it is not over, or it has a pod all the same, or may get one."""
        return not self.over or self.alive is not None or (bool(self.job_uid) and not self.finished)

    @property
    def pending(self) -> bool:
        """Whether it holds its node and has not started."""
        return self.holds_node and not self.started

    @property
    def finished(self) -> bool:
        """Whether Kubernetes itself says that it ended: then its Job makes no pod any more, and goes by itself."""
        return self.job_end is not None or any(pod.ended for pod in self.pods.values())

    @property
    def told(self) -> bool:
        """Whether it is in reports: an order of which nobody knows is not, so that it is given again."""
        return self.over or self.job_seen or bool(self.pod_uid)

    def has_job(self, job: Job) -> None:
        """Its Job is there."""
        self.job_uid, self.job_seen, self.unsure = job.metadata.uid, True, False
        self.job_end = job_end(job)

    def has_pod(self, pod: PodStanding) -> None:
        """A pod of it is there."""
        self.pods[pod.uid] = pod
        self.pod_uid = pod.uid
        self.started = self.started or pod.started
        self.lost_pod = "" if self.lost_pod == pod.uid else self.lost_pod

    def pod_went(self, uid: str) -> None:
        """A pod is not there any more: by itself that says nothing of what runs on its node."""
        pod = self.pods.get(uid)
        if pod is not None and not pod.ended:
            del self.pods[uid]
            self.lost_pod = uid

    @property
    def alive(self) -> PodStanding | None:
        """The pod that has not ended, the one that runs before others."""
        living = [pod for pod in self.pods.values() if not pod.ended]
        return next((pod for pod in living if pod.started), living[0] if living else None)

    def evidence(self, node_there: bool, node_ready: bool) -> str | None:
        """How it ended, where that is known; None while it may run or start (architecture, section 6)."""
        alive = self.alive
        if not node_there and (not self.job_uid if alive is None else alive.node):
            return None if self.asked is Asked.CREATE or self.unsure else NODE_GONE
        if alive is not None or self.asked is Asked.CREATE or self.unsure:
            return None
        last = self.pods.get(self.pod_uid)
        if last is not None:
            return last.why
        if self.lost_pod:
            return (self.removing or "Its pod was deleted") if node_ready else None
        if self.job_end is not None:
            return self.job_end
        if self.job_seen and not self.job_uid:
            return (self.removing or "Its Job was removed") if node_ready else None
        return None

    def end(self, why: str, now_s: float, *, node_there: bool) -> None:
        """There is evidence of its end."""
        last = self.pods.get(self.pod_uid)
        taken = last.expected if last is not None else bool(self.lost_pod) or self.job_end is None
        self.ended, self.over_s = why, now_s
        self.left = last is not None and last.left
        self.expected = not node_there or (taken and not self.late)

    def overdue(self, now_s: float) -> bool:
        """Whether its Job is to be removed, since its pod has not started for too long."""
        return bool(self.job_uid) and self.pending and now_s - self.began_s >= JOB_START_LIMIT_S

    def report(self, now_s: float, unix: Callable[[float], float]) -> JobReport:
        """Where it stands."""
        phase, why = self._standing(now_s)
        if phase is not self.phase or not self.since_s:
            self.phase, self.since_s = phase, unix(self.over_s if self.over else now_s)
        return JobReport(
            worker_id=self.worker_id,
            phase=phase,
            job_uid=self.job_uid,
            pod_uid=self.pod_uid,
            node=self.node,
            since_s=self.since_s,
            why=why,
            address=self.alive.address if phase is JobPhase.RUNNING and self.alive is not None else "",
            expected=self.expected,
            left=self.left,
        )

    def _standing(self, now_s: float) -> tuple[JobPhase, str]:
        if self.refused is not None:
            return JobPhase.REFUSED, self.refused
        if self.ended is not None:
            return JobPhase.ENDED, self.ended
        pod = self.alive
        if pod is not None and pod.started:
            return JobPhase.RUNNING, self._why_leaving(pod)
        if pod is not None:
            return JobPhase.PENDING, pod.why or self._why_leaving(pod) or self._why_creating(pod, now_s)
        if self.lost_pod:
            return JobPhase.RUNNING if self.started else JobPhase.PENDING, f"Its pod was removed, and {_NOBODY_KNOWS}"
        if not self.job_uid:
            return JobPhase.NO_POD, f"Its Job was removed, and {_NOBODY_KNOWS}"
        return JobPhase.NO_POD, NOT_ADMITTED if now_s - self.began_s >= JOB_WITHOUT_POD_S else ""

    def _why_leaving(self, pod: PodStanding) -> str:
        return (self.removing or "Its pod is being deleted") if pod.leaving else ""

    def _why_creating(self, pod: PodStanding, now_s: float) -> str:
        if not pod.node or now_s - self.began_s < CREATING_LONG_S:
            return ""
        return f"Its container is still being created after {CREATING_LONG_S:.0f} s: a large image, or a volume"
