"""What is to happen in a world: the work, and what goes wrong when. All is drawn from the seed before it begins."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from levers9.model.ids import Chance

from .functions import FUNCTIONS
from .journal import seed_of

HORIZON_S: Final = 40.0  # work is submitted and faults happen within


class FaultKind(enum.StrEnum):
    """What can go wrong."""

    CUT = "cut a carrier"
    SILENCE = "silence a carrier for 20 s"
    ISOLATE_WORKER = "isolate a worker for 60 s"
    LOSE_WORKER = "isolate a worker for longer than its lease"
    LOSE_AND_CANCEL = "isolate a worker for longer than its lease, and cancel calls when that has run out"
    KILL_WORKER = "kill a worker"
    KILL_CONTAINER = "kill a container"
    KILL_BRAIN = "kill the brain"
    KILL_GATEWAY = "kill the gateway"
    CRASH_ACTOR = "crash an actor"
    FAIL_COMMIT = "fail a commit"
    LOSE_ANSWER = "commit, and lose the answer"
    STORE_AWAY = "take the store away for 3 s"
    SUBMIT_AGAIN = "submit calls a second time"
    CANCEL = "cancel calls"


@dataclass(frozen=True)
class Fault:
    """One of them at its time."""

    at_s: float
    kind: FaultKind


@dataclass(frozen=True)
class MapPlan:
    """Calls of one function, submitted at once; `waves` parts, spread over the horizon."""

    function: str
    calls: int
    waves: int


@dataclass(frozen=True)
class WorldPlan:
    """The work of a world, and what goes wrong in it."""

    maps: tuple[MapPlan, ...]
    faults: tuple[Fault, ...] = ()
    failed_starts: float = 0.0
    max_workers: int = 3
    named_nodes: bool = False


def draw_plan(seed: int, *, faults: int | None = None) -> WorldPlan:
    """A plan by seed: two to four maps, up to a dozen faults."""
    chance = Chance(seed_of(seed, "plan"))
    names = sorted(FUNCTIONS)
    maps = tuple(
        MapPlan(pick(chance, names), int(chance.uniform(5, 40)), int(chance.uniform(1, 4)))
        for _ in range(int(chance.uniform(2, 5)))
    )
    count = int(chance.uniform(1, 13)) if faults is None else faults
    drawn = [Fault(chance.uniform(0.0, HORIZON_S), pick(chance, list(FaultKind))) for _ in range(count)]
    failed_starts = 0.2 if chance.uniform(0, 1) < 0.2 else 0.0
    named_nodes = chance.uniform(0, 1) < 0.5
    ordered = tuple(sorted(drawn, key=lambda fault: fault.at_s))
    return WorldPlan(maps, ordered, failed_starts, named_nodes=named_nodes)


def pick(chance: Chance, among: list[str] | list[FaultKind]) -> str:  # type: ignore[type-arg]
    """One of them."""
    return among[int(chance.uniform(0, len(among) - 1e-9))]


def with_faults(plan: WorldPlan, kept: tuple[int, ...]) -> WorldPlan:
    """The same plan with only those of its faults that have these numbers."""
    return replace(plan, faults=tuple(fault for number, fault in enumerate(plan.faults) if number in kept))
