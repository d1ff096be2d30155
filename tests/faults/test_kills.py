"""A part is killed at several moments of a map of 2,000 calls: each call ends once, none is lost or uncounted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from .controlplane import Cable, ControlPlane, MapRun, descendants, kill, running

pytestmark = pytest.mark.slow

CALLS = 2_000
SLEEP_S = 0.004
MOMENTS = (60, 700, 1_400)


def check(results: list[int], ran: list[tuple[int, int]]) -> None:
    """Each call ended once with its own result; no attempt ran twice."""
    assert results == [2 * key for key in range(CALLS)]
    assert len(set(ran)) == len(ran), "an attempt ran twice"
    assert {key for key, _ in ran} == set(range(CALLS))


def survive(folder: Path, fault: Callable[[ControlPlane], None], *, gateways: int = 1) -> None:
    """Run the map, let the fault happen at each moment, and check what came of it."""
    with running(ControlPlane(folder / "plane", gateways=gateways)) as plane:
        plane.wait_for_token()
        with MapRun(folder / "map", plane, calls=CALLS, sleep_s=SLEEP_S) as run:
            for moment in MOMENTS:
                run.wait_for_effects(moment)
                fault(plane)
            check(*run.finish())


def kill_container(plane: ControlPlane) -> None:
    """The process that runs the person's code: the leaf of a worker's tree."""
    for worker in plane.workers():
        leaves = [pid for pid in descendants(worker) if not descendants(pid)]
        if leaves:
            kill(leaves[-1])
            return
    raise AssertionError("no worker has a container")


def test_the_leader_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.brain()))


def test_a_gateway_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.gateway()))


def test_a_worker_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.workers()[0]))


def test_a_container_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, kill_container)


def test_valkey_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.valkey()))


def test_postgres_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.postgres()))


def test_one_of_two_gateways_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, lambda plane: kill(plane.gateway()), gateways=2)


def test_valkey_is_flushed(tmp_path: Path) -> None:
    def flush(plane: ControlPlane) -> None:
        with socket.socket(socket.AF_UNIX) as valkey:
            valkey.connect(str(plane.run_dir / "valkey.sock"))
            valkey.sendall(b"FLUSHALL\r\n")
            assert valkey.recv(64).startswith(b"+OK")

    survive(tmp_path, flush)


def test_the_connection_of_the_caller_is_cut(tmp_path: Path) -> None:
    with running(ControlPlane(tmp_path / "plane")) as plane:
        plane.wait_for_token()
        with (
            closing(Cable(int(plane.stream_url.rpartition(":")[2]))) as cable,
            MapRun(tmp_path / "map", plane, calls=CALLS, sleep_s=SLEEP_S, stream_port=cable.port) as run,
        ):
            for moment in MOMENTS:
                run.wait_for_effects(moment)
                assert cable.cut() > 0
            check(*run.finish())
