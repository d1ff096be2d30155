"""When there will be room at the latest, by the time limits of what runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

import msgspec

from ...model.gangs import Together
from ...model.resources import Shape
from .capacity import Node, Use
from .domains import Domains, Leaf, Tree
from .gangs import copy_of
from .survey import unit_of
from .topology import find

UNKNOWN_S: Final = 0.0  # nobody knows when it ends
NEVER_S: Final = math.inf

EndsBy = Callable[[str], float]  # Unix seconds at which a member's time limit ends; `UNKNOWN_S`


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request could start, and when at the latest; `NEVER_S`: after something without a time limit."""

    at_s: float
    nodes: tuple[str, ...]


class _Step(msgspec.Struct, frozen=True):
    """From then on, so many members fit on a node. The more it waits for without a time limit, the lower its rank."""

    at_s: float
    node_id: str
    members: int
    rank: int = 0


def earliest(
    tree: Tree, nodes: Iterable[Node], members: int, shape: Shape, together: Together, ends_by_s: EndsBy, now_s: float
) -> Start | None:
    """The first moment at which all members have room on these nodes; None where they never have."""
    steps = [step for node in nodes for step in _steps(node, shape, ends_by_s, now_s)]
    domains = Domains(tree, *unit_of(tree, together))
    for at_s, together_s in groupby(sorted(steps, key=lambda step: (step.at_s, step.node_id)), lambda step: step.at_s):
        for step in together_s:
            domains.put(step.node_id, Leaf(tree.paths[step.node_id], step.rank, step.members))
        found = find(domains, members, together)
        if found is not None:
            return Start(at_s=at_s, nodes=tuple(sorted(path[-1] for path, _ in found.seats)))
    return None


def _steps(node: Node, shape: Shape, ends_by_s: EndsBy, now_s: float) -> list[_Step]:
    """How room grows on a node as one container after the other ends."""
    trial = copy_of(node)
    steps = [_Step(now_s, node.node_id, trial.count(shape))]
    ends = {member: ends_by_s(member) for member in node.uses}
    unlimited = sum(end_s == UNKNOWN_S for end_s in ends.values())
    for member, end_s in sorted(ends.items(), key=lambda end: (end[1] or NEVER_S, end[0])):
        _end(trial, node.uses[member])
        at_s = max(now_s, end_s or NEVER_S)
        if steps[-1].at_s == at_s:
            steps.pop()
        steps.append(_Step(at_s, node.node_id, trial.count(shape), -unlimited if at_s == NEVER_S else 0))
    return steps


def _end(trial: Node, use: Use) -> None:
    """What it held is free, but for lost cards: these stay so, whichever of them the worker may mean."""
    trial.used_cpu_milli -= use.cpu_milli
    trial.used_memory_mib -= use.memory_mib
    trial.cpu_milli = max(0, trial.kind.capacity.cpu_milli - trial.used_cpu_milli)
    trial.memory_mib = max(0, trial.kind.capacity.memory_mib - trial.used_memory_mib)
    for card in use.cards:
        if card not in trial.lost_cards:
            trial.free_cards[card] += use.card_milli
