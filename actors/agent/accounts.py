"""Who takes what of which node: kept pod by pod, so that one pod's change costs the same in a cluster of any size."""

from __future__ import annotations

import sys

import msgspec

from ...kube.objects import Pod
from ...model.clusters import CARD_RESOURCES
from .requests import Uses, counts, uses_of
from .seen_pods import SeenPod


class Total(msgspec.Struct, gc=False):
    """What all counted pods of a node take together; `odd` and `claims` count the pods that are so."""

    pods: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    cards: tuple[int, ...] = (0,) * len(CARD_RESOURCES)
    odd: int = 0
    claims: int = 0

    def add(self, uses: Uses, sign: int) -> None:
        """Count a pod, or with -1 count it no more."""
        self.pods += sign
        self.cpu_milli += sign * uses.cpu_milli
        self.memory_bytes += sign * uses.memory_bytes
        if any(uses.cards):
            self.cards = tuple(all_ + sign * one for all_, one in zip(self.cards, uses.cards, strict=True))
        self.odd += sign * uses.odd
        self.claims += sign * uses.claims


class _Counted(msgspec.Struct, frozen=True, gc=False):
    node: str
    uses: Uses


_NOTHING = Total()


class Accounts:
    """What pods that are not ours take, by node. Pods count by UID.

    A pod of a priority below `ignore_below` takes nothing: it gives way to ours. None ignores no pod.
    """

    def __init__(self, *, ignore_below: int | None = None) -> None:
        self._ignore_below = ignore_below
        self._counted: dict[str, _Counted] = {}  # by UID
        self._unseen: dict[str, None] = {}  # while all are told anew: those that were not told yet
        self._totals: dict[str, Total] = {}
        self._shared: dict[Uses, Uses] = {}  # most pods are alike: each amount is kept once

    def put(self, pod: Pod) -> tuple[str, ...]:
        """A pod as it is now; returns the nodes for which that makes a difference."""
        self._unseen.pop(pod.metadata.uid, None)
        if not counts(pod) or self._ignored(pod):
            return self.remove(pod.metadata.uid)
        known = pod.uses if isinstance(pod, SeenPod) else None
        uses = uses_of(pod) if known is None else known
        earlier = self._counted.get(pod.metadata.uid)
        if earlier is not None and earlier.node == pod.spec.node_name and earlier.uses == uses:
            return ()
        gone = self.remove(pod.metadata.uid)
        now = _Counted(sys.intern(pod.spec.node_name), self._shared.setdefault(uses, uses))
        self._counted[pod.metadata.uid] = now
        self._totals.setdefault(now.node, Total()).add(uses, 1)
        return gone if now.node in gone else (*gone, now.node)

    def remove(self, uid: str) -> tuple[str, ...]:
        """A pod is gone, or counts no more."""
        self._unseen.pop(uid, None)
        earlier = self._counted.pop(uid, None)
        if earlier is None:
            return ()
        total = self._totals[earlier.node]
        total.add(earlier.uses, -1)
        if not total.pods:
            del self._totals[earlier.node]
        return (earlier.node,)

    def list_began(self) -> None:
        """All pods are about to be told anew."""
        self._unseen = dict.fromkeys(self._counted)

    def list_ended(self) -> tuple[str, ...]:
        """They were: those that were not told are gone. Returns the nodes that had some of them."""
        touched = [self.remove(uid) for uid in tuple(self._unseen)]
        self._unseen.clear()
        return tuple(dict.fromkeys(node for nodes in touched for node in nodes))

    def of(self, node: str) -> Total:
        """What is taken of a node; not to be changed."""
        return self._totals.get(node, _NOTHING)

    def __len__(self) -> int:
        return len(self._counted)

    def _ignored(self, pod: Pod) -> bool:
        return self._ignore_below is not None and (pod.spec.priority or 0) < self._ignore_below
