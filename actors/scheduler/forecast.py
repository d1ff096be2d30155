"""When there will be room at the latest, by the time limits of what runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

import msgspec

from ...model.gangs import Together
from ...model.resources import Shape
from .capacity import Node
from .domains import Domains, Leaf, Tree
from .topology import find, unit_of

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
    trial = msgspec.structs.replace(
        node, free_cards=[*node.free_cards], lost_cards=[*node.lost_cards], uses={**node.uses}
    )
    steps = [_Step(now_s, node.node_id, trial.count(shape))]
    ends = {member: ends_by_s(member) for member in node.uses}
    unlimited = sum(end_s == UNKNOWN_S for end_s in ends.values())
    for member, end_s in sorted(ends.items(), key=lambda end: (end[1] or NEVER_S, end[0])):
        trial.give_back(member)
        at_s = max(now_s, end_s or NEVER_S)
        if steps[-1].at_s == at_s:
            steps.pop()
        steps.append(_Step(at_s, node.node_id, trial.count(shape), -unlimited if at_s == NEVER_S else 0))
    return steps
