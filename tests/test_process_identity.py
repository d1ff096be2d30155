"""A process is known by its start; one that has ended has none."""

import os
import subprocess
import sys

import pytest

from levers9.process_identity import start_ticks


def test_a_living_process_keeps_its_start() -> None:
    first = start_ticks(os.getpid())
    assert first is not None
    assert start_ticks(os.getpid()) == first
    assert first >= (start_ticks(os.getppid()) or 0)


@pytest.mark.slow
def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(process.pid) is None
    assert start_ticks(process.pid) is None
