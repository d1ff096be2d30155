"""How much GPU each placement policy allocates on the openb trace, by the protocol of the FGD paper (USENIX ATC 2023).

The six published policies are run again and stand beside the published grid: FGD with ties in the order of the nodes'
file, in an order drawn for each seed, and at random. Ours knows only what it has seen, breaks ties at random, and is
judged on seeds that it was not tuned on; each of its runs is paired with one of FGD on the same nodes and pods.
--grid FILE writes every mean as CSV, --chart FILE what is allocated as demand arrives as SVG.
"""

import argparse
import csv
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from harness import Figure, Options, run_bench

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from study.findings import Curves, draw_findings
from study.policies import OURS, POLICIES
from study.published import published
from study.simulator import drawn, in_order, replay
from study.trace import VARIANTS, cluster

from levers9.actors.scheduler.placement import Placement
from levers9.actors.scheduler.placement.fgd import Fgd
from levers9.actors.scheduler.placement.ours import Ours

TUNED_ON: Final = range(42, 52)  # the paper's seeds
JUDGED_ON: Final = range(52, 62)
STUDENT_T: Final = {2: 12.706, 3: 4.303, 10: 2.262}  # for 95 % either way, by number of pairs
CLASSES: Final = ("no card", "a share", "one card", "several cards")
DEFAULT_GOAL_PCT: Final = 96.3
AHEAD_GOAL: Final = 0.4
CLASS_GOAL: Final = -3.0
RUN_GOAL_S: Final = 2.0
FGD: Final = "fgd"


class Setup(msgspec.Struct, frozen=True):
    """A policy, and in what order nodes and pods come to it."""

    name: str
    policy: str
    random_ties: bool = False
    nodes_in_file_order: bool = False
    pods_in_file_order: bool = False


class Case(msgspec.Struct, frozen=True):
    """One run."""

    setup: Setup
    variant: str
    seed: int


class Outcome(msgspec.Struct, frozen=True):
    """What one run came to."""

    allocated_pct: list[float]
    accepted_pct: dict[str, float]  # of the pods of each class
    took_s: float

    @property
    def end_pct(self) -> float:
        """What is allocated when all has arrived."""
        return self.allocated_pct[-1]


Outcomes = dict[tuple[str, str], list[Outcome]]  # by setup and variant, a run for each seed

AGAIN: Final = [Setup(name, name) for name in POLICIES if name != OURS]
FILE_ORDER: Final = Setup("fgd, nodes in file order", FGD, nodes_in_file_order=True)
RANDOM_TIES: Final = Setup("fgd, ties at random", FGD, random_ties=True, nodes_in_file_order=True)
JUDGED: Final = Setup("ours", OURS, random_ties=True)
PAIRED: Final = Setup("fgd, the same seeds", FGD)
OURS_FILE_PODS: Final = Setup("ours, pods in file order", OURS, random_ties=True, pods_in_file_order=True)
FGD_FILE_PODS: Final = Setup("fgd, pods in file order", FGD, pods_in_file_order=True)


def policy_of(setup: Setup, seed: int) -> Placement:
    """A policy that has seen nothing yet."""
    if setup.random_ties:
        return (Ours if setup.policy == OURS else Fgd)(ties="random", seed=seed)
    return POLICIES[setup.policy]()


def run(case: Case) -> Outcome:
    """Fill the cluster once. The same seed brings the same nodes and pods to each policy."""
    order, draw = (np.random.default_rng((case.seed, stream)) for stream in range(2))
    nodes = cluster(None if case.setup.nodes_in_file_order else order)
    arriving = in_order(case.variant) if case.setup.pods_in_file_order else drawn(case.variant, draw)
    began = time.perf_counter()
    filled = replay(
        policy_of(case.setup, case.seed), nodes, arriving, "" if case.setup.policy == OURS else case.variant
    )
    took_s = time.perf_counter() - began
    accepted = {name: 100 * filled.placed.get(name, 0) / count for name, count in filled.arrived.items()}
    return Outcome(filled.allocated_pct, accepted, took_s)


def cases(short: bool) -> Iterator[Case]:
    """Everything that is run."""
    for variant in ("default", "gpushare40") if short else VARIANTS:
        for setups, seeds in (
            ([*AGAIN, FILE_ORDER, RANDOM_TIES], TUNED_ON),
            ([JUDGED, PAIRED, OURS_FILE_PODS, FGD_FILE_PODS], JUDGED_ON),
        ):
            for seed in seeds[:2] if short else seeds:
                yield from (Case(setup, variant, seed) for setup in setups)


def run_all(wanted: Sequence[Case]) -> Outcomes:
    """Run all of it, a process for each core."""
    outcomes: Outcomes = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as processes:
        for case, outcome in zip(wanted, processes.map(run, wanted, chunksize=8), strict=True):
            outcomes.setdefault((case.setup.name, case.variant), []).append(outcome)
    return outcomes


def mean_end(outcomes: Iterable[Outcome]) -> float:
    """The mean of what is allocated at the end."""
    return statistics.mean(outcome.end_pct for outcome in outcomes)


def published_end(policy: str, variant: str) -> float:
    """What the paper's authors published for it, in the mean of their ten seeds."""
    return float(published()[variant, policy][:, -1].mean())


def at_least(pairs: Sequence[float]) -> float:
    """The lower end of the 95 % interval of a mean."""
    spread = statistics.stdev(pairs) / math.sqrt(len(pairs))
    return statistics.mean(pairs) - STUDENT_T[len(pairs)] * spread


class Findings:
    """The figures of one bench."""

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        self.variants = [variant for variant in VARIANTS if (JUDGED.name, variant) in outcomes]

    def figures(self) -> Iterator[Figure]:
        """All of them, the goals first."""
        for variant in self.variants:
            yield self._ours(variant)
        for variant in self.variants:
            yield self._lead(variant, JUDGED, PAIRED, "ours ahead of our run of FGD")
        for variant in self.variants:
            yield self._lead(variant, OURS_FILE_PODS, FGD_FILE_PODS, "the same, pods in file order")
        yield from map(self._acceptance, CLASSES)
        yield from self._times()
        yield from (self._apart(setup) for setup in (*AGAIN, FILE_ORDER, RANDOM_TIES))

    def _ours(self, variant: str) -> Figure:
        peer = published_end(FGD, variant)
        goal = max(peer + AHEAD_GOAL, DEFAULT_GOAL_PCT if variant == "default" else 0.0)
        value = mean_end(self.outcomes[JUDGED.name, variant])
        name = f"ours, {variant}: allocated"
        return Figure(name=name, value=value, unit="%", better="higher", goal=goal, peer="FGD", peer_value=peer)

    def _lead(self, variant: str, ours: Setup, theirs: Setup, words: str) -> Figure:
        mine, other = self.outcomes[ours.name, variant], self.outcomes[theirs.name, variant]
        pairs = [one.end_pct - two.end_pct for one, two in zip(mine, other, strict=True)]
        name = f"{words}, {variant}: at least (mean {statistics.mean(pairs):+.2f})"
        return Figure(name=name, value=at_least(pairs), unit="points", better="higher", goal=0.0)

    def _acceptance(self, kind: str) -> Figure:
        """Where ours accepts the fewest pods of a class, compared with FGD."""
        behind = {
            variant: self._accepted(JUDGED, variant, kind) - self._accepted(PAIRED, variant, kind)
            for variant in self.variants
        }
        worst = min(self.variants, key=behind.__getitem__)
        name = f"pods that want {kind}: accepted beside FGD, at worst ({worst})"
        return Figure(
            name=name,
            value=behind[worst],
            unit="points",
            better="higher",
            goal=CLASS_GOAL,
            peer="FGD accepts",
            peer_value=self._accepted(PAIRED, worst, kind),
        )

    def _accepted(self, setup: Setup, variant: str, kind: str) -> float:
        """In %; a workload without such pods accepts them all."""
        return statistics.mean(one.accepted_pct.get(kind, 100.0) for one in self.outcomes[setup.name, variant])

    def _times(self) -> Iterator[Figure]:
        for setup in (JUDGED, PAIRED):
            took = [one.took_s for variant in self.variants for one in self.outcomes[setup.name, variant]]
            goal = RUN_GOAL_S if setup is JUDGED else None
            for words, value in (("median", statistics.median(took)), ("longest", max(took))):
                name = f"{setup.name}: a run, {words}"
                yield Figure(name=name, value=value, unit="s", better="lower", goal=goal)

    def _apart(self, setup: Setup) -> Figure:
        """Where a policy that is run again ends furthest from its published figure."""
        apart = {
            variant: mean_end(self.outcomes[setup.name, variant]) - published_end(setup.policy, variant)
            for variant in self.variants
        }
        worst = max(self.variants, key=lambda variant: abs(apart[variant]))
        name = f"{setup.name}, run again: furthest from published ({worst})"
        return Figure(name=name, value=apart[worst], unit="points", better="higher")

    def rows(self) -> Iterator[list[str]]:
        """The whole grid, a row for each setup and workload."""
        yield ["setup", "workload", "runs", "allocated_pct", "deviation", "published_pct", "run_s", *CLASSES]
        for (name, variant), outcomes in self.outcomes.items():
            policy = name.partition(",")[0]
            there = "" if policy == OURS else f"{published_end(policy, variant):.2f}"
            spread = statistics.pstdev(one.end_pct for one in outcomes)
            took_s = statistics.median(one.took_s for one in outcomes)
            accepted = [statistics.mean(one.accepted_pct.get(kind, math.nan) for one in outcomes) for kind in CLASSES]
            yield [
                name,
                variant,
                str(len(outcomes)),
                f"{mean_end(outcomes):.2f}",
                f"{spread:.2f}",
                there,
                f"{took_s:.2f}",
                *(f"{percent:.2f}" for percent in accepted),
            ]

    def curves(self) -> Curves:
        """What the chart shows: the published policies on their seeds, ours on those that it is judged on."""
        shown = {setup.name: setup.policy for setup in (*AGAIN, JUDGED)}
        return {
            (variant, shown[name]): [one.allocated_pct for one in outcomes]
            for (name, variant), outcomes in self.outcomes.items()
            if name in shown
        }


def measure(options: Options) -> list[Figure]:
    """Run every policy on every workload."""
    findings = Findings(run_all(list(cases(options.short))))
    if grid := options.said("grid"):
        with Path(grid).open("w", newline="", encoding="utf-8") as lines:
            csv.writer(lines).writerows(findings.rows())
    if chart := options.said("chart"):
        Path(chart).write_text(draw_findings(findings.curves()), encoding="utf-8")
    return list(findings.figures())


def more(parser: argparse.ArgumentParser) -> None:
    """The options of this bench."""
    parser.add_argument("--grid", metavar="FILE", help="write all means there, as CSV")
    parser.add_argument("--chart", metavar="FILE", help="draw the chart there, as SVG")


if __name__ == "__main__":
    run_bench("Placement on the openb trace", measure, more)
