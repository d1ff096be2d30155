"""What a look at the nodes tells before a cluster joins."""

from __future__ import annotations

import pytest

from levers9.cli.node_survey import survey
from levers9.kube.objects import Meta, Node, NodeStatus


def node(name: str, cards: int | str = 0, **labels: str) -> Node:
    told = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    allocatable: dict[str, str | int | float] = {"cpu": "8", "nvidia.com/gpu": cards}
    return Node(metadata=Meta(name=name, labels=told), status=NodeStatus(allocatable=allocatable))


NODES = [node("a", "4", pool="gpu"), node("b", "0", pool="cpu"), node("c", 0, pool="cpu", zone="z")]


def test_what_a_selector_lends_is_counted() -> None:
    seen = survey(NODES, "pool=gpu")
    assert (seen.matched, seen.cards, seen.advice) == (1, 4, ())
    assert seen.sentence == "1 of 3 nodes with 4 cards"
    assert survey(NODES, "").sentence == "3 nodes with 4 cards"


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("pool=gpus", "pool has these values: cpu (2 nodes), gpu (1 node)."),
        ("pol=gpu", "No node has a label pol. There are: pool (3 nodes)."),
        ("example.com/zone=z", "No node has a label example.com/zone. There are: zone (1 node)."),
        ("unlike", "No node has a label unlike. There are: pool (3 nodes), zone (1 node)."),
    ],
)
def test_a_selector_that_names_no_node_is_told_what_is_near_it(selector: str, told: str) -> None:
    assert survey(NODES, selector).advice == ("The selector names none of its nodes.", told)


def test_nodes_without_a_card_are_told_with_where_there_are_some() -> None:
    first, second = survey(NODES, "pool=cpu").advice
    assert first == "None of the 2 nodes that are lent has a card."
    assert second == "These have some: a."


def test_a_device_plugin_that_says_nothing_is_told_apart_from_one_that_is_missing() -> None:
    labelled = [node("a", 0, nvidia_com__gpu_present="true")]
    assert "its device plugin may not run" in survey(labelled, "").advice[1]
    assert "is the vendor's device plugin installed?" in survey([node("a")], "").advice[1]


def test_a_cluster_without_nodes_is_told_so() -> None:
    assert survey([], "a=b").advice == ("The cluster has no nodes yet: the agent waits for one.",)


def test_cards_are_counted_as_the_agent_will_and_slices_are_none() -> None:
    sliced = node("m", 4, nvidia_com__gpu_product="NVIDIA-A100-MIG-1g.5gb")
    assert survey([sliced, node("a", 8)], "").cards == 8
    assert "cut by MIG" in survey([sliced], "").advice[1]


@pytest.mark.parametrize(
    ("gpu_type", "product"),
    [("H100", "NVIDIA-H100-80GB-HBM3"), ("A100-40", "NVIDIA-A100-SXM4-40GB"), ("RTX4090", "NVIDIA-GeForce-RTX-4090")],
)
def test_a_card_that_is_called_as_its_product_is_is_no_matter_for_advice(gpu_type: str, product: str) -> None:
    assert survey([node("a", 8, nvidia_com__gpu_product=product)], "", gpu_type).advice == ()


def test_cards_that_are_of_another_type_than_functions_will_ask_for_are_told() -> None:
    right, wrong = (node(product, 8, nvidia_com__gpu_product=product) for product in ("NVIDIA-H100", "NVIDIA-H200"))
    (advice,) = survey([right, wrong, node("a", 8)], "", "H100").advice
    assert advice == "By their labels not all cards are H100: NVIDIA-H200 (1 node). Is it another --gpu, or --selector?"
