"""Jobs of Microsoft's Philly cluster, on a cluster sized from them: see `philly/NOTICE.md`.

A job for up to 8 cards is one container; a larger one is a gang of containers with as many cards each as divide it, at
most 8. Each card comes with 4 CPUs and 16 GiB. Each virtual cluster is a workspace.
"""

import csv
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.events import Event, NodeSet, PoolSet, Request
from levers9.actors.scheduler.simulation import Job
from levers9.model.resources import Capacity, Shape

FILE: Final = Path(__file__).parent / "philly" / "chronus_philly_MIX1.csv.gz"
POOL: Final = "philly"
CARDS_A_NODE: Final = 8
SPARE: Final = 1.05  # cards, over those that are in use in the mean if nobody ever waits: see `nodes_for`
EVERYBODY: Final = "everybody"
SIZES: Final = ("no card", "1 card", "2 to 4 cards", "8 cards", "over 8 cards")


class PhillyJob(msgspec.Struct, frozen=True):
    """One row; times are seconds of the file."""

    number: int
    virtual_cluster: str
    cards: int
    at_s: float
    run_s: float

    @property
    def size(self) -> str:
        """Its class."""
        bounds = ((0, SIZES[0]), (1, SIZES[1]), (4, SIZES[2]), (8, SIZES[3]))
        return next((name for most, name in bounds if self.cards <= most), SIZES[4])


def read_jobs(count: int | None = None) -> list[PhillyJob]:
    """The first `count` jobs by time (None: all)."""
    with gzip.open(FILE, "rt", encoding="utf-8", newline="") as file:
        rows = [
            PhillyJob(
                int(row["job_id"]),
                row["user"],
                int(row["num_gpu"]),
                float(row["submit_time"]),
                float(row["duration"]),
            )
            for row in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda job: (job.at_s, job.number))[:count]


def nodes_for(jobs: list[PhillyJob]) -> int:
    """Nodes of 8 cards: enough for the mean demand over the time in which jobs come, and 5 % more.

    So the cluster is nearly full all the time, has to catch up after each peak, and in the end gets everything done.
    """
    span_s = max(1.0, jobs[-1].at_s - jobs[0].at_s)
    mean_cards = sum(job.cards * job.run_s for job in jobs) / span_s
    largest = max(job.cards for job in jobs)
    return max(-(-largest // CARDS_A_NODE), round(mean_cards * SPARE / CARDS_A_NODE))


def opening(nodes: int) -> Iterator[Event]:
    """What a core is told first."""
    yield PoolSet(pool=POOL)
    capacity = Capacity(cpu_milli=64_000, memory_mib=256 << 10, gpu_count=CARDS_A_NODE, gpu_type="P100")
    for number in range(nodes):
        yield NodeSet(node_id=f"node-{number:03d}", pool=POOL, capacity=capacity, standing=Standing.OPEN)


def as_job(job: PhillyJob, *, fair: bool, limits: bool) -> Job:
    """As the core sees it: in its own workspace or in everybody's, with a time limit or with none.

    The limit is the job's duration in full minutes, as people write limits.
    """
    members, cards = _split(job.cards)
    limit_s = 60.0 * math.ceil(job.run_s / 60.0) if limits else 0.0
    name = f"j{job.number:05d}"
    request = Request(
        request_id=name,
        group=f"{job.virtual_cluster if fair else EVERYBODY}-{cards}x{members}-{limit_s:g}",
        workspace=job.virtual_cluster if fair else EVERYBODY,
        members=(name,) if members == 1 else tuple(f"{name}-{rank}" for rank in range(members)),
        shape=Shape(cpu_milli=max(1, cards) * 4000, memory_mib=max(1, cards) << 14, gpu_count=cards),
        limit_s=limit_s,
        requested_at_s=job.at_s,
    )
    return Job(at_s=job.at_s, request=request, run_s=job.run_s)


def _split(cards: int) -> tuple[int, int]:
    """Containers, and the cards of each."""
    if cards <= CARDS_A_NODE:
        return 1, cards
    each = next(size for size in range(CARDS_A_NODE, 0, -1) if cards % size == 0)
    return cards // each, each
