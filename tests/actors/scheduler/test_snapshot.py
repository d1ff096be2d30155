"""What another core knows from a snapshot: not only who has room, but also what was begun and is not over."""

from __future__ import annotations

import pytest

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision
from levers9.actors.scheduler.placement import new_placement
from levers9.model.figures import GANG_READY_S, GANG_RETRY_S
from levers9.model.queues import (
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Within,
)
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=1000, memory_mib=1000)
WHOLE = Shape(cpu_milli=1000, memory_mib=1000)
RANKED = Queueing(
    flavors=(Flavor(name="f"),),
    quotas=(
        Quota(
            name="ranked",
            flavors=(FlavorLimits(flavor="f", cpu=Limits(nominal=2000)),),
            preempt=Within.LOWER_PRIORITY,
        ),
    ),
    queues=(Queue(name="default", workspace="w", quota="ranked"),),
    priorities=(PriorityClass(name="high", value=100),),
)


class Told:
    """A core, and the same one after a snapshot."""

    def __init__(self, queueing: Queueing = RANKED) -> None:
        self.core = Core(new_placement, queueing)
        self.now_s = 1000.0

    def plan(self, *told: events.Event) -> list[Decision]:
        return [one for event in (*told, events.Planned(steps=64)) for one in self.core.handle(event, self.now_s)]

    def ask(self, name: str, members: int = 1, priority: str = "default") -> list[Decision]:
        asked = events.Request(
            request_id=name,
            group=name,
            workspace="w",
            members=tuple(f"{name}/{rank}" for rank in range(members)),
            shape=WHOLE,
            priority=priority,
            requested_at_s=self.now_s,
        )
        return self.plan(events.Requested(requests=(asked,)))

    def again(self) -> Told:
        other = Told()
        other.now_s = self.now_s
        for event in self.core.snapshot():
            other.core.handle(event, other.now_s)
        return other


@pytest.fixture
def told() -> Told:
    """A pool with a node, which may start another one."""
    told = Told()
    told.plan(events.PoolSet(pool="p", size=SIZE, max_workers=2))
    told.plan(events.NodeSet(node_id="one", pool="p", capacity=SIZE, standing=Standing.OPEN))
    return told


def gangs_wanted(decisions: list[Decision]) -> list[str]:
    return [gang.request_id for one in decisions if isinstance(one, events.RoomWanted) for gang in one.gangs]


def test_what_is_promised_is_promised_by_the_next_one_until_the_same_time(told: Told) -> None:
    told.ask("g", members=2)
    other = told.again()
    (live,) = other.core.promises.live.values()
    assert (live.nodes, live.workers, live.pool) == (["one", ""], 1, "p")
    assert live.deadline_s == told.now_s + GANG_READY_S
    assert "g" not in other.core.waiting


def test_who_gave_back_waits_as_long_for_the_next_one(told: Told) -> None:
    told.ask("g", members=2)
    told.now_s += GANG_READY_S
    told.plan(events.Ticked())
    other = told.again()
    other.now_s += GANG_RETRY_S - 1
    assert gangs_wanted(other.plan(events.Ticked())) == []
    other.now_s += 1
    assert gangs_wanted(other.plan(events.Ticked())) == ["g"]


def test_nobody_is_stopped_again_for_one_for_whom_somebody_is_stopping(told: Told) -> None:
    told.plan(events.NodeSet(node_id="two", pool="p", capacity=SIZE, standing=Standing.OPEN))
    told.ask("a")
    told.ask("b")
    assert [one.request_id for one in told.ask("c", priority="high") if isinstance(one, events.Preempted)] == ["b"]
    assert not any(isinstance(one, events.Preempted) for one in told.again().plan(events.Ticked()))
