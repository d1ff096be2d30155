"""Which taints of a node our workers tolerate.

A selector names nodes that somebody means to lend: their own taints keep others away, and not us. Those that say that
a node is unwell, about to go, or somebody's alone are never tolerated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...kube.objects import Taint
from ...model.clusters import CARD_RESOURCES

_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_NEVER_PREFIXES: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_NEVER: Final = frozenset(
    {
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "CriticalAddonsOnly",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
        "karpenter.sh/unregistered",
    }
)
_OF_CARDS: Final = frozenset(CARD_RESOURCES)  # gke, eks, and most others; aks says sku=gpu
_AKS: Final = ("sku", "gpu")


def tolerated(taint: Taint, *, selected: bool) -> bool:
    """Whether a worker may stand there all the same; `selected` when a person named the nodes by a selector."""
    if taint.effect not in _KEEPS_AWAY:
        return True
    if taint.key in _NEVER or taint.key.startswith(_NEVER_PREFIXES):
        return False
    return selected or taint.key in _OF_CARDS or (taint.key, taint.value) == _AKS


def keeping_away(taints: Iterable[Taint] | None, *, selected: bool) -> tuple[Taint, ...]:
    """The taints that are not tolerated."""
    return tuple(taint for taint in taints or () if not tolerated(taint, selected=selected))


def to_tolerate(taints: Iterable[Taint] | None, *, selected: bool) -> tuple[Taint, ...]:
    """The taints that a worker's Job says it tolerates."""
    return tuple(t for t in taints or () if t.effect in _KEEPS_AWAY and tolerated(t, selected=selected))
