"""Why a gang does not fit: how many of it would, which nodes would help and why they do not, and what is lacking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ...model.gangs import Together, TopologyMode
from ...model.reasons import Excluded, HoldKind, Lack, Reason
from ...model.resources import CARD_MILLI, Shape
from .capacity import Node, Standing
from .domains import ROOT, Domains
from .fits import Path

EXCLUDED_MAX: Final = 8  # nodes that a reason names


def reason_for(counts: Iterable[Domains], members: int, together: Together) -> Reason:
    """The hold, by the topology in which most of the members would fit."""
    required = together.mode is TopologyMode.REQUIRED
    best, fits = "", -1
    for domains in counts:
        most = domains.at(domains.tree.depth(together.level)).most if required else domains.fit(ROOT)
        if most * domains.unit > fits:
            best, fits = domains.tree.name, most * domains.unit
    kind = HoldKind.TOPOLOGY if required or together.slice_size > 1 else HoldKind.ROOM
    return Reason(kind=kind, topology=best, level=together.level, fits=max(0, fits), wanted=members)


def helpful(open_now: Domains, with_all: Domains, depth: int, units: int, unavailable: Iterable[str]) -> list[str]:
    """Unavailable nodes with which so many would fit into one domain: the one in which most fit already."""
    paths = {node: open_now.tree.paths[node] for node in unavailable if node in open_now.tree.paths}
    domains = [path for path in dict.fromkeys(path[:depth] for path in paths.values()) if with_all.fit(path) >= units]
    if not domains:
        return []
    best: Path = min(domains, key=lambda path: (-open_now.fit(path), path))
    return [node for node, path in paths.items() if path[:depth] == best and with_all.leaf(node).members]


def excluded(node_ids: Iterable[str], nodes: Mapping[str, Node]) -> tuple[Excluded, ...]:
    """Nodes by their names, with why they do not count; those that are open are kept for somebody else."""
    return excluded_for(nodes[node_id] for node_id in node_ids)[:EXCLUDED_MAX]


def excluded_for(nodes: Iterable[Node]) -> tuple[Excluded, ...]:
    """Each of these nodes, by name, with why it does not count."""
    return tuple(
        Excluded(
            node.name,
            (node.why_closed or "closed") if node.standing is Standing.CLOSED else "reserved",
            pool=node.kind.pool,
            since_s=node.since_s if node.standing is Standing.CLOSED else 0.0,
        )
        for node in sorted(nodes, key=lambda node: (node.name, node.node_id))
    )


def alone(shape: Shape) -> dict[str, Shape]:
    """For each resource that a shape asks for, by its name: the shape that asks for that one only."""
    nothing = msgspec.structs.replace(
        shape, cpu_milli=1, memory_mib=1, gpu_count=0, gpu_types=(), gpu_milli=CARD_MILLI, accelerator=""
    )
    shapes = {
        "cpu": msgspec.structs.replace(nothing, cpu_milli=shape.cpu_milli),
        "memory": msgspec.structs.replace(nothing, memory_mib=shape.memory_mib),
    }
    if not shape.gpu_count:
        return shapes
    return {card_name(shape): msgspec.structs.replace(shape, cpu_milli=1, memory_mib=1), **shapes}


def card_name(shape: Shape) -> str:
    """What cards a shape asks for: their type where it is one."""
    return shape.accelerator or (shape.gpu_types[0] if len(shape.gpu_types) == 1 else "gpu")


def lack(resource: str, shape: Shape, members: int) -> Lack:
    """What so many more members need of a resource."""
    each = {"memory": shape.memory_mib, "cpu": shape.cpu_milli}.get(resource, shape.gpu_total_milli)
    return Lack(resource, each * members)
