"""The status of a pod as its kubelet writes it, from the states of its containers. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from ..kube.objects import Condition
from .expansion import PodPlace
from .objects import Container


class Phase(enum.StrEnum):
    """The summary of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Waiting(msgspec.Struct, frozen=True):
    """It doesn't run, and why."""

    reason: str
    message: str = ""


class Running(msgspec.Struct, frozen=True):
    """It runs, since when."""

    started_at: str


class Terminated(msgspec.Struct, frozen=True, kw_only=True):
    """It has ended."""

    exit_code: int
    started_at: str
    finished_at: str
    reason: str = ""
    message: str = ""


State = Waiting | Running | Terminated


class ContainerState(msgspec.Struct, kw_only=True):
    """A container of a pod as it is now. `is_sidecar`: one that starts before the others and goes on beside them."""

    container: Container
    state: State
    is_init: bool = False
    is_sidecar: bool = False
    last: Terminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """Why a whole pod failed, such as "Evicted"."""

    reason: str
    message: str


class Note(msgspec.Struct, frozen=True):
    """What happened to a pod, for `kubectl describe`."""

    reason: str
    message: str
    is_warning: bool = False


def will_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended so is started again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def phase_of(policy: str, states: Sequence[ContainerState], outcome: Outcome | None, over: bool) -> Phase:
    """The phase. `over`: nothing of the pod will run any more."""
    if outcome is not None:
        return Phase.FAILED
    plain = [each for each in states if not each.is_init]
    before = [each for each in states if each.is_init and not each.is_sidecar]
    if any(_failed(each) for each in before) and over:
        return Phase.FAILED
    if over and all(isinstance(each.state, Terminated) for each in plain):
        return Phase.FAILED if any(map(_failed, plain)) else Phase.SUCCEEDED
    if over:
        return Phase.FAILED
    begun = [each for each in plain if each.last is not None or not isinstance(each.state, Waiting)]
    return Phase.RUNNING if begun else Phase.PENDING


def _failed(each: ContainerState) -> bool:
    return isinstance(each.state, Terminated) and each.state.exit_code != 0


def conditions_of(states: Sequence[ContainerState], phase: Phase, place: PodPlace) -> list[Condition]:
    """The conditions that a kubelet writes; times are left out."""
    before = [each for each in states if each.is_init]
    plain = [each for each in states if not each.is_init]
    initialized = all(_initialized(each) for each in before)
    ready = phase is Phase.RUNNING and all(each.ready for each in plain)
    done = phase is Phase.SUCCEEDED
    why = "PodCompleted" if done else "" if ready else "ContainersNotReady"
    unready = [each.container.name for each in plain if not each.ready]
    message = "" if ready or done else f"containers with unready status: [{' '.join(unready)}]"
    return [
        Condition(type="PodReadyToStartContainers", status=_word(bool(place.pod_ip))),
        Condition(
            type="Initialized",
            status=_word(initialized or done),
            reason="" if initialized else "ContainersNotInitialized",
        ),
        Condition(type="Ready", status=_word(ready), reason=why, message=message),
        Condition(type="ContainersReady", status=_word(ready), reason=why, message=message),
    ]


def _initialized(each: ContainerState) -> bool:
    if each.is_sidecar:
        return each.started
    return isinstance(each.state, Terminated) and each.state.exit_code == 0


def _word(truth: bool) -> str:
    return "True" if truth else "False"


def merged(ours: Iterable[Condition], written: Iterable[Condition], now: str) -> list[dict[str, object]]:
    """Our conditions and those of others, each with the time at which it last became what it is."""
    before = {each.type: each for each in written}
    found: list[dict[str, object]] = []
    for condition in ours:
        old = before.pop(condition.type, None)
        same = old is not None and old.status == condition.status
        since = old.last_transition_time if old is not None and same else now
        found.append(_condition(condition, since or now))
    return [*found, *(_condition(each, each.last_transition_time or now) for each in before.values())]


def _condition(condition: Condition, since: str) -> dict[str, object]:
    shown: dict[str, object] = {"type": condition.type, "status": condition.status, "lastTransitionTime": since}
    if condition.reason:
        shown["reason"] = condition.reason
    if condition.message:
        shown["message"] = condition.message
    return shown


def container_body(each: ContainerState) -> dict[str, object]:
    """A container's status as it is written."""
    body: dict[str, object] = {
        "name": each.container.name,
        "image": each.container.image,
        "imageID": f"lab://{each.container.image}" if each.container_id else "",
        "ready": each.ready,
        "started": each.started,
        "restartCount": each.restarts,
        "state": _state_body(each.state, each.container_id),
        "lastState": _state_body(each.last, each.container_id) if each.last is not None else {},
    }
    if each.container_id:
        body["containerID"] = each.container_id
    return body


def _state_body(state: State, container_id: str) -> dict[str, object]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, **({"message": state.message} if state.message else {})}}
    if isinstance(state, Running):
        return {"running": {"startedAt": state.started_at}}
    ended: dict[str, object] = {
        "exitCode": state.exit_code,
        "reason": state.reason or ("Completed" if state.exit_code == 0 else "Error"),
        "startedAt": state.started_at or None,
        "finishedAt": state.finished_at,
    }
    if state.message:
        ended["message"] = state.message
    if container_id:
        ended["containerID"] = container_id
    return {"terminated": ended}


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """All that a pod's status is made of."""

    policy: str
    states: tuple[ContainerState, ...]
    place: PodPlace
    start_time: str
    outcome: Outcome | None = None
    disrupted: bool = False  # by the node, not by its own doing
    over: bool = False

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return phase_of(self.policy, self.states, self.outcome, self.over)


def status_body(view: PodView, written: Iterable[Condition], now: str) -> dict[str, object]:
    """The status to merge into the pod; `written` are the conditions that it has."""
    phase = view.phase
    conditions = conditions_of(view.states, phase, view.place)
    if view.disrupted and view.outcome is not None:
        conditions.append(
            Condition(
                type="DisruptionTarget",
                status="True",
                reason="TerminationByKubelet",
                message=view.outcome.message,
            )
        )
    body: dict[str, object] = {
        "phase": phase.value,
        "conditions": merged(conditions, written, now),
        "hostIP": view.place.host_ip,
        "hostIPs": [{"ip": view.place.host_ip}],
        "startTime": view.start_time,
        "containerStatuses": [container_body(each) for each in view.states if not each.is_init],
        "reason": view.outcome.reason if view.outcome else None,
        "message": view.outcome.message if view.outcome else None,
    }
    if view.place.pod_ip:
        body |= {"podIP": view.place.pod_ip, "podIPs": [{"ip": view.place.pod_ip}]}
    if before := [container_body(each) for each in view.states if each.is_init]:
        body["initContainerStatuses"] = before
    return body
