"""Replicas share one Postgres: one leads, the other follows, and whoever leads is taken away in the middle of a map."""

from __future__ import annotations

import asyncio
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
import trio
from levers9_test_servers import sql

from .controlplane import ControlPlane, MapRun, command_of, descendants, kill, running, wait_until
from .test_kills import CALLS, MOMENTS, check, check_rows

pytestmark = pytest.mark.slow

LEADS_WITHIN_S = 30.0  # mostly 10; the lock of one that stands still is let go after 15 (docs/faults.md)
SLEEP_S = 0.02  # the map still runs when a replica that was killed is back
NO_LIVE_WORKER = """
    SELECT container_id FROM containers c LEFT JOIN workers w USING (worker_id)
    WHERE c.state NOT IN ('ended', 'requested') AND w.state IS DISTINCT FROM 'available'
"""


class Replica(ControlPlane):
    """A control plane on ports that it keeps over restarts, on a database that it shares."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        ports = ("--stream-port", free_port(), "--http-port", free_port())
        super().__init__(folder, workers=1, database_url=database_url, redis_url=redis_url, arguments=ports)
        self._database_url = database_url

    def read(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the shared Postgres, asked past everything of ours."""

        async def ask() -> list[tuple[object, ...]]:
            connection = await asyncpg.connect(self._database_url)
            try:
                return [tuple(row) for row in await connection.fetch(query)]
            finally:
                await connection.close()

        return asyncio.run(ask())

    def is_called(self, replica_id: str) -> bool:
        """Whether its gateways go by this name; a root that starts again has a new one."""
        return bool(self.parts(f"--gateway-id {replica_id}-"))


class Pair:
    """Two replicas, and which of them leads."""

    def __init__(self, folder: Path, database_url: str, redis_url: str) -> None:
        self.objects = folder / "objects"
        self.first = Replica(folder / "first", database_url, redis_url)
        self.second = Replica(folder / "second", database_url, redis_url)

    def row(self) -> tuple[int, str]:
        """The epoch, and the life of a brain that holds it."""
        ((epoch, holder),) = self.first.read("SELECT epoch, holder FROM leadership")
        return int(str(epoch)), str(holder)

    def leads(self) -> Replica:
        """The one that holds the row."""
        (found,) = [one for one in (self.first, self.second) if one.is_called(self.row()[1].partition("/")[0])]
        return found

    def fail_over(self, take_away: Callable[[Replica], None]) -> Replica:
        """Take the leader away, and see the other lead in a later epoch; returns the one that led."""
        epoch, holder = self.row()
        leader = self.leads()
        other = self.second if leader is self.first else self.first
        take_away(leader)
        wait_until(
            lambda: self.row()[0] > epoch and self.row()[1] != "", "somebody leads in a later epoch", LEADS_WITHIN_S
        )
        assert self.leads() is other
        assert self.row() != (epoch, holder)
        return leader

    def check(self, results: list[int], ran: list[tuple[int, int]]) -> int:
        """Results, rows and processes agree; returns how many attempts were lost."""
        check(results, ran)
        lost = check_rows(self.first, ran)
        wait_until(lambda: not self.first.read(NO_LIVE_WORKER), "each container that lives has a worker that does")
        wait_until(lambda: self._workers_by_rows() == self._workers_alive(), "the rows know the workers that live")
        assert self.first.leftovers() == []
        assert self.second.leftovers() == []
        return lost

    def _workers_by_rows(self) -> set[int]:
        rows = self.first.read("SELECT handle FROM workers WHERE state <> 'gone'")
        return {int(str(handle).rsplit(":", 2)[1]) for (handle,) in rows if handle}

    def _workers_alive(self) -> set[int]:
        return {*self.first.workers(), *self.second.workers()}


def free_port() -> str:
    """A port that nobody listens on just now."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return str(listener.getsockname()[1])


def end(replica: Replica) -> None:
    """KILL to the root: brain and gateways die with it, and so does the worker."""
    tree = descendants(replica.process.pid)
    kill(replica.process.pid)
    replica.process.communicate()
    wait_until(lambda: not [pid for pid in tree if command_of(pid)], "the whole replica has died")


def thaw(replica: Replica, epoch: int) -> None:
    """CONT to the brain, which finds that another epoch began meanwhile."""
    kill(replica.brain(), signal.SIGCONT)
    wait_until(lambda: f"leads with epoch {epoch}" in replica.log.read_text(), "it says so")


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str, valkey_url: str) -> Iterator[Pair]:
    """The first leads; the second has its token."""
    name = f"replicas_{uuid.uuid4().hex}"
    trio.run(sql, postgres_url, f"CREATE DATABASE {name} STRATEGY file_copy")
    pair = Pair(tmp_path, postgres_url.replace("/postgres?", f"/{name}?"), valkey_url)
    with running(pair.first, pair.objects):
        pair.first.wait_for_token()
        with running(pair.second, pair.objects):
            pair.second.token = pair.first.token
            yield pair


def mapped(folder: Path, pair: Pair) -> MapRun:
    """A map by the replica that follows."""
    return MapRun(folder / "map", pair.second, calls=CALLS, sleep_s=SLEEP_S)


def test_calls_by_a_follower_reach_the_leader(tmp_path: Path, pair: Pair) -> None:
    with mapped(tmp_path, pair) as run:
        results, ran = run.finish()
    assert pair.leads() is pair.first
    assert pair.row()[0] == 1
    assert pair.check(results, ran) == 0


def test_the_leaders_brain_is_killed_and_each_life_has_an_epoch_of_its_own(tmp_path: Path, pair: Pair) -> None:
    with mapped(tmp_path, pair) as run:
        lives = [pair.row()]
        for moment in MOMENTS:
            run.wait_for_effects(moment)
            kill(pair.leads().brain())
            wait_until(lambda: pair.row()[0] > lives[-1][0] and pair.row()[1] != "", "another life leads")
            lives.append(pair.row())
        results, ran = run.finish()
    assert len({holder for _, holder in lives}) == len(lives)
    assert pair.check(results, ran) == 0


def test_whoever_leads_is_killed_with_the_whole_replica_and_comes_back(tmp_path: Path, pair: Pair) -> None:
    with mapped(tmp_path, pair) as run:
        for moment in MOMENTS:
            run.wait_for_effects(moment)
            gone = pair.fail_over(end)
            gone.start(pair.objects)
        results, ran = run.finish()
    assert pair.leads() is pair.second
    assert pair.check(results, ran) > 0


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_replica_that_is_killed_stays_away(tmp_path: Path, pair: Pair, moment: int) -> None:
    with mapped(tmp_path, pair) as run:
        run.wait_for_effects(moment)
        pair.fail_over(end)
        results, ran = run.finish()
    assert pair.leads() is pair.second
    pair.check(results, ran)


def test_a_leader_that_stood_still_finds_itself_superseded(tmp_path: Path, pair: Pair) -> None:
    with mapped(tmp_path, pair) as run:
        for moment in MOMENTS:
            run.wait_for_effects(moment)
            # It neither works nor dies: only its lease runs out.
            frozen = pair.fail_over(lambda leader: kill(leader.brain(), signal.SIGSTOP))
            leads = pair.row()
            thaw(frozen, leads[0])
            assert pair.row() == leads
        results, ran = run.finish()
    assert pair.leads() is pair.second
    assert pair.check(results, ran) == 0
