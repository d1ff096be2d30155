"""The status of a pod from those of its containers."""

import pytest

from levers9.kube.objects import Condition
from levers9.lab.expansion import PodPlace
from levers9.lab.objects import Container
from levers9.lab.podstatus import (
    ContainerState,
    Outcome,
    Phase,
    PodView,
    Running,
    State,
    Terminated,
    Waiting,
    phase_of,
    status_body,
    will_restart,
)

PLACE = PodPlace(node="tray-0", host_ip="127.77.0.1", pod_ip="127.77.0.2")
RUNS = Running("2026-01-01T00:00:00Z")
WAITS = Waiting("ContainerCreating")


def ended(exit_code: int) -> Terminated:
    return Terminated(exit_code=exit_code, started_at="", finished_at="2026-01-01T00:00:01Z")


def one(state: State, *, init: bool = False, last: Terminated | None = None, ready: bool = False) -> ContainerState:
    return ContainerState(container=Container(name="main"), state=state, is_init=init, last=last, ready=ready)


@pytest.mark.parametrize(
    ("policy", "states", "over", "expected"),
    [
        ("Always", [one(WAITS)], False, Phase.PENDING),
        ("Always", [one(RUNS)], False, Phase.RUNNING),
        ("Always", [one(Waiting("CrashLoopBackOff"), last=ended(1))], False, Phase.RUNNING),
        ("Never", [one(ended(0)), one(RUNS)], False, Phase.RUNNING),
        ("Never", [one(ended(0)), one(ended(0))], True, Phase.SUCCEEDED),
        ("Never", [one(ended(0)), one(ended(3))], True, Phase.FAILED),
        ("OnFailure", [one(ended(0))], True, Phase.SUCCEEDED),
        ("Never", [one(ended(1), init=True), one(WAITS)], True, Phase.FAILED),
        ("Never", [one(ended(0), init=True), one(WAITS)], False, Phase.PENDING),
        ("Always", [one(WAITS)], True, Phase.FAILED),
    ],
)
def test_the_phase_sums_up_the_containers(
    policy: str, states: list[ContainerState], over: bool, expected: Phase
) -> None:
    assert phase_of(policy, states, None, over) is expected


def test_a_pod_that_its_node_ended_has_failed_whatever_its_containers_say() -> None:
    assert phase_of("Never", [one(ended(0))], Outcome("Evicted", ""), True) is Phase.FAILED


@pytest.mark.parametrize(
    ("policy", "exit_code", "expected"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_policy_says_who_restarts(policy: str, exit_code: int, expected: bool) -> None:
    assert will_restart(policy, exit_code) is expected


def view(*states: ContainerState, outcome: Outcome | None = None) -> PodView:
    return PodView(
        policy="Never", states=states, place=PLACE, start_time="s", outcome=outcome, disrupted=outcome is not None
    )


def conditions(body: dict[str, object]) -> dict[str, dict[str, str]]:
    found = body["conditions"]
    assert isinstance(found, list)
    return {each["type"]: each for each in found}


def test_conditions_of_others_stay_and_unchanged_ones_keep_their_time() -> None:
    written = (
        Condition(type="PodScheduled", status="True", last_transition_time="t0"),
        Condition(type="Ready", status="True", last_transition_time="t1"),
        Condition(type="ContainersReady", status="False", last_transition_time="t1"),
    )
    found = conditions(status_body(view(one(RUNS, ready=True)), written, "now"))
    assert found["PodScheduled"]["lastTransitionTime"] == "t0"
    assert found["Ready"] == {"type": "Ready", "status": "True", "lastTransitionTime": "t1"}
    assert found["ContainersReady"]["lastTransitionTime"] == "now"


def test_an_unready_container_is_named() -> None:
    found = conditions(status_body(view(one(RUNS)), (), "now"))
    assert found["Ready"]["message"] == "containers with unready status: [main]"


def test_an_evicted_pod_says_why_and_that_it_was_no_fault_of_its_own() -> None:
    body = status_body(view(one(ended(137)), outcome=Outcome("Evicted", "low on memory")), (), "now")
    assert (body["phase"], body["reason"], body["message"]) == ("Failed", "Evicted", "low on memory")
    assert conditions(body)["DisruptionTarget"]["reason"] == "TerminationByKubelet"


def test_a_pod_without_an_outcome_clears_what_was_said_before() -> None:
    body = status_body(view(one(RUNS)), (), "now")
    assert (body["reason"], body["message"]) == (None, None)


def test_how_a_container_ended_is_told_with_its_code() -> None:
    body = status_body(view(one(ended(7))), (), "now")
    statuses = body["containerStatuses"]
    assert isinstance(statuses, list)
    assert statuses[0]["state"]["terminated"]["exitCode"] == 7
    assert statuses[0]["state"]["terminated"]["reason"] == "Error"
