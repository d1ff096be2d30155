"""Where a worker's pod and its Job stand, and why, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...kube.objects import Condition, ContainerStatus, Job, Pod

_PULLS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable"})
_QUIET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_KILLED_BY: Final = "DisruptionTarget"
_PUSHED_OUT: Final = frozenset({"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
_WHY_MAX: Final = 500  # characters


class PodStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's pod. `why` says why it has not started, or how it ended.

    `expected`: it was deleted, or had to make way (a taint, a preemption, a drain). `left`: it ended well by itself.
    """

    uid: str
    job_uid: str
    node: str
    started: bool = False
    ended: bool = False
    leaving: bool = False
    why: str = ""
    expected: bool = False
    left: bool = False
    address: str = ""


def pod_standing(pod: Pod) -> PodStanding:
    """Where a pod stands."""
    statuses = pod.status.container_statuses or ()
    ended = pod.status.phase in ("Succeeded", "Failed")
    started = pod.status.phase == "Running" or any(each.state.running or each.state.terminated for each in statuses)
    why = _how_ended(pod, statuses) if ended else "" if started else _why_waiting(pod, statuses)
    return PodStanding(
        uid=pod.metadata.uid,
        job_uid=next((owner.uid for owner in pod.metadata.owner_references if owner.kind == "Job"), ""),
        node=pod.spec.node_name,
        started=started,
        ended=ended,
        leaving=bool(pod.metadata.deletion_timestamp),
        why=_cut(why),
        expected=ended and _is_expected(pod),
        left=pod.status.phase == "Succeeded",
        address=pod.status.pod_ip,
    )


def _why_waiting(pod: Pod, statuses: Iterable[ContainerStatus]) -> str:
    scheduled = _condition(pod.status.conditions, "PodScheduled")
    if not pod.spec.node_name:
        if scheduled is None or scheduled.status != "False":
            return ""
        return f"The scheduler does not place its pod ({scheduled.reason}): {scheduled.message}"
    for status in statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in _QUIET:
            if waiting.reason in _PULLS or waiting.reason.startswith("ErrImage"):
                return _why_not_pulled(pod, waiting.reason, waiting.message)
            return f"Its container does not start ({waiting.reason}): {waiting.message}"
    return ""


def _why_not_pulled(pod: Pod, reason: str, message: str) -> str:
    image = next((container.image for container in pod.spec.containers), "")
    secrets = ", ".join(secret.name for secret in pod.spec.image_pull_secrets or ())
    with_what = f"with the pull secret {secrets}" if secrets else "without a pull secret"
    said = f": {message}" if message else ""
    return f"The image {image} cannot be pulled {with_what} ({reason}{said})"


def _is_expected(pod: Pod) -> bool:
    disrupted = _condition(pod.status.conditions, _KILLED_BY)
    return (
        pod.status.reason in _PUSHED_OUT
        or bool(pod.metadata.deletion_timestamp)
        or (disrupted is not None and disrupted.status == "True")
    )


def _how_ended(pod: Pod, statuses: Iterable[ContainerStatus]) -> str:
    status = pod.status
    by = _condition(status.conditions, _KILLED_BY)
    if status.reason:
        return f"Kubernetes ended its pod ({status.reason}): {status.message}"
    if by is not None and by.status == "True":
        return f"Kubernetes ended its pod ({by.reason}): {by.message}"
    for each in statuses:
        done = each.state.terminated
        if done is not None and (done.exit_code or done.reason == "OOMKilled"):
            reason = f" ({done.reason})" if done.reason not in ("", "Error") else ""
            return f"It exited with code {done.exit_code}{reason}" + (f": {done.message}" if done.message else "")
    return "It exited with code 0" if status.phase == "Succeeded" else "Its pod failed"


def job_end(job: Job) -> str | None:
    """How a Job ended; None while it has not."""
    for condition in job.status.conditions or ():
        if condition.status == "True" and condition.type in ("Complete", "Failed"):
            return _cut(f"Its Job ended ({condition.reason or condition.type}): {condition.message}".rstrip(": "))
    return None


def _condition(conditions: Iterable[Condition] | None, type_: str) -> Condition | None:
    return next((condition for condition in conditions or () if condition.type == type_), None)


def _cut(text: str) -> str:
    return text if len(text) <= _WHY_MAX else text[: _WHY_MAX - 1] + "…"
