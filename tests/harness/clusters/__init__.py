"""Attached clusters in one process and in virtual time: a real control plane, agents and workers, by one seed.

Nothing here opens a socket, starts a thread or looks at a clock. `run_cluster_world(seed, plan)` is the way in.
"""

from levers9_world import Violation

from .plan import (
    ClusterPlan,
    ClusterWorldPlan,
    Fate,
    Fault,
    FaultKind,
    NodePlan,
    WorkPlan,
    draw_plan,
    with_faults,
)
from .world import ClusterWorld, Report, run_cluster_world, shrink

__all__ = [
    "ClusterPlan",
    "ClusterWorld",
    "ClusterWorldPlan",
    "Fate",
    "Fault",
    "FaultKind",
    "NodePlan",
    "Report",
    "Violation",
    "WorkPlan",
    "draw_plan",
    "run_cluster_world",
    "shrink",
    "with_faults",
]
