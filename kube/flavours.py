"""Whose Kubernetes a node belongs to, by its labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..model.clusters import Flavour
from .objects import Node

_FLAVOURS: Final = (
    (Flavour.GKE, "gce://", "cloud.google.com/gke-"),
    (Flavour.EKS, "aws://", "eks.amazonaws.com/"),
    (Flavour.AKS, "azure://", "kubernetes.azure.com/"),
)


def flavour_of(node: Node) -> Flavour:
    """Whose Kubernetes a node belongs to: by a label that only theirs sets, where its provider doesn't differ."""
    provider = node.spec.provider_id
    for flavour, scheme, prefix in _FLAVOURS:
        if any(key.startswith(prefix) for key in node.metadata.labels) and (
            not provider or provider.startswith(scheme)
        ):
            return flavour
    return Flavour.PLAIN


def flavour_of_all(nodes: Iterable[Node]) -> Flavour:
    """Whose Kubernetes it is, by the first node that tells; plain when none does."""
    return next((flavour for flavour in map(flavour_of, nodes) if flavour), Flavour.PLAIN)
