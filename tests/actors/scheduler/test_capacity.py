"""Room on a node under any order of events: nothing is lost, nothing is below zero, no card is given twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levers9.actors.scheduler.capacity import new_node
from levers9.model.nodes import Traits
from levers9.model.resources import CARD_MILLI, Amount, Capacity, Shape

SIZE = Capacity(cpu_milli=8000, memory_mib=4096, gpu_count=4, gpu_type="GB200")
CARD = Shape(cpu_milli=1000, memory_mib=256, gpu_count=1)
HALF = msgspec.structs.replace(CARD, gpu_milli=500)


def test_a_node_counts_what_it_takes_and_gives_back() -> None:
    node = new_node("n", "p", SIZE)
    node.take("a", CARD, node.pick_cards(CARD))
    assert (node.free, node.used) == (Amount(7000, 3840, 3000), Amount(1000, 256, 1000))
    node.give_back("a")
    node.give_back("a")
    assert (node.free, node.used) == (Amount(8000, 4096, 4000), Amount())


def test_shares_of_a_card_fill_it_before_another_is_opened() -> None:
    node = new_node("n", "p", SIZE, Traits(gpu_sharing=True))
    for member in ("a", "b", "c"):
        node.take(member, HALF, node.pick_cards(HALF))
    assert [use.cards for use in node.uses.values()] == [(0,), (0,), (1,)]
    assert node.count(CARD) == 2
    assert node.count(HALF) == 5


def test_a_share_is_not_placed_where_cards_are_not_shared() -> None:
    assert new_node("n", "p", SIZE).count(HALF) == 0


def test_a_promise_takes_room_until_it_is_given_back() -> None:
    node = new_node("n", "p", SIZE)
    node.take("a", CARD, (0,))
    node.take("b", CARD, (1,), promised=True)
    assert [use.promised for use in node.uses.values()] == [False, True]
    assert node.free.gpu_milli == 2000
    node.give_back("b")
    assert node.free.gpu_milli == 3000


def test_a_card_that_is_lost_in_use_is_there_until_its_container_has_gone() -> None:
    node = new_node("n", "p", SIZE)
    for card in range(4):
        node.take(f"m{card}", CARD, (card,))
    node.resize(msgspec.structs.replace(SIZE, gpu_count=2))
    assert (node.free.gpu_milli, node.used.gpu_milli) == (0, 4000)
    node.give_back("m0")
    node.give_back("m1")
    assert node.free.gpu_milli == 0
    node.give_back("m2")
    assert node.free.gpu_milli == 1000
    node.resize(SIZE)
    assert node.free.gpu_milli == 3000


def test_which_cards_are_lost_does_not_depend_on_who_came_first() -> None:
    uses = {"a": (1,), "b": (3,)}
    found = []
    for capacity, order in ((SIZE, "ab"), (msgspec.structs.replace(SIZE, gpu_count=2), "ba")):
        node = new_node("n", "p", capacity)
        for member in order:
            node.take(member, CARD, uses[member])
        node.resize(msgspec.structs.replace(SIZE, gpu_count=2))
        found.append((node.lost_cards, node.free_cards))
    restored = new_node("n", "p", msgspec.structs.replace(SIZE, gpu_count=2))
    for member in "ab":
        restored.take(member, CARD, uses[member])
    assert found == [(restored.lost_cards, restored.free_cards)] * 2


def test_what_an_earlier_leader_placed_is_known_on_cards_that_are_reported_no_more() -> None:
    node = new_node("n", "p", msgspec.structs.replace(SIZE, gpu_count=2))
    node.take("a", CARD, (3,))
    assert (node.free.gpu_milli, node.count(CARD)) == (1000, 1)
    node.give_back("a")
    assert (node.free.gpu_milli, len(node.free_cards) - len(node.lost_cards)) == (2000, 2)


SHAPES = st.builds(
    Shape,
    cpu_milli=st.integers(1, 3000),
    memory_mib=st.integers(1, 2000),
    gpu_count=st.integers(0, 3),
    gpu_milli=st.sampled_from([1, 250, 333, 500, 750, CARD_MILLI]),
)


class CapacityMachine(RuleBasedStateMachine):
    """One node against plain sums of what is on it."""

    def __init__(self) -> None:
        super().__init__()
        self.node = new_node("n", "p", SIZE, Traits(gpu_sharing=True))
        self.held: dict[str, tuple[Shape, tuple[int, ...]]] = {}
        self.promised: set[str] = set()
        self.count = 0

    @rule(shape=SHAPES, promised=st.booleans())
    def place(self, shape: Shape, promised: bool) -> None:
        room = self.node.count(shape)
        assert self.node.fits(shape) == (room > 0)
        if not room:
            return
        cards = self.node.pick_cards(shape)
        assert len(set(cards)) == len(cards) == shape.gpu_count
        self._take(shape, cards, promised)
        assert self.node.count(shape) == room - 1

    @rule(shape=SHAPES, first=st.integers(0, 6))
    def restore(self, shape: Shape, first: int) -> None:
        """An earlier leader placed it: on cards that nobody here has, and it may be too much for what is there now."""
        taken = {card for _, cards in self.held.values() for card in cards}
        cards = tuple(range(first, first + shape.gpu_count))
        if not taken & set(cards):
            self._take(shape, cards, promised=False)

    def _take(self, shape: Shape, cards: tuple[int, ...], promised: bool) -> None:
        self.count += 1
        member = f"m{self.count}"
        self.node.take(member, shape, cards, promised)
        self.held[member] = (shape, cards)
        if promised:
            self.promised.add(member)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.held)))
        self.node.give_back(member)
        del self.held[member]
        self.promised.discard(member)

    @precondition(lambda self: self.promised)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.promised)))
        self.node.give_back(member)
        self.node.take(member, *self.held[member])
        self.promised.remove(member)

    @rule()
    def end_a_stranger(self) -> None:
        self.node.give_back("stranger")

    @rule(cards=st.integers(0, 6), cpu_milli=st.integers(0, 9000), memory_mib=st.integers(0, 5000))
    def resize(self, cards: int, cpu_milli: int, memory_mib: int) -> None:
        size = msgspec.structs.replace(SIZE, gpu_count=cards, cpu_milli=cpu_milli, memory_mib=memory_mib)
        self.node.resize(size)

    def used_of(self, card: int) -> int:
        return sum(shape.gpu_milli for shape, cards in self.held.values() if card in cards)

    @invariant()
    def free_used_and_promised_are_the_total(self) -> None:
        """What was lost in use counts as there until its container has gone."""
        node, size = self.node, self.node.kind.capacity
        cpu = sum(shape.cpu_milli for shape, _ in self.held.values())
        memory = sum(shape.memory_mib for shape, _ in self.held.values())
        lost_in_use = sum(self.used_of(card) for card in node.lost_cards)
        total = Amount(
            max(size.cpu_milli, cpu), max(size.memory_mib, memory), size.gpu_count * CARD_MILLI + lost_in_use
        )
        promised = Amount()
        for use in (use for use in node.uses.values() if use.promised):
            promised = promised.plus(Amount(use.cpu_milli, use.memory_mib, use.card_milli * len(use.cards)))
        kept = node.used.less(promised)
        assert node.free.plus(kept).plus(promised) == total
        assert {member for member, use in node.uses.items() if use.promised} == self.promised

    @invariant()
    def nothing_is_below_zero(self) -> None:
        node = self.node
        assert min(node.cpu_milli, node.memory_mib, node.used_cpu_milli, node.used_memory_mib, *node.free_cards, 0) == 0

    @invariant()
    def a_card_has_one_owner_or_sharers_of_a_whole_together(self) -> None:
        for card, free in enumerate(self.node.free_cards):
            assert self.used_of(card) <= CARD_MILLI
            assert free == (0 if card in self.node.lost_cards else CARD_MILLI - self.used_of(card))

    @invariant()
    def as_many_cards_are_there_as_the_worker_says(self) -> None:
        there = len(self.node.free_cards) - len(self.node.lost_cards)
        assert there == self.node.kind.capacity.gpu_count


TestCapacityMachine = CapacityMachine.TestCase
TestCapacityMachine.settings = settings(settings.get_profile("property"))
TestCapacityMachine.pytestmark = [pytest.mark.slow]
