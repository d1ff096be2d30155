"""Who is told to hold what is lacking, and who has a try at stopping others."""

from __future__ import annotations

import msgspec
import pytest

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Held, Preempted, Request
from levers9.actors.scheduler.placement import new_placement
from levers9.model.queues import (
    Cohort,
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Reclaim,
    Within,
)
from levers9.model.reasons import Holder, HoldKind, Reason
from levers9.model.resources import Capacity, Shape

GB200 = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=2, gpu_type="GB200")
A100 = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=2, gpu_type="A100")
PLAIN = Capacity(cpu_milli=1000, memory_mib=1024)
QUEUEING = Queueing(
    cohorts=(Cohort(name="c"),),
    flavors=(Flavor(name="gb200", gpu_type="GB200"), Flavor(name="plain", pool="plain", gpu_type="none")),
    quotas=(
        Quota(name="gpu", flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=2000)),)),
        Quota(name="more", flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=8000)),)),
        Quota(
            name="ranked",
            preempt=Within.LOWER_PRIORITY,
            flavors=(FlavorLimits(flavor="plain", cpu=Limits(nominal=1000)),),
        ),
        Quota(
            name="lends",
            cohort="c",
            reclaim=Reclaim.ANY,
            flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=4000)),),
        ),
        Quota(name="borrows", cohort="c", flavors=(FlavorLimits(flavor="gb200", gpu=Limits(nominal=0)),)),
    ),
    queues=tuple(
        Queue(name=quota, workspace=workspace, quota=quota)
        for quota in ("gpu", "more", "ranked", "lends", "borrows")
        for workspace in ("a", "b")
    ),
    priorities=(PriorityClass(name="urgent", value=1000),),
)


class Scene:
    """A core with a node of each kind; what it decided is told by `ask`."""

    def __init__(self) -> None:
        self.core = Core(new_placement, QUEUEING)
        self.now_s = 1.0
        for node_id, pool, size in (("g1", "g", GB200), ("g2", "g", GB200), ("a1", "a", A100), ("p1", "plain", PLAIN)):
            self.tell(events.PoolSet(pool=pool, max_workers=2))
            self.tell(events.NodeSet(node_id=node_id, pool=pool, capacity=size, standing=Standing.OPEN))

    def tell(self, event: events.Event) -> tuple[Decision, ...]:
        return self.core.handle(event, self.now_s)

    def ask(self, name: str, shape: Shape, *, workspace: str = "a", **rest: str) -> tuple[Decision, ...]:
        self.now_s += 2.0
        request = Request(
            request_id=name,
            group=name,
            label=name,
            workspace=workspace,
            members=(name,),
            shape=shape,
            requested_at_s=self.now_s,
            **rest,
        )
        self.tell(events.Requested(requests=(request,)))
        return self.tell(events.Planned())

    def held(self, name: str, shape: Shape, **rest: str) -> Reason:
        decisions = self.ask(name, shape, **rest)
        (found,) = [each.reasons[0] for each in decisions if isinstance(each, Held) and each.group == name]
        return found


def test_quota_is_held_by_those_of_the_same_quota() -> None:
    scene = Scene()
    cards = Shape(cpu_milli=100, memory_mib=100, gpu_count=2, gpu_types=("GB200",))
    scene.ask("mine", cards, queue="gpu")
    scene.ask("of another quota", cards, queue="more")
    scene.ask("of another card", Shape(cpu_milli=100, memory_mib=100, gpu_count=1, gpu_types=("A100",)))
    reason = scene.held("waits", cards, queue="gpu")
    assert (reason.kind, reason.holders) == (HoldKind.QUOTA, (Holder("mine", 1, 2000),))


def test_room_is_held_by_those_on_cards_that_would_do() -> None:
    scene = Scene()
    scene.ask("a", Shape(cpu_milli=100, memory_mib=100, gpu_count=2, gpu_types=("A100",)))
    scene.ask("plain", Shape(cpu_milli=1000, memory_mib=100, pool="plain"))
    reason = scene.held("waits", Shape(cpu_milli=100, memory_mib=100, gpu_count=1, gpu_types=("A100",)))
    assert (reason.kind, reason.holders) == (HoldKind.ROOM, (Holder("a", 1, 2000),))


def test_room_of_a_pool_is_held_by_those_in_it_and_others_have_no_name() -> None:
    scene = Scene()
    scene.ask("elsewhere", Shape(cpu_milli=100, memory_mib=100, pool="g"), workspace="b")
    scene.ask("secret", Shape(cpu_milli=1000, memory_mib=100, pool="plain"), workspace="b")
    reason = scene.held("waits", Shape(cpu_milli=1000, memory_mib=100, pool="plain"))
    assert (reason.kind, reason.holders) == (HoldKind.ROOM, (Holder("", 1),))


CARDS = Shape(cpu_milli=100, memory_mib=100, gpu_count=2, gpu_types=("A100",))


def private(standing: Standing = Standing.OPEN) -> Scene:
    """A node of a pool that serves workspace b alone, of the kind that everybody's pool has as well."""
    scene = Scene()
    scene.tell(events.PoolSet(pool="private", serves="b"))
    scene.tell(events.NodeSet(node_id="b1", pool="private", capacity=A100, standing=standing, why_closed="cordoned"))
    return scene


def test_what_runs_in_a_pool_of_another_workspace_alone_is_told_to_nobody_else() -> None:
    scene = private()
    scene.ask("secret", msgspec.structs.replace(CARDS, pool="private"), workspace="b")
    scene.ask("mine", CARDS)
    reason = scene.held("waits", CARDS)
    assert (reason.kind, reason.holders) == (HoldKind.ROOM, (Holder("mine", 1, 2000),))


@pytest.mark.parametrize("members", [1, 2])
def test_a_closed_node_of_a_pool_of_another_workspace_alone_is_told_to_nobody_else(members: int) -> None:
    scene = private(Standing.CLOSED)
    scene.ask("mine", CARDS)
    names = tuple(f"gang/{rank}" for rank in range(members))
    gang = Request(request_id="gang", group="gang", workspace="a", members=names, shape=CARDS)
    scene.tell(events.Requested(requests=(gang,)))
    (held,) = [one for one in scene.tell(events.Planned()) if isinstance(one, Held)]
    assert held.reasons
    assert [node for reason in held.reasons for node in reason.excluded] == []


def test_a_group_behind_a_full_quota_has_its_own_try_at_who_must_stop() -> None:
    scene = Scene()
    shape = Shape(cpu_milli=1000, memory_mib=256, pool="plain")
    scene.ask("low", shape, queue="ranked")
    decisions = scene.ask("high", shape, queue="ranked", priority="urgent")
    assert [each.request_id for each in decisions if isinstance(each, Preempted)] == ["low"]
    (told,) = [each.reasons[0].kind for each in decisions if isinstance(each, Held) and each.group == "high"]
    assert told is HoldKind.PREEMPTING


def test_who_stops_hears_whether_priority_or_lent_quota_is_why() -> None:
    scene = Scene()
    plain = Shape(cpu_milli=1000, memory_mib=256, pool="plain")
    scene.ask("low", plain, queue="ranked")
    cards = Shape(cpu_milli=100, memory_mib=100, gpu_count=2, gpu_types=("GB200",))
    for name in ("one", "two"):
        scene.ask(name, cards, queue="borrows")
    decisions = (
        *scene.ask("high", plain, queue="ranked", priority="urgent"),
        *scene.ask("owner", cards, workspace="b", queue="lends"),
    )
    assert [each.why for each in decisions if isinstance(each, Preempted)] == [
        "a request of higher priority needs its room (urgent)",
        "quota that its queue had borrowed is taken back",
    ]
