"""The six policies that the FGD paper (USENIX ATC 2023) compares, with its scores: whole numbers, coarse on purpose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

import numpy as np
from placement.trace import CARD_MILLI, SHARE, Cluster, Floats, Ints, Shapes

LARGEST_CPU_MILLI: Final = 128_000  # what the paper's scores are normalised by
LARGEST_GPU_MILLI: Final = 8_000
TYPICAL_SHARE: Final = 0.95  # FGD looks at the commonest shapes that together make up this share of the pods
UNFIT: Final = -1


class Policy(ABC):
    """Scores a node for many shapes at once, in whole numbers. The highest wins; of equals, the first node."""

    random_ties = False

    def __init__(self, workload: Shapes, random: np.random.Generator) -> None:
        self.random = random

    @abstractmethod
    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        """The score of this node for each of the shapes, all of which fit."""

    def card(self, cluster: Cluster, node: int, asked: Shapes) -> int:
        """The card for one pod that wants a share of a card: the fullest that has room."""
        free = cluster.card_milli[node]
        return int(np.where(free >= asked.card_milli, free, CARD_MILLI + 1).argmin())


class Random(Policy):
    """Any node and any card with room."""

    random_ties = True

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        return np.zeros(len(asked.pods), dtype=np.int64)

    def card(self, cluster: Cluster, node: int, asked: Shapes) -> int:
        return int(self.random.choice(np.flatnonzero(cluster.card_milli[node] >= asked.card_milli)))


class DotProduct(Policy):
    """The smaller the product of what is asked and what is free, the better."""

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        cpu = cluster.cpu_milli[node] * asked.cpu_milli / LARGEST_CPU_MILLI**2
        gpu = cluster.card_milli[node].sum() * asked.gpu_milli / LARGEST_GPU_MILLI**2
        return np.asarray(100 * (1 - (cpu + gpu) / 2)).astype(np.int64)


class GpuClustering(Policy):
    """Pods that ask for the same number of cards keep together: first on a node with only those, last among others."""

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        kinds = cluster.kinds[node]
        kind = np.where(asked.card_milli < CARD_MILLI, SHARE, asked.cards)
        same, other = 75 if len(kinds) == 1 else 50, 0 if kinds else 25
        used = 25 * (LARGEST_GPU_MILLI - int(cluster.card_milli[node].sum())) // LARGEST_GPU_MILLI
        return np.where(asked.cards > 0, np.where(np.isin(kind, list(kinds)), same, other) + used, 0)


class GpuPacking(Policy):
    """Cards in use before free cards, and the free cards of a busy node before those of an idle one."""

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        free = cluster.card_milli[node]
        idle = int((free == CARD_MILLI).sum())
        if idle == cluster.cards[node]:
            return np.where(asked.cards > 0, max(33 - idle, idle), 0)
        fullest = np.where(free >= asked.card_milli[:, None], free, CARD_MILLI).min(axis=1)
        on_busy_node = np.where(fullest < CARD_MILLI, 100 - fullest // 100, np.maximum(50 - asked.cards, 33))
        return np.where(asked.cards > 0, on_busy_node, 0)


class BestFit(Policy):
    """The node with the least left over, CPU and GPU counting alike."""

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        cpu = (cluster.cpu_milli[node] - asked.cpu_milli) / LARGEST_CPU_MILLI
        gpu = (cluster.card_milli[node].sum() - asked.gpu_milli) / LARGEST_GPU_MILLI
        return np.asarray(100 * (1 - (cpu + gpu) / 2)).astype(np.int64)


class Fgd(Policy):
    """Fragmentation gradient descent: the node and card where the least GPU becomes useless to typical pods.

    A node's fragment for a typical pod is all its free GPU if the pod can't run there or wants none, else what is free
    on cards too full for it. A node's fragment is the mean of these, weighted by how common the typical pods are.
    """

    def __init__(self, workload: Shapes, random: np.random.Generator) -> None:
        super().__init__(workload, random)
        typical = typical_shapes(workload)
        share = typical.pods / typical.pods.sum()
        self.typical = typical.at(typical.cards > 0)  # for the others all free GPU is fragment, wherever they run
        self.share = share[typical.cards > 0]
        self.sizes, self.size_of = np.unique(self.typical.card_milli, return_inverse=True)

    def score(self, cluster: Cluster, node: int, asked: Shapes) -> Ints:
        best: Ints = self._scores(cluster, node, asked, self._levels(cluster, node)).max(axis=1)
        return best

    def card(self, cluster: Cluster, node: int, asked: Shapes) -> int:
        levels = self._levels(cluster, node)
        best = levels[self._scores(cluster, node, asked, levels)[0].argmax()]
        return int((cluster.card_milli[node] == best).argmax())

    def _levels(self, cluster: Cluster, node: int) -> Ints:
        """How free the cards are, each figure once and in the order of the cards: equally free cards are alike."""
        return np.array(list(dict.fromkeys(cluster.card_milli[node].tolist())))

    def _scores(self, cluster: Cluster, node: int, asked: Shapes, levels: Ints) -> Ints:
        """How much fragment goes away if the pod takes a card of that level: [shape, level], 0 to 100."""
        free, cpu, model = cluster.card_milli[node], cluster.cpu_milli[node], cluster.model[node]
        milli, cards = asked.card_milli[:, None, None], asked.cards[:, None, None]
        before, after = levels[:, None], levels[:, None] - milli
        roomy, still_roomy, room = before >= self.sizes, after >= self.sizes, free[:, None] >= self.sizes
        # For each size of share: the cards with room for it, and the free GPU on those cards; as is, and with the pod.
        fitting, useful = room.sum(axis=0), free @ room
        then_fitting = fitting + cards * (still_roomy * 1 - roomy)
        then_useful = useful + cards * (after * still_roomy - before * roomy)
        now = self._useful_milli(cpu, model, fitting, useful)
        then = self._useful_milli((cpu - asked.cpu_milli)[:, None], model, then_fitting, then_useful)
        less_fragment = asked.gpu_milli[:, None] - now + then
        scores = (100 / (1 + np.exp(-less_fragment / 1000))).astype(np.int64)
        return np.where(levels >= asked.card_milli[:, None], scores, UNFIT)

    def _useful_milli(self, cpu_milli: Ints, model: int, fitting: Ints, useful: Ints) -> Floats:
        """Free GPU that typical pods can use, in the mean. What is free beyond it is the fragment."""
        enough_cards = fitting.take(self.size_of, axis=-1) >= self.typical.cards
        enough_cpu = cpu_milli[..., None] >= self.typical.cpu_milli
        share = self.share * self.typical.allowed[:, model]
        mean: Floats = np.where(enough_cards & enough_cpu, useful.take(self.size_of, axis=-1), 0.0) @ share
        return mean


def typical_shapes(shapes: Shapes) -> Shapes:
    """The commonest shapes, memory aside, that together make up 95 % of the pods."""
    columns = np.column_stack((shapes.cpu_milli, shapes.cards, shapes.card_milli, shapes.allowed))
    _, first, group = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    pods = np.bincount(group.ravel(), weights=shapes.pods).astype(np.int64)
    commonest = np.argsort(-pods, kind="stable")
    enough = int(np.searchsorted(pods[commonest].cumsum(), TYPICAL_SHARE * pods.sum())) + 1
    kept = commonest[:enough]
    return replace(shapes.at(first[kept]), pods=pods[kept])


POLICIES: Final[dict[str, type[Policy]]] = {
    "random": Random,
    "dot-product": DotProduct,
    "gpu-clustering": GpuClustering,
    "gpu-packing": GpuPacking,
    "best-fit": BestFit,
    "fgd": Fgd,
}
