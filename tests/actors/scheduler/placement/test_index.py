"""The index chooses what a look at every node would choose, whatever came and went before."""

import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_placement import chosen_by_looking, node, shape

from levers9.actors.scheduler.capacity import Node
from levers9.actors.scheduler.placement import PLACEMENTS, Spot
from levers9.actors.scheduler.placement.fgd import Fgd
from levers9.actors.scheduler.placement.index import SHAPES_MAX, Indexed, Ties
from levers9.actors.scheduler.placement.published import (
    BestFit,
    Clustering,
    DotProduct,
    Packing,
    PublishedBestFit,
    Random,
)
from levers9.actors.scheduler.placement.rooms import LOG_LEAST
from levers9.model.resources import Shape

POLICIES: list[Callable[[], Indexed]] = [BestFit, PublishedBestFit, DotProduct, Packing, Clustering, Fgd, Random]
SHAPES = [
    shape(cpu=2),
    shape(cpu=1, cards=1, milli=300),
    shape(cpu=1, cards=1, milli=600, types="T4"),
    shape(cpu=4, cards=2, milli=500),
    shape(cpu=2, cards=1),
    shape(cpu=2, cards=2, types="A100 T4"),
    shape(cpu=2, cards=1, types="A100 T4", any_order=True),
    shape(cpu=8, cards=4, types="T4 A100"),
]
NAMES = [f"n{number}" for number in range(7)]
A_NODE = st.sampled_from(
    [
        lambda name: node(name, 2, cpu=8),
        lambda name: node(name, 4, cpu=16),
        lambda name: node(name, 4, cpu=16, gpu_type="A100", sharing=False),
        lambda name: node(name, 0, cpu=4),
        lambda name: node(name, 0, cpu=16, memory=3),
    ]
)
LEFT_OUT = st.just(frozenset[str]()) | st.frozensets(st.sampled_from(NAMES), max_size=3)


class AnyPolicy(RuleBasedStateMachine):
    """Nodes come, fill, empty and go; one policy is asked, and each node is looked at besides."""

    @initialize(make=st.sampled_from(POLICIES), random_ties=st.booleans())
    def begin(self, make: Callable[..., Indexed], random_ties: bool) -> None:
        ties = "random" if random_ties else "first"
        self.policy, self.twin = make(ties=ties, seed=5), make(ties=ties, seed=5)
        self.first = not random_ties and make is not Random
        self.nodes: dict[str, Node] = {}
        self.containers = 0

    def put(self, one: Node) -> None:
        self.nodes[one.node_id] = one
        self.policy.put(one)
        self.twin.put(one)

    @rule(name=st.sampled_from(NAMES), make=A_NODE)
    def a_node_comes_or_comes_back_as_another(self, name: str, make: Callable[[str], Node]) -> None:
        self.put(make(name))

    @rule(name=st.sampled_from(NAMES))
    def a_node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.policy.drop(name)
        self.twin.drop(name)

    @rule(asked=st.sampled_from(SHAPES), times=st.sampled_from([1, 3, 70]))
    def containers_are_asked_for(self, asked: Shape, times: int) -> None:
        for _ in range(times):
            self.policy.saw(asked)
            self.twin.saw(asked)

    @rule(asked=st.sampled_from(SHAPES), without=LEFT_OUT)
    def a_container_is_placed(self, asked: Shape, without: frozenset[str]) -> None:
        spot = self.policy.choose(asked, without)
        best = chosen_by_looking(self.policy, self.nodes, asked, without)
        assert self.twin.choose(asked, without) == spot
        assert (spot is None) == (not best)
        if spot is None:
            return
        assert spot.node_id in (best[:1] if self.first else best)
        one = self.nodes[spot.node_id]
        assert len(set(spot.cards)) == asked.gpu_count
        assert all(one.free_cards[card] >= asked.gpu_milli for card in spot.cards)
        self.containers += 1
        one.take(f"c{self.containers}", asked, spot.cards)
        self.put(one)

    @rule(data=st.data())
    def a_container_ends(self, data: st.DataObject) -> None:
        held = [(one, name) for _, one in sorted(self.nodes.items()) for name in one.uses]
        if held:
            one, name = data.draw(st.sampled_from(held))
            one.give_back(name)
            self.put(one)

    @invariant()
    def each_node_is_in_one_room(self) -> None:
        rooms = self.policy.rooms if hasattr(self, "policy") else None
        if rooms is not None:
            assert sum(room.members for room in rooms.live.values()) == len(self.nodes) == len(rooms.members)
            held = [name for room in rooms.live.values() for name in rooms.all_in(room)]
            assert sorted(held) == sorted(self.nodes)


AnyPolicy.TestCase.settings = settings(settings.get_profile("property"))
TestAnyPolicy = pytest.mark.slow(AnyPolicy.TestCase)


def a_long_day(policy: Indexed, nodes: dict[str, Node], changes: int) -> list[Spot | None]:
    """Containers come and go at random, often enough that the log of rooms is cut."""
    chance, spots, running = random.Random(4), [], []
    for number in range(changes):
        asked = chance.choice(SHAPES)
        spot = policy.choose(asked)
        spots.append(spot)
        assert spot is None or spot.node_id == chosen_by_looking(policy, nodes, asked)[0]
        if spot is not None:
            nodes[spot.node_id].take(f"c{number}", asked, spot.cards)
            running.append((nodes[spot.node_id], f"c{number}"))
            policy.put(nodes[spot.node_id])
        if running and (spot is None or chance.random() < 0.4):
            one, name = running.pop(chance.randrange(len(running)))
            one.give_back(name)
            policy.put(one)
    return spots


@pytest.mark.slow
@pytest.mark.parametrize("make", [BestFit, Clustering, Fgd])
def test_a_long_day_is_decided_the_same_again_and_as_by_looking(make: Callable[[], Indexed]) -> None:
    days = []
    for _ in range(2):
        policy = make()
        for asked in SHAPES:
            policy.saw(asked)
        nodes = {
            name: node(name, 4 if number % 2 else 2, cpu=16)
            for number, name in enumerate(f"n{i:02}" for i in range(20))
        }
        for one in nodes.values():
            policy.put(one)
        days.append(a_long_day(policy, nodes, 2 * LOG_LEAST))
        assert policy.rooms.log_began > 0
        assert len(policy.rooms.log) <= 2 * (LOG_LEAST + len(nodes))
    assert days[0] == days[1]


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_an_earlier_card_type_goes_first_whatever_the_score(name: str) -> None:
    policy = PLACEMENTS[name]()
    for one in (node("a", [1000, 0], gpu_type="T4"), node("b", 8, gpu_type="A100")):
        policy.put(one)
    wanted = shape(cards=1, types="A100 T4")
    policy.saw(wanted)
    assert policy.choose(wanted) == Spot("b", (0,))
    assert policy.choose(wanted, without=frozenset("b")) == Spot("a", (0,))


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_where_no_node_has_room_nothing_is_chosen(name: str) -> None:
    policy = PLACEMENTS[name]()
    assert policy.choose(shape()) is None
    policy.put(node("a", 2, cpu=4, sharing=False))
    for wanted in (
        shape(cpu=5),
        shape(cards=3),
        shape(cards=1, milli=500),
        shape(memory=300),
        shape(cards=1, types="B200"),
    ):
        policy.saw(wanted)
        assert policy.choose(wanted) is None


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
def test_a_node_that_was_dropped_is_not_chosen_and_dropping_it_again_is_nothing(name: str) -> None:
    policy = PLACEMENTS[name]()
    policy.put(node("a", 2))
    policy.put(node("b", 2))
    for _ in range(2):
        policy.drop("a")
    assert policy.choose(shape(cards=1)) == Spot("b", (0,))
    policy.drop("b")
    assert policy.choose(shape(cards=1)) is None


def test_a_worker_that_has_lost_cards_is_another_kind_of_node() -> None:
    policy, one = BestFit(), node("a", 4)
    policy.put(one)
    assert policy.choose(shape(cards=3)) == Spot("a", (0, 1, 2))
    one.resize(msgspec.structs.replace(one.kind.capacity, gpu_count=2))
    policy.put(one)
    assert policy.choose(shape(cards=3)) is None
    assert policy.choose(shape(cards=2)) == Spot("a", (0, 1))


@pytest.mark.parametrize("make", [BestFit, Fgd])
def test_of_ties_broken_at_random_each_node_is_taken_about_as_often_also_after_changes(
    make: Callable[..., Indexed],
) -> None:
    policy, counts = make(ties="random", seed=3), Counter[str]()
    nodes = {name: node(name, 2) for name in "abcd"}
    for one in nodes.values():
        policy.put(one)
    for number in range(2000):
        spot = policy.choose(shape(cards=2), without=frozenset("d" if number % 2 else ""))
        counts[spot.node_id] += 1
        one = nodes[spot.node_id]
        one.take("x", shape(cards=2), spot.cards)
        policy.put(one)
        one.give_back("x")
        policy.put(one)
    # A fourth of a thousand, and of another thousand a third, but for d.
    assert {name: abs(count - (250 if name == "d" else 583)) < 75 for name, count in counts.items()} == dict.fromkeys(
        "abcd", True
    )


def test_a_node_that_comes_back_with_other_cards_is_another_kind_of_node() -> None:
    policy = BestFit()
    policy.put(node("a", 2, gpu_type="T4"))
    assert policy.choose(shape(cards=1, types="T4")) == Spot("a", (0,))
    policy.put(node("a", 2, gpu_type="A100"))
    assert policy.choose(shape(cards=1, types="T4")) is None
    assert policy.choose(shape(cards=1, types="A100")) == Spot("a", (0,))


def test_equal_nodes_are_scored_once_and_later_only_what_has_changed() -> None:
    scored = []

    class Counting(BestFit):
        def score(self, asked: Shape, room: object) -> int:
            scored.append(room)
            return super().score(asked, room)

    policy = Counting()
    nodes = {name: node(name, 8) for name in (f"n{number:04}" for number in range(1000))}
    for one in nodes.values():
        policy.put(one)
    for number in range(10):
        spot = policy.choose(shape(cards=8))
        nodes[spot.node_id].take(f"c{number}", shape(cards=8), spot.cards)
        policy.put(nodes[spot.node_id])
    assert len(scored) == 1


def test_a_node_that_goes_to_and_fro_leaves_no_trace_in_the_rooms() -> None:
    policy, one = BestFit(), node("b", 2)
    for other in (node("a", 2), one):
        policy.put(other)
    for _ in range(500):
        policy.choose(shape(cards=1))
        one.take("x", shape(cards=1), (0,))
        policy.put(one)
        one.give_back("x")
        policy.put(one)
    room = policy.rooms.members["a"].room
    assert room is policy.rooms.members["b"].room
    assert len(room.ids) < 30


@pytest.mark.parametrize("ties", ["first", "random"])
def test_a_shape_that_was_not_asked_for_in_a_long_while_is_told_of_all_that_is_there(ties: Ties) -> None:
    policy, busy = BestFit(ties), node("a", 4)
    for one in (busy, node("b", 8), node("c", 8)):
        policy.put(one)
    assert policy.choose(shape(cards=8)).node_id in "bc"
    policy.put(node("d", 8, cpu=32))
    for _ in range(2 * LOG_LEAST):
        busy.take("x", shape(cards=1), (0,))
        policy.put(busy)
        busy.give_back("x")
        policy.put(busy)
    assert policy.rooms.log_began > 0
    assert policy.choose(shape(cards=8)) == Spot("d", tuple(range(8)))


def test_where_the_first_node_is_left_out_the_next_of_equally_good_rooms_is_taken() -> None:
    policy = Packing()  # to which all rooms are alike for work without cards
    for one in (node("a", cpu=8), node("z", cpu=8), node("b", cpu=4), node("c", cpu=2)):
        policy.put(one)
    assert policy.choose(shape(), without=frozenset("a")) == Spot("b")
    assert policy.choose(shape(), without=frozenset("abc")) == Spot("z")
    assert policy.choose(shape(), without=frozenset("abcz")) is None
    assert policy.choose(shape()) == Spot("a")


def test_a_shape_that_nobody_asked_for_lately_is_forgotten_and_can_come_back() -> None:
    policy = BestFit()
    policy.put(node("a", 8))
    for memory in range(SHAPES_MAX + 10):
        policy.choose(Shape(cpu_milli=1, memory_mib=memory + 1))
    assert len(policy._rankings) == SHAPES_MAX
    assert policy.choose(Shape(cpu_milli=1, memory_mib=1)) == Spot("a")


@pytest.mark.parametrize("ties", ["first", "random"])
def test_the_leading_rooms_come_the_best_first_and_each_once(ties: Ties) -> None:
    policy = BestFit(ties)
    for name, cards in (("a", 4), ("b", 2), ("c", [1000, 0]), ("d", 2), ("e", 1)):
        policy.put(node(name, cards))
    ranking = policy.ranking(shape(cards=1))
    assert [room.cards for _, room in ranking.leading(3)] == [(0, 1000), (1000,), (1000, 1000)]
    assert [room.free_milli for _, room in ranking.leading(9)] == [1000, 1000, 2000, 4000]
    assert ranking.leading(2)[0][0] < ranking.leading(3)[2][0]
