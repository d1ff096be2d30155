"""Our own `levers9 cluster` as a person runs it: real API server, real control plane, from joining to leaving."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, running, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 90.0


@dataclass(frozen=True)
class Person:
    """Somebody with a token, a kubeconfig and a home of their own."""

    environment: dict[str, str]

    def types(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """What `levers9` says."""
        argv = [str(Path(sys.executable).parent / "levers9"), *arguments]
        done = subprocess.run(
            argv, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def kubectl(self, kubectl: str, *arguments: str, stdin: str = "") -> str:
        """What `kubectl` says."""
        done = subprocess.run(
            [kubectl, *arguments], env=self.environment, input=stdin, capture_output=True, text=True, timeout=60,
            check=True,
        )  # fmt: skip
        return done.stdout


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without pools of its own."""
    with running(ControlPlane(tmp_path_factory.mktemp("plane"), settings="gateways = 1\n")) as plane:
        plane.wait_for_token()
        yield plane


@pytest.fixture
def person(plane: ControlPlane, lab: RunningLab, tmp_path: Path) -> Iterator[Person]:
    """The administrator of the lab, with the platform's first token; what they attached is detached at the end."""
    home = tmp_path / "home"
    home.mkdir()
    one = Person({**plane.environment, **lab.environment, **_of(plane), "HOME": str(home)})
    yield one
    for cluster in json.loads(one.types("cluster", "list", "--json").stdout):
        one.types("cluster", "leave", cluster["name"], "--yes")


def _of(plane: ControlPlane) -> dict[str, str]:
    names = ("LEVERS9_TOKEN", "LEVERS9_CONTROLPLANE_HOST", "LEVERS9_CONTROLPLANE_PORT", "LEVERS9_HTTP_URL")
    return {name: plane.environment[name] for name in names}


def test_a_function_runs_on_a_card_of_an_attached_cluster_and_nothing_is_left(person: Person, kubectl: str) -> None:
    joined = person.types("cluster", "join", "real-1", "--gpu", "GB200", "--namespace", "real-1")
    assert [name for name in ("tray-0", "tray-1") if name not in joined.stdout] == []
    assert "The agent of real-1 has dialled in after" in joined.stderr
    ran = subprocess.run(
        [sys.executable, "examples/on_a_card.py"], env=person.environment, cwd=ROOT, capture_output=True, text=True,
        timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert re.fullmatch(r"tray-\d gave GPU-[0-9a-f-]+\n", ran.stdout), ran.stderr
    (row,) = json.loads(person.types("cluster", "list", "--json").stdout)
    assert (row["status"], row["workers"], row["agent_outdated"]) == ("online", 1, False)
    left = person.types("cluster", "leave", "real-1", "--yes")
    assert "namespace real-1 stays" in left.stdout
    kinds = "deployments,jobs,secrets,roles,rolebindings"
    assert person.kubectl(kubectl, "get", kinds, "-n", "real-1", "-o", "name") == ""
    wait_until(lambda: person.kubectl(kubectl, "get", "pods", "-n", "real-1", "-o", "name") == "", "no pod is left")


def test_a_manifest_that_somebody_else_applies_brings_the_agent_up_as_well(
    person: Person, kubectl: str, tmp_path: Path
) -> None:
    joining = ("cluster", "join", "real-2", "--gpu", "GB200", "--namespace", "real-2", "--manifest-only")
    manifest = person.types(*joining, "--no-wait").stdout
    person.kubectl(kubectl, "apply", "-f", "-", stdin=manifest)
    wait_until(lambda: '"online"' in person.types("cluster", "list", "--json").stdout, "the agent is seen", WITHIN_S)
    again = person.types("cluster", "manifest", "real-2").stdout
    assert "l9_agent_" not in again
    person.kubectl(kubectl, "apply", "-f", "-", stdin=again)
    nodes = json.loads(person.types("cluster", "nodes", "real-2", "--json").stdout)
    assert [node["gpus"] for node in nodes] == [4, 4]


def test_joining_again_renews_the_token_and_the_old_one_is_good_for_nothing(
    person: Person, plane: ControlPlane, kubectl: str
) -> None:
    def token() -> str:
        secret = person.kubectl(kubectl, "get", "secret", "levers9-agent", "-n", "real-3", "-o", "json")
        return base64.b64decode(json.loads(secret)["data"]["token"]).decode()

    def known(value: str) -> int:
        asked = urllib.request.Request(plane.http_url + "/api/v1/whoami", headers={"Authorization": f"Bearer {value}"})
        try:
            return int(urllib.request.urlopen(asked, timeout=10).status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    person.types("cluster", "join", "real-3", "--gpu", "GB200", "--namespace", "real-3")
    first = token()
    again = person.types("cluster", "join", "real-3", "--gpu", "GB200", "--namespace", "real-3")
    assert "its agent gets a new token" in again.stderr
    assert "tray-1" in again.stdout
    assert (known(first), known(token())) == (401, 200)


def test_a_namespace_has_one_agent(person: Person) -> None:
    person.types("cluster", "join", "real-4", "--gpu", "GB200", "--namespace", "real-4")
    refused = person.types("cluster", "join", "other", "--gpu", "GB200", "--namespace", "real-4", code=1)
    assert "already runs the agent of real-4" in refused.stderr


def test_an_image_that_no_node_can_pull_is_told_with_the_reason(person: Person, lab: RunningLab) -> None:
    for node in lab.nodes:
        lab.verb("fail-pull", node)
    try:
        late = person.types(
            "cluster", "join", "real-5", "--gpu", "GB200", "--namespace", "real-5", "--timeout", "10", code=1
        )
    finally:
        for node in lab.nodes:
            lab.verb("pull-again", node)
    assert "did not dial in within 10 s" in late.stderr
    assert "cannot be pulled" in late.stderr


def test_who_may_not_apply_it_is_told_what_is_missing_and_nothing_happened(person: Person, lab: RunningLab) -> None:
    guest = str(lab.folder.kubeconfig("guest"))
    refused = person.types("cluster", "join", "real-6", "--gpu", "GB200", "--kubeconfig", guest, code=1)
    assert "list nodes" in refused.stderr
    assert "create and patch clusterroles" in refused.stderr
    assert json.loads(person.types("cluster", "list", "--json").stdout) == []


def test_a_selector_that_names_nothing_is_told_with_what_there_is(person: Person) -> None:
    selector = "nvidia.com/gpu.product=H100"
    joining = ("cluster", "join", "real-7", "--gpu", "GB200", "--namespace", "real-7", "--selector", selector)
    said = person.types(*joining, "--no-wait").stderr
    assert "The selector names none of its nodes." in said
    assert "nvidia.com/gpu.product has these values: NVIDIA-GB200 (2 nodes)." in said
