"""Pods of the openb trace as jobs with their own times, on the first of its nodes, for replays that end."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.events import Event, NodeSet, PoolSet, Request
from levers9.actors.scheduler.simulation import Job
from levers9.model.nodes import Traits
from levers9.model.resources import CARD_MILLI, Capacity, Shape

FOLDER: Final = Path(__file__).parent / "openb"
POOL: Final = "openb"
SHARING: Final = Traits(gpu_sharing=True)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def opening(nodes: int) -> Iterator[Event]:
    """What a core is told first: every so-and-so-many-th node, so that every make is among them."""
    rows = list(_rows("openb_node_list_gpu_node"))
    yield PoolSet(pool=POOL, traits=SHARING)
    for row in rows[:: max(1, len(rows) // nodes)][:nodes]:
        yield NodeSet(
            node_id=row["sn"],
            pool=POOL,
            capacity=Capacity(
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpu_count=int(row["gpu"]),
                gpu_type=row["model"],
            ),
            traits=SHARING,
            standing=Standing.OPEN,
        )


def jobs(count: int, *, apart_s: float = 1.0, run_s: float = 30.0) -> list[Job]:
    """The first pods of the default workload, in the file's order, so long apart, each for so long."""
    rows = _rows("openb_pod_list_default")
    return [_job(row, number * apart_s, run_s) for number, row in zip(range(count), rows)]


def _job(row: dict[str, str], at_s: float, run_s: float) -> Job:
    name, cards = row["name"], int(row["num_gpu"])
    milli = int(row["gpu_milli"]) if cards == 1 else CARD_MILLI
    shape = Shape(
        cpu_milli=max(1, int(row["cpu_milli"])),
        memory_mib=max(1, int(row["memory_mib"])),
        gpu_count=cards,
        gpu_milli=milli or CARD_MILLI,
        gpu_types=tuple(dict.fromkeys(filter(None, row["gpu_spec"].split("|")))),
        gpu_any_order=True,
    )
    group = f"{shape.cpu_milli}-{shape.memory_mib}-{cards}-{milli}-{row['gpu_spec']}"
    request = Request(request_id=name, group=group, workspace="w", members=(name,), shape=shape, requested_at_s=at_s)
    return Job(at_s=at_s, request=request, run_s=run_s)
