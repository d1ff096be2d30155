"""Workers on order: how many a pool wants, what holds it back and why, the guard above all pools, and the processes."""

from .actor import PoolActor, Processes
from .attached import AttachedWorkers
from .guard import GuardSettings, ProvisioningGuard
from .guard_actor import GuardActor
from .policy import PoolPlan, PoolPolicy
from .processes import Launch, WorkerProcesses
from .registry_actor import PoolsActor
from .replay import ReplayWorkers
from .settings import PoolSettings

__all__ = [
    "AttachedWorkers",
    "GuardActor",
    "GuardSettings",
    "Launch",
    "PoolActor",
    "PoolPlan",
    "PoolPolicy",
    "PoolSettings",
    "PoolsActor",
    "Processes",
    "ProvisioningGuard",
    "ReplayWorkers",
    "WorkerProcesses",
]
