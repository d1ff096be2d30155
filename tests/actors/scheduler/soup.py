"""Any sequence of events, drawn by whoever draws: Hypothesis in tests, a seeded generator where processes differ."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from itertools import chain

import msgspec

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import (
    Ended,
    Event,
    NodeGone,
    NodeSet,
    NodesOffered,
    PlacementsFrom,
    Planned,
    PoolDropped,
    PoolHolds,
    PoolSet,
    QueueingSet,
    Replacement,
    Request,
    Requested,
    Started,
    Ticked,
)
from levers9.actors.scheduler.placement import new_placement
from levers9.model import queues
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.reasons import HoldKind, Reason
from levers9.model.resources import Capacity, Shape

Draw = Callable[[int], int]  # a number below this one

RACK = "rack"
SIZES = (
    Capacity(cpu_milli=8000, memory_mib=8192, gpu_count=4, gpu_type="A100"),
    Capacity(cpu_milli=8000, memory_mib=8192, gpu_count=2, gpu_type="T4"),
    Capacity(cpu_milli=4000, memory_mib=4096),
)
SHAPES = (
    Shape(cpu_milli=1000, memory_mib=1024),
    Shape(cpu_milli=1000, memory_mib=1024, gpu_count=1),
    Shape(cpu_milli=500, memory_mib=512, gpu_count=1, gpu_milli=500),
    Shape(cpu_milli=1000, memory_mib=1024, gpu_count=2, gpu_types=("T4", "A100")),
    Shape(cpu_milli=1000, memory_mib=1024, gpu_count=4, gpu_types=("A100",), gpu_any_order=True),
)
PRIORITIES = (queues.DEFAULT, "high")
WORKSPACES = ("v", "w", "x")
KINDS = 64  # of groups: each its own shape, priority, workspace and nearness
TOGETHER = (
    Together(),
    Together(TopologyMode.REQUIRED, RACK),
    Together(TopologyMode.PREFERRED, RACK),
    Together(TopologyMode.PREFERRED, RACK, 2),
)


def new_core() -> Core:
    return Core(new_placement)


def queueing(kind: int) -> queues.Queueing:
    """None; quotas in a cohort that preempt; limits of workspaces."""
    limits = queues.Limits(nominal=2000, borrowing=2000, lending=1000)
    lines = (queues.FlavorLimits(flavor="all", gpu=limits),)
    quotas = tuple(
        queues.Quota(
            name=name, cohort="c", flavors=lines, reclaim=queues.Reclaim.ANY, preempt=queues.Within.LOWER_PRIORITY
        )
        for name in WORKSPACES[:2]
    )
    topologies = (queues.Topology(name="t", levels=(RACK,)),)
    priorities = (queues.PriorityClass(name="high", value=100),)
    if kind == 0:
        return queues.Queueing(topologies=topologies, priorities=priorities)
    if kind == 1:
        return queues.Queueing(
            flavors=(queues.Flavor(name="all", topology="t"),),
            cohorts=(queues.Cohort(name="c"),),
            quotas=quotas,
            queues=tuple(queues.Queue(name=queues.DEFAULT, workspace=name, quota=name) for name in WORKSPACES[:2]),
            priorities=priorities,
            topologies=topologies,
        )
    shares = (queues.Share(workspace="v", weight=3, max_containers=4), queues.Share(workspace="w", max_gpus=3))
    return queues.Queueing(shares=shares, priorities=priorities, topologies=topologies)


class Soup:
    """Makes events one after the other; time mostly goes on, and now and then goes back."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._made = 0
        self._gangs: list[str] = []
        self.now_s = 1000.0

    def event(self) -> Event:
        """The next event."""
        self.now_s += (0.0, 0.1, 1.0, 30.0, 400.0, -5.0)[self._draw(6)]
        kinds = (self._requested,) * 4 + (self._ended,) * 3 + (self._planned,) * 5 + (self._node,) * 3
        others = (self._started, self._pool, self._offered, self._held, self._other, self._replacement)
        every = kinds + others
        return every[self._draw(len(every))]()

    def opening(self) -> list[Event]:
        """Something to begin with."""
        return [QueueingSet(queueing=queueing(self._draw(3))), self._pool(), *(self._node() for _ in range(4))]

    def _requested(self) -> Event:
        """Requests of one group are equal."""
        self._made += 1
        name, kind = f"r{self._made}", self._draw(KINDS)
        members = (1, 1, 2, 4)[kind % 4]
        if members > 1:
            self._gangs.append(name)
        request = Request(
            request_id=name,
            group=f"f{kind}",
            workspace=WORKSPACES[kind % len(WORKSPACES)],
            members=(name,) if members == 1 else tuple(f"{name}-{rank}" for rank in range(members)),
            shape=SHAPES[kind % len(SHAPES)],
            priority=PRIORITIES[kind // 4 % 2],
            together=TOGETHER[kind // 8 % len(TOGETHER)] if members > 1 else Together(),
            limit_s=(0.0, 60.0)[kind % 2],
            requested_at_s=self.now_s,
        )
        return Requested(requests=(request,))

    def _member(self) -> str:
        name = f"r{1 + self._draw(max(1, self._made))}"
        return f"{name}-{self._draw(4)}" if name in self._gangs else name

    def _ended(self) -> Event:
        return Ended(member=self._member())

    def _started(self) -> Event:
        return Started(member=self._member())

    def _planned(self) -> Event:
        return Planned(steps=(1, 3, 256, 256)[self._draw(4)])

    def _node(self) -> Event:
        name = f"n{self._draw(6)}"
        if self._draw(6) == 0:
            return NodeGone(node_id=name)
        labels = ((RACK, f"rack-{self._draw(2)}"),)
        traits = Traits(node=name, labels=labels, gpu_sharing=True, serves="v" if name > "n3" else "")
        standing = (Standing.OPEN, Standing.OPEN, Standing.OPEN, Standing.COMING, Standing.CLOSED)[self._draw(5)]
        why = "cordoned" if standing is Standing.CLOSED else ""
        size = SIZES[self._draw(len(SIZES))]
        return NodeSet(node_id=name, pool="p", capacity=size, traits=traits, standing=standing, why_closed=why)

    def _pool(self) -> Event:
        traits = Traits(gpu_sharing=True)
        size = SIZES[0] if self._draw(2) else None
        policies = ("", "fgd", "packing")
        serves = "" if self._draw(6) else "v"
        return PoolSet(pool="p", size=size, traits=traits, placement=policies[self._draw(3)], serves=serves, owner="v")

    def _offered(self) -> Event:
        offers = [
            NodeOffer(
                capacity=SIZES[0],
                traits=Traits(node=f"o{number}", labels=((RACK, "rack-0"),)),
                state=NodeState.READY if self._draw(3) else (NodeState.CORDONED, NodeState.STALE)[self._draw(2)],
            )
            for number in range(self._draw(4))
        ]
        return NodesOffered(pool="p", offers=tuple(offers))

    def _held(self) -> Event:
        reason = Reason(kind=HoldKind.GUARD, detail="Too many start.") if self._draw(2) else None
        return PoolHolds(pool="p", reason=reason)

    def _replacement(self) -> Event:
        if not self._gangs:
            return Ticked()
        gang = self._gangs[self._draw(len(self._gangs))]
        self._made += 1
        return Replacement(request_id=gang, rank=self._draw(2), member=f"r{self._made}")

    def _other(self) -> Event:
        match self._draw(8):
            case 0:
                return QueueingSet(queueing=queueing(self._draw(3)))
            case 1:
                return PlacementsFrom(at_s=self.now_s + self._draw(20))
            case 2:  # a pool has no worker any more when it goes
                return PoolDropped(pool="q") if self._draw(2) else PoolSet(pool="q", size=SIZES[2])
        return Ticked()


def digest(seed: int, steps: int) -> str:
    """A hash of all that a core decides about a long soup."""
    soup, core = Soup(random.Random(seed).randrange), new_core()
    whole = hashlib.sha256()
    for event in chain(soup.opening(), (soup.event() for _ in range(steps))):
        for decision in core.handle(event, soup.now_s):
            whole.update(msgspec.msgpack.encode(decision))
    return whole.hexdigest()


if __name__ == "__main__":  # in a process of its own, which has its own seed of hashes
    print(digest(7, 2_000))
