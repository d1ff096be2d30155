"""Our policy: what it prefers, and that it chooses as a slow and obvious evaluation of each node does."""

from bisect import insort

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_placement import node, shape

from levers9.actors.scheduler.capacity import Node
from levers9.actors.scheduler.placement import Spot
from levers9.actors.scheduler.placement.ours import AHEAD, CANDIDATES, MARGIN, Memory, Ours
from levers9.actors.scheduler.placement.ours_ahead import Asked, Size, sample, sizes_of, unused
from levers9.actors.scheduler.placement.ours_columns import NEVER, Columns, Row
from levers9.actors.scheduler.placement.ours_outlook import (
    LEVELS_MAX,
    UNIT,
    WINDOWS,
    Outlook,
    Population,
    levels_of,
    waste,
)
from levers9.actors.scheduler.placement.rooms import Rooms
from levers9.model.nodes import Traits
from levers9.model.resources import CARD_MILLI, Shape

WHOLE = shape(cpu=8, cards=1, memory=16)
HALF = shape(cpu=4, cards=1, milli=500)


def ours(*nodes: Node, seen: tuple[tuple[Shape, int], ...] = ()) -> Ours:
    """A policy that knows these nodes and has seen these shapes, each so many times."""
    policy = Ours()
    for one in nodes:
        policy.put(one)
    for wanted, count in seen:
        for _ in range(count):
            policy.saw(wanted)
    return policy


def node_of(spot: Spot | None) -> str:
    assert spot is not None
    return spot.node_id


class TestCards:
    def test_a_share_goes_on_the_card_where_the_least_is_wasted(self) -> None:
        policy = ours(node("a", [1000, 500, 700]), seen=((HALF, 20), (WHOLE, 20)))
        assert policy.choose(HALF) == Spot("a", (1,))

    def test_a_share_leaves_whole_cards_whole_even_when_nothing_is_known_of_demand(self) -> None:
        policy = ours(node("a", [1000, 600]), node("b", [1000]))
        assert policy.choose(shape(cards=1, milli=300)) == Spot("a", (1,))

    def test_shares_go_on_cards_in_use_even_where_nothing_else_was_ever_asked_for(self) -> None:
        policy = ours(node("a", 4), node("b", [500, 0]), seen=((HALF, 500),))
        assert policy.choose(HALF) == Spot("b", (0,))

    def test_several_cards_are_whole_ones(self) -> None:
        policy = ours(node("a", [1000, 300, 1000, 1000]), seen=((WHOLE, 5),))
        assert policy.choose(shape(cards=2)) == Spot("a", (0, 2))

    def test_a_node_that_several_cards_could_need_is_not_begun(self) -> None:
        policy = ours(node("a", 4), node("b", [1000, 0, 0, 0]), seen=((shape(cards=4), 5), (shape(cards=1), 5)))
        assert policy.choose(shape(cards=1)) == Spot("b", (0,))

    def test_a_card_that_was_given_back_is_taken_again(self) -> None:
        one = node("a", [0])
        policy = ours(one, seen=((WHOLE, 5),))
        assert policy.choose(WHOLE) is None
        one.free_cards[0] = CARD_MILLI
        policy.put(one)
        assert policy.choose(WHOLE) == Spot("a", (0,))


class TestNodes:
    def test_no_node_no_spot(self) -> None:
        assert ours().choose(WHOLE) is None

    def test_one_node_without_demand_is_enough(self) -> None:
        assert ours(node("a", 1)).choose(WHOLE) == Spot("a", (0,))

    def test_a_dropped_node_is_not_chosen_and_an_unknown_one_is_ignored(self) -> None:
        policy = ours(node("a", 1), node("b", 1))
        policy.drop("a")
        policy.drop("never")
        assert policy.choose(WHOLE) == Spot("b", (0,))

    def test_nodes_left_out_are_not_chosen_however_good_they_are(self) -> None:
        policy = ours(node("a", [500]), node("b", [500]), node("c", 1), seen=((HALF, 9),))
        assert [node_of(policy.choose(HALF, frozenset(out))) for out in ((), "a", "ab")] == ["a", "b", "c"]
        assert policy.choose(HALF, frozenset("abc")) is None

    def test_memory_is_room_too(self) -> None:
        policy = ours(node("a", 1, memory=8), node("b", 1, memory=64))
        assert policy.choose(shape(cards=1, memory=32)) == Spot("b", (0,))

    def test_the_cpu_beside_free_cards_is_left_to_them(self) -> None:
        rich, poor = node("a", 2, cpu=64), node("b", 2, cpu=16)
        policy = ours(rich, poor, seen=((WHOLE, 60),))
        assert policy.choose(shape(cpu=8)) == Spot("a")

    def test_work_without_cards_goes_where_there_are_none_while_there_is_room(self) -> None:
        policy = ours(node("a", 8), node("b", cpu=8), seen=((shape(cpu=8), 9), (WHOLE, 9)))
        assert policy.choose(shape(cpu=8)) == Spot("b")
        policy.put(node("b", cpu=4))
        assert policy.choose(shape(cpu=8)) == Spot("a")

    def test_work_without_cards_leaves_room_for_large_work(self) -> None:
        policy = ours(node("a", cpu=32), node("b", cpu=48), seen=((shape(cpu=32), 9), (shape(cpu=16), 9)))
        assert policy.choose(shape(cpu=16)) == Spot("b")

    def test_of_nodes_without_cards_the_fullest_is_filled(self) -> None:
        policy = ours(node("a", cpu=64), node("b", cpu=32))
        assert policy.choose(shape(cpu=2)) == Spot("b")

    def test_shares_only_go_where_cards_are_shared(self) -> None:
        policy = ours(node("a", 1, sharing=False), node("b", 1))
        assert policy.choose(HALF) == Spot("b", (0,))

    def test_labels_are_needed(self) -> None:
        plain, labelled = node("a", 1), node("b", 1)
        labelled.kind = msgspec.structs.replace(labelled.kind, traits=Traits(labels=(("zone", "x"),)))
        policy = ours(plain, labelled)
        asked = msgspec.structs.replace(WHOLE, labels=(("zone", "x"),))
        assert policy.choose(asked) == Spot("b", (0,))

    def test_a_kind_that_others_need_is_left_to_them(self) -> None:
        anywhere, there = shape(cards=1), shape(cards=1, types="A10")
        nodes = [node("a", 1, gpu_type="A10"), *[node(f"t{number}", 1) for number in range(4)]]
        policy = ours(*nodes, seen=((anywhere, 20), (there, 20)))
        assert node_of(policy.choose(anywhere)) != "a"

    def test_a_node_may_have_more_cards_than_any_that_was_seen_before(self) -> None:
        policy = ours(node("a", [0]), seen=((WHOLE, 9), (HALF, 9)))
        assert policy.choose(WHOLE) is None
        policy.put(node("b", [1000] * 16))
        assert node_of(policy.choose(HALF)) == "b"
        assert policy.choose(shape(cards=16)) == Spot("b", tuple(range(16)))


class TestPreferences:
    def test_the_first_type_of_the_list_goes_first_whatever_the_waste(self) -> None:
        policy = ours(node("a", [500], gpu_type="T4"), node("b", 8, gpu_type="A10"), seen=((HALF, 9),))
        assert policy.choose(shape(cards=1, milli=500, types="A10 T4")) == Spot("b", (0,))

    def test_where_all_types_are_as_good_the_waste_decides(self) -> None:
        policy = ours(node("a", [500], gpu_type="T4"), node("b", 1, gpu_type="A10"), seen=((HALF, 9),))
        assert policy.choose(shape(cards=1, milli=500, types="A10 T4", any_order=True)) == Spot("a", (0,))

    def test_the_next_type_is_taken_when_there_is_no_room_on_the_first(self) -> None:
        policy = ours(node("a", 1, gpu_type="T4"), node("b", [0], gpu_type="A10"))
        assert policy.choose(shape(cards=1, types="A10 T4")) == Spot("a", (0,))


class TestMemory:
    def test_one_that_recalls_decides_as_the_one_that_remembered(self) -> None:
        nodes = [node(f"n{number}", [1000, 100 * number, 500], cpu=8 + number) for number in range(1, 9)]
        first = ours(*nodes, seen=((HALF, 40), (WHOLE, 30), (shape(cards=1, milli=300), 25)))
        assert first.choose(HALF) is not None
        first.saw(shape(cards=2))
        second = ours(*reversed(nodes))
        second.recall(first.remember())
        asked = [HALF, WHOLE, shape(cards=1, milli=300), shape(cards=2), shape(cpu=3)]
        assert [second.choose(one) for one in asked] == [first.choose(one) for one in asked]
        assert second.remember() == first.remember()

    def test_no_memory_is_recalled_as_nothing_seen(self) -> None:
        policy = ours(node("a", 1), seen=((WHOLE, 5),))
        policy.recall(b"")
        assert msgspec.msgpack.decode(policy.remember(), type=Memory) == Memory()

    def test_what_was_long_ago_counts_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("levers9.actors.scheduler.placement.ours.SEEN_MAX", 8)
        policy = ours(seen=((HALF, 1), (WHOLE, 7)))
        assert msgspec.msgpack.decode(policy.remember(), type=Memory).seen == (Asked(WHOLE, 3),)

    def test_no_more_shapes_are_counted_than_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("levers9.actors.scheduler.placement.ours.SHAPES_MAX", 2)
        policy = ours(seen=((HALF, 4), (WHOLE, 1), (shape(cards=2), 1)))
        seen = msgspec.msgpack.decode(policy.remember(), type=Memory).seen
        assert seen == (Asked(HALF, 2),)

    def test_of_shapes_that_are_all_common_the_rarest_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        policy = ours(seen=((HALF, 8), (WHOLE, 6), (shape(cards=2), 4)))
        monkeypatch.setattr("levers9.actors.scheduler.placement.ours.SHAPES_MAX", 2)
        policy.saw(shape(cards=2))
        seen = msgspec.msgpack.decode(policy.remember(), type=Memory).seen
        assert seen == (Asked(HALF, 4), Asked(WHOLE, 3))

    def test_no_more_costs_are_kept_than_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("levers9.actors.scheduler.placement.ours.ROWS_MAX", 1)
        policy = ours(node("a", 1))
        assert [policy.choose(one) for one in (WHOLE, HALF, WHOLE)] == [Spot("a", (0,))] * 3

    def test_no_more_filled_nodes_are_kept_than_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = [node("a", [1000, 600]), node("b", [600])]
        expected = ours(*nodes, seen=((HALF, 9),)).choose(HALF)
        monkeypatch.setattr("levers9.actors.scheduler.placement.ours.FILLED_MAX", 1)
        assert ours(*nodes, seen=((HALF, 9),)).choose(HALF) == expected


class TestTies:
    def test_the_first_by_identity_is_taken_of_nodes_that_are_alike(self) -> None:
        assert ours(node("b", 2), node("a", 2), node("c", 2)).choose(WHOLE) == Spot("a", (0,))

    def test_at_random_each_has_its_turn_and_the_same_seed_gives_the_same(self) -> None:
        def chosen(seed: int) -> list[str]:
            policy = Ours(ties="random", seed=seed)
            for name in "abcd":
                policy.put(node(name, 2))
            return [node_of(policy.choose(WHOLE, frozenset("d"))) for _ in range(40)]

        assert set(chosen(1)) == set("abc")
        assert chosen(1) == chosen(1)
        assert chosen(1) != chosen(2)


class TestAhead:
    def test_the_sample_has_each_size_as_often_as_demand_to_one(self) -> None:
        asked = [Asked(HALF, 30), Asked(WHOLE, 69), Asked(shape(cards=8), 1)]
        for turn in range(8):
            taken = sample(asked, turn)
            counts = [taken.count(place) for place in range(3)]
            assert sum(counts) == 50
            assert abs(counts[0] - 15) <= 1
            assert counts[2] in (0, 1)

    def test_a_rare_size_has_its_turn(self) -> None:
        asked = [Asked(WHOLE, 99), Asked(shape(cards=8), 1)]
        assert {sample(asked, turn).count(1) for turn in range(8)} == {0, 1}

    def test_the_largest_go_first_and_the_fullest_cards_are_filled(self) -> None:
        window = sizes_of([shape(cards=1, milli=600), shape(cards=1, milli=400)])
        assert unused(window, 8000, 4096, [400, 700, 1000]) == 400 + 100 + 600 - 400 + 400 - 0

    def test_it_stops_where_cpu_or_memory_ends(self) -> None:
        window = (Size(1, 500, ((1000, 1024), (1000, 8192), (1000, 1024), (9000, 1024))),)
        assert unused(window, 8000, 4096, [1000, 1000]) == 1000
        assert unused(window, 1500, 4096, [1000, 1000]) == 1500

    def test_several_cards_need_as_many_with_room(self) -> None:
        window = (Size(2, 1000, ((1000, 1),)),)
        assert unused(window, 8000, 4096, [500, 1000, 1000]) == 500
        assert unused(window, 8000, 4096, [500, 500, 1000]) == 2000


class TestOutlook:
    def test_a_whole_card_is_never_expected_to_be_wasted_more_than_a_broken_one(self) -> None:
        expected = waste([Asked(HALF, 50), Asked(WHOLE, 50)])
        assert expected[0] == 0
        assert expected[49] == 490 * UNIT  # nobody can use so little
        assert expected[-1] < expected[90]
        assert expected[50] < expected[49]

    def test_what_few_can_use_is_hardly_counted_on(self) -> None:
        few = waste([Asked(shape(cards=1, milli=200), 1), Asked(WHOLE, 99)])
        many = waste([Asked(shape(cards=1, milli=200), 50), Asked(WHOLE, 50)])
        assert 150 * UNIT < few[20] < 200 * UNIT
        assert many[20] < 20 * UNIT

    def test_not_more_amounts_of_cpu_are_told_apart_than_so_many(self) -> None:
        levels = levels_of(list(range(1, 1000)))
        assert len(levels) <= LEVELS_MAX
        assert levels[-1] == 999
        assert levels_of([3, 1, 3]) == [1, 3]
        assert levels_of([]) == []

    def test_nodes_that_can_run_the_same_are_seen_alike(self) -> None:
        small, large, other = node("a", 1), node("b", 2), node("c", 2, sharing=False)
        outlook = Outlook([Asked(HALF, 3)], [Population(one.kind, 1) for one in (small, large, other)])
        assert outlook.view(small.kind) is outlook.view(large.kind)
        assert outlook.view(small.kind) is not outlook.view(other.kind)


class TestColumns:
    def test_a_row_keeps_up_with_rooms_that_come_and_go(self) -> None:
        columns, rooms = Columns(Outlook((), ())), Rooms()
        row = Row(WHOLE)
        assert columns.bring_up(row).min() == NEVER
        for number in range(200):
            rooms.put(node(f"n{number}", 1, cpu=100 + number))
            columns.add(rooms.members[f"n{number}"].room)
        assert (columns.bring_up(row) < NEVER).sum() == 200
        for number in range(199):
            columns.remove(rooms.members[f"n{number}"].room)
        assert (columns.bring_up(row) < NEVER).sum() == 1

    def test_a_row_that_the_log_has_left_behind_begins_anew(self) -> None:
        policy = ours(node("a", 1))
        assert policy.choose(WHOLE) == Spot("a", (0,))
        for turn in range(5000):
            policy.put(node("b", [turn % 2 * 500], cpu=1 + turn % 9))
        policy.put(node("a", [0]))
        policy.put(node("b", 1))
        assert policy.choose(WHOLE) == Spot("b", (0,))

    def test_kinds_that_have_gone_are_forgotten(self) -> None:
        policy = ours(node("keep", 1, gpu_type="A10"))
        for number in range(40):
            policy.put(node("passing", 1, gpu_type=f"type{number}"))
            assert node_of(policy.choose(shape(cards=1, types=f"type{number}"))) == "passing"
            policy.saw(WHOLE)
            policy.drop("passing")
        assert len(policy._columns.kinds) < 20
        assert node_of(policy.choose(shape(cards=1, types="A10"))) == "keep"
        assert policy.choose(shape(cards=1, types="type3")) is None


# A slow and obvious evaluation.


class Way(msgspec.Struct, frozen=True, order=True):
    """A way to place a container: its cost, the node, and what is free on the card."""

    cost: int
    node_id: str
    free: int


def taken(cards: list[int], asked: Shape, free: int) -> list[int]:
    """The cards, sorted, when a container has taken its own."""
    left = sorted(cards)
    if asked.gpu_count == 1:
        left.remove(free)
        insort(left, free - asked.gpu_milli)
        return left
    for _ in range(asked.gpu_count):
        left.remove(max(left))
    return sorted(left + [0] * asked.gpu_count)


def cost(outlook: Outlook, one: Node, asked: Shape, free: int) -> int:
    """How much worse it is to have what the node then has free."""
    view, cpu = outlook.view(one.kind), one.cpu_milli - asked.cpu_milli
    cards = taken(one.free_cards, asked, free)
    now = outlook.badness(view, one.cpu_milli, sum(one.free_cards), one.free_cards)
    then = outlook.badness(view, cpu, sum(cards), cards)
    return then - now + (one.memory_mib - asked.memory_mib) // 1024 + (0 if asked.gpu_count else cpu)


def ways(outlook: Outlook, one: Node, asked: Shape) -> list[Way]:
    """The ways to place a container on a node."""
    levels = sorted({free for free in one.free_cards if free >= asked.gpu_milli}) if asked.gpu_count == 1 else [0]
    return [Way(cost(outlook, one, asked, free), one.node_id, free) for free in levels]


def filled(outlook: Outlook, one: Node, cpu: int, memory: int, cards: list[int]) -> int:
    return sum(unused(window, cpu, memory, cards) for window in outlook.view(one.kind).windows)


def with_look_ahead(outlook: Outlook, one: Node, asked: Shape, way: Way) -> Way:
    """The cost with the look ahead."""
    now = filled(outlook, one, one.cpu_milli, one.memory_mib, sorted(one.free_cards))
    cards = taken(one.free_cards, asked, way.free)
    then = filled(outlook, one, one.cpu_milli - asked.cpu_milli, one.memory_mib - asked.memory_mib, cards)
    return Way(way.cost + AHEAD * UNIT * (then - now) // WINDOWS, way.node_id, way.free)


def by_looking(outlook: Outlook, nodes: dict[str, Node], asked: Shape, without: frozenset[str]) -> Spot | None:
    """The choice, from all nodes one by one."""
    fitting = [one for name, one in sorted(nodes.items()) if name not in without and one.fits(asked)]
    wishes = {one.node_id: wish(one, asked) for one in fitting}
    fitting = [one for one in fitting if wishes[one.node_id] == min(wishes.values())]
    if not fitting:
        return None
    alike: dict[tuple[object, ...], Node] = {}
    for one in fitting:
        alike.setdefault((one.kind, one.cpu_milli, one.memory_mib, tuple(sorted(one.free_cards))), one)
    rooms = sorted((min(ways(outlook, one, asked)).cost, one.node_id) for one in alike.values())[:CANDIDATES]
    limit = rooms[0][0] + MARGIN
    close = [way for _, name in rooms for way in ways(outlook, nodes[name], asked) if way.cost <= limit]
    if len(close) > 1:
        close = [with_look_ahead(outlook, nodes[way.node_id], asked, way) for way in close]
    best = min(close)
    return Spot(best.node_id, numbers(nodes[best.node_id], asked, best.free))


def wish(one: Node, asked: Shape) -> int:
    capacity = one.kind.capacity
    return asked.preference(capacity.gpu_type) if asked.gpu_count else int(capacity.gpu_count > 0)


def numbers(one: Node, asked: Shape, free: int) -> tuple[int, ...]:
    if asked.gpu_count == 1:
        return (one.free_cards.index(free),)
    whole = [number for number, left in enumerate(one.free_cards) if left == CARD_MILLI]
    return tuple(whole[: asked.gpu_count])


SHAPES = (
    shape(cpu=1),
    shape(cpu=6, memory=40),
    shape(cpu=1, cards=1, milli=810),
    shape(cpu=3, cards=1, milli=470, memory=20),
    shape(cpu=2, cards=1, milli=160),
    shape(cpu=2, cards=1, milli=333),
    shape(cpu=6, cards=1, memory=48),
    shape(cpu=3, cards=1, types="A10 T4"),
    shape(cpu=3, cards=1, milli=500, types="T4 A10", any_order=True),
    shape(cpu=4, cards=2),
    shape(cpu=20, cards=4, types="T4"),
)
NAMES = st.sampled_from("abcdefgh")


class OursMachine(RuleBasedStateMachine):
    """Nodes come, fill, empty and go; each choice is compared with a look at every node."""

    @initialize()
    def begin(self) -> None:
        self.policy = Ours()
        self.nodes: dict[str, Node] = {}
        self.placed: list[tuple[str, str]] = []
        self.count = 0
        self.looked_at: tuple[Asked, ...] = ()
        self.population: tuple[Population, ...] = ()
        self.outlook = Outlook((), ())

    @rule(name=NAMES, cards=st.integers(0, 4), gpu_type=st.sampled_from(["T4", "A10"]), cpu=st.integers(4, 40))
    def node_comes(self, name: str, cards: int, gpu_type: str, cpu: int) -> None:
        self.nodes[name] = node(name, cards, cpu=cpu, memory=4 * cpu, gpu_type=gpu_type, sharing=cpu % 3 > 0)
        self.placed = [(member, on) for member, on in self.placed if on != name]
        self.policy.put(self.nodes[name])

    @rule(name=NAMES)
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.placed = [(member, on) for member, on in self.placed if on != name]
        self.policy.drop(name)

    @rule(asked=st.sampled_from(SHAPES), times=st.integers(1, 30))
    def seen(self, asked: Shape, times: int) -> None:
        for _ in range(times):
            self.policy.saw(asked)

    @rule(asked=st.sampled_from(SHAPES), without=st.frozensets(NAMES, max_size=3))
    def place(self, asked: Shape, without: frozenset[str]) -> None:
        spot = self.policy.choose(asked, without)
        memory = msgspec.msgpack.decode(self.policy.remember(), type=Memory)
        if memory.looked_at != self.looked_at or memory.population != self.population:
            self.looked_at, self.population = memory.looked_at, memory.population
            self.outlook = Outlook(memory.looked_at, memory.population)
        assert spot == by_looking(self.outlook, self.nodes, asked, without)
        if spot is not None:
            self.count += 1
            self.nodes[spot.node_id].take(f"m{self.count}", asked, spot.cards)
            self.placed.append((f"m{self.count}", spot.node_id))
            self.policy.put(self.nodes[spot.node_id])

    @rule(number=st.integers(0, 999))
    def end(self, number: int) -> None:
        if self.placed:
            member, name = self.placed.pop(number % len(self.placed))
            self.nodes[name].give_back(member)
            self.policy.put(self.nodes[name])

    @rule()
    def recalled(self) -> None:
        memory = self.policy.remember()
        self.policy = Ours()
        for one in self.nodes.values():
            self.policy.put(one)
        self.policy.recall(memory)

    @invariant()
    def badness_of_many_is_badness_of_each(self) -> None:
        columns = self.policy._columns
        for room in columns.rooms:
            if room is not None:
                view = columns.view(room.kind)
                known = columns.badness(room)
                assert known == columns.outlook.badness(view, room.cpu_milli, room.free_milli, room.cards)


OursMachine.TestCase.settings = settings(settings.get_profile("property"))
TestOursAgainstLooking = pytest.mark.slow(OursMachine.TestCase)
