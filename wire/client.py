"""The conversation between a caller (SDK, CLI) and the control plane: stubs, calls, results, cancels, logs."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..model.figures import JOB_KEEP_WARM_S
from ..model.gangs import Together
from ..model.queues import DEFAULT
from ..model.reasons import Reason
from ..model.resources import Shape
from ..model.states import TaskState
from .message import Failure, Message, Payload, WhenFull


class StubSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function as the platform knows it: where its code is, what it needs, how it runs. Equal specs are one."""

    app: str
    name: str
    kind: str  # "job"
    handler: str  # "module:function", or "pickle:<object key>" for a function by value
    code_key: str  # the object key of the code manifest, or "" without code
    python: str  # "3.11": pickles travel between equal minors only
    interpreter: str = ""  # the caller's own interpreter, used in `dev`
    shape: Shape
    timeout_s: float
    retries: int
    max_containers: int = 0  # 0: as many as there is room for
    keep_warm_s: float = JOB_KEEP_WARM_S
    env: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0  # waiting limit for missing machines; 0: none
    nodes: int = 1  # containers of one call: each runs it, with a rank of its own
    together: Together = Together()
    queue: str = DEFAULT
    priority: str = DEFAULT


class RegisterStub(Message, frozen=True, kw_only=True):
    """Make a function known; answered by `StubRegistered` or `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    spec: StubSpec


class StubRegistered(Message, frozen=True, kw_only=True):
    """The stub's identity: the same spec in the same workspace always has the same one."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    stub_id: str


class RequestRefused(Message, frozen=True, kw_only=True):
    """The answer to any request that was refused; the envelope's correlation id names the request."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    failure: Failure


class NewTask(msgspec.Struct, frozen=True, array_like=True):
    """One call. The caller makes its identity, so that submitting twice is submitting once."""

    task_id: str
    arguments: Payload


class SubmitTasks(Message, frozen=True, kw_only=True):
    """Calls of one stub; answered by `TasksAccepted` once they are committed, or by `RequestRefused`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    stub_id: str
    tasks: tuple[NewTask, ...]


class TasksAccepted(Message, frozen=True, kw_only=True):
    """The calls are committed (now, or before by an earlier copy of the same submission)."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    task_ids: tuple[str, ...]


class WatchTasks(Message, frozen=True, kw_only=True):
    """Send the results of these tasks to me from now on: after a new connection, or by another caller."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    task_ids: tuple[str, ...]


class TaskResult(msgspec.Struct, frozen=True, array_like=True):
    """How one task ended. `last_log_line` is the number of its last log line, over all streams of its last attempt."""

    task_id: str
    state: TaskState
    attempt: int
    result: Payload | None = None
    failure: Failure | None = None
    last_log_line: int = 0


class TasksFinished(Message, frozen=True, kw_only=True):
    """Results, committed before they are sent; answered by `ResultsTaken`. Tasks nobody knows come as EXPIRED."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    results: tuple[TaskResult, ...]


class ResultsTaken(Message, frozen=True, kw_only=True):
    """The caller has these results; they need be kept only a little longer."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    task_ids: tuple[str, ...]


class CancelTasks(Message, frozen=True, kw_only=True):
    """Cancel; answered by `CancelAccepted` once that is committed. The end comes with `TasksFinished`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    task_ids: tuple[str, ...]


class TaskStanding(msgspec.Struct, frozen=True, array_like=True):
    """A task and its state."""

    task_id: str
    state: TaskState


class CancelAccepted(Message, frozen=True, kw_only=True):
    """The state of each task after the cancel: CANCELLING while code may still run, else terminal."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    standings: tuple[TaskStanding, ...]


class ExplainTask(Message, frozen=True, kw_only=True):
    """Why does this task wait? Answered by `TaskExplained`."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "tasks"
    task_id: str


class TaskExplained(Message, frozen=True, kw_only=True):
    """The state and the sentences, outermost reason first."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    task_id: str
    state: TaskState
    reasons: tuple[str, ...]
    holds: tuple[Reason, ...] = ()  # the same as data, where room is what it waits for


class TasksProgressed(Message, frozen=True, kw_only=True):
    """How many of a caller's tasks of a stub wait, run, and have ended; the newest replaces older ones."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "client"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    stub_id: str
    pending: int
    running: int
    containers: int
    waiting_because: str = ""

    def coalesce_key(self) -> str:
        """One a stub."""
        return self.stub_id
