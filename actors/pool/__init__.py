"""Workers on order: how many a pool wants, what it holds back and why, and the processes of the kind `process`."""

from .actor import PoolActor, Processes
from .policy import PoolPlan, PoolPolicy, PoolSettings
from .processes import Launch, WorkerProcesses

__all__ = ["Launch", "PoolActor", "PoolPlan", "PoolPolicy", "PoolSettings", "Processes", "WorkerProcesses"]
