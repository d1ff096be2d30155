"""The disk of everything is full: it is said, nothing accepted is lost, and work goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .laptop import Laptop, a_laptop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk"),
]

SMALL = "size=128m"
CALLS = 300
PROGRAM = """
import os, time
from levers9 import job

@job
def length(data):
    return len(data)

@job
def same(number):
    time.sleep(0.1)
    return number

if __name__ == "__main__":
    assert length.remote(b"12") == 2
    results = same.map(range(CALLS))
    first = next(results)
    filler = os.open(DISK + "/filler", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(filler, bytes(1 << 20)):
            pass
    except OSError:
        os.close(filler)
    try:
        length.remote(os.urandom(4 << 20))
    except Exception as error:
        print("refused:", error, flush=True)
    print("sum:", first + sum(results) + sum(same.map(range(CALLS))), flush=True)
"""


@pytest.fixture
def laptop() -> Iterator[Laptop]:
    """A machine whose state is on a small disk."""
    with a_laptop() as machine:
        machine.state.mkdir(parents=True)
        mount = ("mount", "-t", "tmpfs", "-o", SMALL, "tmpfs", str(machine.state))
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this root may not mount")
        try:
            machine.start("--logs")
            try:
                yield machine
            finally:
                machine.stop()
        finally:
            subprocess.run(["umount", str(machine.state)], check=True)


def test_a_full_disk_is_told_and_work_goes_on_when_there_is_room(laptop: Laptop) -> None:
    script = PROGRAM.replace("CALLS", str(CALLS)).replace("DISK", repr(str(laptop.state)))
    program = laptop.open(sys.executable, str(laptop.file("program.py", script)))
    try:
        laptop.wait_until_it_says(f"The disk of {laptop.state} is full")
        assert program.stdout is not None
        assert "The disk of the object store is full: make room on it." in program.stdout.readline()
        laptop.wait_until_it_says("the disk of Postgres is full")
        Path(laptop.state, "filler").unlink()
        out, err = program.communicate(timeout=120)
    finally:
        program.kill()
        program.wait()
    assert f"sum: {CALLS * (CALLS - 1)}" in out, err
    laptop.wait_until_it_says("has room again")
    assert "OSError: [Errno 28]" not in laptop.terminal.read_text()  # the root's own log costs nobody anything
