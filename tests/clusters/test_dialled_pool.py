"""A pool of kind `kubernetes`: we call a cluster's API and dial its workers; all of it is real but the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, all_pids, command_of, kill, running, wait_until

pytestmark = pytest.mark.slow
NAMESPACE = "dialled"
SETTINGS = """
[[pools]]
name = "near"
kind = "kubernetes"
gpu = "GB200"
kubeconfig = "{kubeconfig}"
namespace = "dialled"
isolation = "trusted"
"""
PROGRAM = """
import os
import signal
from levers9 import job

@job(gpu="GB200", gpu_count=2)
def look():
    cards = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")
    return os.environ["LEVERS9_NODE"], len(cards), os.environ["LEVERS9_CARDS"], "LEVERS9_WORKER_TOKEN" in os.environ

if __name__ == "__main__":
    print(*look.remote())
"""


@pytest.fixture
def plane(lab: RunningLab, kubectl: str, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane with a kubeconfig of the lab."""
    subprocess.run([kubectl, "create", "namespace", NAMESPACE], env=lab.environment, check=True, timeout=30)
    settings = SETTINGS.format(kubeconfig=lab.kubeconfig)
    try:
        with running(ControlPlane(tmp_path / "plane", settings=settings)) as plane:
            plane.wait_for_token()
            yield plane
    finally:
        argv = [kubectl, "delete", "jobs,pods", "--all", "--namespace", NAMESPACE]
        subprocess.run(argv, env=lab.environment, check=True, timeout=60)


def listening() -> list[int]:
    """The workers that are dialled."""
    return [pid for pid in all_pids() if "--listen" in (words := command_of(pid)) and "--pool near" in words]


def answers(plane: ControlPlane) -> bool:
    """Whether a gateway serves requests."""
    try:
        with urllib.request.urlopen(f"{plane.http_url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def looked(plane: ControlPlane, folder: Path) -> str:
    (folder / "app.py").write_text(PROGRAM)
    env = plane.environment | {"HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_workers_are_dialled_and_outlive_the_gateway_that_dialled_them(plane: ControlPlane, tmp_path: Path) -> None:
    first = looked(plane, tmp_path)
    (worker,) = listening()
    kill(plane.gateway())
    wait_until(lambda: answers(plane), "a gateway answers again")
    assert looked(plane, tmp_path) == first
    assert first.split()[1:] == ["2", "0,1", "False"]
    assert listening() == [worker]
    assert "--url" not in command_of(worker).split()
    os.kill(worker, signal.SIGTERM)
    wait_until(lambda: worker not in all_pids(), "the worker has left")
