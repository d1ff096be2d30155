"""Leaving: asked until it is answered, for what was asked may be done and its answer lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from ..errors import NOT_FOUND, NOT_LEADER, BrokenByPeer, DeadlinePassed, Refused, StoreUnavailable
from ..kube import kinds
from ..kube.face import Kube
from ..model.clusters import AGENT, CLUSTER_LABEL
from .kube_context import by_hand

TRIES: Final = 5
APART_S: Final = 2.0
_UNSURE: Final = (DeadlinePassed.code, StoreUnavailable.code, NOT_LEADER, "busy", "undeliverable")


def detach(ask: Callable[[], object], sleep: Callable[[float], object] = time.sleep) -> None:
    """Detach a cluster that was there a moment ago: one that is not found any more has left. Raises as `ask` does."""
    for tries in range(TRIES):
        try:
            ask()
            return
        except (Refused, BrokenByPeer) as error:
            if error.code == NOT_FOUND:
                return
            if tries == TRIES - 1 or not (isinstance(error, BrokenByPeer) or error.code in _UNSURE):
                raise
        sleep(APART_S)


async def strangers(kube: Kube, known: Iterable[str]) -> tuple[str, ...]:
    """How a person deletes each agent in this cluster that the control plane does not know, or not any more."""
    ours = frozenset(known)
    found = (await kube.list(kinds.DEPLOYMENTS, labels=f"app.kubernetes.io/name={AGENT}")).items
    metas = [one.metadata for one in found if one.metadata.labels.get(CLUSTER_LABEL, "") not in ("", *ours)]
    return tuple(by_hand(meta.labels[CLUSTER_LABEL], meta.namespace) for meta in metas)
