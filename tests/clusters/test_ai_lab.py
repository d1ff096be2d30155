"""The two jobs of docs/how-to/queues-and-quotas.md on an attached cluster, with `examples/ai_lab_cluster.toml`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, running, wait_until
from .attached import WITHIN_S, Attached

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def ai_lab(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    """A control plane with the example's queues, and a cluster that joined it."""
    folder = tmp_path_factory.mktemp("ai-lab")
    settings = (EXAMPLES / "ai_lab_cluster.toml").read_text()
    with running(ControlPlane(folder / "plane", settings=settings)) as plane:
        plane.wait_for_token()
        attached = Attached(plane, lab, folder.name)
        attached.join()
        yield attached
        attached.remove()


def job(ai_lab: Attached, home: Path, *arguments: str) -> str:
    """What `ai_lab.py` prints."""
    argv = [sys.executable, str(EXAMPLES / "ai_lab.py"), *arguments]
    env = ai_lab.plane.environment | {"HOME": str(home)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for_words(ai_lab: Attached, task: str, *words: str) -> None:
    """Wait until `levers9 task why` says all of this."""

    def so() -> bool:
        said = ai_lab.why(task)
        return all(word in said for word in words)

    wait_until(so, f"{words}; it says {ai_lab.why(task)}", WITHIN_S)


def test_a_training_run_holds_all_cards_and_the_next_gang_waits_for_them(ai_lab: Attached, tmp_path: Path) -> None:
    training = job(ai_lab, tmp_path, "train", "--seconds", "600")
    wait_for_words(ai_lab, training, "runs")
    waiting = job(ai_lab, tmp_path, "hello")
    wait_for_words(
        ai_lab, waiting, "8 more GB200 needed in quota gpu.", "train (2 containers) holds 8 GB200; the first ends by"
    )
    assert {node.gpus_free for node in ai_lab.cluster.nodes} == {4}  # its own workers have them
    ai_lab.ask(object, f"tasks/{training}/stop", {}, method="POST")
    wait_for_words(ai_lab, waiting, "It has a result")
    assert len(ai_lab.worker_jobs()) == 2
