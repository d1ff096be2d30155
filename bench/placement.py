"""Placements a second: 50,000 requests of 40 workspaces on 5,000 nodes of 8 cards, with the default policy.

Drives the pure core, fair share and all, in one process: requests for CPUs, for shares of a card and for 1 to
8 cards wait all at once; whenever 90 % of the cards are taken, some containers end. A tenth of it, on a tenth of the
nodes, shows how the cost grows. Beside it kube-scheduler binds 10,000 pods with one card, and 10,000 with none, on as
many nodes of the same size; it has a real API server to bind them with, where the core only decides, so what its
algorithm takes for one pod is told as well. Where its programs are not here, it is left out, and that is said.
--policy NAME takes another policy.
"""

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from harness import Figure, Options, percentile, run_bench

sys.path.append(str(Path(__file__).parent / "real"))

import kube_scheduler
from kube_scheduler import Bound

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.placement import DEFAULT, PLACEMENTS
from levers9.daemons.collector import settle
from levers9.lab import KUBERNETES
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity, Shape

WORKSPACES: Final = 40
NODE: Final = Capacity(cpu_milli=128_000, memory_mib=1_048_576, gpu_count=8, gpu_type="H100")
FULL: Final = 0.90  # of the cards: then some containers end
THINNED: Final = 0.88
CHUNK: Final = 500  # requests that are asked for at once
GOAL_PER_S: Final = 5_000
GOAL_P99_MS: Final = 2.0
GOAL_GROWTH: Final = 1.5
PEER: Final = f"kube-scheduler {KUBERNETES}"
PODS: Final = 10_000  # that kube-scheduler binds, of each kind
MIX: Final = (  # how many of a hundred, CPUs, GiB, cards, thousandths of each
    (6, 2, 4, 0, 1000),
    (5, 8, 32, 0, 1000),
    (14, 2, 8, 1, 250),
    (14, 4, 16, 1, 500),
    (8, 4, 32, 1, 800),
    (25, 8, 64, 1, 1000),
    (14, 12, 96, 1, 1000),
    (7, 16, 128, 2, 1000),
    (4, 48, 256, 4, 1000),
    (3, 96, 768, 8, 1000),
)


class Amount(msgspec.Struct, frozen=True):
    """How much is placed on how many nodes."""

    nodes: int
    requests: int


class Speed(msgspec.Struct, frozen=True):
    """What came of it."""

    placed: int
    per_s: float
    mean_ms: float
    p99_ms: float
    longest_ms: float


def shape_of(row: tuple[int, int, int, int, int]) -> Shape:
    """One row of the mix."""
    _, cpus, gib, cards, milli = row
    return Shape(cpu_milli=1000 * cpus, memory_mib=1024 * gib, gpu_count=cards, gpu_milli=milli)


def requests(count: int, chance: random.Random) -> Iterator[events.Request]:
    """What is asked for: each workspace asks for each shape from a function of its own."""
    shapes = chance.choices(list(enumerate(MIX)), weights=[row[0] for row in MIX], k=count)
    known = [shape_of(row) for row in MIX]
    for number, (kind, _) in enumerate(shapes):
        workspace = f"ws-{chance.randrange(WORKSPACES):02}"
        name = f"ct-{number:06}"
        yield events.Request(
            request_id=name, group=f"{workspace}-{kind}", workspace=workspace, members=(name,), shape=known[kind]
        )


class Drive:
    """A core, and what is asked of it."""

    def __init__(self, amount: Amount, policy: str) -> None:
        self._chance = random.Random(amount.nodes)
        self._core = Core(lambda name: PLACEMENTS[name or policy]())
        self._cards_milli = amount.nodes * NODE.gpu_count * 1000
        self._wanted = {one.request_id: one.shape for one in requests(amount.requests, self._chance)}
        self._asked = list(requests(amount.requests, random.Random(amount.nodes)))
        self._running: list[str] = []
        self._used_milli = 0
        self._now_s = 0.0
        self._slices_s: list[float] = []
        self._core.handle(events.PoolSet(pool="lab", traits=Traits(gpu_sharing=True)), 0.0)
        for number in range(amount.nodes):
            self._core.handle(
                events.NodeSet(
                    node_id=f"wk-{number:05}",
                    pool="lab",
                    capacity=NODE,
                    traits=Traits(gpu_sharing=True),
                    standing=Standing.OPEN,
                ),
                0.0,
            )

    def run(self) -> Speed:
        """Ask for everything, then place one after the other until nothing waits. All of it counts."""
        began = time.perf_counter()
        for start in range(0, len(self._asked), CHUNK):
            self._handle(events.Requested(requests=tuple(self._asked[start : start + CHUNK])))
        while len(self._slices_s) < len(self._asked):
            if self._used_milli > FULL * self._cards_milli:
                self._thin()
            if not self._plan() and not self._end_one():
                raise RuntimeError(f"{len(self._asked) - len(self._slices_s)} requests were never placed")
        took_s = time.perf_counter() - began
        return Speed(
            placed=len(self._slices_s),
            per_s=len(self._slices_s) / took_s,
            mean_ms=1e3 * statistics.fmean(self._slices_s),
            p99_ms=1e3 * percentile(self._slices_s, 99),
            longest_ms=1e3 * max(self._slices_s),
        )

    def _handle(self, event: events.Event) -> tuple[events.Decision, ...]:
        self._now_s += 1e-4
        return self._core.handle(event, self._now_s)

    def _plan(self) -> bool:
        """One step; True while there is more to decide."""
        began = time.perf_counter()
        decisions = self._handle(events.Planned(steps=1))
        took_s = time.perf_counter() - began
        placed = [one.request_id for one in decisions if isinstance(one, events.Placed)]
        for request_id in placed:
            self._running.append(request_id)
            self._used_milli += self._wanted[request_id].gpu_total_milli
            self._slices_s.append(took_s)
        return any(isinstance(one, events.More) for one in decisions)

    def _thin(self) -> None:
        while self._used_milli > THINNED * self._cards_milli:
            self._end_one()

    def _end_one(self) -> bool:
        """Any one ends; False where none runs."""
        if not self._running:
            return False
        place = self._chance.randrange(len(self._running))
        self._running[place], self._running[-1] = self._running[-1], self._running[place]
        request_id = self._running.pop()
        self._used_milli -= self._wanted[request_id].gpu_total_milli
        self._handle(events.Ended(member=request_id))
        return True


def drive(amount: Amount, policy: str) -> Speed:
    """Run once, with the collector as it is in the process that decides."""
    driven = Drive(amount, policy)
    settle()
    try:
        return driven.run()
    finally:
        gc.unfreeze()


def measure(options: Options) -> list[Figure]:
    """Run it small and large."""
    policy = options.said("policy") or DEFAULT
    part = 10 if options.short else 1
    large = Amount(nodes=5_000 // part, requests=50_000 // part)
    small = Amount(nodes=large.nodes // 10, requests=large.requests // 10)
    few, many = drive(small, policy), drive(large, policy)
    return [
        Figure(
            name=f"{policy}: placements, {large.nodes:,} nodes",
            value=many.per_s,
            unit="1/s",
            better="higher",
            goal=GOAL_PER_S,
        ),
        Figure(name=f"{policy}: placements, {small.nodes:,} nodes", value=few.per_s, unit="1/s", better="higher"),
        *beside(many, large.nodes, PODS // part),
        Figure(name="one decision, p99", value=many.p99_ms, unit="ms", better="lower", goal=GOAL_P99_MS),
        Figure(name="one decision, longest", value=many.longest_ms, unit="ms", better="lower"),
        Figure(
            name=f"cost on {large.nodes:,} nodes beside {small.nodes:,}",
            value=few.per_s / many.per_s,
            unit="times",
            better="lower",
            goal=GOAL_GROWTH,
        ),
    ]


def beside(ours: Speed, nodes: int, pods: int) -> list[Figure]:
    """Ours beside kube-scheduler, by kind of pod; nothing where it can't run here."""
    why_not = kube_scheduler.why_not()
    if why_not:
        print(f"kube-scheduler is left out: {why_not}.", file=sys.stderr)
        return []
    return [
        figure for kind, bound in kube_scheduler.measure(nodes, pods).items() for figure in _held(ours, kind, bound)
    ]


def _held(ours: Speed, kind: str, bound: Bound) -> list[Figure]:
    peer = f"{PEER}, {kind}"
    return [
        Figure(
            name=f"placements beside {bound.pods:,} {kind} bound",
            value=ours.per_s,
            unit="1/s",
            better="higher",
            peer=peer,
            peer_value=bound.per_s,
        ),
        Figure(
            name="one decision, mean",
            value=ours.mean_ms,
            unit="ms",
            better="lower",
            peer=peer,
            peer_value=bound.algorithm_ms,
        ),
    ]


def more(parser: argparse.ArgumentParser) -> None:
    """The options of this bench."""
    parser.add_argument("--policy", choices=sorted(PLACEMENTS), help="a placement policy; the default one without it")


if __name__ == "__main__":
    run_bench("Placements", measure, more)
