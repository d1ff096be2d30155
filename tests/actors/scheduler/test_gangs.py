"""Gangs on nodes and cards: all members or none, of one card type, and what is counted can be seated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler.capacity import Node, Standing, new_node
from levers9.actors.scheduler.gangs import of_one_type, seat
from levers9.actors.scheduler.topology import Assignment, Topologies
from levers9.model.gangs import Together
from levers9.model.nodes import Traits
from levers9.model.reasons import Reason
from levers9.model.resources import CARD_MILLI, Capacity, Shape

OPEN = frozenset({Standing.OPEN})
CARDS = Shape(cpu_milli=1, memory_mib=1, gpu_count=2)


def node_of(name: str, cards: int = 4, gpu_type: str = "GB200") -> Node:
    capacity = Capacity(cpu_milli=64_000, memory_mib=1 << 16, gpu_count=cards, gpu_type=gpu_type)
    return new_node(name, "p", capacity, Traits(node=name, gpu_sharing=True))


def of(*nodes: Node) -> Topologies:
    at = Topologies()
    for node in nodes:
        at.put(node)
    return at


def test_each_member_gets_cards_of_its_own() -> None:
    nodes = {"a": node_of("a"), "b": node_of("b")}
    spots = seat(("a", "a", "b"), CARDS, nodes)
    assert spots is not None
    assert [spot.cards for spot in spots] == [(0, 1), (2, 3), (0, 1)]


def test_a_gang_is_seated_as_a_whole_or_not_at_all() -> None:
    nodes = {"a": node_of("a")}
    assert seat(("a", "a", "a"), CARDS, nodes) is None
    assert seat(("a", "gone"), CARDS, nodes) is None
    assert nodes["a"].free.gpu_milli == 4 * CARD_MILLI


def test_all_members_get_the_same_card_type_and_the_first_of_the_list_that_will_do() -> None:
    at = of(node_of("a", 4, "A100"), node_of("b", 8, "H100"))
    shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("A100", "H100"))
    for members, nodes in ((4, {"a"}), (8, {"b"})):
        answer = at.assign(members, shape, Together(), OPEN)
        assert isinstance(answer, Assignment)
        assert set(answer.nodes) == nodes
    answer = at.assign(9, shape, Together(), OPEN)
    assert isinstance(answer, Reason)
    assert answer.fits == 8


def test_a_replacement_has_the_card_type_of_the_others() -> None:
    at = of(node_of("a", 4, "A100"), node_of("b", 8, "H100"))
    shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("A100", "H100"))
    assert at.replace(("b", ""), shape, Together(), OPEN) == ("b",)
    assert at.replace(("a", ""), shape, Together(), OPEN) == ("a",)


@pytest.mark.parametrize(
    ("shape", "types"),
    [
        (Shape(cpu_milli=1, memory_mib=1, gpu_types=("A", "B")), [("A", "B")]),
        (Shape(cpu_milli=1, memory_mib=1, gpu_count=1), [()]),
        (Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("A", "B"), accelerator="B"), [("A", "B")]),
        (Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("A", "B")), [("A",), ("B",)]),
    ],
)
def test_a_preference_list_is_one_shape_a_type(shape: Shape, types: list[tuple[str, ...]]) -> None:
    assert [one.gpu_types for one in of_one_type(shape)] == types


SHAPES = st.builds(
    Shape,
    cpu_milli=st.sampled_from([1, 500, 16_000]),
    memory_mib=st.sampled_from([1, 1 << 12]),
    gpu_count=st.integers(0, 3),
    gpu_milli=st.sampled_from([100, 300, 500, 700, CARD_MILLI]),
)


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(taken=st.lists(SHAPES, max_size=6), shape=SHAPES, members=st.integers(1, 8))
def test_what_is_counted_can_be_seated_and_what_is_not_can_not(taken: list[Shape], shape: Shape, members: int) -> None:
    node = node_of("a", 3)
    for place, other in enumerate(taken):
        if node.fits(other):
            node.take(f"m{place}", other, node.pick_cards(other))
    assert (seat(("a",) * members, shape, {"a": node}) is not None) == (node.count(shape) >= members)


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(cards=st.lists(st.integers(0, 4), min_size=1, max_size=5), members=st.integers(1, 12), shape=SHAPES)
def test_a_gang_gets_all_its_room_or_none(cards: list[int], members: int, shape: Shape) -> None:
    nodes = {f"n{place}": node_of(f"n{place}", count) for place, count in enumerate(cards)}
    answer = of(*nodes.values()).assign(members, shape, Together(), OPEN)
    if isinstance(answer, Reason):
        assert answer.fits < members
        return
    spots = seat(answer.nodes, shape, nodes)
    assert spots is not None
    assert len(spots) == members
    for spot, rank in zip(spots, range(members)):
        assert nodes[spot.node_id].fits(shape)
        nodes[spot.node_id].take(f"m{rank}", shape, spot.cards)
    assert all(free >= 0 for node in nodes.values() for free in node.free_cards)
