"""Fill the published GPU cluster with pods under one placement policy, and measure what it allocates.

The protocol is that of the FGD paper (USENIX ATC 2023): GPU nodes only; pods are drawn from the trace with replacement
until the GPU demand that has arrived is 130 % of what the cluster has; each is placed once, in order; one that does not
fit is dropped; nothing ever ends. What counts is the share of GPU that is allocated at each percent of arrived demand.

The published policies know the whole trace beforehand, as in the paper; ours knows what it has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Final

import numpy as np
from study.policies import OURS, POLICIES
from study.trace import cluster, pods

from levers9.actors.scheduler.capacity import Node
from levers9.actors.scheduler.placement import Placement
from levers9.model.resources import CARD_MILLI, Shape

DEMAND_PCT: Final = 130  # the paper stops when this much GPU demand has arrived


@dataclass(slots=True)
class Filled:
    """The end of a replay."""

    nodes: dict[str, Node]
    allocated_pct: list[float]  # of all GPU, at 0, 1, 2 … 130 % of arrived demand
    arrived: dict[str, int] = field(default_factory=dict)  # pods by their class
    placed: dict[str, int] = field(default_factory=dict)


def fill(policy_name: str, variant: str, seed: int) -> Filled:
    """Replay one workload under one policy. The same seed brings the same nodes and pods to each policy."""
    order, draw = (np.random.default_rng((seed, stream)) for stream in range(2))
    nodes = cluster(order)
    return replay(POLICIES[policy_name](), nodes, drawn(variant, draw), variant if policy_name != OURS else "")


def drawn(variant: str, draw: np.random.Generator) -> Iterator[Shape]:
    """Pods of the trace, one after the other, each as likely as the others."""
    known = pods(variant)
    for _ in count():
        yield known[draw.integers(len(known))]


def in_order(variant: str) -> Iterator[Shape]:
    """The pods of the trace as they stand there, again and again."""
    return cycle(pods(variant))


def replay(policy: Placement, nodes: list[Node], arriving: Iterator[Shape], known: str = "") -> Filled:
    """Place what arrives until it is enough. With `known`, the policy has seen that workload before it begins."""
    for node in nodes:
        policy.put(node)
    for shape in pods(known) if known else ():
        policy.saw(shape)
    filled = Filled({node.node_id: node for node in nodes}, [0.0])
    capacity = CARD_MILLI * sum(node.kind.capacity.gpu_count for node in nodes)
    arrived = allocated = 0
    while len(filled.allocated_pct) <= DEMAND_PCT:
        shape = next(arriving)
        arrived += shape.gpu_total_milli
        if not known:
            policy.saw(shape)
        if _place(policy, filled, shape):
            allocated += shape.gpu_total_milli
        reached = min(100 * arrived // capacity, DEMAND_PCT)
        filled.allocated_pct += [100 * allocated / capacity] * (reached + 1 - len(filled.allocated_pct))
    return filled


def _place(policy: Placement, filled: Filled, shape: Shape) -> bool:
    name = kind_of(shape)
    filled.arrived[name] = filled.arrived.get(name, 0) + 1
    spot = policy.choose(shape)
    if spot is None:
        return False
    filled.placed[name] = number = filled.placed.get(name, 0) + 1
    node = filled.nodes[spot.node_id]
    node.take(f"{name}-{number}", shape, spot.cards)
    policy.put(node)
    return True


def kind_of(shape: Shape) -> str:
    """The class of a pod: what it wants of cards."""
    if not shape.gpu_count:
        return "no card"
    if shape.shared:
        return "a share"
    return "one card" if shape.gpu_count == 1 else "several cards"
