"""Whatever an agent or a worker says, no policy raises, no row fails, and what others are shown stays sound."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from levers9_test_cluster import ADMIN, ANN, BEN, ROOM, a_job, a_node
from levers9_test_deciding import Truth
from levers9_test_drawing import drawn
from levers9_test_lying import Plane, Steps, misfits
from levers9_test_servers import empty

from levers9.model.clusters import ClusterState
from levers9.model.resources import Capacity
from levers9.store import operations as ops
from levers9.store.postgres import open_postgres
from levers9.wire import cluster as said
from levers9.wire import scheduling, work
from levers9.wire.letter import Letter

Lie = Callable[[Plane], Letter]
ROOMS = drawn(Capacity, cpu_milli=st.just(8000), memory_mib=st.just(32_768), gpu_count=st.just(4))
NODES = drawn(
    said.NodeReport,
    name=st.sampled_from(["n1", "n2", "n3"]),
    uid=st.just("uid-n1"),
    labels=st.just(()),
    allocatable=ROOMS,
    free=ROOMS,
)
JOBS = drawn(said.JobReport, worker_id=st.sampled_from(["worker-1", "w1", "w2"]), job_uid=st.just("u"))
REPORTS = drawn(
    said.ClusterReported,
    cluster_id=st.just("mine"),
    epoch=st.sampled_from([1, 2]),
    sequence=st.integers(2, 50),
    nodes=st.lists(NODES, max_size=3).map(tuple),
    jobs=st.lists(JOBS, max_size=3).map(tuple),
    part=st.just(0),
    parts=st.just(1),
    leader_epoch=st.just(1),
    blind=st.just(False),
    view_age_s=st.just(0.0),
)
CONTAINERS = st.sampled_from(["its", "other"])
OF_WORKERS = st.one_of(
    drawn(
        scheduling.WorkerReported,
        worker_id=st.just("its"),
        epoch=st.sampled_from([1, 2]),
        containers=st.lists(drawn(scheduling.ContainerReport, container_id=CONTAINERS), max_size=2).map(tuple),
    ),
    drawn(scheduling.ContainerReady, container_id=CONTAINERS),
    drawn(scheduling.ContainerEnded, container_id=CONTAINERS),
    drawn(scheduling.WorkerLeaving, worker_id=st.just("its")),
    drawn(
        work.AttemptsFinished,
        container_id=CONTAINERS,
        results=st.lists(
            drawn(work.AttemptResult, task_id=st.sampled_from(["task-0", "task-1"]), attempt=st.just(1)), max_size=2
        ).map(tuple),
    ),
    drawn(work.AttemptsHeld, container_id=CONTAINERS),
)
OF_AGENTS = st.one_of(REPORTS, REPORTS, drawn(said.AgentReady, cluster_id=st.just("mine")))
TIMES = st.sampled_from([0.0, 0.0, 1.0, 100.0, 1000.0])
LIES = st.lists(st.tuples(st.booleans(), OF_AGENTS, OF_WORKERS, TIMES), min_size=1, max_size=6)


def named(plane: Plane, message: msgspec.Struct) -> msgspec.Struct:
    """The message, about what is there."""
    here = next(iter(plane.containers), "none")
    names = {"its": here if hasattr(message, "container_id") else next(iter(plane.workers), "none"), "other": here}
    changes = {
        field: names.get(getattr(message, field), getattr(message, field))
        for field in ("worker_id", "container_id")
        if hasattr(message, field)
    }
    if getattr(message, "cluster_id", "") == "mine":
        changes["cluster_id"] = plane.ids[0]
    if isinstance(message, scheduling.WorkerReported):
        containers = (msgspec.structs.replace(one, container_id=here) for one in message.containers)
        changes["containers"] = tuple(containers)
    return msgspec.structs.replace(message, **changes)


def tell(plane: Plane, lies: list[tuple[bool, msgspec.Struct, msgspec.Struct, float]]) -> Steps:
    """All lies, time between them, and then what others see."""
    yield from plane.begin()
    assert plane.workers, "Ann's call has a worker to lie"
    for by_agent, of_agent, of_worker, seconds in lies:
        if by_agent:
            yield from plane.say(plane.of_agent(plane.ids[0], named(plane, of_agent)))
        else:
            yield from plane.say(plane.of_worker(plane.workers[0], named(plane, of_worker)))
        if seconds:
            yield from plane.pass_time(seconds)
    yield from plane.say(plane.of_agent(plane.ids[1], plane.report(plane.ids[1], 60)))
    for who in (BEN, ADMIN):
        yield from plane.say(plane.asks(who, said.ReadClusters()))
    yield from plane.say(plane.asks(ANN, said.ReadClusters(name="lab")))


def sound(plane: Plane) -> None:
    """The list of Ben, that of an admin, who sees both, and Ann's own cluster."""
    mine, all_of_them, hers = plane.told[-3:]
    for told in (mine, all_of_them, hers):
        assert isinstance(told, said.ClustersStand)
        assert msgspec.json.decode(msgspec.json.encode(told), type=said.ClustersStand) == told
    assert [one.state for one in mine.clusters] == [ClusterState.ONLINE]
    assert len(all_of_them.clusters) == 2
    for one in (*all_of_them.clusters, *hers.clusters):
        assert all(text.isprintable() and len(text) < 700 for text in (one.problem, one.agent_version, *one.waits))
        assert all(node.why.isprintable() and node.free.gpu_count >= 0 for node in one.nodes)


def commit(steps: Steps, truth: Truth) -> list[ops.Operation]:
    """All that steps want committed."""
    committed: list[ops.Operation] = []
    operations = next(steps, ())
    while operations:
        committed += operations
        try:
            operations = steps.send(truth.commit(operations))
        except StopIteration:
            break
    return committed


@pytest.mark.slow
@settings(settings.get_profile("property"), max_examples=400, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(LIES)
def test_whatever_an_agent_or_a_worker_says_the_control_plane_stays_up(lies) -> None:  # type: ignore[no-untyped-def]
    plane = Plane()
    for operation in commit(tell(plane, lies), Truth()):
        assert misfits(operation) == []
    sound(plane)


@pytest.mark.slow
async def test_nor_does_postgres_refuse_any_of_it(postgres_url: str) -> None:
    examples: list[list[tuple[bool, msgspec.Struct, msgspec.Struct, float]]] = []

    @settings(max_examples=60, database=None, derandomize=True, deadline=None)
    @given(LIES)
    def collect(lies) -> None:  # type: ignore[no-untyped-def]
        examples.append(lies)

    collect()
    async with open_postgres(postgres_url) as store:
        for lies in examples:
            await empty(postgres_url)
            plane = Plane()
            steps = tell(plane, lies)
            operations = next(steps)
            while True:
                answers = await store.apply(*operations)
                try:
                    operations = steps.send(answers)
                except StopIteration:
                    break
            sound(plane)
    assert len(examples) > 20


def test_numbers_that_no_column_holds_end_no_reign() -> None:
    largest = Capacity(cpu_milli=2**31, memory_mib=2**63, gpu_count=2**31)
    plane, truth = Plane(), Truth()
    commit(plane.begin(), truth)
    nodes = (a_node("n1", allocatable=largest, free=largest),)
    words = (
        plane.report(plane.ids[0], 2, nodes=nodes),
        plane.report(plane.ids[0], 3, epoch=2**63),
        plane.report(plane.ids[0], 4, nodes=(a_node("n\0"),)),
        plane.report(plane.ids[0], 5, nodes=(a_node("n1", uid="\0"),), jobs=(a_job("w1", job_uid="\0"),)),
    )
    worker_id = plane.workers[0]
    worker = scheduling.WorkerReported(
        worker_id=worker_id, pool="", epoch=1, capacity=largest, containers=(), host="\0"
    )
    letters = [plane.of_agent(plane.ids[0], word) for word in words]
    committed = commit(plane.say(*letters, plane.of_worker(worker_id, worker)), truth)
    assert committed != []
    assert [misfit for operation in committed for misfit in misfits(operation)] == []
    assert truth.tables.workers[worker_id].capacity.gpu_count <= ROOM.gpu_count, "never more than was ordered"
