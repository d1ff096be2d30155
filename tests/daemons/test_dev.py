"""`levers9 dev` as a whole: it ends at once, with everything that it started, and leaves nothing but its state."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ..faults.laptop import LEVERS9, Laptop, a_laptop

pytestmark = pytest.mark.slow

SLEEPER = """
import time
from pathlib import Path
from levers9 import job

@job
def sleep(path):
    Path(path).touch()
    time.sleep(600)

if __name__ == "__main__":
    path = Path(__file__).with_name("begun")
    sleep.submit(str(path))
    while not path.exists():
        time.sleep(0.02)
    print("it sleeps")
"""
MEETING = """
import time
from pathlib import Path
from levers9 import job

@job
def meet(folder, name, others):
    if name:
        Path(folder, name).touch()
    while not all(Path(folder, other).exists() for other in others):
        time.sleep(0.02)

if __name__ == "__main__":
    folder = str(Path(__file__).parent)
    for _ in range(20):  # so short that several are handed out at once from now on
        meet.submit(folder, "", []).result(wait=True)
    for task in [meet.submit(folder, name, ["a", "b", "c"]) for name in ("a", "b", "c")]:
        task.result(wait=True)
    print("they met")
"""
_F_GETPIPE_SZ = 1032
STOPS_WITHIN_S = 3.0  # alone on a machine it takes 0.6 s
LATE_BRAIN = """
import sys, time
if "levers9.daemons.brain" in sys.orig_argv:
    time.sleep(3.0)
"""  # as `sitecustomize` it is run first by each Python


def run_files(laptop: Laptop) -> list[Path]:
    """What lies where sockets and notes are."""
    return [path for path in laptop.runtime.rglob("*") if not path.is_dir()]


def test_after_ctrl_c_nothing_is_left_although_code_was_running() -> None:
    with a_laptop() as laptop:
        laptop.start()
        try:
            assert laptop.python(SLEEPER).stdout == "it sleeps\n"
            assert any("levers9.daemons.worker" in command for command in laptop.leftovers())
        finally:
            took_s = laptop.stop()
        assert laptop.process.returncode == 130
        assert laptop.leftovers() == []
        assert run_files(laptop) == []
        assert took_s < STOPS_WITHIN_S


def test_a_program_run_by_dev_gives_its_exit_code_and_nothing_is_left() -> None:
    with a_laptop() as laptop:
        program = laptop.file("program.py", SLEEPER.replace('print("it sleeps")', "raise SystemExit(7)"))
        ports = ("--stream-port", "0", "--http-port", "0")
        done = laptop.run(*LEVERS9, "dev", *ports, "--run", str(program))
        assert done.returncode == 7, done.stderr
        assert laptop.leftovers() == []
        assert run_files(laptop) == []


def test_calls_behind_one_that_takes_longer_than_those_before_run_beside_it() -> None:
    with a_laptop() as laptop:
        laptop.start()
        try:
            assert laptop.python(MEETING).stdout == "they met\n"
        finally:
            laptop.stop()


def test_what_was_accepted_is_there_after_a_restart() -> None:
    with a_laptop() as laptop:
        laptop.start()
        laptop.python(SLEEPER)
        laptop.stop()
        laptop.start()
        try:
            assert "project/sleep" in laptop.levers9("task", "list").stdout
        finally:
            laptop.stop()


def test_the_log_of_the_control_plane_is_for_a_person_to_read() -> None:
    with a_laptop() as laptop:
        laptop.start()
        laptop.stop()
        log = (laptop.state / "logs" / "controlplane.log").read_text()
        (leads,) = [line for line in log.splitlines() if "we lead" in line]
        assert leads.startswith("brain: ")
        assert "epoch=1" in leads
        assert "\x1b" not in log
        assert {line.partition(":")[0] for line in log.splitlines()} >= {"postgres", "valkey", "brain", "gateway-0"}


def test_logs_that_a_program_reads_from_dev_are_objects() -> None:
    with a_laptop() as laptop:
        laptop.start("--logs")
        laptop.stop()
        lines = [json.loads(line) for line in laptop.terminal.read_text().splitlines() if line.startswith("{")]
        assert [line["process"] for line in lines if line.get("event") == "we lead"] == ["brain"]


def test_its_own_token_is_good_when_it_says_that_it_runs_although_gateways_were_quicker_than_the_brain() -> None:
    with a_laptop() as laptop:
        late = laptop.file("sitecustomize.py", LATE_BRAIN).parent
        laptop.env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(late), laptop.env.get("PYTHONPATH"))))
        laptop.start()
        try:
            listed = laptop.levers9("task", "list")
            assert listed.returncode == 0, listed.stderr
        finally:
            laptop.stop()


def test_a_database_that_does_not_start_is_told_and_tried_again_until_it_does() -> None:
    with a_laptop() as laptop:
        laptop.start()
        laptop.stop()
        version = laptop.state / "postgres" / "PG_VERSION"
        ours = version.read_text()
        version.write_text("9\n")
        laptop.start(says="postgres does not stay up")
        try:
            assert "database files are incompatible with server" in laptop.terminal.read_text()
            assert "levers9 runs" not in laptop.terminal.read_text()
            version.write_text(ours)
            laptop.wait_until_it_says("levers9 runs")
            laptop.wait_until_it_says("postgres runs again.")
        finally:
            laptop.stop()
        assert laptop.leftovers() == []


def test_it_ends_although_its_terminal_is_a_pipe_that_is_full_and_nobody_reads() -> None:
    with a_laptop() as laptop:
        reading, writing = os.pipe()
        os.write(writing, b"x" * fcntl.fcntl(writing, _F_GETPIPE_SZ))
        argv = [*LEVERS9, "dev", "--stream-port", "0", "--http-port", "0", "--logs"]
        laptop.process = subprocess.Popen(argv, env=laptop.env, stdout=writing, stderr=writing, start_new_session=True)
        try:
            laptop.wait_until(lambda: bool(list(laptop.runtime.rglob("dev.json"))))
        finally:
            laptop.stop()
            os.close(reading)
            os.close(writing)
        assert laptop.process.returncode == 130
        assert laptop.leftovers() == []


def test_it_runs_and_ends_with_input_output_and_error_closed() -> None:
    with a_laptop() as laptop:
        closed = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
        argv = [*closed, *LEVERS9, "dev", "--stream-port", "0", "--http-port", "0", "--logs"]
        laptop.process = subprocess.Popen(argv, env=laptop.env, start_new_session=True)
        try:
            laptop.wait_until(lambda: bool(list(laptop.runtime.rglob("dev.json"))))
            assert laptop.levers9("task", "list").returncode == 0
        finally:
            laptop.stop()
        assert laptop.process.returncode == 130
        assert laptop.leftovers() == []


@pytest.mark.parametrize("after_s", [0.05, 0.5, 1.0, 1.5, 2.0])
def test_asked_twice_to_end_at_any_moment_of_its_start_it_leaves_nothing(after_s: float) -> None:
    with a_laptop() as laptop:
        laptop.begin()
        laptop.wait_until(lambda: laptop.state.exists())
        time.sleep(after_s)  # somewhere in its start: where exactly depends on the machine
        laptop.process.send_signal(signal.SIGTERM)
        took_s = laptop.stop()
        assert laptop.leftovers() == []
        assert run_files(laptop) == []
        assert took_s < STOPS_WITHIN_S
