"""Fragmentation gradient descent, beside its definition word by word."""

import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from levers9_test_placement import node, score_of, shape, useful

from levers9.actors.scheduler.capacity import Node
from levers9.actors.scheduler.placement import Spot
from levers9.actors.scheduler.placement.fgd import Fgd
from levers9.model.resources import Shape


def fgd(*typical: tuple[Shape, int]) -> Fgd:
    """A policy that has seen these, each so many times."""
    policy = Fgd()
    for wanted, count in typical:
        for _ in range(count):
            policy.saw(wanted)
    assert policy.choose(shape()) is None  # with no node yet, and what is typical is settled
    return policy


def expected(typical: list[tuple[Shape, int]], one: Node, asked: Shape) -> tuple[int, int]:
    """The score by definition, and what is free on the fullest card that gives it."""
    before = sum(one.free_cards) - useful(typical, one)
    found = []
    for free in sorted({free for free in one.free_cards if free >= asked.gpu_milli}) or [0]:
        then = msgspec.structs.replace(one, free_cards=list(one.free_cards), uses={})
        then.cpu_milli -= asked.cpu_milli
        taken = then.free_cards.index(free) if asked.gpu_count else 0
        if asked.gpu_count:
            then.free_cards[taken] -= asked.gpu_milli
        gone = before - (sum(then.free_cards) - useful(typical, then))
        found.append((gone, -free))
    gone, less_free = max(found)
    return int(100 / (1 + math.exp(-gone / 1000))) if gone else 50, -less_free


class TestScore:
    def test_its_fragment_is_what_typical_containers_cannot_use(self) -> None:
        # Two cards, 1000 and 400 free: those of 500 can't use the 400, those without a card can use nothing.
        policy = fgd((shape(cards=1, milli=500), 1), (shape(), 1))
        one = node("a", [1000, 400])
        # Before: (400 + 1400) / 2 = 900. On the free card: (400 + 1000) / 2 = 700; on the other: (0 + 1000) / 2 = 500.
        assert score_of(policy, one, shape(cards=1, milli=400)) == int(100 / (1 + math.exp(-0.4)))

    def test_it_takes_the_card_where_a_typical_container_still_finds_room(self) -> None:
        policy = fgd((shape(cards=1), 1), (shape(cards=1, milli=400), 1))
        policy.put(node("a", [1000, 400]))
        assert policy.choose(shape(cards=1, milli=400)) == Spot("a", (1,))

    def test_it_leaves_the_node_alone_whose_cpu_is_needed_for_its_cards(self) -> None:
        policy = fgd((shape(cpu=8, cards=1), 9), (shape(cpu=8), 1))
        for one in (node("a", 1, cpu=8), node("b", [0], cpu=8), node("c", 1, cpu=8)):
            policy.put(one)
        assert policy.choose(shape(cpu=8)) == Spot("b")

    def test_several_cards_that_are_wanted_together_are_kept_together(self) -> None:
        policy = fgd((shape(cards=2), 1), (shape(cards=1), 1))
        for one in (node("a", 2), node("b", [1000, 0, 0])):
            policy.put(one)
        assert policy.choose(shape(cards=1)) == Spot("b", (0,))

    def test_with_nothing_seen_all_nodes_are_alike(self) -> None:
        policy = Fgd()
        for one in (node("b", 1), node("a", 8)):
            policy.put(one)
        assert policy.choose(shape(cards=1)) == Spot("a", (0,))

    @pytest.mark.slow
    @settings(settings.get_profile("property"))
    @given(
        seen=st.lists(
            st.tuples(
                st.builds(
                    shape,
                    cpu=st.integers(0, 4),
                    cards=st.just(1),
                    milli=st.sampled_from([200, 500, 810, 1000]),
                    types=st.sampled_from(["", "T4", "A100", "T4 A100"]),
                )
                | st.builds(shape, cpu=st.integers(0, 4), cards=st.sampled_from([0, 2, 3])),
                st.integers(1, 3),
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda pair: pair[0],
        ),
        free=st.lists(st.sampled_from([0, 190, 300, 500, 1000]), min_size=1, max_size=4),
        cpu=st.integers(1, 5),
        asked=st.builds(shape, cpu=st.integers(0, 4), cards=st.integers(0, 1), milli=st.sampled_from([100, 300, 1000])),
    )
    def test_score_and_card_are_those_of_the_definition(
        self, seen: list[tuple[Shape, int]], free: list[int], cpu: int, asked: Shape
    ) -> None:
        one = node("a", free, cpu=cpu)
        assume(one.fits(asked))
        policy = fgd(*seen)
        policy.put(one)
        score, level = expected(seen, one, asked)
        assert score_of(policy, one, asked) == score
        spot = policy.choose(asked)
        assert spot is not None
        assert [free[card] for card in spot.cards] == [level] * asked.gpu_count


class TestTypical:
    def test_what_is_typical_follows_what_is_asked_for(self) -> None:
        policy = fgd((shape(cards=1, milli=400), 70))
        for one in (node("a", [500]), node("b", [1000])):
            policy.put(one)
        assert policy.choose(shape(cards=1, milli=100)) == Spot("a", (0,))  # 400 still fit beside it, in both
        for _ in range(1000):
            policy.saw(shape(cards=1, milli=500))
        assert policy.choose(shape(cards=1, milli=100)) == Spot("b", (0,))

    def test_of_equally_common_shapes_the_order_in_which_they_came_does_not_matter(self) -> None:
        wanted = [(shape(cpu=cpu, cards=1, milli=100 * cpu), 1) for cpu in range(1, 10)]
        scores = {
            score_of(fgd(*order), node("a", [950, 430]), shape(cards=1, milli=90)) for order in (wanted, wanted[::-1])
        }
        assert len(scores) == 1


class TestMemory:
    @pytest.mark.parametrize("seen", [0, 3, 100, 200])
    def test_who_takes_over_decides_as_the_first_would_have_and_looks_again_when_it_would_have(self, seen: int) -> None:
        first, second = Fgd(), Fgd()
        nodes = [node(f"n{number}", [1000, 200 * number], cpu=8) for number in range(4)]
        for one in nodes:
            first.put(one)
        wanted = [shape(cpu=1 + number % 3, cards=1, milli=100 * (1 + number % 7)) for number in range(500)]
        for asked in wanted[:seen]:
            first.saw(asked)
            first.choose(asked)
        second.recall(first.remember())
        for one in nodes:
            second.put(one)
        for asked in wanted[seen:]:
            first.saw(asked)
            second.saw(asked)
            assert first.choose(asked) == second.choose(asked)
        assert first.remember() == second.remember()

    def test_nothing_remembered_is_nothing(self) -> None:
        policy = Fgd()
        policy.recall(b"")
        assert policy.remember() == Fgd().remember()


def test_the_reference_knows_the_published_example() -> None:
    typical = [(shape(cards=1, milli=500), 1), (shape(), 1)]
    assert useful(typical, node("a", [1000, 400])) == Fraction(500)
