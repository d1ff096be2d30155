"""Pods as the agent watches them: of another's pod, only what it takes is kept, as soon as it is read.

A large cluster has 50,000 pods: as they are stored they would take ten times the memory that the agent may have.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Final

from msgspec.structs import force_setattr

from ...kube.face import Kind
from ...kube.kinds import PODS
from ...kube.objects import Meta, Pod, PodSpec, PodStatus
from ...model.clusters import MANAGED_BY, MANAGED_BY_LABEL
from .requests import Uses, uses_of

_NAMES: Final = 16_384  # of nodes, with some to spare


class SeenPod(Pod, frozen=True, kw_only=True, gc=False):
    """A pod. Of one that is not ours `uses` is what it takes, and all but its node, phase and priority is left out."""

    uses: Uses | None = None

    def __post_init__(self) -> None:
        """Leave out what is not needed, before the next one is read."""
        if self.metadata.labels.get(MANAGED_BY_LABEL) == MANAGED_BY:
            return
        meta, spec = self.metadata, self.spec
        force_setattr(self, "uses", _shared(uses_of(self)))
        force_setattr(self, "metadata", Meta(namespace=sys.intern(meta.namespace), uid=meta.uid))
        force_setattr(self, "spec", _spec(spec.node_name, spec.priority))
        force_setattr(self, "status", _status(self.status.phase))


SEEN_PODS: Final = Kind(
    group=PODS.group, version=PODS.version, plural=PODS.plural, singular=PODS.singular, type=SeenPod
)


@lru_cache(maxsize=_NAMES)
def _spec(node: str, priority: int | None) -> PodSpec:
    return PodSpec(node_name=node, priority=priority)


@lru_cache(maxsize=16)
def _status(phase: str) -> PodStatus:
    return PodStatus(phase=phase)


@lru_cache(maxsize=_NAMES)
def _shared(uses: Uses) -> Uses:
    return uses
