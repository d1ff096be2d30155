"""Container requests: which worker gets which container, why others wait, and what is true of workers."""

from .actor import SchedulerActor
from .journal import Header
from .journal_files import JournalWriter
from .placement import DEFAULT as DEFAULT_PLACEMENT
from .policy import SchedulerPolicy

__all__ = ["DEFAULT_PLACEMENT", "Header", "JournalWriter", "SchedulerActor", "SchedulerPolicy"]
