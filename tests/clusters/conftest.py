"""A cluster of the lab that is attached, for tests of what happens to one: `attached`, and `calls` that run there."""

from __future__ import annotations

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
def lasting(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """A control plane that comes back to its ports, and a cluster that joined it."""
    stream, http = free_ports(2)
    ports = ("--stream-port", str(stream), "--http-port", str(http))
    folder = tmp_path_factory.mktemp("attached")
    with running(ControlPlane(folder / "plane", settings=SETTINGS, arguments=ports)) as plane:
        plane.wait_for_token()
        attached = Attached(plane, lab, folder.name)
        attached.join()
        yield attached
        attached.remove()


@pytest.fixture
def attached(lasting: Attached) -> Iterator[Attached]:
    """It is calm before and after each test. What it was like at the end is printed, for who reads a failure."""
    yield lasting
    print(lasting.seen_by(lasting.plane.token), lasting.worker_jobs(), lasting.log_of_agent()[-3000:], sep="\n")
    lasting.calm()


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
