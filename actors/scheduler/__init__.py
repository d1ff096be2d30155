"""Container requests: which worker gets which container, why others wait, and what is true of workers."""

from .actor import SchedulerActor
from .policy import SchedulerPolicy

__all__ = ["SchedulerActor", "SchedulerPolicy"]
