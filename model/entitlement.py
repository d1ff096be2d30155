"""Whether a workspace could ever be given what it asks for: by the queues, quotas, limits and topologies there are.

Judged as if nothing else ran, so that what is refused here would wait for ever. What a quota has, borrows and lends is
counted as the scheduler counts it: a purse keeps what it does not lend, and draws the rest from its cohort.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ..errors import INVALID, NEVER_FITS, NOT_FOUND, Refused
from .gangs import NODE_LEVEL, Together, TopologyMode
from .queues import DEFAULT, Cohort, Flavor, FlavorLimits, Limits, Queueing, Quota, Share
from .resources import Shape, amount_of

_ENDLESS: Final = 1 << 62
_RESOURCES: Final = ("cpu", "memory", "gpu")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks for: so many containers of a shape at once, by a queue of its workspace, with a priority."""

    workspace: str
    shape: Shape
    nodes: int = 1
    together: Together = Together()
    queue: str = DEFAULT
    priority: str = DEFAULT


def check_entitled(wish: Wish, queueing: Queueing) -> None:
    """Raises `Refused` for names that nobody knows, and with the numbers for more than there could ever be."""
    _check_priority(wish, queueing)
    _check_topology(wish, queueing)
    for share in queueing.shares:
        if share.workspace == wish.workspace:
            _check_share(wish, share)
    quota = _quota_of(wish, queueing)
    if quota is not None and quota.flavors:
        _check_quota(wish, quota, queueing)


def _check_priority(wish: Wish, queueing: Queueing) -> None:
    known = sorted({DEFAULT, *(each.name for each in queueing.priorities)})
    if wish.priority not in known:
        raise Refused(
            f"There is no priority {wish.priority!r}.", fix=f"Priorities: {', '.join(known)}.", code=NOT_FOUND
        )


def _check_topology(wish: Wish, queueing: Queueing) -> None:
    together = wish.together
    if together.mode is TopologyMode.NONE or not together.topology:
        return
    found = next((each for each in queueing.topologies if each.name == together.topology), None)
    if found is None:
        names = ", ".join(sorted(each.name for each in queueing.topologies)) or "none"
        raise Refused(f"There is no topology {together.topology!r}.", fix=f"Topologies: {names}.", code=NOT_FOUND)
    if together.level not in (*found.levels, NODE_LEVEL):
        levels = ", ".join((*found.levels, NODE_LEVEL))
        what = f"Topology {found.name} has no level {together.level!r}."
        raise Refused(what, fix=f"Its levels, from coarse to fine: {levels}.", code=INVALID)


def _check_share(wish: Wish, share: Share) -> None:
    amount = amount_of(wish.shape, wish.nodes)
    limits = (
        ("containers", wish.nodes, share.max_containers),
        ("CPUs", amount.cpu_milli / 1000, None if share.max_cpu_milli is None else share.max_cpu_milli / 1000),
        ("cards", amount.gpu_milli / 1000, share.max_gpus),
    )
    for what, wanted, most in limits:
        if most is not None and wanted > most:
            raise Refused(
                f"{wanted:g} {what} at a time are more than this workspace may have.",
                f"Its limit is {most:g}.",
                "Ask for less, or let the platform's admin raise it with `levers9 quota share put`.",
                NEVER_FITS,
            )


def _quota_of(wish: Wish, queueing: Queueing) -> Quota | None:
    """The quota behind the wish's queue; None: nothing is limited."""
    queues = {queue.name: queue for queue in queueing.queues if queue.workspace == wish.workspace}
    queue = queues.get(wish.queue)
    if queue is None and wish.queue != DEFAULT:
        names = ", ".join(sorted({DEFAULT, *queues}))
        raise Refused(f"There is no queue {wish.queue!r} in this workspace.", fix=f"Queues: {names}.", code=NOT_FOUND)
    name = DEFAULT if queue is None else queue.quota
    return next((quota for quota in queueing.quotas if quota.name == name), None)


def _check_quota(wish: Wish, quota: Quota, queueing: Queueing) -> None:
    """One flavor has to have all of it: a request is never spread over several."""
    flavors = {flavor.name: flavor for flavor in queueing.flavors}
    matching = [limits for limits in quota.flavors if _takes(flavors[limits.flavor], wish.shape)]
    if not matching:
        names = ", ".join(limits.flavor for limits in quota.flavors)
        why = f"It has quota of {names}."
        raise Refused(f"Quota {quota.name} has nothing of this kind.", why, "Ask for one of those.", NEVER_FITS)
    short = [tuple(_short(wish, quota, limits, queueing)) for limits in matching]
    if all(short):
        asked, most = (" and ".join(each) for each in zip(*short[0]))
        raise Refused(
            f"Quota {quota.name} could never give {asked}.",
            f"Of flavor {matching[0].flavor} it has {most}, what it may borrow included.",
            "Ask for less, use another queue, or let the platform's admin raise the quota with `levers9 quota put`.",
            NEVER_FITS,
        )


def _takes(flavor: Flavor, shape: Shape) -> bool:
    wanted = dict(shape.labels)
    return (
        shape.pool in ("", flavor.pool or shape.pool)
        and (not flavor.gpu_type or not shape.gpu_count or shape.takes_type(flavor.gpu_type))
        and all(wanted.get(key, value) == value for key, value in flavor.labels.items())
    )


def _short(wish: Wish, quota: Quota, limits: FlavorLimits, queueing: Queueing) -> Iterator[tuple[str, str]]:
    """What is asked for and what there is at most, of each resource of which that is less."""
    amount = amount_of(wish.shape, wish.nodes)
    wanted = {"cpu": amount.cpu_milli, "memory": amount.memory_mib, "gpu": amount.gpu_milli}
    for resource in _RESOURCES:
        most = _most(quota, limits.flavor, resource, queueing)
        if wanted[resource] > most:
            yield _amount(resource, wanted[resource]), _amount(resource, most)


def _amount(resource: str, amount: int) -> str:
    match resource:
        case "cpu":
            return f"{amount / 1000:g} CPUs"
        case "memory":
            return f"{amount / 1024:g} GiB of memory" if amount >= 1024 else f"{amount} MiB of memory"
    return f"{amount / 1000:g} card{'' if amount == 1000 else 's'}"


def _most(owner: Quota | Cohort, flavor: str, resource: str, queueing: Queueing) -> int:
    """The most that an owner could ever use: what it keeps, and what its cohort could give it."""
    limits = _limits(owner, flavor, resource)
    if limits is None and isinstance(owner, Quota):
        return _ENDLESS  # it is not counted against this quota
    total = _total(owner, flavor, resource, queueing)
    parent = next((each for each in queueing.cohorts if each.name == _parent(owner)), None)
    if parent is None:
        return total
    kept = _kept(limits, total)
    above = _most(parent, flavor, resource, queueing)
    if limits is not None and limits.borrowing is not None:
        above = min(above, total - kept + limits.borrowing)
    return kept + above


def _total(owner: Quota | Cohort, flavor: str, resource: str, queueing: Queueing) -> int:
    """What an owner has, and what those below it lend."""
    limits = _limits(owner, flavor, resource)
    total = limits.nominal if limits is not None else 0
    if isinstance(owner, Quota):
        return total
    children: tuple[Quota | Cohort, ...] = (*queueing.quotas, *queueing.cohorts)
    for child in children:
        if _parent(child) == owner.name:
            below = _total(child, flavor, resource, queueing)
            total += below - _kept(_limits(child, flavor, resource), below)
    return total


def _kept(limits: Limits | None, total: int) -> int:
    """What nobody else may have."""
    return 0 if limits is None or limits.lending is None else max(0, total - limits.lending)


def _parent(owner: Quota | Cohort) -> str:
    return owner.cohort if isinstance(owner, Quota) else owner.parent


def _limits(owner: Quota | Cohort, flavor: str, resource: str) -> Limits | None:
    found = next((each for each in owner.flavors if each.flavor == flavor), None)
    if found is None:
        return None
    return {"cpu": found.cpu, "memory": found.memory, "gpu": found.gpu}[resource]
