"""Two replicas share one Postgres: one leads, the other follows, and either may be killed in the middle of a map."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from levers9_test_servers import sql

from .controlplane import ControlPlane, MapRun, kill, running
from .test_kills import CALLS, MOMENTS, SLEEP_S, check

pytestmark = pytest.mark.slow


@pytest.fixture
def replicas(tmp_path: Path, postgres_url: str, valkey_url: str) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """The first leads; the second has its token."""
    name = f"replicas_{uuid.uuid4().hex}"
    trio.run(sql, postgres_url, f"CREATE DATABASE {name} STRATEGY file_copy")
    postgres_url = postgres_url.replace("/postgres?", f"/{name}?")
    first = ControlPlane(tmp_path / "first", workers=1, database_url=postgres_url, redis_url=valkey_url)
    second = ControlPlane(tmp_path / "second", workers=1, database_url=postgres_url, redis_url=valkey_url)
    objects = tmp_path / "objects"
    with running(first, objects):
        first.wait_for_token()
        with running(second, objects):
            second.token = first.token
            yield first, second


def test_calls_by_a_follower_reach_the_leader(tmp_path: Path, replicas: tuple[ControlPlane, ControlPlane]) -> None:
    _, follower = replicas
    with MapRun(tmp_path / "map", follower, calls=CALLS, sleep_s=SLEEP_S) as run:
        check(*run.finish())


def test_the_leader_is_killed_three_times(tmp_path: Path, replicas: tuple[ControlPlane, ControlPlane]) -> None:
    leader, follower = replicas
    with MapRun(tmp_path / "map", follower, calls=CALLS, sleep_s=SLEEP_S) as run:
        for moment, replica in zip(MOMENTS, (leader, follower, leader), strict=True):
            run.wait_for_effects(moment)
            kill(replica.brain())
        check(*run.finish())


def test_a_leader_that_stood_still_finds_itself_superseded(
    tmp_path: Path, replicas: tuple[ControlPlane, ControlPlane]
) -> None:
    leader, follower = replicas
    with MapRun(tmp_path / "map", follower, calls=CALLS, sleep_s=SLEEP_S) as run:
        run.wait_for_effects(300)
        frozen = leader.brain()
        kill(frozen, signal.SIGSTOP)  # it neither works nor dies: only its lease runs out
        run.wait_for_effects(1_200)
        kill(frozen, signal.SIGCONT)
        check(*run.finish())


def test_a_whole_replica_is_killed(tmp_path: Path, replicas: tuple[ControlPlane, ControlPlane]) -> None:
    leader, follower = replicas
    with MapRun(tmp_path / "map", follower, calls=CALLS, sleep_s=SLEEP_S) as run:
        run.wait_for_effects(300)
        kill(leader.process.pid)
        check(*run.finish())
