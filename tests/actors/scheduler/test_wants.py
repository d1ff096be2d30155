"""What pools are asked for: as much as is lacking beyond what is on its way, and as soon as it is."""

from __future__ import annotations

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.holding import COUNTED_AT_ONCE, MANY_GROUPS, TELL_EVERY_S
from levers9.actors.scheduler.placement import new_placement
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=1000, memory_mib=1000)
WHOLE = Shape(cpu_milli=1000, memory_mib=1000)


class Told:
    def __init__(self) -> None:
        self.core = Core(new_placement)
        self.now_s = 1000.0
        self.wanted(events.PoolSet(pool="p", size=SIZE))

    def wanted(self, *told: events.Event) -> list[int]:
        """How many containers the pool is asked for, each time that it is."""
        return [sum(number for _, number in wish.shapes) for wish in self.wishes(*told)]

    def wishes(self, *told: events.Event) -> list[events.RoomWanted]:
        """What pools are asked for."""
        decisions = [one for event in (*told, events.Planned()) for one in self.core.handle(event, self.now_s)]
        return [one for one in decisions if isinstance(one, events.RoomWanted)]


def asked(name: str, shape: Shape = WHOLE, workspace: str = "w") -> events.Event:
    request = Request(request_id=name, group=name, workspace=workspace, members=(name,), shape=shape)
    return events.Requested(requests=(request,))


def coming(name: str) -> events.Event:
    return events.NodeSet(node_id=name, pool="p", capacity=SIZE, standing=Standing.COMING)


def test_a_wish_is_made_again_when_a_worker_was_ordered_for_the_one_before() -> None:
    told = Told()
    assert told.wanted(asked("a")) == [1]
    assert told.wanted(coming("for a"), asked("b")) == [1]
    assert told.wanted(coming("for b")) == [0]


def test_a_wish_that_stays_as_it_is_is_made_once() -> None:
    told = Told()
    told.wanted(events.Ticked())
    assert told.wanted(asked("a")) == [1]
    assert told.wanted(events.Ticked()) == []
    assert told.wanted(asked("b")) == [2]


def test_it_is_made_at_once_however_many_functions_wait_for_workers_that_are_on_their_way() -> None:
    told = Told()
    for number in range(2 * MANY_GROUPS):
        assert told.wanted(asked(f"r{number}")) == [1]
        told.wanted(coming(f"for r{number}"))


def test_where_that_takes_long_it_waits_a_moment() -> None:
    told = Told()
    several = round(COUNTED_AT_ONCE**0.5) + 1
    for number in range(several):
        told.wanted(asked(f"r{number}", workspace=f"w{number}"), coming(f"n{number}"))
    assert told.wanted(asked("last")) == []
    told.now_s += TELL_EVERY_S
    assert told.wanted(events.Ticked()) == [1]


def test_room_on_its_way_is_counted_once_for_all_that_wait() -> None:
    told = Told()
    half = Shape(cpu_milli=500, memory_mib=500)
    told.wanted(coming("one"), coming("two"))
    assert told.wanted(asked("a", half), asked("b", half), asked("c")) == []
    assert told.wanted(asked("d", half)) == [1]


def test_a_gang_that_waits_for_nodes_is_looked_at_again_when_a_worker_that_had_one_is_gone() -> None:
    told = Told()
    offers = tuple(NodeOffer(capacity=SIZE, traits=Traits(node=name)) for name in ("n1", "n2"))
    there = events.NodeSet(node_id="w", pool="q", capacity=SIZE, traits=Traits(node="n1"), standing=Standing.CLOSED)
    shape = Shape(cpu_milli=1000, memory_mib=1000, pool="q")
    gang = Request(request_id="g", group="g", workspace="w", members=("a", "b"), shape=shape)
    told.wanted(events.PoolSet(pool="q"), events.NodesOffered(pool="q", offers=offers), there)
    told.wanted(events.Requested(requests=(gang,)))

    wishes = told.wishes(events.NodeGone(node_id="w"))

    assert [one.nodes for wish in wishes for one in wish.gangs] == [("n1", "n2")]
