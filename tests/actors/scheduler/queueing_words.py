"""What the tests of queues say again and again."""

from __future__ import annotations

from levers9.actors.scheduler.events import Request
from levers9.actors.scheduler.lanes import order_of
from levers9.actors.scheduler.queues import Parked, Queues
from levers9.model.queues import (
    Cohort,
    FairShare,
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Reclaim,
    Share,
    Within,
)
from levers9.model.reasons import Reason
from levers9.model.resources import Amount, Shape

TOTAL = Amount(1_000_000, 1_000_000, 64_000)
PRIORITIES = (PriorityClass(name="low", value=-100), PriorityClass(name="high", value=200))


def cpus(count: int) -> Shape:
    """So many CPUs, and hardly any memory."""
    return Shape(cpu_milli=count * 1000, memory_mib=64)


def request(
    name: str,
    workspace: str = "w",
    cpu: int = 1,
    *,
    queue: str = "default",
    priority: str = "default",
    at_s: float = 0.0,
    members: int = 1,
    group: str = "",
    shape: Shape | None = None,
    limit_s: float = 0.0,
) -> Request:
    """A request; of several members when it is a gang."""
    names = (name,) if members == 1 else tuple(f"{name}-{rank}" for rank in range(members))
    return Request(
        request_id=name,
        group=group or f"{workspace}/{queue}/{priority}/{cpu}/{members}",
        workspace=workspace,
        members=names,
        shape=shape or cpus(cpu),
        queue=queue,
        priority=priority,
        requested_at_s=at_s,
        limit_s=limit_s,
    )


def quota(
    name: str,
    cpu: int,
    *,
    cohort: str = "",
    borrowing: int | None = None,
    lending: int | None = None,
    reclaim: Reclaim = Reclaim.NEVER,
    preempt: Within = Within.NEVER,
    held: bool = False,
    flavors: tuple[str, ...] = ("any",),
) -> Quota:
    """So many CPUs of each flavor."""
    limits = Limits(
        nominal=cpu * 1000,
        borrowing=None if borrowing is None else borrowing * 1000,
        lending=None if lending is None else lending * 1000,
    )
    lines = tuple(FlavorLimits(flavor=flavor, cpu=limits) for flavor in flavors)
    return Quota(name=name, cohort=cohort, flavors=lines, reclaim=reclaim, preempt=preempt, held=held)


def configuration(
    *quotas: Quota,
    flavors: tuple[Flavor, ...] = (Flavor(name="any"),),
    cohorts: tuple[Cohort, ...] = (),
    queues: tuple[Queue, ...] | None = None,
    shares: tuple[Share, ...] = (),
    fair_share: FairShare = FairShare(ageing_step=0),  # noqa: B008 (frozen)
) -> Queueing:
    """A workspace a quota, of the same name, with that quota for its default queue."""
    named = {one.cohort for one in quotas if one.cohort} - {cohort.name for cohort in cohorts}
    lines = tuple(Queue(name="default", workspace=one.name, quota=one.name) for one in quotas)
    return Queueing(
        flavors=flavors,
        cohorts=(*cohorts, *(Cohort(name=name) for name in sorted(named))),
        quotas=quotas,
        queues=lines if queues is None else queues,
        shares=shares,
        priorities=PRIORITIES,
        fair_share=fair_share,
    )


def new_queues(queueing: Queueing) -> Queues:
    """Queues in which nobody has room that others have not."""
    made = Queues(queueing)
    made.set_apart(frozenset())
    made.set_total(TOTAL)
    return made


def place(queues: Queues, now_s: float = 0.0, room: int = 1_000_000) -> list[str]:
    """Admit who has quota, in order, while there is room for so many; park the rest."""
    placed: list[str] = []
    while (found := queues.next(now_s)) is not None:
        ways = queues.check(found, now_s)
        if isinstance(ways, Reason):
            queues.park(found.request_id, Parked.QUOTA)
        elif len(placed) >= room:
            queues.park(found.request_id, Parked.ROOM)
        else:
            queues.admit(found, ways[0][0], now_s)
            placed.append(found.request_id)
    return placed


def waiting_groups(queues: Queues) -> list[tuple[str, int, Parked | None]]:
    """Equal requests that wait, in order: the first of them, how many there are, and why none is looked at."""
    lines = sorted(queues._backlog.lines(), key=order_of)
    return [(line.head, line.count, line.parked) for line in lines]


def shares_of(queues: Queues, workspace: str, queue: str) -> tuple[int, int]:
    """The shares of now that order goes by, of a workspace and of one of its queues."""
    queues._flush()
    row = queues._rows.row(workspace, queue, queues._now_ms)
    return row.space.account.share, row.account.share
