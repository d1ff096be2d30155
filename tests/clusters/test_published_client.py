"""The published client, as people have it installed, against a control plane of ours: each verb of `cluster`.

It is run in a virtual environment of its own, unmodified; nothing of it is read. It needs the package index once.
What it was seen to need: a file `~/.levers9/config` with `controlplane_http_url`, answers with `ok`, `cluster`, `nodes`
and `manifest`, and times in ISO 8601. A condition that is no pair comes as a key without a value.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, running, wait_until
from .spoken_agent import SpokenAgent, variables_of

pytestmark = pytest.mark.slow

VERSION = "levers9==0.15.1"
INSTALL_S = 600.0
VERB_S = 120.0
CONFIG = """
[default]
token = {token}
controlplane_host = 127.0.0.1
controlplane_port = {port}
controlplane_http_url = {url}
tls = false
"""


@dataclass(frozen=True)
class Client:
    """Its program, and the home of whoever runs it."""

    program: Path
    home: Path

    def run(self, *arguments: str, code: int = 0, lab: RunningLab | None = None) -> str:
        """What it prints, with the context of a lab or without any."""
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        context = {"KUBECONFIG": str(lab.kubeconfig)} if lab is not None else {}
        env = {**keep, **context, "HOME": str(self.home), "CI": "1", "COLUMNS": "200"}
        done = subprocess.run(
            [str(self.program), *arguments], env=env, capture_output=True, text=True, timeout=VERB_S, check=False
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def rows(self) -> dict[str, dict[str, object]]:
        """What `cluster list` shows, by name."""
        found = json.loads(self.run("cluster", "list", "--format", "json"))
        return {one["name"]: one for one in found}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published client, installed once."""
    folder = tmp_path_factory.mktemp("published")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=INSTALL_S)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", VERSION]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{VERSION} could not be installed within {INSTALL_S:g} s")
    if done.returncode:
        pytest.skip(f"{VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    return folder / "bin" / "levers9"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without pools."""
    folder = tmp_path_factory.mktemp("plane")
    with running(ControlPlane(folder / "plane", settings='[attached_clusters]\nisolation = "trusted"\n')) as plane:
        plane.wait_for_token()
        yield plane


@pytest.fixture
def client(program: Path, plane: ControlPlane, tmp_path: Path) -> Client:
    """Somebody who has it installed, and a file with where the control plane is."""
    return client_of(program, plane, tmp_path, plane.token)


def client_of(program: Path, plane: ControlPlane, home: Path, token: str) -> Client:
    path = home / ".levers9" / "config"
    path.parent.mkdir(parents=True)
    port = plane.stream_url.rpartition(":")[2]
    path.write_text(CONFIG.format(token=token, port=port, url=plane.http_url))
    return Client(program, home)


def manifest_in(printed: str) -> str:
    """What it prints of a manifest, without the lines around."""
    return printed[printed.index("# The agent of cluster") :]


def test_every_verb_of_cluster_works(client: Client, program: Path, plane: ControlPlane, tmp_path: Path) -> None:
    joining = ("cluster", "join", "lab-1", "--gpu", "GB200", "--selector", "pool=a", "--selector", "k in (x,y)")
    manifest = manifest_in(client.run(*joining, "--flavor", "gke", "--pull-secret", "pull", "--manifest-only"))
    told = variables_of(manifest)
    assert told["LEVERS9_URL"] == plane.http_url
    assert told["LEVERS9_AGENT_TOKEN"].startswith("l9_agent_")
    assert client.rows()["lab-1"]["status"] == "waiting"
    with SpokenAgent(manifest):
        wait_until(lambda: client.rows()["lab-1"]["status"] == "online", "the agent is seen", VERB_S)
        (row,) = client.rows().values()
        assert (row["gpu_type"], row["owned"], row["shared"]) == ("GB200", True, False)
        table = client.run("cluster", "list")
        assert [word for word in ("lab-1", "GB200", "online", "2/2", "7") if word not in table] == []
        nodes = client.run("cluster", "nodes", "lab-1")
        assert [word for word in ("tray-0", "tray-1", "yes", "4 cores", "32 GiB") if word not in nodes] == []
        _share_and_take_back(client, client_of(program, plane, tmp_path / "other", _workspace(plane)))
    again = client.run("cluster", "manifest", "lab-1")
    kinds = [one["kind"] for one in yaml.safe_load_all(manifest_in(again))]
    assert ("Deployment" in kinds, "Secret" in kinds) == (True, False)
    assert "detached" in client.run("cluster", "leave", "lab-1", "--yes", "--keep-agent")
    assert client.rows() == {}


def _workspace(plane: ControlPlane) -> str:
    found = json.loads(plane.ask("/api/v1/workspaces", {"name": "team-b"}, method="POST"))
    return str(found["token"]["value"] if isinstance(found["token"], dict) else found["token"])


def _share_and_take_back(owner: Client, other: Client) -> None:
    assert other.rows() == {}
    assert "is shared" in owner.run("cluster", "share", "lab-1")
    (row,) = other.rows().values()
    assert (row["name"], row["owned"], row["shared"]) == ("lab-1", False, True)
    nodes = row["nodes"]
    assert isinstance(nodes, list)
    assert [(node["name"], node["gpus_free"]) for node in nodes] == [("", 3), ("", 4)]
    assert "tray-0" not in other.run("cluster", "list") + other.run("cluster", "nodes", "lab-1")
    other.run("cluster", "leave", "lab-1", "--yes", "--keep-agent", code=1)
    owner.run("cluster", "share", "lab-1", "--off")
    assert other.rows() == {}


def test_it_joins_by_kubectl_waits_for_the_agent_and_leaves(client: Client, lab: RunningLab, kubectl: str) -> None:
    joined = client.run("cluster", "join", "lab-2", "--gpu", "GB200", "--namespace", "published", lab=lab)
    assert "lab-2 is online: 2 node(s), 8 free GB200 card(s)" in joined
    left = client.run("cluster", "leave", "lab-2", "--yes", lab=lab)
    assert 'deployment.apps "levers9-agent" deleted' in left
    assert client.rows() == {}


def test_a_refusal_is_shown_as_it_was_said(client: Client) -> None:
    said = client.run("cluster", "nodes", "nobody", code=1)
    assert "There is no cluster" in said
    said = client.run("cluster", "join", "Lab 1", "--gpu", "L4", "--manifest-only", code=1)
    assert "is no name of a cluster" in said
