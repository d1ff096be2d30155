"""A program as the first process of a container: signals reach it, orphans are buried, its status is theirs."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from levers9.daemons.first_process import in_container

SPACES = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
# As process 1: the program leaves an orphan that ends at once, waits until nothing of it is left, then for a signal.
ORPHANS = """
import os, pathlib, signal, subprocess, sys, time
from levers9.daemons.first_process import in_container

def program():
    assert os.getpid() != 1
    done = subprocess.run(["sh", "-c", "sleep 0.01 & echo $!"], capture_output=True, text=True, check=True)
    orphan = pathlib.Path("/proc", done.stdout.strip())  # it held our pipe: it has ended
    until = time.monotonic() + 5
    while orphan.exists() and time.monotonic() < until:
        time.sleep(0.01)
    print("buried", not orphan.exists(), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    print("waiting", flush=True)
    signal.pause()

sys.exit(in_container(program))
"""


def needs_spaces() -> None:
    tried = shutil.which("unshare") and subprocess.run([*SPACES, "true"], capture_output=True, check=False)
    if not tried or tried.returncode:
        pytest.skip("no process namespace may be made here: unshare needs root")


@pytest.mark.slow
def test_as_process_1_it_buries_orphans_and_hands_signals_on(tmp_path: Path) -> None:
    needs_spaces()
    program = [*SPACES, sys.executable, "-c", ORPHANS]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as outer:
        try:
            assert outer.stdout is not None
            assert [outer.stdout.readline(), outer.stdout.readline()] == ["buried True\n", "waiting\n"]
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            subprocess.run(["kill", "-TERM", *children], check=True)
            assert outer.wait(10) == 7
        finally:
            outer.kill()


def test_any_other_process_runs_it_itself() -> None:
    assert in_container(lambda: 5) == 5


KILLED = """
import os, signal, sys
from levers9.daemons.first_process import in_container
sys.exit(in_container(lambda: os.kill(os.getpid(), signal.SIGKILL), process_id=1))
"""


@pytest.mark.slow
def test_a_program_that_was_killed_counts_as_in_a_shell() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == 128 + signal.SIGKILL
