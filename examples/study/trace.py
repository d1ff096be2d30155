"""The published trace of a GPU cluster: its nodes and its pods, as the scheduler knows nodes and shapes."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from levers9.actors.scheduler.capacity import Node, NodeKind, new_node
from levers9.model.nodes import Traits
from levers9.model.resources import CARD_MILLI, Capacity, Shape

Floats = npt.NDArray[np.float64]

TRACES: Final = Path(__file__).resolve().parents[2] / "bench" / "traces" / "openb"
VARIANTS: Final = (
    "default",
    *("cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        return list(csv.DictReader(lines))


@cache
def _nodes() -> tuple[NodeKind, ...]:
    """The nodes of the file; those of one make share one kind."""
    kinds: dict[NodeKind, NodeKind] = {}
    found = []
    for row in _rows(TRACES / "openb_node_list_gpu_node.csv.gz"):
        capacity = Capacity(
            cpu_milli=int(row["cpu_milli"]),
            memory_mib=int(row["memory_mib"]),
            gpu_count=int(row["gpu"]),
            gpu_type=row["model"],
        )
        kind = NodeKind(pool="openb", capacity=capacity, traits=Traits(gpu_sharing=True))
        found.append(kinds.setdefault(kind, kind))
    return tuple(found)


def cluster(order: np.random.Generator | None = None) -> list[Node]:
    """The cluster, empty: 1,213 nodes with 6,212 cards; in the order of the file, or in one that is drawn.

    The order settles ties, by the nodes' identities. One that is drawn and then kept is what the published figures fit
    for each policy; the order of the file takes up to 0.8 points from clustering and packing.
    """
    kinds = _nodes()
    places = range(len(kinds)) if order is None else order.permutation(len(kinds)).tolist()
    chosen = [(f"node-{number:04}", kinds[place]) for number, place in enumerate(places)]
    return [new_node(node_id, kind.pool, kind.capacity, kind.traits) for node_id, kind in chosen]


@cache
def pods(variant: str) -> tuple[Shape, ...]:
    """What each pod of a workload asks for, in the order of the file."""
    known: dict[Shape, Shape] = {}
    shapes = map(_shape, _rows(TRACES / f"openb_pod_list_{variant}.csv.gz"))
    return tuple(known.setdefault(shape, shape) for shape in shapes)


def _shape(row: dict[str, str]) -> Shape:
    cards, types = int(row["num_gpu"]), row.get("gpu_spec") or ""
    return Shape(
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        gpu_count=cards,
        gpu_milli=int(row["gpu_milli"]) if cards else CARD_MILLI,
        gpu_types=tuple(sorted(set(types.split("|")))) if types else (),
        gpu_any_order=True,
    )
