"""Recorded workloads through the real core: cuts of them end well, and the same in every process."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Decision, Event, Placed
from levers9.actors.scheduler.journal import Header, Record, Segment, encode_segment, read_journal
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.replay import replay
from levers9.actors.scheduler.simulation import Job, Simulation, Summary

TRACES = Path(__file__).resolve().parents[2] / "bench" / "traces"
DEADLINE_S = 300
CUTS = ("kueue baseline", "kueue tas", "philly", "openb")


def module_of(name: str) -> ModuleType:
    """A module beside the traces, as the benches see it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TRACES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def cut_of(name: str) -> tuple[list[Event], list[Job]]:
    """A short stretch of a recorded workload: what the core is told first, and the jobs."""
    if name.startswith("kueue"):
        load: Any = module_of("kueue_load").load(name.split()[1], part=50)
        return list(load.opening), list(load.jobs)
    if name == "philly":
        philly: Any = module_of("philly_load")
        jobs = [philly.as_job(job, fair=True, limits=True) for job in philly.read_jobs(300)]
        return list(philly.opening(20)), jobs
    openb: Any = module_of("openb_load")
    return list(openb.opening(40)), openb.jobs(300)


class Played(msgspec.Struct):
    """A run and its journal."""

    done: Summary
    segment: Segment


def play(name: str) -> Played:
    """Run a cut; its journal opens once the core knows nodes and queues."""
    opening, jobs = cut_of(name)
    core = Core(new_placement)
    for event in opening:
        core.handle(event, 0.0)
    before, records = core.snapshot(), []

    def keep(now_s: float, event: Event, decisions: tuple[Decision, ...]) -> None:
        records.append(Record(now_s, event, decisions))

    done = Simulation(core, jobs, tick_s=10.0, watch=keep).run()
    return Played(done, Segment(header=Header(1), opened_at_s=0.0, opening=before, records=tuple(records)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CUTS)
def test_a_recorded_workload_ends_and_its_journal_is_replayed_exactly(name: str) -> None:
    played = play(name)
    outcomes = played.done.outcomes
    assert [one.job.request.request_id for one in outcomes if one.ended_at_s < 0] == []
    assert all(one.ended_at_s - one.admitted_at_s >= one.job.run_s - 1e-6 for one in outcomes)
    placed = [each for record in played.segment.records for each in record.decisions if isinstance(each, Placed)]
    assert len(placed) == len(outcomes) + sum(one.preemptions for one in outcomes)
    (read,) = read_journal(encode_segment(played.segment))
    assert list(replay(read, Core(new_placement))) == []


def digest() -> str:
    """A hash of all that is decided about the cuts."""
    whole = hashlib.sha256()
    for name in CUTS:
        for record in play(name).segment.records:
            for decision in record.decisions:
                whole.update(msgspec.msgpack.encode(decision))
    return whole.hexdigest()


@pytest.mark.slow
def test_another_seed_of_hashes_decides_nothing_otherwise() -> None:
    script = (
        f"import importlib.util, sys; sys.path.insert(0, {str(TRACES)!r});"
        f"spec = importlib.util.spec_from_file_location('cuts', {__file__!r});"
        "cuts = importlib.util.module_from_spec(spec); sys.modules['cuts'] = cuts; spec.loader.exec_module(cuts);"
        "print(cuts.digest())"
    )
    digests = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
