"""A journal run again: all equal, the first difference, and two policies on the same events."""

from __future__ import annotations

import msgspec
import pytest

from levers9.actors.scheduler.events import (
    Decision,
    Ended,
    Event,
    Placed,
    Planned,
    PoolSet,
    Recalled,
    Replaced,
    Replacement,
    Requested,
    Restored,
)
from levers9.actors.scheduler.replay import diff, placing_with, replay
from levers9.actors.scheduler.tally import Tally, size_class
from levers9.model.resources import Amount, Shape

from .journals import SHAPE, FirstFit, busy_segment, request, set_node


def test_the_same_core_decides_the_same() -> None:
    assert list(replay(busy_segment(), FirstFit())) == []


def test_a_core_that_decides_otherwise_is_told_from_the_first_step_on() -> None:
    class Lazy(FirstFit):
        def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
            return super().handle(event, now_s)[:1]

    first = next(replay(busy_segment(), Lazy()))
    assert (first.number, first.now_s, first.event) == (2, 101.0, Planned())
    assert (len(first.before), len(first.after)) == (5, 1)


def test_a_segment_opens_with_what_stood_before() -> None:
    core = FirstFit()
    core.handle(set_node("n1"), 0.0)
    core.handle(Requested(requests=(request("old"),)), 0.0)
    core.handle(Planned(), 0.0)
    segment = msgspec.structs.replace(busy_segment(), opening=core.snapshot(), records=())
    again = FirstFit()
    assert list(replay(segment, again)) == []
    assert again.snapshot() == core.snapshot()


def test_what_one_policy_saw_of_demand_is_nothing_to_another() -> None:
    events = (PoolSet(pool="p", placement="fgd"), Recalled(shares=b"s", demand=(("p", b"only for fgd"),)))
    told = tuple(placing_with("ours", events))
    assert told == (PoolSet(pool="p", placement="ours"), Recalled(shares=b"s"))


def test_two_policies_are_compared_on_one_journal() -> None:
    found = diff(busy_segment(), FirstFit, "forwards", "backwards")
    assert (found.steps, found.different) == (4, 2)
    assert [side.placement for side in (found.first, found.second)] == ["forwards", "backwards"]
    assert [side.placed for side in (found.first, found.second)] == [5, 5]
    assert [found.first.gpu_milli, found.first.waiting] == [8000, ()]
    before, after = (step[0] for step in (found.differences[0].before, found.differences[0].after))
    assert (before, after) == (
        Placed(request_id="r0", spots=(("n1", (0, 1)),)),
        Placed(request_id="r0", spots=(("n2", (0, 1)),)),
    )


def test_who_waits_is_counted_by_class() -> None:
    segment = busy_segment()
    found = diff(msgspec.structs.replace(segment, records=segment.records[:2]), FirstFit, "", "")
    assert [(line.size, line.requests, line.longest_s) for line in found.first.waiting] == [("2 to 4 cards", 1, 11.0)]
    assert found.first.mean_gpu_milli == 0  # all were placed at the last moment


@pytest.mark.parametrize(
    ("cards", "milli", "members", "size"),
    [
        (0, 1000, 3, "no card"),
        (1, 200, 1, "a share of a card"),
        (1, 500, 2, "1 card"),
        (1, 1000, 1, "1 card"),
        (4, 1000, 2, "5 to 8 cards"),
        (8, 1000, 8, "17 to 64 cards"),
        (8, 1000, 9, "over 64 cards"),
    ],
)
def test_a_class_counts_the_cards_of_the_whole_gang(cards: int, milli: int, members: int, size: str) -> None:
    shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=cards, gpu_milli=milli)
    gang = msgspec.structs.replace(request("g", shape=shape), members=tuple(map(str, range(members))))
    assert size_class(gang) == size


def test_the_tally_gives_back_what_ended_and_averages_over_time() -> None:
    tally, core = Tally(), FirstFit()
    steps = [PoolSet(pool="p"), set_node("n1"), Requested(requests=(request("a"), request("b"))), Planned()]
    for event in steps:
        tally.saw(event, core.handle(event, 10.0), 10.0)
    assert tally.used == Amount(2000, 2048, 4000)
    assert tally.by_workspace == {"w": Amount(2000, 2048, 4000)}
    tally.saw(Ended(member="a"), (), 20.0)
    tally.saw(Ended(member="a"), (), 30.0)
    assert tally.used == Amount(1000, 1024, 2000)
    assert tally.nodes["n1"].count(SHAPE) == 1
    assert tally.mean_gpu_milli() == (4000 * 10 + 2000 * 10) // 20


def test_the_end_of_one_member_ends_a_gang_that_waits() -> None:
    tally = Tally()
    gang = msgspec.structs.replace(request("g"), members=("a", "b"))
    tally.saw(Requested(requests=(gang,)), (), 1.0)
    tally.saw(Ended(member="a"), (), 2.0)
    assert tally.waiting == {}


def test_a_replacement_holds_what_the_lost_member_held() -> None:
    tally = Tally()
    gang = msgspec.structs.replace(request("g"), members=("a", "b"))
    tally.saw(Restored(request=gang, spots=(("n1", (0, 1)), ("", ()))), (), 1.0)
    assert tally.used.gpu_milli == 2000
    room = Replaced(request_id="g", rank=1, member="c", node_id="n2")
    tally.saw(Replacement(request_id="g", rank=1, member="c"), (room,), 2.0)
    tally.saw(Ended(member="a"), (), 3.0)
    assert tally.used.gpu_milli == 2000
    tally.saw(Ended(member="c"), (), 4.0)
    assert tally.used.gpu_milli == 0
