"""Whose Kubernetes it is."""

from __future__ import annotations

import pytest

from levers9.kube.flavours import flavour_of, flavour_of_all
from levers9.kube.objects import Meta, Node, NodeSpec
from levers9.model.clusters import Flavour


def node(label: str, provider: str = "") -> Node:
    return Node(metadata=Meta(name="a", labels={label: "x"}), spec=NodeSpec(provider_id=provider))


@pytest.mark.parametrize(
    ("label", "provider", "flavour"),
    [
        ("cloud.google.com/gke-nodepool", "", Flavour.GKE),
        ("cloud.google.com/gke-nodepool", "gce://p/z/i", Flavour.GKE),
        ("cloud.google.com/gke-nodepool", "aws:///z/i", Flavour.PLAIN),
        ("eks.amazonaws.com/nodegroup", "", Flavour.EKS),
        ("kubernetes.azure.com/cluster", "", Flavour.AKS),
        ("other", "gce://p/z/i", Flavour.PLAIN),
    ],
)
def test_it_is_told_by_a_label_that_only_theirs_sets_where_its_provider_agrees(
    label: str, provider: str, flavour: Flavour
) -> None:
    assert flavour_of(node(label, provider)) is flavour
    assert flavour_of_all([node("plain"), node(label, provider)]) is flavour


def test_without_nodes_it_is_plain() -> None:
    assert flavour_of_all([]) is Flavour.PLAIN
