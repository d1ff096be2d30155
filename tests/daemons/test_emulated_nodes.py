"""A cluster that is not there: nodes with cards and labels of a file, each a real worker process of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..faults.controlplane import ControlPlane, command_of, running, wait_until

pytestmark = pytest.mark.slow

SETTINGS = """
[[pools]]
name = "emulated"
min_workers = 2
cpu = 1
memory = 1024
gpu = "GB200"
gpu_count = 4

[[pools.nodes]]
name = "tray-1"
labels = { nvl = "d1" }

[[pools.nodes]]
name = "tray-2"
labels = { nvl = "d1" }

[[pools.nodes]]
name = "tray-3"
state = "cordoned"
"""
PROGRAM = """
import json, os
from levers9 import job

def seen():
    return [os.environ.get(name) for name in ("LEVERS9_NODE", "LEVERS9_CARDS", "CUDA_VISIBLE_DEVICES")]

@job(gpu="GB200", gpu_count=2)
def with_cards():
    return seen()

@job
def without():
    return seen()

if __name__ == "__main__":
    print(json.dumps([with_cards.remote(), without.remote()]))
"""


def test_each_node_gets_one_process_and_code_sees_its_node_and_its_cards(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with running(ControlPlane(tmp_path / "plane", settings=SETTINGS)) as plane:
        plane.wait_for_token()
        wait_until(lambda: len(plane.workers()) == 2, "two workers run")
        nodes = [command_of(pid).partition("--node ")[2].split()[0] for pid in plane.workers()]
        host, _, port = plane.stream_url.partition("://")[2].rpartition(":")
        env = {
            **os.environ,
            "LEVERS9_TOKEN": plane.token,
            "LEVERS9_CONTROLPLANE_HOST": host,
            "LEVERS9_CONTROLPLANE_PORT": port,
            "LEVERS9_HTTP_URL": plane.http_url,
        }
        done = subprocess.run(
            [sys.executable, str(program)], env=env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        shown = json.loads(plane.ask("/api/v1/pools/emulated"))
    assert sorted(nodes) == ["tray-1", "tray-2"]
    (node, cards, visible), (_, none, hidden) = json.loads(done.stdout)
    assert node in nodes
    assert len(cards.split(",")) == 2
    assert (visible, none, hidden) == (cards, "", "")
    assert [(one["name"], one["state"], bool(one["worker_id"])) for one in shown["pool"]["nodes"]] == [
        ("tray-1", "ready", True),
        ("tray-2", "ready", True),
        ("tray-3", "cordoned", False),
    ]
    assert sorted(one["node"] for one in shown["workers"]) == ["tray-1", "tray-2"]
