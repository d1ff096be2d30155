"""Ctrl-C, as a real signal to a real process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "interrupted.py"
pytestmark = pytest.mark.slow


def interrupted(what: str) -> tuple[int, str]:
    """Run the program, interrupt it when it is ready, and return how it ended and what it said."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, said


def test_a_map_is_cancelled_and_says_so_in_one_line() -> None:
    code, said = interrupted("map")
    assert code == -signal.SIGINT
    assert [line for line in said.splitlines() if line.startswith("levers9:")] == [
        "levers9: interrupted; 100 calls cancelled."
    ]
    assert "KeyboardInterrupt" in said


def test_a_call_is_cancelled_and_says_so() -> None:
    code, said = interrupted("remote")
    assert code == -signal.SIGINT
    assert "levers9: interrupted; 1 call cancelled." in said


def test_an_interrupt_between_two_results_cancels_too() -> None:
    code, said = interrupted("between")
    assert code == -signal.SIGINT
    assert re.search(r"levers9: interrupted; \d+ calls cancelled", said)


def test_a_program_that_ends_right_after_submit_has_submitted() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), "submit"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "accepted 1\n", done.stderr
