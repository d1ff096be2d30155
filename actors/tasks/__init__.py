"""Calls: attempts, retries, deadlines, delivery to warm containers, and the demand for more of them."""

from .actor import TasksActor
from .policy import TasksPolicy

__all__ = ["TasksActor", "TasksPolicy"]
