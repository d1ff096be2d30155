"""The lab of docs/how-to/queues-and-quotas.md on a laptop, step by step, with the words that the page shows."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .controlplane import wait_until
from .laptop import Laptop, a_running_laptop

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNCORDONED_RUNS_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Laptop]:
    with a_running_laptop("--config", str(EXAMPLES / "ai_lab.toml")) as laptop:
        shutil.copy(EXAMPLES / "ai_lab.py", laptop.project)
        yield laptop


def run_job(lab: Laptop, *arguments: str) -> str:
    """What `ai_lab.py` prints."""
    done = lab.run(sys.executable, "ai_lab.py", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def say(lab: Laptop, *arguments: str) -> str:
    """What a command line prints."""
    done = lab.levers9(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for_words(lab: Laptop, task: str, *words: str, within_s: float = 30.0) -> None:
    """Wait until `task why` says all of this."""
    said = [""]

    def so() -> bool:
        said.append(say(lab, "task", "why", task))
        return all(word in said[-1] for word in words)

    try:
        wait_until(so, "it is said", within_s)
    except AssertionError:
        raise AssertionError(f"{words} were not all said, but {said[-1]}") from None


def test_a_cordoned_tray_leaves_four_of_eight_and_its_return_lets_the_gang_run(lab: Laptop) -> None:
    training = run_job(lab, "train", "--seconds", "600")
    wait_for_words(lab, training, "RUNNING")  # so that both workers are there, and no container is warm later
    say(lab, "task", "stop", training)
    workers = json.loads(say(lab, "worker", "list", "--json"))
    second = next(one["worker_id"] for one in workers if one["node"] == "sched-worker2")
    say(lab, "worker", "cordon", second)
    waiting = run_job(lab, "hello")
    wait_for_words(
        lab,
        waiting,
        "Topology nvl: only 4 of 8 fit in one accelerator.topograph.run/domain; sched-worker2 is cordoned.",
    )
    say(lab, "worker", "uncordon", second)
    wait_for_words(lab, waiting, "COMPLETE", within_s=UNCORDONED_RUNS_WITHIN_S)


def test_eight_ranks_in_one_domain_each_have_a_card_of_their_own(lab: Laptop) -> None:
    assert run_job(lab, "hello", "--wait") == "rank 0 of 8 has card 0"
    workers = json.loads(say(lab, "worker", "list", "--json"))
    assert sorted((one["node"], one["gpu_count"]) for one in workers) == [("sched-worker1", 4), ("sched-worker2", 4)]


def test_a_gang_behind_a_training_run_says_how_many_cards_are_missing_and_runs_when_it_has_ended(lab: Laptop) -> None:
    training = run_job(lab, "train", "--seconds", "600")
    wait_for_words(lab, training, "RUNNING")
    waiting = run_job(lab, "hello")
    wait_for_words(
        lab,
        waiting,
        "8 more GB200 needed in quota gpu.",
        "train (2 containers) holds 8 GB200; the first ends by",
    )
    queues = {one["name"]: one for one in json.loads(say(lab, "queue", "list", "--json"))}
    assert (queues["gpu"]["pending"], queues["gpu"]["admitted"], queues["gpu"]["used"]["gpu"]) == (1, 1, 8.0)
    quotas = {one["name"]: one for one in json.loads(say(lab, "quota", "list", "--json"))}
    assert (quotas["gpu"]["used"]["gpu"], quotas["gpu"]["nominal"]["gpu"]) == (8.0, 8.0)
    say(lab, "task", "stop", training)
    assert "COMPLETE" in say(lab, "task", "why", "--follow", waiting)


def test_more_is_configured_while_it_runs_and_what_the_file_says_is_changed_there(lab: Laptop) -> None:
    for typed in (
        "quota cohort put lab",
        "quota put night --flavor gb200 --gpu 4 --cohort lab",
        "quota put night --gpu-borrowing 2 --gpu-lending none",
        "queue put night --quota night",
        "queue priority put urgent 1000",
        "quota share put team --weight 2",
        "topology put flat accelerator.topograph.run/domain",
    ):
        if "team" in typed:
            say(lab, "workspace", "create", "team")
        say(lab, *typed.split())
    say(lab, "quota", "hold", "night")
    assert "held" in next(row for row in say(lab, "quota", "list").splitlines() if row.startswith("night"))
    say(lab, "quota", "release", "night")
    say(lab, "queue", "delete", "night")
    say(lab, "quota", "delete", "night")
    refused = lab.levers9("quota", "hold", "gpu")
    assert (refused.returncode, "Quota gpu stands in the configuration file." in refused.stderr) == (1, True)
