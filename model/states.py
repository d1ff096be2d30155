"""States and their tables. A lifecycle is a table of transitions as data; an unknown pair is an error."""

from __future__ import annotations

import enum
from typing import Final


class TaskState(enum.StrEnum):
    """Where a call stands; the last five are terminal."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RETRY = "RETRY"
    CANCELLING = "CANCELLING"
    COMPLETE = "COMPLETE"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    EXPIRED = "EXPIRED"

    @property
    def terminal(self) -> bool:
        """Whether nothing follows."""
        return self in TERMINAL_TASK_STATES


TERMINAL_TASK_STATES: Final = frozenset(
    {TaskState.COMPLETE, TaskState.ERROR, TaskState.CANCELLED, TaskState.TIMEOUT, TaskState.EXPIRED}
)


class TaskEvent(enum.StrEnum):
    """What can happen to a task."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    RETRIED = "retried"
    CANCEL_ASKED = "cancel asked"
    STOPPED = "stopped"
    WAITED_TOO_LONG = "waited too long"


_P, _R, _Y, _C = TaskState.PENDING, TaskState.RUNNING, TaskState.RETRY, TaskState.CANCELLING

TASK_TRANSITIONS: Final[dict[tuple[TaskState, TaskEvent], TaskState]] = {
    (_P, TaskEvent.STARTED): TaskState.RUNNING,
    (_P, TaskEvent.FAILED): TaskState.ERROR,
    (_P, TaskEvent.CANCEL_ASKED): TaskState.CANCELLED,
    (_P, TaskEvent.WAITED_TOO_LONG): TaskState.EXPIRED,
    (_R, TaskEvent.SUCCEEDED): TaskState.COMPLETE,
    (_R, TaskEvent.FAILED): TaskState.ERROR,
    (_R, TaskEvent.TIMED_OUT): TaskState.TIMEOUT,
    (_R, TaskEvent.RETRIED): TaskState.RETRY,
    (_R, TaskEvent.CANCEL_ASKED): TaskState.CANCELLING,
    (_Y, TaskEvent.STARTED): TaskState.RUNNING,
    (_Y, TaskEvent.FAILED): TaskState.ERROR,
    (_Y, TaskEvent.CANCEL_ASKED): TaskState.CANCELLED,
    (_Y, TaskEvent.WAITED_TOO_LONG): TaskState.EXPIRED,
    (_C, TaskEvent.SUCCEEDED): TaskState.COMPLETE,
    (_C, TaskEvent.FAILED): TaskState.CANCELLED,
    (_C, TaskEvent.TIMED_OUT): TaskState.CANCELLED,
    (_C, TaskEvent.STOPPED): TaskState.CANCELLED,
    (_C, TaskEvent.CANCEL_ASKED): TaskState.CANCELLING,
}


class ContainerState(enum.StrEnum):
    """Where a container request stands."""

    REQUESTED = "requested"
    PLACED = "placed"
    READY = "ready"
    STOPPING = "stopping"
    ENDED = "ended"


class ContainerEvent(enum.StrEnum):
    """What can happen to a container."""

    PLACED = "placed"
    WORKER_LOST = "worker lost"
    BECAME_READY = "became ready"
    STOP_ASKED = "stop asked"
    ENDED = "ended"


_CS, _CE = ContainerState, ContainerEvent

CONTAINER_TRANSITIONS: Final[dict[tuple[ContainerState, ContainerEvent], ContainerState]] = {
    (_CS.REQUESTED, _CE.PLACED): _CS.PLACED,
    (_CS.REQUESTED, _CE.STOP_ASKED): _CS.ENDED,
    (_CS.PLACED, _CE.BECAME_READY): _CS.READY,
    (_CS.PLACED, _CE.STOP_ASKED): _CS.STOPPING,
    (_CS.PLACED, _CE.ENDED): _CS.ENDED,
    (_CS.PLACED, _CE.WORKER_LOST): _CS.ENDED,
    (_CS.READY, _CE.BECAME_READY): _CS.READY,
    (_CS.READY, _CE.STOP_ASKED): _CS.STOPPING,
    (_CS.READY, _CE.ENDED): _CS.ENDED,
    (_CS.READY, _CE.WORKER_LOST): _CS.ENDED,
    (_CS.STOPPING, _CE.BECAME_READY): _CS.STOPPING,
    (_CS.STOPPING, _CE.STOP_ASKED): _CS.STOPPING,
    (_CS.STOPPING, _CE.ENDED): _CS.ENDED,
    (_CS.STOPPING, _CE.WORKER_LOST): _CS.ENDED,
}


class WorkerState(enum.StrEnum):
    """Where a worker stands. `unknown` is not gone: nothing new is placed there, and nothing is taken away."""

    ORDERED = "ordered"
    PENDING = "pending"
    AVAILABLE = "available"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNKNOWN = "unknown"
    GONE = "gone"


class WorkerEvent(enum.StrEnum):
    """What can happen to a worker."""

    STARTED = "started"
    REPORTED = "reported"
    SILENT = "silent"
    CORDON_ASKED = "cordon asked"
    UNCORDON_ASKED = "uncordon asked"
    DRAIN_ASKED = "drain asked"
    EVIDENCE_OF_END = "evidence of end"
    LEASE_RAN_OUT = "lease ran out"


_W, _WE = WorkerState, WorkerEvent

WORKER_TRANSITIONS: Final[dict[tuple[WorkerState, WorkerEvent], WorkerState]] = {
    (_W.ORDERED, _WE.STARTED): _W.PENDING,
    (_W.ORDERED, _WE.REPORTED): _W.AVAILABLE,
    (_W.PENDING, _WE.STARTED): _W.PENDING,
    (_W.PENDING, _WE.REPORTED): _W.AVAILABLE,
    (_W.AVAILABLE, _WE.REPORTED): _W.AVAILABLE,
    (_W.AVAILABLE, _WE.SILENT): _W.UNKNOWN,
    (_W.AVAILABLE, _WE.CORDON_ASKED): _W.CORDONED,
    (_W.AVAILABLE, _WE.DRAIN_ASKED): _W.DRAINING,
    (_W.CORDONED, _WE.REPORTED): _W.CORDONED,
    (_W.CORDONED, _WE.SILENT): _W.UNKNOWN,
    (_W.CORDONED, _WE.UNCORDON_ASKED): _W.AVAILABLE,
    (_W.CORDONED, _WE.DRAIN_ASKED): _W.DRAINING,
    (_W.DRAINING, _WE.REPORTED): _W.DRAINING,
    (_W.DRAINING, _WE.SILENT): _W.UNKNOWN,
    (_W.UNKNOWN, _WE.REPORTED): _W.AVAILABLE,
    (_W.UNKNOWN, _WE.SILENT): _W.UNKNOWN,
    (_W.UNKNOWN, _WE.LEASE_RAN_OUT): _W.GONE,
} | {
    (state, _WE.EVIDENCE_OF_END): _W.GONE
    for state in (_W.ORDERED, _W.PENDING, _W.AVAILABLE, _W.CORDONED, _W.DRAINING, _W.UNKNOWN)
}


class End(enum.StrEnum):
    """How an attempt or a container ended (figures, "Kinds")."""

    OK = "ok"
    ERROR = "error"
    APP_FAILED_TO_LOAD = "app failed to load"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    OUT_OF_MEMORY = "out of memory"
    KILLED = "killed"
    IMAGE_INVALID = "image invalid"
    REFUSED = "refused"
    HANDED_BACK = "handed back"  # of an attempt only: no line of it ran, and another one follows


class TokenKind(enum.StrEnum):
    """What a token is good for (figures, "Kinds")."""

    CLUSTER_ADMIN = "cluster_admin"
    WORKSPACE_PRIMARY = "workspace_primary"
    WORKSPACE = "workspace"
    WORKSPACE_RESTRICTED = "workspace_restricted"
    WORKER = "worker"
    WORKER_PRIVATE = "worker_private"
    MACHINE = "machine"
    AGENT = "agent"
    REPLICA = "replica"
