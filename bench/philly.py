"""How long jobs of the Philly trace wait, by size and by workspace, under three disciplines, in virtual time.

First-come: all in one line. Fair share: each virtual cluster is a workspace. With backfill: time limits are known as
well (its duration in full minutes), so that short jobs go ahead of a gang for which room is kept. With --json
FILE, the chart goes to FILE.svg.
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from harness import Figure, Options, percentile, run_bench

sys.path += [str(Path(__file__).parent / folder) for folder in ("traces", "charts")]

from bars import Chart, Row, draw
from philly_load import SIZES, PhillyJob, as_job, nodes_for, opening, read_jobs

from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision
from levers9.actors.scheduler.holding import Holding
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.simulation import Simulation, Summary

REPLAY_GOAL_S: Final = 60.0
SHORT_JOBS: Final = 3_000
TICK_S: Final = 5.0


class Discipline(msgspec.Struct, frozen=True, kw_only=True):
    """Who goes first."""

    name: str
    fair: bool
    limits: bool


DISCIPLINES: Final = (
    Discipline(name="first-come", fair=False, limits=False),
    Discipline(name="fair share", fair=True, limits=False),
    Discipline(name="fair share, backfill", fair=True, limits=True),
)


class Unexplained(Holding):
    """Tells nobody why they wait: nobody asks, and it would be most of a replay's time."""

    def tell(self) -> list[Decision]:
        """Nothing."""
        return []


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one discipline. Waits are seconds, by class of size and by virtual cluster."""

    discipline: str
    by_size: dict[str, list[float]]
    by_cluster: dict[str, list[float]]
    used_pct: float
    wall_s: float
    took_s: float

    @property
    def waits(self) -> list[float]:
        """Of all jobs."""
        return [wait for waits in self.by_size.values() for wait in waits]


def replay(jobs: list[PhillyJob], nodes: int, discipline: Discipline) -> Replay:
    """Run the trace once."""
    core = Core(new_placement)
    core.holding = Unexplained(core)
    for event in opening(nodes):
        core.handle(event, jobs[0].at_s)
    coming = [as_job(job, fair=discipline.fair, limits=discipline.limits) for job in jobs]
    began = time.perf_counter()
    done = Simulation(core, coming, tick_s=TICK_S).run()
    return summed_up(jobs, done, discipline.name, nodes, time.perf_counter() - began)


def summed_up(jobs: list[PhillyJob], done: Summary, discipline: str, nodes: int, took_s: float) -> Replay:
    """Waits by size and by virtual cluster. Raises RuntimeError where a job never ran."""
    by_size: dict[str, list[float]] = {size: [] for size in SIZES}
    by_cluster: dict[str, list[float]] = {name: [] for name in sorted({job.virtual_cluster for job in jobs})}
    for job, outcome in zip(jobs, done.outcomes, strict=True):
        if outcome.ended_at_s < 0:
            raise RuntimeError(f"job {job.number} never ended")
        by_size[job.size].append(outcome.waited_s)
        by_cluster[job.virtual_cluster].append(outcome.waited_s)
    wall_s = done.ended_at_s - jobs[0].at_s
    return Replay(
        discipline=discipline,
        by_size={size: waits for size, waits in by_size.items() if waits},
        by_cluster=by_cluster,
        used_pct=100 * done.used_gpu_milli_s / (nodes * 8000 * wall_s),
        wall_s=wall_s,
        took_s=took_s,
    )


def figures_of(one: Replay) -> list[Figure]:
    """One discipline's figures."""

    def seconds(what: str, value: float, goal: float | None = None) -> Figure:
        return Figure(name=f"{one.discipline}: {what}", value=value, unit="s", better="lower", goal=goal)

    figures = [seconds("mean wait", statistics.mean(one.waits)), seconds("wait, p99", percentile(one.waits, 99))]
    figures += [seconds(f"mean wait, {size}", statistics.mean(waits)) for size, waits in one.by_size.items()]
    means = [statistics.mean(waits) for waits in one.by_cluster.values()]
    figures += [seconds("mean wait, best workspace", min(means)), seconds("mean wait, worst workspace", max(means))]
    used = Figure(name=f"{one.discipline}: cards in use", value=one.used_pct, unit="%", better="higher")
    return [*figures, used, seconds("all done after", one.wall_s), seconds("replay", one.took_s, REPLAY_GOAL_S)]


def chart_of(replays: list[Replay], jobs: int, cards: int) -> str:
    """Mean waits by size and by workspace."""
    names = tuple(one.discipline for one in replays)
    sizes = [_row(size, [one.by_size[size] for one in replays]) for size in replays[0].by_size]
    clusters = [_row(name, [one.by_cluster[name] for one in replays]) for name in replays[0].by_cluster]
    lead = f"{jobs:,} jobs of the Philly trace on {cards:,} cards, mean wait in seconds"
    return draw(
        (
            Chart(title="By size", lead=lead, names=names, rows=tuple(sizes)),
            Chart(title="By workspace", lead="The virtual clusters of the trace", names=names, rows=tuple(clusters)),
        )
    )


def _row(name: str, waits: list[list[float]]) -> Row:
    return Row(name=f"{name} ({len(waits[0]):,})", values=tuple(statistics.mean(each) for each in waits))


def measure(options: Options) -> list[Figure]:
    """Run all three."""
    jobs = read_jobs(SHORT_JOBS if options.short else None)
    nodes = nodes_for(jobs)
    replays = [replay(jobs, nodes, discipline) for discipline in DISCIPLINES]
    if options.json_path is not None:
        options.json_path.parent.mkdir(parents=True, exist_ok=True)
        options.json_path.with_suffix(".svg").write_text(chart_of(replays, len(jobs), nodes * 8), encoding="utf-8")
    return [figure for one in replays for figure in figures_of(one)]


if __name__ == "__main__":
    run_bench("The Philly trace", measure)
