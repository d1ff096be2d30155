"""What is wrong with a configuration of queues, before anybody follows it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ..errors import INVALID, Refused
from .gangs import LEVELS_MAX
from .queueing_parts import PARTS, merged
from .queues import DEFAULT, Cohort, Flavor, FlavorLimits, Limits, Queueing

_ADD: Final = "Add it first, or change what names it."
AMOUNT_MAX: Final = 2**63 - 1
PRIORITY_MAX: Final = 10**9  # of classes and ageing steps, either way
WEIGHT_MAX: Final = 10**6
HALF_LIFE_MAX_S: Final = 10.0 * 365 * 86_400


def check_queueing(queueing: Queueing) -> None:
    """Raises `Refused` for the first thing that is wrong, with what to do about it."""
    for what, fix in _wrong(queueing):
        raise Refused(what, fix=fix, code=INVALID)


def fitting(kept: Queueing, given: Queueing) -> Queueing:
    """Of what was said over REST what fits to the files of today: they may have lost or changed what it names."""
    if not any(_wrong(merged(kept, given))):
        return kept
    fits = msgspec.structs.replace(Queueing(), fair_share=kept.fair_share)
    left = [(part, thing) for part in PARTS for thing in getattr(kept, part)]
    while True:
        before = len(left)
        for part, thing in tuple(left):
            more = msgspec.structs.replace(fits, **{part: (*getattr(fits, part), thing)})
            if not any(_wrong(merged(more, given))):
                fits = more
                left.remove((part, thing))
        if len(left) == before:
            return fits


Wrong = Iterator[tuple[str, str]]  # what is wrong, and what to do


def _wrong(queueing: Queueing) -> Wrong:
    yield from _wrong_names(queueing)
    yield from _wrong_flavors(queueing)
    yield from _wrong_cohorts(queueing)
    yield from _wrong_quotas(queueing)
    yield from _wrong_queues(queueing)
    yield from _wrong_shares(queueing)
    yield from _wrong_priorities(queueing)
    yield from _wrong_topologies(queueing)


def _wrong_names(queueing: Queueing) -> Wrong:
    """Empty names, and names that two things of a kind have."""
    kinds: tuple[tuple[str, list[str]], ...] = (
        ("flavor", [flavor.name for flavor in queueing.flavors]),
        ("cohort", [cohort.name for cohort in queueing.cohorts]),
        ("quota", [quota.name for quota in queueing.quotas]),
        ("queue", [f"{queue.workspace}/{queue.name}" for queue in queueing.queues]),
        ("share of workspace", [share.workspace for share in queueing.shares]),
        ("priority", [priority.name for priority in queueing.priorities]),
        ("topology", [topology.name for topology in queueing.topologies]),
    )
    for kind, names in kinds:
        for name in names:
            if not name or name.startswith("/") or name.endswith("/"):
                yield f"A {kind} has no name.", "Give it one."
        for name in _twice(names):
            yield f"The {kind} {name} is there twice.", "Keep one of them."
    for queue in queueing.queues:
        if "/" in queue.name or "/" in queue.workspace:
            yield f"The queue {queue.workspace}/{queue.name} has a slash in its name.", "Name it without."


def _twice(names: Iterable[str]) -> Iterator[str]:
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            yield name
        seen[name] = None


def _wrong_flavors(queueing: Queueing) -> Wrong:
    topologies = {topology.name for topology in queueing.topologies}
    for flavor in queueing.flavors:
        if flavor.topology and flavor.topology not in topologies:
            yield f"Flavor {flavor.name} names the topology {flavor.topology}, which is not there.", _ADD
    for one, other in itertools.combinations(queueing.flavors, 2):
        if _overlap(one, other):
            yield (
                f"The flavors {one.name} and {other.name} could both own one node.",
                "Tell them apart by pool, card type or a label with different values.",
            )


def _overlap(one: Flavor, other: Flavor) -> bool:
    """Whether a node could be of both, as far as what they ask for shows."""
    return (
        _alike(one.pool, other.pool)
        and _alike(one.gpu_type, other.gpu_type)
        and all(other.labels.get(key, value) == value for key, value in one.labels.items())
    )


def _alike(one: str, other: str) -> bool:
    return not one or not other or one == other


def _wrong_cohorts(queueing: Queueing) -> Wrong:
    cohorts = {cohort.name: cohort for cohort in queueing.cohorts}
    for cohort in queueing.cohorts:
        if cohort.parent and cohort.parent not in cohorts:
            yield f"Cohort {cohort.name} names the parent {cohort.parent}, which is not there.", _ADD
        elif _circle(cohort, cohorts):
            yield f"Cohort {cohort.name} is inside itself.", "Let one cohort of the circle have no parent."
        yield from _wrong_limits(f"Cohort {cohort.name}", cohort.flavors, queueing)


def _circle(cohort: Cohort, cohorts: dict[str, Cohort]) -> bool:
    above = cohorts.get(cohort.parent)
    for _ in cohorts:
        if above is None:
            return False
        above = cohorts.get(above.parent)
    return above is not None


def _wrong_quotas(queueing: Queueing) -> Wrong:
    cohorts = {cohort.name for cohort in queueing.cohorts}
    for quota in queueing.quotas:
        if quota.cohort and quota.cohort not in cohorts:
            yield f"Quota {quota.name} names the cohort {quota.cohort}, which is not there.", _ADD
        yield from _wrong_limits(f"Quota {quota.name}", quota.flavors, queueing)


def _wrong_limits(owner: str, flavors: tuple[FlavorLimits, ...], queueing: Queueing) -> Wrong:
    known = {flavor.name for flavor in queueing.flavors}
    for name in _twice(limits.flavor for limits in flavors):
        yield f"{owner} has the flavor {name} twice.", "Keep one of them."
    for limits in flavors:
        if limits.flavor not in known:
            yield f"{owner} names the flavor {limits.flavor}, which is not there.", _ADD
        for resource, found in (("cpu", limits.cpu), ("memory", limits.memory), ("gpu", limits.gpu)):
            if found is not None:
                yield from _wrong_amounts(f"{owner}, flavor {limits.flavor}, {resource}", found)


def _wrong_amounts(place: str, limits: Limits) -> Wrong:
    for name, amount in (("nominal", limits.nominal), ("borrowing", limits.borrowing), ("lending", limits.lending)):
        if amount is not None and not 0 <= amount <= AMOUNT_MAX:
            yield f"{place}: {name} is {amount}.", f"Write 0 to {AMOUNT_MAX}."


def _wrong_queues(queueing: Queueing) -> Wrong:
    quotas = {DEFAULT, *(quota.name for quota in queueing.quotas)}
    for queue in queueing.queues:
        if queue.quota not in quotas:
            yield f"Queue {queue.workspace}/{queue.name} names the quota {queue.quota}, which is not there.", _ADD
        if not 1 <= queue.weight <= WEIGHT_MAX:
            yield f"Queue {queue.workspace}/{queue.name}: weight is {queue.weight}.", f"Write 1 to {WEIGHT_MAX}."


def _wrong_shares(queueing: Queueing) -> Wrong:
    for share in queueing.shares:
        if not 1 <= share.weight <= WEIGHT_MAX:
            yield f"Workspace {share.workspace}: weight is {share.weight}.", f"Write 1 to {WEIGHT_MAX}."
        limits = {
            "max_containers": share.max_containers,
            "max_cpu_milli": share.max_cpu_milli,
            "max_gpus": share.max_gpus,
        }
        for name, limit in limits.items():
            if limit is not None and not 0 <= limit <= AMOUNT_MAX:
                yield f"Workspace {share.workspace}: {name} is {limit}.", f"Write 0 to {AMOUNT_MAX}."


def _wrong_priorities(queueing: Queueing) -> Wrong:
    for priority in queueing.priorities:
        if abs(priority.value) > PRIORITY_MAX:
            yield f"Priority {priority.name} is {priority.value}.", f"Write -{PRIORITY_MAX} to {PRIORITY_MAX}."
    fair = queueing.fair_share
    times = (("half_life_s", fair.half_life_s), ("ageing_s", fair.ageing_s))
    for name, time_s in times:
        if not math.isfinite(time_s) or not 0.001 <= time_s <= HALF_LIFE_MAX_S:
            yield f"fair_share: {name} is {time_s}.", "Write a number of seconds above 0, up to ten years."
    if not 0 <= fair.patience_s <= HALF_LIFE_MAX_S:
        yield f"fair_share: patience_s is {fair.patience_s}.", "Write a number of seconds, up to ten years."
    if not 0 <= fair.ageing_step <= PRIORITY_MAX:
        yield f"fair_share: ageing_step is {fair.ageing_step}.", f"Write 0 (no ageing) to {PRIORITY_MAX}."


def _wrong_topologies(queueing: Queueing) -> Wrong:
    for topology in queueing.topologies:
        if not 1 <= len(topology.levels) <= LEVELS_MAX:
            yield f"Topology {topology.name} has {len(topology.levels)} levels.", f"Give it 1 to {LEVELS_MAX}."
        for level in _twice(topology.levels):
            yield f"Topology {topology.name} has the level {level} twice.", "Keep one of them."
        if "" in topology.levels:
            yield f"Topology {topology.name} has a level without a name.", "Give node labels, from coarse to fine."
