"""Kueue's own performance workloads: how soon each class of workload is admitted, and when all have finished.

In virtual time by default, which leaves out what deciding costs; with --real from submit to finish in real time, with
the scheduler's actor on a Postgres that commits with fsync, and workers that only wait. --only NAME takes one.
With --json FILE, the chart goes to FILE.svg.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import trio
from harness import Figure, Options, run_bench

sys.path += [str(Path(__file__).parent / folder) for folder in ("traces", "real", "charts")]

import kueue_load
from bars import Chart, Row, draw

from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.simulation import Outcome, Simulation

CLASSES: Final = ("large", "medium", "small")
PART_IF_SHORT: Final = 10


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """What Kueue takes, and the goal for ours in real time. Admission is the mean by class, in seconds."""

    who: str
    wall_s: float
    wall_goal_s: float
    admission_s: dict[str, float]
    used_pct: float | None = None


PEERS: Final = {
    "baseline": Peer(
        who="Kueue 0.17.0",
        wall_s=376.7,
        wall_goal_s=90.0,
        admission_s={"large": 14.0, "medium": 89.2, "small": 226.4},
        used_pct=55.8,
    ),
    "large-scale": Peer(
        who="Kueue, published",
        wall_s=1179.4,
        wall_goal_s=300.0,
        admission_s={"large": 105.6, "medium": 256.4, "small": 700.4},
        used_pct=38.6,
    ),
    "tas": Peer(
        who="Kueue 0.17.0",
        wall_s=412.9,
        wall_goal_s=110.0,
        admission_s={"large": 58.7, "medium": 128.2, "small": 258.7},
    ),
}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one workload. `took_s` is real time, `wall_s` the workload's own."""

    wall_s: float
    took_s: float
    admission_s: dict[str, float]
    used_pct: float
    preemptions: int


def class_of(outcome: Outcome) -> str:
    """Large, medium or small, whatever nearness is asked for."""
    return outcome.job.request.priority.partition("-")[0]


def simulate(load: kueue_load.Load) -> Run:
    """Run a workload in virtual time."""
    core = Core(new_placement)
    for event in load.opening:
        core.handle(event, 0.0)
    began = time.perf_counter()
    done = Simulation(core, load.jobs, tick_s=0.25).run()
    took_s = time.perf_counter() - began
    return run_of(done.outcomes, load.quota_cpu_milli, done.used_cpu_milli_s, done.ended_at_s, took_s)


def run_really(load: kueue_load.Load) -> Run:
    """Run a workload in real time."""
    from kueue_real import run

    began = time.perf_counter()
    done = trio.run(run, load)
    return run_of(done.outcomes, load.quota_cpu_milli, done.used_cpu_milli_s, done.wall_s, time.perf_counter() - began)


def run_of(
    outcomes: Iterable[Outcome], quota_cpu_milli: int, used_cpu_milli_s: float, wall_s: float, took_s: float
) -> Run:
    """Sum up. Raises RuntimeError where something never ended."""
    known = tuple(outcomes)
    waiting = [outcome.job.request.request_id for outcome in known if outcome.ended_at_s < 0]
    if waiting:
        raise RuntimeError(f"{len(waiting)} workloads never ended, {waiting[0]} first")
    waits = {name: [one.waited_s for one in known if class_of(one) == name] for name in CLASSES}
    return Run(
        wall_s=wall_s,
        took_s=took_s,
        admission_s={name: statistics.mean(each) for name, each in waits.items()},
        used_pct=100 * used_cpu_milli_s / (quota_cpu_milli * wall_s),
        preemptions=sum(outcome.preemptions for outcome in known),
    )


def figures_of(name: str, run: Run, peer: Peer) -> list[Figure]:
    """One workload's figures beside Kueue's."""

    def seconds(what: str, value: float, goal: float | None, theirs: float | None) -> Figure:
        return Figure(
            name=f"{name}: {what}", value=value, unit="s", better="lower", goal=goal, peer=peer.who, peer_value=theirs
        )

    figures = [seconds("submit to finish", run.wall_s, peer.wall_goal_s, peer.wall_s)]
    for size in CLASSES:
        theirs = peer.admission_s[size]
        figures.append(seconds(f"mean admission, {size}", run.admission_s[size], theirs, theirs))
    used = Figure(
        name=f"{name}: quota used",
        value=run.used_pct,
        unit="%",
        better="higher",
        peer=peer.who,
        peer_value=peer.used_pct,
    )
    preempted = Figure(name=f"{name}: preemptions", value=run.preemptions, unit="", better="lower")
    return [*figures, used, preempted, seconds("real time of the run", run.took_s, None, None)]


def measure(options: Options) -> list[Figure]:
    """Run what is wanted."""
    part = PART_IF_SHORT if options.short else 1
    way = run_really if options.said("real") else simulate
    runs: dict[str, Run] = {}
    for name in [options.said("only")] if options.said("only") else list(PEERS):
        runs[name] = way(kueue_load.load(name, part=part))
    if options.json_path is not None:
        options.json_path.parent.mkdir(parents=True, exist_ok=True)
        options.json_path.with_suffix(".svg").write_text(chart_of(runs), encoding="utf-8")
    return [figure for name, run in runs.items() for figure in figures_of(name, run, PEERS[name])]


def chart_of(runs: dict[str, Run]) -> str:
    """Ours beside Kueue's, a panel for each workload."""
    return draw(tuple(_panel(name, run, PEERS[name]) for name, run in runs.items()))


def _panel(name: str, run: Run, peer: Peer) -> Chart:
    rows = [Row(name="submit to finish", values=(run.wall_s, peer.wall_s))]
    rows += [Row(name=f"admission, {size}", values=(run.admission_s[size], peer.admission_s[size])) for size in CLASSES]
    return Chart(title=name, lead="Seconds; admission is the mean", names=("levers9", peer.who), rows=tuple(rows))


def more(parser: argparse.ArgumentParser) -> None:
    """The options of this bench."""
    parser.add_argument("--only", choices=tuple(PEERS), help="one workload")
    parser.add_argument("--real", action="store_true", help="in real time, with a real Postgres")


if __name__ == "__main__":
    run_bench("Kueue's workloads", measure, more)
