"""The types that people's editors show."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_public_api_has_the_types_that_are_promised() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", "tests/typing/api.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
