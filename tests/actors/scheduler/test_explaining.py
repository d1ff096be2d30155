"""One step of a journal in words: what stood before, what was decided, and why."""

from __future__ import annotations

import msgspec
import pytest

from levers9.actors.scheduler.events import (
    Decision,
    Event,
    GangGivenBack,
    GangWanted,
    Held,
    More,
    NodesOffered,
    Placed,
    PlacementsFrom,
    Planned,
    Preempted,
    Replaced,
    Requested,
    RoomWanted,
    Yielded,
)
from levers9.actors.scheduler.explaining import asks, explain
from levers9.actors.scheduler.telling import tell, tell_event
from levers9.errors import Refused
from levers9.model.reasons import Reason

from .journals import LACK, SHAPE, busy_segment, request, set_node


def words(reason: Reason, now_s: float) -> str:
    return f"{reason.lacks[0].amount // 1000} more {reason.lacks[0].resource} needed."


def test_a_step_is_told_with_what_stood_before_it() -> None:
    told = explain(busy_segment(), 4, words)
    assert (told.number, told.now_s, told.event, told.nodes_open) == (4, 103.0, Planned(), 2)
    assert [(line.node, line.free, line.rooms) for line in told.nodes] == [
        ("n1", "2 A100, 7 CPUs, 7168 MiB", 1),
        ("n2", "6 CPUs, 6144 MiB", 0),
    ]
    assert [(line.place, line.request_id, line.waited_s) for line in told.queue] == [(1, "r4", 13.0)]
    assert [(line.workspace, line.dominant_milli) for line in told.shares] == [("w", 500), ("v", 250)]
    assert told.sentences == ("r4 gets room: n1 (cards 0, 1). It asks for 2 cards, 1 CPUs, 1024 MiB, for workspace w.",)


def test_a_hold_is_told_in_the_words_of_its_reason() -> None:
    told = explain(busy_segment(), 2, words)
    assert told.sentences[-1] == "f waits. 2 more A100 needed."
    assert told.waiting == 5


@pytest.mark.parametrize("at", [0, 5, -1])
def test_a_step_that_is_not_there_is_refused_with_those_that_are(at: int) -> None:
    with pytest.raises(Refused, match=f"The journal has no step {at}. It has steps 1 to 4."):
        explain(busy_segment(), at, words)


def test_a_journal_without_steps_says_so() -> None:
    with pytest.raises(Refused, match="It has none"):
        explain(msgspec.structs.replace(busy_segment(), records=()), 1, words)


def test_a_gang_asks_for_each_of_its_members() -> None:
    gang = msgspec.structs.replace(request("g", shape=SHAPE), members=("a", "b"))
    assert asks(gang) == "2 × (2 cards, 1 CPUs, 1024 MiB)"


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (Placed(request_id="r", spots=(("n", ()),)), "r gets room: n."),
        (Replaced(request_id="r", rank=1, member="m", node_id="n"), "m, a replacement, gets room on n."),
        (Preempted(request_id="r", by_workspace="w", why="it goes first."), "r stops to make room for w: it goes"),
        (Yielded(member="m"), "m ends after the calls that it has"),
        (Held(group="f"), "Nothing of f waits any more."),
        (Held(group="f", reasons=(LACK,)), "f waits. 2 more A100 needed."),
        (RoomWanted(pool="p", shapes=((SHAPE, 3),), gangs=(GangWanted("g"),)), "Pool p lacks room for 3 containers"),
        (GangGivenBack(request_id="g", pool="p", nodes=("a", "b"), why="too late."), "g gives back a, b: too late."),
        (More(), "There is more to plan."),
    ],
)
def test_every_decision_has_its_words(decision: Decision, told: str) -> None:
    assert tell(decision, words, 0.0)[0].startswith(told)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Requested(requests=tuple(request(f"r{each}") for each in range(10))), "r6, r7 and 2 more."),
        (NodesOffered(pool="p", offers=()), "NodesOffered: 0 of pool p."),
        (set_node("n"), "NodeSet: n of pool p is open."),
        (PlacementsFrom(at_s=3.5), "PlacementsFrom: at_s=3.5."),
    ],
)
def test_every_event_has_its_words(event: Event, told: str) -> None:
    assert tell_event(event).endswith(told)
