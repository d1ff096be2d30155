"""Placements a second with the orders to the workers committed: the figure to hold beside kube-scheduler's.

Requests of several workspaces wait; then the nodes report, which have room for all of them. From the first order sent
to the last, each placement is a row moved and a token made in Postgres with fsync, a journal record, and an order sent
once that is committed. kube-scheduler's bind is the same step: decided, and written to etcd with fsync.
"""

import sys
from pathlib import Path
from typing import Final

import msgspec
import trio
from harness import Figure, Options, run_bench

sys.path.append(str(Path(__file__).parent / "real"))

from world import open_world

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.events import Event, NodeSet, PoolSet, Request
from levers9.actors.scheduler.simulation import Job
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity, Shape

GOAL: Final = 1_500.0
KUBE_CPU: Final = 364.0  # kube-scheduler 1.36.3, real API server, 5,000 nodes, 10,000 CPU pods, 2 cores
KUBE_GPU: Final = 282.0  # the same for pods of one GPU
DEADLINE_S: Final = 300.0
POOL: Final = "simulated"
CARDS: Final = 8
WORKSPACES: Final = 40
RUN_S: Final = 3_600.0  # nothing ends while it is measured
SHAPES: Final = {
    "CPU": Shape(cpu_milli=1000, memory_mib=1024),
    "one GPU": Shape(cpu_milli=1000, memory_mib=1024, gpu_count=1),
}


class Amount(msgspec.Struct, frozen=True):
    """How much is measured."""

    nodes: int
    requests: int


def opening(nodes: int) -> tuple[Event, ...]:
    """A pool of equal nodes."""
    capacity = Capacity(cpu_milli=64_000, memory_mib=256 << 10, gpu_count=CARDS, gpu_type="H200")
    return (
        PoolSet(pool=POOL),
        *(
            NodeSet(
                node_id=f"node-{number:05d}",
                pool=POOL,
                capacity=capacity,
                traits=Traits(node=f"node-{number:05d}"),
                standing=Standing.OPEN,
            )
            for number in range(nodes)
        ),
    )


def jobs(shape: Shape, count: int) -> list[Job]:
    """Requests of all workspaces in turn, all there at once."""
    return [
        Job(
            at_s=0.0,
            request=Request(
                request_id=f"c-{number:06d}",
                group=f"f-{number % WORKSPACES}",
                workspace=f"w-{number % WORKSPACES}",
                members=(f"c-{number:06d}",),
                shape=shape,
            ),
            run_s=RUN_S,
        )
        for number in range(count)
    ]


async def placements_per_s(shape: Shape, amount: Amount) -> float:
    """From the first order that was sent to the last."""
    with trio.fail_after(DEADLINE_S):
        async with open_world(opening(amount.nodes), reported=False) as world:
            wanted = jobs(shape, amount.requests)
            await world.put_stubs(wanted)
            await world.submit(wanted)
            await world.report()
            await world.all_started.wait()
            first = min(outcome.admitted_at_s for outcome in world.outcomes)
            last = max(outcome.admitted_at_s for outcome in world.outcomes)
            return len(wanted) / max(last - first, 1e-9)


def measure(options: Options) -> list[Figure]:
    """Measure both kinds of requests."""
    amount = Amount(200, 1_000) if options.short else Amount(5_000, 10_000)
    peers = {"CPU": KUBE_CPU, "one GPU": KUBE_GPU}
    return [
        Figure(
            name=f"{kind}: placements with committed orders, {amount.nodes:,} nodes",
            value=trio.run(placements_per_s, shape, amount),
            unit="1/s",
            better="higher",
            goal=GOAL,
            peer="kube-scheduler",
            peer_value=peers[kind],
        )
        for kind, shape in SHAPES.items()
    ]


if __name__ == "__main__":
    run_bench("Durable placements", measure)
