"""Calls that run on two containers at once, as real processes: they meet, and fall and rise together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .controlplane import ControlPlane, descendants, kill, running, wait_until
from .laptop import Laptop, a_running_laptop

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, pathlib, socket, sys, time
import levers9

FOLDER = pathlib.Path({folder!r})


@levers9.job(cpu=0.5, memory=256, nodes=2, retries=1, timeout=60)
def meet(how):
    me, attempt = levers9.gang(), os.environ["LEVERS9_ATTEMPT"]
    for other in FOLDER.glob("rank-*"):
        before, _, pid = other.name.removeprefix("rank-").split("-")
        if before < attempt and os.path.exists(f"/proc/{{pid}}"):
            raise RuntimeError(f"{{other.name}} still runs")
    (FOLDER / f"rank-{{attempt}}-{{me.rank}}-{{os.getpid()}}").touch()
    if how == "fall" and me.rank == 1 and attempt == "1":
        os.kill(os.getpid(), 9)
    if how == "wait" and me.rank == 1 and attempt == "1":
        time.sleep(60)
    if how == "raise" and me.rank == 1:
        raise ValueError("rank 1 has no data")
    host, _, port = me.address.rpartition(":")
    assert (host, port) == (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    if me.rank == 0:
        with socket.create_server((host, int(port))) as listener:
            try:
                with listener.accept()[0] as other:
                    return [int(attempt), me.world_size, other.recv(16).decode()]
            except SystemExit:  # it is stopped, and takes its time
                time.sleep(2)
                raise
    while True:
        try:
            with socket.create_connection((host, int(port))) as line:
                line.sendall(b"rank %d" % me.rank)
                return None
        except ConnectionRefusedError:
            time.sleep(0.05)


@levers9.job(cpu=os.cpu_count() - 0.5, memory=256)
def take_room():
    (FOLDER / "taken").touch()
    while not (FOLDER / "give back").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    {main}
"""
SPARE = """
[[pools]]
name = "spare"
isolation = "trusted"
cpu = 0.5
memory = 512
max_workers = 3
"""
CALL = "print(json.dumps(meet.remote(sys.argv[1])))"


@pytest.fixture(scope="module")
def laptop() -> Iterator[Laptop]:
    with a_running_laptop() as running:
        yield running


def program(laptop: Laptop, folder: Path, main: str = CALL) -> str:
    return str(laptop.file("gangs.py", PROGRAM.format(folder=str(folder), main=main)))


def called(laptop: Laptop, folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    return laptop.run(sys.executable, program(laptop, folder), how)


def ranks(folder: Path) -> list[str]:
    """attempt-rank of each start."""
    return sorted(path.name.removeprefix("rank-").rpartition("-")[0] for path in folder.glob("rank-*"))


def test_the_ranks_of_a_call_meet_at_the_address_of_rank_0_whose_result_it_is(laptop: Laptop, tmp_path: Path) -> None:
    done = called(laptop, tmp_path, "meet")
    assert json.loads(done.stdout or "null") == [1, 2, "rank 1"], done.stderr
    assert ranks(tmp_path) == ["1-0", "1-1"]


def test_when_one_rank_is_killed_all_of_them_run_again_after_all_have_ended(laptop: Laptop, tmp_path: Path) -> None:
    done = called(laptop, tmp_path, "fall")
    assert json.loads(done.stdout or "null") == [2, 2, "rank 1"], done.stderr
    assert ranks(tmp_path) == ["1-0", "1-1", "2-0", "2-1"]


def test_when_the_worker_of_a_rank_is_killed_its_place_is_taken_and_the_call_uses_one_retry(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "plane", settings=SPARE)
    with running(plane):
        plane.wait_for_token()
        text = PROGRAM.format(folder=str(tmp_path), main=CALL)
        (tmp_path / "gangs.py").write_text(text)
        argv = [sys.executable, str(tmp_path / "gangs.py"), "wait"]
        with subprocess.Popen(argv, env=plane.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as call:
            try:
                wait_until(lambda: ranks(tmp_path) == ["1-0", "1-1"], "both ranks run", 60.0)
                kill(worker_of(plane, tmp_path, "rank-1-1-*"))
                out, err = call.communicate(timeout=90.0)
            finally:
                call.kill()
    assert json.loads(out or "null") == [2, 2, "rank 1"], err.decode()
    assert ranks(tmp_path) == ["1-0", "1-1", "2-0", "2-1"]


def worker_of(plane: ControlPlane, folder: Path, rank: str) -> int:
    """The worker whose container a rank runs in."""
    (path,) = folder.glob(rank)
    pid = int(path.name.rpartition("-")[2])
    return next(worker for worker in plane.workers() if pid in descendants(worker))


def test_when_one_rank_raises_the_call_raises_that_and_names_the_rank(laptop: Laptop, tmp_path: Path) -> None:
    done = called(laptop, tmp_path, "raise")
    assert done.returncode != 0
    assert "ValueError: rank 1 has no data" in done.stderr
    assert "Rank 1 of 2" in done.stderr
    assert ranks(tmp_path) == ["1-0", "1-1"]


def test_a_gang_for_which_there_is_half_the_room_starts_nothing_until_there_is_all_of_it(
    laptop: Laptop, tmp_path: Path
) -> None:
    main = """
    room, gang = take_room.submit(), None
    while not (FOLDER / "taken").exists():
        time.sleep(0.05)
    gang = meet.submit("meet")
    while not any("room" in one.lower() for one in gang.why()[1:]):
        time.sleep(0.05)
    (FOLDER / "waits").write_text(" ".join(gang.why()))
    print(json.dumps(gang.result(wait=True)))
    """
    with laptop.open(sys.executable, program(laptop, tmp_path, main)) as process:
        try:
            wait_until(lambda: (tmp_path / "waits").exists(), "the gang waits", 60.0)
            assert "2 free containers" in (tmp_path / "waits").read_text()
            assert ranks(tmp_path) == []
            (tmp_path / "give back").touch()
            out, err = process.communicate(timeout=60.0)
        finally:
            process.kill()
    assert json.loads(out or "null") == [1, 2, "rank 1"], err
