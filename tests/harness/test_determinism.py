"""One seed is one history, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import levers9_clusters
import pytest
from levers9_world import draw_plan, run_world

pytestmark = pytest.mark.slow
SEED = 10  # ten faults: crashes, killed brains, a cut, a lost worker
CLUSTER_SEED = 3


def _journal(kind: str, seed: int, hash_seed: int, folder: Path) -> bytes:
    file = folder / f"{kind}-{seed}-{hash_seed}"
    command = [sys.executable, str(Path(__file__).with_name("record.py")), kind, str(seed), str(file)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    subprocess.run(
        command, env=environment, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return file.read_bytes()


@pytest.mark.parametrize(("kind", "seed"), [("world", SEED), ("clusters", CLUSTER_SEED)])
def test_a_seed_gives_the_same_journal_under_two_hash_seeds(kind: str, seed: int, tmp_path: Path) -> None:
    one, other = _journal(kind, seed, 1, tmp_path), _journal(kind, seed, 2, tmp_path)

    assert len(one) > 100_000
    assert one == other


def test_a_world_leaves_nothing_behind_for_the_next_one() -> None:
    first = run_world(SEED, draw_plan(SEED)).digest
    between = run_world(SEED + 1, draw_plan(SEED + 1)).digest

    assert run_world(SEED, draw_plan(SEED)).digest == first
    assert between != first


def test_a_world_of_clusters_leaves_nothing_behind_for_the_next_one() -> None:
    first = _digest(CLUSTER_SEED)
    between = _digest(CLUSTER_SEED + 1)

    assert _digest(CLUSTER_SEED) == first
    assert between != first


def _digest(seed: int) -> str:
    return levers9_clusters.run_cluster_world(seed, levers9_clusters.draw_plan(seed)).digest
