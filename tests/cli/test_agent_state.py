"""Why an agent has not dialled in: its pods and its log in words."""

from __future__ import annotations

import json

import msgspec
import pytest

from levers9.cli.agent_state import AgentSeen, said_in, seen_of, tail_of, told_of_log
from levers9.kube.objects import (
    Condition,
    ContainerDetail,
    ContainerStates,
    ContainerStatus,
    Meta,
    Pod,
    PodStatus,
)

RUNNING = ContainerStates(running=ContainerDetail())


def pod(name: str = "p", made: str = "2026-01-01", *, state: ContainerStates | None = None, **change: object) -> Pod:
    statuses = None if state is None else (ContainerStatus(name="agent", image="levers9:1", state=state),)
    one = Pod(metadata=Meta(name=name, creation_timestamp=made), status=PodStatus(container_statuses=statuses))
    return msgspec.structs.replace(one, **change)


def test_a_pod_that_is_not_there_yet() -> None:
    leaving = pod(metadata=Meta(name="p", deletion_timestamp="2026-01-02"))
    assert seen_of([]) == seen_of([leaving]) == AgentSeen(state="Its pod is not there yet: the Deployment makes it.")


def test_a_pod_that_no_node_takes_is_told_with_the_schedulers_words() -> None:
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/2 nodes fit.")
    unplaced = pod(status=PodStatus(conditions=(condition,)))
    assert seen_of([unplaced]).state == "No node takes its pod: 0/2 nodes fit."


@pytest.mark.parametrize(
    ("reason", "message", "told"),
    [
        ("ErrImagePull", "not found", ": not found."),
        ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found', ": not found."),
        ("ImagePullBackOff", "", " (ImagePullBackOff)."),
    ],
)
def test_an_image_that_cannot_be_pulled_is_named_in_the_same_words_at_each_try(
    reason: str, message: str, told: str
) -> None:
    waiting = ContainerStates(waiting=ContainerDetail(reason=reason, message=message))
    state = f"Its image levers9:1 cannot be pulled{told}"
    assert seen_of([pod(state=waiting)]) == AgentSeen(state=state, pod="p")


def test_a_secret_that_is_missing_is_told() -> None:
    waiting = ContainerStates(
        waiting=ContainerDetail(reason="CreateContainerConfigError", message='secret "levers9-agent" not found')
    )
    assert "secret" in seen_of([pod(state=waiting)]).state


@pytest.mark.parametrize(
    "state",
    [
        ContainerStates(waiting=ContainerDetail(reason="CrashLoopBackOff")),
        ContainerStates(terminated=ContainerDetail(reason="Error", exit_code=1)),
    ],
)
def test_an_agent_that_ends_again_and_again_is_told_with_its_log(state: ContainerStates) -> None:
    told = "It ended once by itself, and is started again."
    assert seen_of([pod(state=state)]) == AgentSeen(state=told, pod="p", reads_log=True, ended=True)


def test_an_agent_that_is_running_again_has_still_ended() -> None:
    again = ContainerStatus(name="agent", state=RUNNING, restart_count=3)
    seen = seen_of([pod(status=PodStatus(container_statuses=(again,)))])
    assert (seen.state, seen.ended) == ("It ended 3 times by itself, and is started again.", True)


def test_an_agent_that_runs_may_have_said_why_it_has_not_dialled_in() -> None:
    seen = seen_of([pod("old", "2026-01-01"), pod("new", "2026-01-02", state=RUNNING)])
    assert (seen.pod, seen.reads_log) == ("new", True)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("The certificate of x is not signed by anybody this machine trusts", "--external-ca FILE"),
        ("The certificate of x is for another name", "--external-url"),
        ("The token is unknown or revoked.", "join again, which renews it"),
        ("The proxy http://p cannot be reached: refused", "HTTPS_PROXY"),
        ("x cannot be resolved", "look at DNS"),
        ("[Errno 111] Connection refused", "cannot dial out"),
    ],
)
def test_the_last_complaint_of_a_log_is_told_with_what_to_do(said: str, told: str) -> None:
    line = json.dumps({"event": "the control plane cannot be dialled", "error": said, "level": "warning"})
    text = f"{line}\nsomething else happened\n"
    assert told in told_of_log(text)
    assert said.rstrip(".") in told_of_log(text)


def test_a_log_without_complaints_tells_nothing() -> None:
    assert told_of_log("all is well\n") == told_of_log("", ended=True) == ""
    assert told_of_log("started\nno such command.\n", ended=True) == "Its log ends with: no such command."
    assert tail_of("one\n\ntwo\n") == ("one", "two")


def test_lines_for_people_are_taken_as_they_are() -> None:
    assert said_in(" hello ") == "hello"
    assert said_in('{"event": "a", "why": "b"}') == "a: b"
