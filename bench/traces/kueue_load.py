"""Kueue's own performance workloads, as jobs, queues and nodes of ours.

Each of its cluster queues is a quota with a workspace and a queue of its own; its cohorts are cohorts.
"""

import heapq
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import yaml

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.events import Event, NodeSet, PoolSet, QueueingSet, Request
from levers9.actors.scheduler.simulation import Job
from levers9.model import queues
from levers9.model.gangs import Together, TopologyMode
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity, Shape, cpu_milli, memory_mib

FOLDER: Final = Path(__file__).parent / "kueue"
POOL: Final = "simulated"
NODE_CPU_MILLI: Final = 96_000  # of nodes where the generator names none: as those of `tas`
NODE_MEMORY_MIB: Final = 256 << 10
SPARE: Final = 2  # times the quotas: without nodes, Kueue's runner has room for whatever quota admits
POD_MEMORY_MIB: Final = 1
MODES: Final = {"": TopologyMode.NONE, "required": TopologyMode.REQUIRED, "preferred": TopologyMode.PREFERRED}


class Workload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One kind of workload."""

    class_name: str
    runtime_ms: int
    priority: int
    request: int | str
    pod_count: int = 1
    tas_constraint: str = ""
    tas_level: str = ""
    slice_size: int = 1


class WorkloadsSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """So many of each kind, one after the other."""

    count: int
    creation_interval_ms: int
    workloads: tuple[Workload, ...]


class QueuesSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Equal queues."""

    class_name: str
    count: int
    nominal_quota: int | str
    borrowing_limit: int | str
    reclaim_within_cohort: str
    within_cluster_queue: str
    workloads_sets: tuple[WorkloadsSet, ...]


class CohortsSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Equal cohorts."""

    class_name: str
    count: int
    queues_sets: tuple[QueuesSet, ...]


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has."""

    cpu: str
    memory: str


class Level(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """So many domains in each one above."""

    name: str
    count: int
    node_label: str
    capacity: NodeCapacity | None = None


class TopologySpec(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes hang together."""

    name: str
    levels: tuple[Level, ...]


class Generator(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole file."""

    cohorts: tuple[CohortsSet, ...]
    topology: TopologySpec | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a core is told first, the jobs, and the quota of all queues together."""

    opening: tuple[Event, ...]
    jobs: tuple[Job, ...]
    quota_cpu_milli: int


def names() -> list[str]:
    """The generators there are."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def load(name: str, *, part: int = 1) -> Load:
    """A generator's workload; `part` 10 takes a tenth of each set of workloads."""
    text = (FOLDER / name / "generator.yaml").read_text(encoding="utf-8")
    generator = msgspec.convert(yaml.safe_load(text), Generator)
    queued = tuple(_queues(generator))
    quota = sum(cpu_milli(kind.nominal_quota) for _, _, kind in queued)
    jobs = heapq.merge(*(_jobs(cq, kind, part) for _, cq, kind in queued), key=lambda job: job.at_s)
    opening = (
        QueueingSet(queueing=_queueing(generator, queued)),
        PoolSet(pool=POOL),
        *_nodes(generator.topology, quota),
    )
    return Load(opening=opening, jobs=tuple(jobs), quota_cpu_milli=quota)


Queued = tuple[str, str, QueuesSet]  # the names of a cohort and of a cluster queue in it, and what that is


def _queues(generator: Generator) -> Iterator[Queued]:
    for cohorts in generator.cohorts:
        for cohort in range(cohorts.count):
            for kind in cohorts.queues_sets:
                for queue in range(kind.count):
                    name = f"{cohorts.class_name}-{cohort}"
                    yield name, f"{name}-{kind.class_name}-{queue}", kind


def _queueing(generator: Generator, queued: tuple[Queued, ...]) -> queues.Queueing:
    topology = generator.topology
    levels = tuple(level.node_label for level in topology.levels[:-1]) if topology else ()
    topologies = (queues.Topology(name=topology.name, levels=levels),) if topology else ()
    kinds = {one.class_name: one for _, _, kind in queued for set_ in kind.workloads_sets for one in set_.workloads}
    return queues.Queueing(
        flavors=(queues.Flavor(name="cpu", pool=POOL, topology=topology.name if topology else ""),),
        cohorts=tuple(queues.Cohort(name=name) for name in dict.fromkeys(cohort for cohort, _, _ in queued)),
        quotas=tuple(_quota(cohort, cq, kind) for cohort, cq, kind in queued),
        queues=tuple(queues.Queue(name=queues.DEFAULT, workspace=cq, quota=cq) for _, cq, _ in queued),
        priorities=tuple(queues.PriorityClass(name=name, value=kind.priority) for name, kind in kinds.items()),
        topologies=topologies,
    )


def _quota(cohort: str, cq: str, kind: QueuesSet) -> queues.Quota:
    limits = queues.Limits(nominal=cpu_milli(kind.nominal_quota), borrowing=cpu_milli(kind.borrowing_limit))
    return queues.Quota(
        name=cq,
        cohort=cohort,
        flavors=(queues.FlavorLimits(flavor="cpu", cpu=limits),),
        reclaim=queues.Reclaim.ANY if kind.reclaim_within_cohort == "Any" else queues.Reclaim.NEVER,
        preempt=queues.Within.LOWER_PRIORITY if kind.within_cluster_queue == "LowerPriority" else queues.Within.NEVER,
    )


def _nodes(topology: TopologySpec | None, quota_cpu_milli: int) -> Iterator[NodeSet]:
    if topology is None:
        capacity = Capacity(cpu_milli=NODE_CPU_MILLI, memory_mib=NODE_MEMORY_MIB)
        for number in range(-(-SPARE * quota_cpu_milli // NODE_CPU_MILLI)):
            yield _node(f"node-{number:04d}", (), capacity)
        return
    leaf = topology.levels[-1]
    assert leaf.capacity is not None
    capacity = Capacity(cpu_milli=cpu_milli(leaf.capacity.cpu), memory_mib=memory_mib(leaf.capacity.memory))
    for labels in _domains(topology.levels[:-1]):
        place = "-".join(value for _, value in labels)
        for number in range(leaf.count):
            yield _node(f"{place}-{leaf.name}-{number:02d}", labels, capacity)


def _domains(levels: tuple[Level, ...]) -> Iterator[tuple[tuple[str, str], ...]]:
    if not levels:
        yield ()
        return
    for above in _domains(levels[:-1]):
        level = levels[-1]
        for number in range(level.count):
            value = "-".join([*(value for _, value in above[-1:]), f"{level.name}-{number}"])
            yield (*above, (level.node_label, value))


def _node(name: str, labels: tuple[tuple[str, str], ...], capacity: Capacity) -> NodeSet:
    traits = Traits(node=name, labels=tuple(sorted(labels)))
    return NodeSet(node_id=name, pool=POOL, capacity=capacity, traits=traits, standing=Standing.OPEN)


def _jobs(cq: str, kind: QueuesSet, part: int) -> Iterator[Job]:
    """Each set goes on by itself, its first workload at once."""
    sets = [partial(_jobs_of_set, cq, number, one)(part) for number, one in enumerate(kind.workloads_sets)]
    return heapq.merge(*sets, key=lambda job: job.at_s)


def _jobs_of_set(cq: str, number: int, one: WorkloadsSet, part: int) -> Iterator[Job]:
    for place in range(-(-one.count // part)):
        at_s = place * one.creation_interval_ms / 1000
        for kind in one.workloads:
            yield _job(f"{cq}-{number}-{place:03d}", cq, kind, at_s)


def _job(name: str, cq: str, kind: Workload, at_s: float) -> Job:
    members = (name,) if kind.pod_count == 1 else tuple(f"{name}-{rank}" for rank in range(kind.pod_count))
    mode = MODES.get(kind.tas_constraint, TopologyMode.PREFERRED)  # "balanced" is preferred, with its slices even
    request = Request(
        request_id=name,
        group=f"{cq}-{kind.class_name}",
        workspace=cq,
        members=members,
        shape=Shape(cpu_milli=cpu_milli(kind.request), memory_mib=POD_MEMORY_MIB),
        priority=kind.class_name,
        together=Together(mode, kind.tas_level, kind.slice_size),
        requested_at_s=at_s,
    )
    return Job(at_s=at_s, request=request, run_s=kind.runtime_ms / 1000)
