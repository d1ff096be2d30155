"""The whole product in one process and in virtual time: real brain, gateway, workers and SDK core, driven by one seed.

Nothing here opens a socket, starts a thread or looks at a clock. `run_world(seed, plan)` is the way in.
"""

from .plan import Fault, FaultKind, MapPlan, WorldPlan, draw_plan, with_faults
from .plane import Violation
from .world import Report, World, run_world, shrink

__all__ = [
    "Fault",
    "FaultKind",
    "MapPlan",
    "Report",
    "Violation",
    "World",
    "WorldPlan",
    "draw_plan",
    "run_world",
    "shrink",
    "with_faults",
]
