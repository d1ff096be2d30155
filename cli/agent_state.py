"""Why an agent that was applied has not dialled in, from its pods and the end of its log, in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..kube.objects import ContainerStatus, Pod

_IMAGE: Final = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_CRASH: Final = frozenset({"CrashLoopBackOff", "RunContainerError", "CreateContainerError"})
_CONFIG: Final = frozenset({"CreateContainerConfigError"})
_FIXES: Final = (
    (r"is not signed by|certificate verify failed|self.signed|unknown authority",
     "It does not trust the control plane's certificate: start the control plane with --external-ca FILE, and join "
     "again."),
    (r"certificate of .* is for another name",
     "The control plane's certificate is for another name: give it one for the host in --external-url."),
    (r"unknown or revoked|is not for agent|\b401\b|unauthenticated",
     "Its token is not good any more: join again, which renews it."),
    (r"proxy",
     "It goes through a proxy that does not let it: look at HTTPS_PROXY and NO_PROXY of the Deployment."),
    (r"cannot be resolved|Name or service not known|No address associated|Temporary failure in name",
     "It cannot resolve the control plane's name: look at DNS in the cluster."),
    (r"refused|timed out|does not answer|unreachable|cannot be reached|did not answer|All connection attempts",
     "It cannot dial out: the cluster must let pods reach the control plane's address, 443 as a rule."),
)  # fmt: skip
_LINES_TOLD: Final = 5


class AgentSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent's pod stands. `pod` "" is none; `reads_log` says that its log may tell more, `ended` that it ends
    again and again.
    """

    state: str
    pod: str = ""
    reads_log: bool = False
    ended: bool = False


def seen_of(pods: Sequence[Pod]) -> AgentSeen:
    """The newest pod counts: an older one may be on its way out."""
    living = [pod for pod in pods if not pod.metadata.deletion_timestamp]
    if not living:
        return AgentSeen(state="Its pod is not there yet: the Deployment makes it.")
    pod = max(living, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name))
    name = pod.metadata.name
    status = next(iter(pod.status.container_statuses or ()), None)
    if status is None:
        return AgentSeen(state=_unplaced(pod), pod=name)
    if status.state.running is not None and not status.restart_count:
        return AgentSeen(state="Its pod runs, and has not dialled in yet.", pod=name, reads_log=True)
    return _not_running(name, status)


def _unplaced(pod: Pod) -> str:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"No node takes its pod: {_sentence(condition.message or condition.reason)}"
    return "Its pod is being started."


def _not_running(name: str, status: ContainerStatus) -> AgentSeen:
    waiting, ended = status.state.waiting, status.state.terminated
    reason = waiting.reason if waiting else ended.reason if ended else ""
    detail = waiting.message if waiting else ended.message if ended else ""
    if reason in _IMAGE:
        why = detail.rpartition("ErrImagePull: ")[2]  # between two tries it is said within another message
        what = f"Its image {status.image} cannot be pulled" if status.image else "Its image cannot be pulled"
        return AgentSeen(state=f"{what}: {_sentence(why)}" if why else f"{what} ({reason}).", pod=name)
    if reason in _CONFIG:
        return AgentSeen(state=f"Its pod cannot be made ({reason}): {_sentence(detail)}", pod=name)
    if reason in _CRASH or ended is not None or status.restart_count:
        ends = max(1, status.restart_count)
        times = f"{ends} times" if ends > 1 else "once"
        return AgentSeen(
            state=f"It ended {times} by itself, and is started again.", pod=name, reads_log=True, ended=True
        )
    return AgentSeen(state="Its pod is being started.", pod=name)


def told_of_log(text: str, *, ended: bool = False) -> str:
    """The last complaint of a log and what to do about it; of an agent that `ended` at least its last words."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        words = said_in(line)
        fix = next((fix for pattern, fix in _FIXES if re.search(pattern, words, re.IGNORECASE)), "")
        if fix:
            return f"Its log says: {_sentence(words)} {fix}"
    return f"Its log ends with: {_sentence(said_in(lines[-1]))}" if lines and ended else ""


def tail_of(text: str) -> tuple[str, ...]:
    """The last lines, as they are to be shown."""
    lines = [said_in(line) for line in text.splitlines() if line.strip()]
    return tuple(lines[-_LINES_TOLD:])


def said_in(line: str) -> str:
    """The words of a line, whether it is JSON or was written for people."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return line.strip()
    return ": ".join(_values(fields[key] for key in ("event", "why", "error") if fields.get(key)))


def _values(found: Iterable[object]) -> list[str]:
    return [str(value) for value in found]


def _sentence(words: str) -> str:
    line = " ".join(words.split()).rstrip(".")
    return f"{line}." if line else "no reason is told."
