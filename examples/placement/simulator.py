"""Fill the published GPU cluster with pods under one placement policy, and measure what it allocates.

The protocol is that of the FGD paper (USENIX ATC 2023): GPU nodes only; pods are drawn from the trace with replacement
until the GPU demand that has arrived is 130 % of what the cluster has; each is placed once, in order; one that does not
fit is dropped; nothing ever ends. What counts is the share of GPU that is allocated at each percent of arrived demand.

How it is quick: pods come in some hundred shapes. Every shape keeps its score of every node, a placement changes one
node, and so only that one column of scores is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from placement.policies import POLICIES, UNFIT, Policy
from placement.trace import CARD_MILLI, Cluster, Shapes, empty_cluster, fits, workload

Row = npt.NDArray[np.int16]

DEMAND_PCT: Final = 130  # the paper stops when this much GPU demand has arrived


class Scores:
    """Each shape's score of each node, kept true as pods are placed."""

    def __init__(self, policy: Policy, cluster: Cluster, shapes: Shapes) -> None:
        self.policy, self.cluster, self.shapes = policy, cluster, shapes
        self.table = np.full((len(shapes.pods), len(cluster.cards)), UNFIT, dtype=np.int16)
        for node in range(len(cluster.cards)):
            self.refresh(node)

    def refresh(self, node: int) -> None:
        """Score a node anew, after it has changed."""
        fitting = np.flatnonzero(fits(self.cluster, node, self.shapes))
        self.table[:, node] = UNFIT
        if fitting.size:
            self.table[fitting, node] = self.policy.score(self.cluster, node, self.shapes.at(fitting))

    def place(self, shape: int) -> bool:
        """Place one pod of this shape on the best node; False if it fits nowhere."""
        node = self._best(self.table[shape])
        if node is None:
            return False
        pod = self.shapes.at(np.array([shape]))
        shares = pod.cards[0] == 1 and pod.card_milli[0] < CARD_MILLI
        self.cluster.place(pod, node, self.policy.card(self.cluster, node, pod) if shares else None)
        self.refresh(node)
        return True

    def _best(self, row: Row) -> int | None:
        node = int(row.argmax())
        if row[node] == UNFIT:
            return None
        if self.policy.random_ties:
            return int(self.policy.random.choice(np.flatnonzero(row == row[node])))
        return node


@dataclass(frozen=True, slots=True)
class Filled:
    """The end of a replay."""

    allocated_pct: list[float]  # of all GPU, at 0, 1, 2 … 130 % of arrived demand
    cluster: Cluster


def fill(policy_name: str, variant: str, seed: int) -> Filled:
    """Replay one workload under one policy. The same seed brings the same nodes and pods to each policy."""
    order, draw, choice = (np.random.default_rng((seed, stream)) for stream in range(3))
    shapes, pods = workload(variant)
    cluster = empty_cluster(order)
    scores = Scores(POLICIES[policy_name](shapes, choice), cluster, shapes)
    capacity = CARD_MILLI * int(cluster.cards.sum())
    arrived = allocated = 0
    at = [0.0]
    while len(at) <= DEMAND_PCT:
        shape = int(pods[draw.integers(len(pods))])
        arrived += int(shapes.gpu_milli[shape])
        if scores.place(shape):
            allocated += int(shapes.gpu_milli[shape])
        reached = min(100 * arrived // capacity, DEMAND_PCT)
        at += [100 * allocated / capacity] * (reached + 1 - len(at))
    return Filled(at, cluster)
