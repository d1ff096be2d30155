"""Pools of real processes one after the other: the next one serves when the first is full, and one that is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from levers9.model.reasons import HoldKind

from .controlplane import ControlPlane, running, wait_until
from .test_holds import Bench, Options

pytestmark = pytest.mark.slow

SETTINGS = """
[[pools]]
name = "first"
isolation = "trusted"
cpu = 1
memory = 1024
max_workers = 1

[[pools]]
name = "second"
isolation = "trusted"
cpu = 1
memory = 1024
max_workers = 1
"""
WHOLE: Options = {"cpu": 1, "memory": 256, "timeout": 600}  # fills a worker


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("pools"), settings=SETTINGS)
    with running(plane):
        plane.wait_for_token()
        yield plane


@pytest.fixture
def bench(plane: ControlPlane) -> Iterator[Bench]:
    found = Bench(plane)
    yield found
    found.end_all()


def pools_in_use(bench: Bench) -> dict[str, int]:
    """How many containers run in each pool."""
    workers = json.loads(bench.plane.ask("/api/v1/workers"))["workers"]
    pools = {one["worker_id"]: one["pool"] for one in workers}
    containers = json.loads(bench.plane.ask("/api/v1/containers"))["containers"]
    where = [pools[one["worker_id"]] for one in containers if one["worker_id"]]
    return {pool: where.count(pool) for pool in where}


def test_when_the_first_pool_is_at_its_maximum_the_second_one_serves(bench: Bench) -> None:
    bench.runs(bench.submit("train", **WHOLE))
    assert pools_in_use(bench) == {"first": 1}
    bench.runs(bench.submit("other", **WHOLE))
    assert pools_in_use(bench) == {"first": 1, "second": 1}
    last = bench.submit("other", **WHOLE)
    bench.waits_because(last, HoldKind.MAXIMUM, r"it is at its maximum of 1 worker\.")


def test_what_waits_for_a_pool_that_is_deleted_is_told_that_no_pool_serves_it(bench: Bench) -> None:
    keys = {"name": "brief", "isolation": "trusted", "cpu": 1, "memory": 1024, "max_workers": 1}
    bench.plane.ask("/api/v1/pools", keys, method="POST")
    first = bench.submit("train", **WHOLE, pool="brief")
    bench.runs(first)
    waiting = bench.submit("other", **WHOLE, pool="brief")
    bench.waits_because(waiting, HoldKind.MAXIMUM, r"Pool brief")
    bench.plane.ask("/api/v1/pools/brief", method="DELETE")
    bench.plane.ask(f"/api/v1/tasks/{first}/stop", {}, method="POST")
    bench.waits_because(waiting, HoldKind.NO_POOL, r"[Nn]o pool")
    bench.plane.ask(f"/api/v1/tasks/{waiting}/stop", {}, method="POST")
    wait_until(lambda: bench.why(waiting).state == "CANCELLED", "it is cancelled")
