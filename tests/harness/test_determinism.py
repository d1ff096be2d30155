"""One seed is one history, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from levers9_world import draw_plan, run_world

pytestmark = pytest.mark.slow
SEED = 10  # ten faults: crashes, killed brains, a cut, a lost worker


def _journal(seed: int, hash_seed: int, folder: Path) -> bytes:
    file = folder / f"{seed}-{hash_seed}"
    command = [sys.executable, str(Path(__file__).with_name("record.py")), str(seed), str(file)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    subprocess.run(
        command, env=environment, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return file.read_bytes()


def test_a_seed_gives_the_same_journal_under_two_hash_seeds(tmp_path: Path) -> None:
    one, other = _journal(SEED, 1, tmp_path), _journal(SEED, 2, tmp_path)

    assert len(one) > 100_000
    assert one == other


def test_a_world_leaves_nothing_behind_for_the_next_one() -> None:
    first = run_world(SEED, draw_plan(SEED)).digest
    between = run_world(SEED + 1, draw_plan(SEED + 1)).digest

    assert run_world(SEED, draw_plan(SEED)).digest == first
    assert between != first
