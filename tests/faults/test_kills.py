"""A part is killed at several moments of a map of 2,000 calls: each call ends once, none is lost or uncounted.

docs/faults.md tells for each test what protects, and what was seen without that.
"""

from __future__ import annotations

import json
import signal
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from .controlplane import Cable, ControlPlane, MapRun, command_of, kill, running, wait_until

pytestmark = pytest.mark.slow

CALLS = 2_000
SLEEP_S = 0.004
MOMENTS = (60, 700, 1_400)
LOGS_READ = 25


class Kill:
    """KILL to the first process found, as often as it is asked; each time it is another one that lives."""

    def __init__(self, find: Callable[[ControlPlane], list[int]], *, at_end: int = 1) -> None:
        self._find = find
        self._at_end = at_end
        self._killed: list[int] = []

    def strike(self, plane: ControlPlane) -> None:
        """Kill one, and see that it has died."""
        wait_until(lambda: bool(self._find(plane)), "there is one to kill")
        pid = self._find(plane)[0]
        assert pid not in self._killed
        kill(pid)
        wait_until(lambda: not command_of(pid), "it has died")
        self._killed.append(pid)

    def check(self, plane: ControlPlane) -> None:
        """Others are there in place of the dead."""
        assert self._killed
        wait_until(lambda: len(self._find(plane)) >= self._at_end, "others came in place of the dead")
        assert not set(self._find(plane)) & set(self._killed)


class KillContainer(Kill):
    """KILL to a process that runs the person's code, as the kernel does it."""

    def __init__(self, runners: Path) -> None:
        super().__init__(lambda plane: runners_in(runners), at_end=0)

    def check(self, plane: ControlPlane) -> None:
        """The store knows how each of them ended."""
        super().check(plane)
        of_it = "SELECT how FROM containers WHERE how = 'killed'"
        wait_until(lambda: len(plane.read(of_it)) == len(self._killed), "their ends are known", 5.0)


class Flush:
    """Valkey forgets everything, and lives on."""

    def strike(self, plane: ControlPlane) -> None:
        """FLUSHALL; a key that was there is not there any more."""
        with socket.socket(socket.AF_UNIX) as valkey, valkey.makefile("rb") as answers:
            valkey.connect(str(plane.run_dir / "valkey.sock"))
            for words, said in ((b"SET mark 1", b"+OK"), (b"FLUSHALL", b"+OK"), (b"DBSIZE", b":0")):
                valkey.sendall(words + b"\r\n")
                assert answers.readline().strip() == said

    def check(self, plane: ControlPlane) -> None:
        """It is the same server still."""
        assert plane.valkey()


class Freeze:
    """Valkey takes what is said to it and answers nothing, from then to the end of the map."""

    def strike(self, plane: ControlPlane) -> None:
        """STOP; a token is revoked all the same, although everybody is to be woken by that."""
        kill(plane.valkey(), signal.SIGSTOP)
        made = json.loads(plane.ask("/api/v1/tokens", {"kind": "workspace"}, method="POST"))
        gone = json.loads(plane.ask(f"/api/v1/tokens/{made['token_id']}", method="DELETE"))
        assert gone["token_id"] == made["token_id"]

    def check(self, plane: ControlPlane) -> None:
        """CONT, so that it can be stopped in order."""
        kill(plane.valkey(), signal.SIGCONT)


def check(results: list[int], ran: list[tuple[int, int]]) -> None:
    """Each call ended once with its own result; no attempt ran twice."""
    assert results == [2 * key for key in range(CALLS)]
    assert len(set(ran)) == len(ran), "an attempt ran twice"
    assert {key for key, _ in ran} == set(range(CALLS))


def check_rows(plane: ControlPlane, ran: list[tuple[int, int]]) -> int:
    """Each call's row ended well, counting the attempts that ran; each attempt before the last has its own end.

    Returns how many of those there are.
    """
    last: dict[int, int] = {}
    for key, attempt in ran:
        last[key] = max(attempt, last.get(key, 0))
    rows = plane.read("SELECT state, finished, attempt FROM tasks")
    assert Counter(row[:2] for row in rows) == {("COMPLETE", True): CALLS}
    assert Counter(row[2] for row in rows) == Counter(last.values())
    before = plane.read("SELECT t.task_id FROM tasks t JOIN attempts a USING (task_id) WHERE a.attempt < t.attempt")
    assert len(before) == sum(last.values()) - CALLS
    return len(before)


def check_logs(plane: ControlPlane) -> None:
    """The newest calls have the one line that each printed."""
    for (task_id,) in plane.read(f"SELECT task_id FROM tasks ORDER BY accepted_at_s DESC LIMIT {LOGS_READ}"):
        told = [json.loads(line) for line in plane.ask(f"/api/v1/tasks/{task_id}/logs?follow=1").splitlines()]
        assert [one.get("n") or one.get("end") for one in told] == [1, 1], told


def survive(
    folder: Path,
    fault: Kill | Flush | Freeze,
    *,
    moments: tuple[int, ...] = MOMENTS,
    gateways: int = 1,
    loses: bool = False,
    ends_reign: bool | None = False,
) -> None:
    """Run the map, let the fault happen at each moment, and check what came of it.

    The fault `loses` attempts that run just then, or `ends_reign` of the leader, or it does not; None: that depends on
    whether a commit was under way.
    """
    with running(ControlPlane(folder / "plane", gateways=gateways)) as plane:
        plane.wait_for_token()
        with MapRun(folder / "map", plane, calls=CALLS, sleep_s=SLEEP_S) as run:
            for moment in moments:
                run.wait_for_effects(moment)
                fault.strike(plane)
            results, ran = run.finish()
        check(results, ran)
        fault.check(plane)
        assert bool(check_rows(plane, ran)) is loses, "attempts ran again"
        new_epoch = plane.read("SELECT epoch FROM leadership") != [(1,)]
        assert ends_reign in (None, new_epoch)
        if not loses:
            check_logs(plane)
        assert plane.leftovers() == []


def runners_in(folder: Path) -> list[int]:
    """The processes that have run calls and live: another one may be about to start, and its code not be loaded."""
    return [pid for pid in sorted(int(path.name) for path in folder.iterdir()) if command_of(pid)]


def test_the_leader_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, Kill(lambda plane: plane.parts("levers9.daemons.brain")), ends_reign=True)


def test_a_gateway_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, Kill(lambda plane: plane.parts("levers9.daemons.gateway")))


def test_one_of_two_gateways_is_killed(tmp_path: Path) -> None:
    gateways = Kill(lambda plane: plane.parts("levers9.daemons.gateway"), at_end=2)
    survive(tmp_path, gateways, gateways=2)


def test_a_worker_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, Kill(ControlPlane.workers, at_end=2), loses=True)


def test_a_container_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, KillContainer(tmp_path / "map" / "runners"), loses=True)


def test_valkey_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, Kill(lambda plane: plane.parts("valkey-server")))


def test_valkey_is_flushed(tmp_path: Path) -> None:
    survive(tmp_path, Flush())


def test_valkey_does_not_answer(tmp_path: Path) -> None:
    survive(tmp_path, Freeze(), moments=MOMENTS[:1])


def test_postgres_is_killed(tmp_path: Path) -> None:
    survive(tmp_path, Kill(lambda plane: plane.parts("bin/postgres -D")), ends_reign=None)


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
            results, ran = run.finish()
        check(results, ran)
        assert check_rows(plane, ran) == 0, "attempts ran again"
        assert plane.read("SELECT epoch FROM leadership") == [(1,)]
        assert plane.leftovers() == []
