"""A cluster of the lab that is attached, for tests of what happens to one: `attached`, and `calls` that run there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, running
from .attached import Attached, Calls, free_ports

SETTINGS = """
[attached_clusters]
isolation = "trusted"
"""


@pytest.fixture(scope="module")
def lasting(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that comes back to its ports."""
    stream, http = free_ports(2)
    ports = ("--stream-port", str(stream), "--http-port", str(http))
    folder = tmp_path_factory.mktemp("attached")
    with running(ControlPlane(folder / "plane", settings=SETTINGS, arguments=ports)) as plane:
        plane.wait_for_token()
        yield plane


@pytest.fixture
def attached(lasting: ControlPlane, lab: RunningLab) -> Iterator[Attached]:
    """It joins for one test, since a pool whose workers end early is careful with the next ones."""
    one = Attached(lasting, lab, f"attached-{uuid.uuid4().hex[:6]}")
    one.kube(lab.calm)
    one.join()
    yield one
    print(one.seen_by(lasting.token), one.worker_jobs(), one.log_of_agent()[-3000:], sep="\n")  # for a failure
    one.kube(lab.calm)
    one.remove()


@pytest.fixture
def calls(attached: Attached, tmp_path: Path) -> Iterator[Calls]:
    """Who submits calls of the workspace that attached it."""
    one = Calls(attached.plane, tmp_path / "calls")
    yield one
    for told in one.all_told():
        print(told, attached.why(str(told["task_id"])) if "task_id" in told else "")
    one.close()


@pytest.fixture
def guest(attached: Attached, tmp_path: Path) -> str:
    """The token of another workspace."""
    return attached.workspace(tmp_path.name[:40].replace("_", "-").strip("-"))


@pytest.fixture
def guests(attached: Attached, guest: str, tmp_path: Path) -> Iterator[Calls]:
    """Who submits calls of another workspace."""
    one = Calls(attached.plane, tmp_path / "guests", guest)
    yield one
    one.close()
