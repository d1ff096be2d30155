"""`levers9 pool` and the wishes of `levers9 worker`, against a control plane's HTTP face."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..sdk.http_stub import HttpStub
from .conftest import Line

SIZE = {"cpu_milli": 2000, "memory_mib": 4096, "gpu_count": 4, "gpu_type": "GB200"}
NODE = {"name": "n1", "state": "cordoned", "capacity": SIZE, "labels": {"nvl": "d1"}, "worker_id": "worker-1"}
POOL = {
    "name": "gpu",
    "size": None,
    "min_workers": 0,
    "max_workers": 2,
    "workers": 1,
    "pending": 1,
    "wanted": 3,
    "wanted_gangs": 1,
    "beyond": True,
    "holds": ["the provisioning guard holds it: 20 of its workers are pending, and the limit is 20."],
    "serves": "",
    "placement": "",
    "created": True,
    "leaving": False,
    "nodes": [NODE],
}
WORKER = {
    "worker_id": "worker-1",
    "state": "pending",
    "node": "n1",
    "capacity": {"cpu_milli": 8000, "memory_mib": 65536},
    "gang_id": "gang-1",
    "ordered_at_s": 0,
    "why": "",
}


def test_pools_are_listed(http: HttpStub, line: Line) -> None:
    http.answers["GET /api/v1/pools"] = (200, {"pools": [POOL, {**POOL, "name": "cpu", "size": SIZE, "nodes": []}]})
    plain = line("pool", "list")
    words = ("gpu", "created", "2 CPU, 4 GiB, 4 GB200", "the provisioning guard holds it")
    assert [word for word in words if word not in plain.out] == []
    assert [one["name"] for one in json.loads(line("pool", "list", "--json").out)] == ["gpu", "cpu"]


def test_a_pool_is_shown_with_nodes_workers_and_what_holds_it(http: HttpStub, line: Line) -> None:
    http.answers["GET /api/v1/pools/gpu"] = (200, {"pool": POOL, "workers": [WORKER]})
    shown = line("pool", "show", "gpu")
    words = (
        "gpu: 0 to 2 workers on 1 node.",
        "It has 1, of which 1 is on its way.",
        "Wanted: 3 more workers and 1 gang, and more than it may have.",
        "Held: the provisioning guard holds it",
        "nvl=d1",
        "cordoned",
        "gang-1",
    )
    assert [word for word in words if word not in shown.out] == []
    assert json.loads(line("pool", "show", "gpu", "--json").out)["workers"][0]["worker_id"] == "worker-1"


def test_a_pool_is_created_from_flags(http: HttpStub, line: Line) -> None:
    http.answers["POST /api/v1/pools"] = (200, {"names": ["gpu"]})
    done = line("pool", "create", "gpu", "--cpu", "4", "--memory", "8Gi", "--gpu", "A100", "--gpu-count", "2")
    assert (done.code, done.out) == (0, "Pool gpu is created.\n")
    asked = http.asked[-1][2]
    assert isinstance(asked, dict)
    assert (asked["name"], asked["cpu"], asked["memory"], asked["gpu_count"]) == ("gpu", 4.0, "8Gi", 2)


@pytest.mark.parametrize("head", ["", "[[pools]]\n"])
def test_a_pool_is_created_from_a_file(http: HttpStub, line: Line, tmp_path: Path, head: str) -> None:
    http.answers["POST /api/v1/pools"] = (200, {"names": ["gpu"]})
    path = tmp_path / "pool.toml"
    path.write_text(f'{head}name = "gpu"\n' + ("[[pools.nodes]]" if head else "[[nodes]]") + '\nname = "n1"\n')
    assert json.loads(line("pool", "create", "--file", str(path), "--json").out) == {"names": ["gpu"]}
    assert http.asked[-1][2] == {"name": "gpu", "nodes": [{"name": "n1"}]}


def test_a_pool_without_a_name_and_a_file_without_a_pool_are_told(http: HttpStub, line: Line, tmp_path: Path) -> None:
    assert line("pool", "create").err == "levers9: The pool has no name. Write: levers9 pool create NAME.\n"
    path = tmp_path / "pool.toml"
    path.write_text("not toml")
    assert "pool.toml cannot be read" in line("pool", "create", "--file", str(path)).err
    assert http.asked == []


def test_a_pool_is_deleted(http: HttpStub, line: Line) -> None:
    http.answers["DELETE /api/v1/pools/gpu"] = (200, {"names": []})
    assert line("pool", "delete", "gpu").out == "Pool gpu is being taken away: it is gone with its last worker.\n"
    assert json.loads(line("pool", "delete", "gpu", "--json").out) == {"names": []}


@pytest.mark.parametrize("wish", ["cordon", "uncordon", "drain"])
def test_a_worker_is_told_what_to_do(http: HttpStub, line: Line, wish: str) -> None:
    http.answers[f"POST /api/v1/workers/worker-1/{wish}"] = (200, {"worker_id": "worker-1", "state": "draining"})
    assert line("worker", wish, "worker-1").out == "worker-1 is draining.\n"
    assert json.loads(line("worker", wish, "worker-1", "--json").out)["state"] == "draining"
