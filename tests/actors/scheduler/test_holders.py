"""Who holds what is counted as it changes, and comes to what a count of everything comes to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.placement import new_placement
from levers9.model.queues import Flavor, FlavorLimits, Limits, Queue, Queueing, Quota
from levers9.model.reasons import Holder, HoldKind, Reason
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=4, gpu_type="A100")
CARD = Shape(cpu_milli=100, memory_mib=100, gpu_count=1, gpu_types=("A100",))
ROOM = Reason(kind=HoldKind.ROOM)
LIMITS_S = (0.0, 60.0, 600.0)
QUEUEING = Queueing(
    flavors=(Flavor(name="any"),),
    quotas=(Quota(name="q", flavors=(FlavorLimits(flavor="any", gpu=Limits(nominal=100_000)),)),),
    queues=(Queue(name="default", workspace="a", quota="q"),),
)
steps = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 17)),
    st.tuples(st.just("end"), st.integers(0, 40)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("kind"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.integers(1, 3)),
    st.tuples(st.just("configure"), st.just(0)),
)


def request(name: str, workspace: str, number: int = 0, members: int = 1, limit_s: float = 0.0) -> Request:
    group = f"{workspace}{number}"
    names = tuple(f"{name}/{rank}" for rank in range(members))
    return Request(
        request_id=name, group=group, label=group, workspace=workspace, members=names, shape=CARD, limit_s=limit_s
    )


class Scene:
    """A core with three nodes in a pool."""

    def __init__(self, queueing: Queueing = Queueing()) -> None:  # noqa: B008 (frozen)
        self.core, self.now_s, self.asked = Core(new_placement, queueing), 10.0, 0
        self.tell(events.PoolSet(pool="p"))
        for number in range(3):
            self.node(number, "A100")

    def tell(self, *told: events.Event) -> None:
        for event in (*told, events.Planned(steps=100)):
            self.core.handle(event, self.now_s)

    def node(self, number: int, gpu_type: str) -> None:
        size = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=4, gpu_type=gpu_type)
        self.tell(events.NodeSet(node_id=f"n{number}", pool="p", capacity=size, standing=Standing.OPEN))

    def step(self, what: str, number: int) -> None:
        if what == "ask":
            self.asked += 1
            limit_s, members = LIMITS_S[number % 3], 1 + number // 3 % 2
            asked = request(f"r{self.asked}", "ab"[number % 2], number // 6, members, limit_s)
            self.tell(events.Requested(requests=(asked,)))
        elif what == "end" and self.core.tenants.by_member:
            members_ = sorted(self.core.tenants.by_member)
            self.tell(events.Ended(member=members_[number % len(members_)]))
        elif what == "lose":
            self.tell(events.NodeGone(node_id=f"n{number}"))
        elif what == "kind":
            self.node(number, "H100" if number else "A100")
        elif what == "wait":
            self.now_s += number
            self.tell(events.Ticked())
        elif what == "configure":
            self.tell(events.QueueingSet(queueing=QUEUEING))

    def told(self, reason: Reason = ROOM) -> tuple[Holder, ...]:
        return self.core.holding.holders.of(request("asks", "a"), reason)


def test_what_frees_first_is_told_of_those_that_are_left() -> None:
    scene = Scene()
    for name, limit_s in (("soon", 60.0), ("late", 600.0), ("ever", 0.0)):
        scene.tell(events.Requested(requests=(request(name, "b", limit_s=limit_s),)))
    assert scene.told() == (Holder("", 3, 3000, 70.0),)
    scene.tell(events.Ended(member="soon/0"))
    assert scene.told() == (Holder("", 3, 3000, 70.0),)
    scene.now_s += 1.0
    scene.tell(events.Ticked())
    assert scene.told() == (Holder("", 2, 2000, 610.0),)


def test_only_what_changed_since_it_was_counted_is_counted_again() -> None:
    scene = Scene()
    for number in range(10):
        scene.tell(events.Requested(requests=(request(f"r{number}", "b"),)))
    scene.told()
    assert scene.core.tenants.changed == {}
    scene.tell(events.Ended(member="r1/0"))
    assert list(scene.core.tenants.changed) == ["r1"]


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(st.lists(steps, max_size=25))
def test_counting_as_it_goes_comes_to_what_counting_all_comes_to(taken: list[tuple[str, int]]) -> None:
    scene = Scene(QUEUEING)
    reasons = (ROOM, Reason(kind=HoldKind.QUOTA, quota="q", flavor="any"), Reason(kind=HoldKind.CONCURRENCY))
    for what, number in taken:
        scene.step(what, number)
    scene.now_s += 1.0
    scene.tell(events.Ticked())
    told = [scene.told(reason) for reason in reasons]
    scene.core.holding.holders.forget()
    assert [scene.told(reason) for reason in reasons] == told
