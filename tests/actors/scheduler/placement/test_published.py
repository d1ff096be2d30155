"""The published policies, on clusters small enough to work out by hand."""

import pytest
from levers9_test_placement import node, score_of, shape

from levers9.actors.scheduler.capacity import Node
from levers9.actors.scheduler.placement import Spot
from levers9.actors.scheduler.placement.index import Indexed
from levers9.actors.scheduler.placement.published import (
    BestFit,
    Clustering,
    DotProduct,
    Packing,
    PublishedBestFit,
    Random,
)
from levers9.model.resources import Shape


def choice(policy: Indexed, asked: Shape, *nodes: Node) -> Spot | None:
    for one in nodes:
        policy.put(one)
    return policy.choose(asked)


class TestBestFit:
    def test_the_node_that_is_left_with_the_fewest_cards_goes_first(self) -> None:
        assert choice(BestFit(), shape(cards=2), node("a", 8), node("b", 4), node("c", 3)) == Spot("c", (0, 1))

    def test_who_wants_no_card_goes_where_no_card_is(self) -> None:
        assert choice(BestFit(), shape(cpu=4), node("a", 1, cpu=4), node("b", 0, cpu=64)) == Spot("b")

    def test_of_as_many_cards_the_least_cpu_then_the_least_memory_is_left(self) -> None:
        asked = shape(cpu=2, cards=1)
        assert choice(BestFit(), asked, node("a", 1, cpu=8), node("b", 1, cpu=4), node("c", 1, cpu=6)) == Spot(
            "b", (0,)
        )
        alike = (node("a", 1, memory=9), node("b", 1, memory=5), node("c", 1, memory=7))
        assert choice(BestFit(), asked, *alike) == Spot("b", (0,))

    def test_of_equals_the_first_by_identity_goes_first_however_they_came(self) -> None:
        assert choice(BestFit(), shape(cards=1), node("c", 2), node("a", 2), node("b", 2)) == Spot("a", (0,))

    def test_a_share_comes_from_the_fullest_card_with_room(self) -> None:
        assert choice(BestFit(), shape(cards=1, milli=300), node("a", [1000, 200, 700, 400])) == Spot("a", (3,))

    def test_several_shares_come_from_the_fullest_cards_with_room_and_never_twice_from_one(self) -> None:
        assert choice(BestFit(), shape(cards=2, milli=300), node("a", [1000, 200, 700, 400])) == Spot("a", (3, 2))

    def test_quantities_of_64_bits_do_not_run_into_each_other(self) -> None:
        asked, most = shape(cards=1), 2**63 // 1024
        few_cards = node("b", 1, cpu=most // 1000, memory=most)
        assert choice(BestFit(), asked, node("a", 2, cpu=1, memory=1), few_cards) == Spot("b", (0,))


class TestPublishedBestFit:
    def test_cpu_and_gpu_count_alike(self) -> None:
        # Left over: 62 of 128 CPUs and 1 of 8 cards; 30 of 128 and 3 of 8. 100 · (1 − .6094 / 2) and (1 − .6094 / 2).
        assert score_of(PublishedBestFit(), node("a", 2, cpu=64), shape(cpu=2, cards=1)) == 69
        assert score_of(PublishedBestFit(), node("b", 4, cpu=32), shape(cpu=2, cards=1)) == 69

    def test_memory_does_not_count_and_a_point_is_coarse(self) -> None:
        asked = shape(cpu=2, cards=1)
        for less_cpu, winner in ((64, "a"), (63, "b")):
            nodes = (node("a", 1, cpu=65), node("b", 1, cpu=less_cpu, memory=2))
            assert choice(PublishedBestFit(), asked, *nodes) == Spot(winner, (0,))

    def test_the_largest_node_left_whole_scores_nothing(self) -> None:
        assert score_of(PublishedBestFit(), node("a", 8, cpu=128), shape(cpu=0)) == 0
        assert score_of(PublishedBestFit(), node("a", 1, cpu=4), shape(cpu=4, cards=1)) == 100


class TestDotProduct:
    def test_the_smaller_the_product_of_asked_and_free_the_better(self) -> None:
        # CPU: 64/128 · 32/128 = .125; GPU: 4/8 · 2/8 = .125; 100 · (1 − .25 / 2) = 87.5.
        assert score_of(DotProduct(), node("a", 4, cpu=64), shape(cpu=32, cards=2)) == 87
        # CPU: .5 · .25; GPU: 8/8 · 2/8 = .25; 100 · (1 − .375 / 2) = 81.25.
        assert score_of(DotProduct(), node("b", 8, cpu=64), shape(cpu=32, cards=2)) == 81

    def test_it_takes_the_best(self) -> None:
        assert choice(DotProduct(), shape(cpu=32, cards=2), node("a", 8), node("b", 4)) == Spot("b", (0, 1))


class TestPacking:
    @pytest.mark.parametrize(
        ("cards", "asked", "score"),
        [
            ([1000, 700, 300], shape(cards=1, milli=300), 97),  # into the 300
            ([1000, 700, 300], shape(cards=1, milli=400), 93),  # into the 700
            ([1000, 1000, 300], shape(cards=1, milli=400), 49),  # a free card of a busy node
            ([1000, 1000, 0, 0], shape(cards=2), 48),
            ([1000, 1000], shape(cards=1), 31),  # an idle node: the fewer cards it has, the better
            ([1000] * 8, shape(cards=1), 25),
            ([1000] * 8, shape(), 0),
        ],
    )
    def test_cards_in_use_before_free_cards_of_busy_nodes_before_idle_nodes(
        self, cards: list[int], asked: Shape, score: int
    ) -> None:
        assert score_of(Packing(), node("a", cards), asked) == score


class TestClustering:
    def test_alone_with_its_like_then_an_empty_node_then_mixed_company(self) -> None:
        policy = Clustering()
        alike, mixed, others, empty = (node(name, 8) for name in "abcd")
        alike.take("x", shape(cards=2), (0, 1))
        mixed.take("x", shape(cards=2), (0, 1))
        mixed.take("y", shape(cards=1), (2,))
        others.take("z", shape(cards=1, milli=500), (0,))
        scores = [score_of(policy, one, shape(cards=2)) for one in (alike, mixed, others, empty)]
        # By company 75, 50, 0 and 25; by what is used of 8 cards, of 25 points: 2, 3, .5 and 0 cards.
        assert scores == [75 + 6, 50 + 9, 0 + 1, 25]

    def test_shares_of_any_size_are_alike_and_who_wants_no_card_is_nobody(self) -> None:
        busy = node("a", 8)
        busy.take("x", shape(cards=1, milli=200), (0,))
        busy.take("y", shape(cpu=4), ())
        assert score_of(Clustering(), busy, shape(cards=1, milli=900)) == 75
        assert score_of(Clustering(), busy, shape(cpu=1)) == 0

    def test_company_that_has_gone_is_company_no_more(self) -> None:
        policy, one, other = Clustering(), node("a", 2), node("b", 2)
        one.take("x", shape(cards=1, milli=500), (0,))
        assert choice(policy, shape(cards=2), one, other) == Spot("b", (0, 1))
        one.give_back("x")
        policy.put(one)
        assert policy.choose(shape(cards=2)) == Spot("a", (0, 1))


class TestRandom:
    def test_every_node_and_card_with_room_is_taken_now_and_then(self) -> None:
        policy = Random(seed=1)
        for one in (node("a", 2), node("b", [0, 1000]), node("c", 0)):
            policy.put(one)
        spots = {policy.choose(shape(cards=1, milli=400)) for _ in range(60)}
        assert spots == {Spot("a", (0,)), Spot("a", (1,)), Spot("b", (1,))}

    def test_the_one_node_with_room_among_many_is_found(self) -> None:
        policy = Random(seed=1)
        for number in range(500):
            policy.put(node(f"n{number}", 8 if number == 250 else 1))
        assert [policy.choose(shape(cards=8)) for _ in range(3)] == [Spot("n250", tuple(range(8)))] * 3

    def test_the_same_seed_chooses_the_same_and_another_one_something_else(self) -> None:
        chosen = []
        for seed in (1, 1, 2):
            policy = Random(seed=seed)
            for number in range(20):
                policy.put(node(f"n{number}", 1))
            policy.drop("n3")
            chosen.append([policy.choose(shape(cards=1)) for _ in range(10)])
        assert chosen[0] == chosen[1] != chosen[2]
