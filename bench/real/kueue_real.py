"""Kueue's workloads in real time, from submit to finish."""

from typing import Final

import msgspec
import trio
from kueue_load import Load
from world import open_world

from levers9.actors.scheduler.simulation import Outcome

DEADLINE_S: Final = 1_500.0


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Times are seconds from the first submit."""

    outcomes: tuple[Outcome, ...]
    wall_s: float
    used_cpu_milli_s: float


async def run(load: Load) -> Done:
    """Submit all jobs at their times, and wait until all have ended."""
    with trio.fail_after(DEADLINE_S):
        async with open_world(load.opening) as world:
            await world.put_stubs(load.jobs)
            await world.submit(load.jobs)
            await world.done.wait()
            used = sum(job.run_s * job.request.shape.cpu_milli * len(job.request.members) for job in load.jobs)
            return Done(outcomes=tuple(world.outcomes), wall_s=world.ended_at_s, used_cpu_milli_s=used)
