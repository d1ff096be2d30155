"""What a Job asks for and how it stands, as the Job controller has it, for one pod at a time. Pure."""

from __future__ import annotations

from typing import Final

from .bodies import Json, list_at, map_at, number_at, text_at, texts_at

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # those of which Kubernetes makes the ends of names
_BACKOFF_LIMIT: Final = 6  # of a Job that names none


class Tally:
    """A Job's pods so far, by uid, each with its phase; "" is one that went away before it had ended."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        self.names: dict[str, str] = {}  # of those that are there

    def saw(self, uid: str, name: str, phase: str, *, here: bool) -> None:
        """A pod is in a phase, or went away in it."""
        self.phases[uid] = phase if here or phase in ("Succeeded", "Failed") else ""
        if here:
            self.names[uid] = name
        else:
            self.names.pop(uid, None)

    def count(self, *phases: str) -> int:
        """How many pods are, or ended, in one of these phases."""
        return sum(phase in phases for phase in self.phases.values())

    @property
    def active(self) -> int:
        """Pods that wait or run."""
        return self.count("Pending", "Running", "Unknown")

    @property
    def failed(self) -> int:
        """Pods that failed, or went away before they had ended."""
        return self.count("Failed", "")

    @property
    def succeeded(self) -> int:
        """Pods that succeeded."""
        return self.count("Succeeded")


def wants_pod(job: Json, tally: Tally) -> bool:
    """Whether a pod is to be made."""
    if is_finished(job) or map_at(job, "spec").get("suspend") is True:
        return False
    limit = number_at(job, "spec", "backoffLimit", default=_BACKOFF_LIMIT)
    return not tally.active and not tally.succeeded and tally.failed <= limit


def is_finished(job: Json) -> bool:
    """Whether it completed or failed."""
    return bool(ended_at(job))


def ended_at(job: Json) -> str:
    """When it completed or failed; "" where it has not."""
    for condition in list_at(job, "status", "conditions"):
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return text_at(condition, "lastTransitionTime")
    return ""


def pod_of(job: Json, number: int) -> Json:
    """The body of a Job's pod; `number` makes its name."""
    name, uid = text_at(job, "metadata", "name"), text_at(job, "metadata", "uid")
    template = map_at(job, "spec", "template")
    ours = {"batch.kubernetes.io/job-name": name, "job-name": name}
    ours |= {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    metadata = {
        **map_at(template, "metadata"),
        "name": f"{name[:57]}-{_suffix(number)}",
        "namespace": text_at(job, "metadata", "namespace"),
        "labels": {**texts_at(template, "metadata", "labels"), **ours},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"metadata": metadata, "spec": map_at(template, "spec")}


def status_of(job: Json, tally: Tally, now: str) -> Json:
    """A patch of a Job's status. A Job that is finished stays as it is."""
    if is_finished(job):
        return {}
    counts = {"active": tally.active, "succeeded": tally.succeeded, "failed": tally.failed}
    status: Json = {key: count or None for key, count in counts.items()}
    if tally.phases:
        status["startTime"] = text_at(job, "status", "startTime") or now
    condition = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    if tally.succeeded:
        status["conditions"] = [{"type": "Complete", "reason": "CompletionsReached", **condition}]
        status["completionTime"] = now
    elif tally.failed > number_at(job, "spec", "backoffLimit", default=_BACKOFF_LIMIT):
        told = "Job has reached the specified backoff limit"
        status["conditions"] = [{"type": "Failed", "reason": "BackoffLimitExceeded", "message": told, **condition}]
    return {"status": status}


def _suffix(number: int) -> str:
    letters = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return letters
