"""The scheduler, pools and the guard with gangs, priorities and time limits: what waits runs once others have ended."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from levers9.actors.pool import PoolSettings
from levers9.actors.scheduler.capacity import Standing
from levers9.model.resources import Capacity, Shape

from .providing import SHAPES, Stage, in_order
from .test_providing import ProvidingMachine

ROUNDS = 12  # in each of which all that runs ends


def many(capacity: Capacity, shape: Shape) -> int:
    """How many containers of a shape an empty node takes."""
    if not capacity.fits(shape):
        return 0
    by_cards = [capacity.gpu_count // shape.gpu_count] if shape.gpu_count else []
    return min(capacity.cpu_milli // shape.cpu_milli, capacity.memory_mib // shape.memory_mib, *by_cards)


def room(stage: Stage, pool: PoolSettings, shape: Shape) -> int:
    """How many a pool could run at once, on the workers that it has and those that it may have besides."""
    nodes = stage.scheduler.core.fleet.pools[pool.name].nodes.values()
    have = sum(many(node.kind.capacity, shape) for node in nodes if node.standing is Standing.OPEN)
    left, free = stage.places_left(pool), stage.free_offers(pool)
    more = sorted((many(one.capacity, shape) for one in (free if pool.nodes else free * left)), reverse=True)
    return have + sum(more[:left])


def could_run(stage: Stage, container_id: str) -> str:
    """The pool that should run it, with all that start together with it."""
    workspace, shape = stage.shapes[container_id]
    size = len(stage.gangs.get(container_id, (container_id,)))
    for pool in stage.settings.values():
        eligible = pool.serves in ("", workspace) and shape.pool in ("", pool.name)
        if eligible and room(stage, pool, shape) >= size:
            return pool.name
    return ""


class GangsMachine(ProvidingMachine):
    @rule(
        shape=st.sampled_from(SHAPES),
        size=st.sampled_from((1, 2, 2, 3)),
        priority=st.sampled_from(("default", "default", "high")),
        workspace=st.sampled_from(("w", "v")),
        limit_s=st.sampled_from((0.0, 60.0)),
    )
    def some_are_to_start_together(
        self, shape: Shape, size: int, priority: str, workspace: str, limit_s: float
    ) -> None:
        self.stage.ask_together(shape, size, workspace=workspace, priority=priority, limit_s=limit_s)

    def all_ends(self) -> None:
        stage = self.stage
        for name in list(stage.runs):
            stage.end(name)
            stage.shapes.pop(name, None)
        in_order(stage)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.calm()
        stage = self.stage
        for _ in range(ROUNDS):
            self.all_ends()
            in_order(stage)
            for worker_id in list(stage.pool_of):
                if worker_id not in stage.scheduler.ledger.hosts:
                    stage.exit(worker_id)
            stage.tick(61.0)
        in_order(stage)
        self.all_ends()
        waiting = {name: could_run(stage, name) for name in stage.waiting()}
        assert stage.runs or not any(waiting.values()), waiting


TestGangs = GangsMachine.TestCase
TestGangs.settings = settings(settings.get_profile("property"), stateful_step_count=8)
TestGangs = pytest.mark.slow(TestGangs)
