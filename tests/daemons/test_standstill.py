"""A process whose event loop stands still ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import time, trio
from levers9.daemons.standstill import end_when_still

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_when_still, 0.5, 0.05)
        await trio.sleep(1.0)
        print("turning", flush=True)
        {then}
        nursery.cancel_scope.cancel()

trio.run(main)
time.sleep(0.6)  # nothing is left that would end it
"""


def ran(then: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(then=then)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.slow
def test_a_loop_that_turns_is_left_alone_also_once_it_is_over() -> None:
    done = ran("pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "turning\n", "")


@pytest.mark.slow
def test_one_that_stands_still_ends_its_process_and_says_where_it_stood() -> None:
    done = ran("time.sleep(20)")
    assert (done.returncode, done.stdout) == (1, "turning\n")
    assert "Timeout" in done.stderr
    assert "in main" in done.stderr
