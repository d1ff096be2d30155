"""What people touch: the decorator, the client, a task. Nothing here loads Trio before the first call."""

from .client import Client
from .gangs import Gang, Topology, gang
from .job import Job, job
from .task import LogLine, Task

__all__ = ["job", "Job", "Client", "Task", "LogLine", "Topology", "Gang", "gang"]
