"""The conversation between `tasks` and the workers: attempts out, results back, both in batches."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..model.states import End
from .message import Failure, Message, Payload


class AttemptKey(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one task; the pair is what results and cancels are compared with."""

    task_id: str
    attempt: int


class AttemptOrder(msgspec.Struct, frozen=True, array_like=True):
    """One attempt to run. Sent only after its start was committed for this container: the delivery is the claim."""

    task_id: str
    attempt: int
    arguments: Payload
    timeout_s: float
    rank0: str = ""  # of a gang's call: host:port at which its members meet


class RunAttempts(Message, frozen=True, kw_only=True):
    """Attempts for a warm container, in order, at most as many as its credits."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "worker"
    container_id: str
    attempts: tuple[AttemptOrder, ...]


class CancelAttempts(Message, frozen=True, kw_only=True):
    """Start these no more; end those that run (TERM, 30 s, KILL). Each is answered in `AttemptsFinished`.

    `superseded` attempts have lost their claim: they are stopped, and their results are not wanted.
    """

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "worker"
    container_id: str
    attempts: tuple[AttemptKey, ...]
    superseded: bool = False


class AttemptResult(msgspec.Struct, frozen=True, array_like=True):
    """How one attempt ended. `started` is False when no line of the person's code was run for it."""

    task_id: str
    attempt: int
    end: End
    started: bool = True
    result: Payload | None = None
    failure: Failure | None = None
    duration_s: float = 0.0
    last_log_line: int = 0
    preempted: bool = False  # it was lost because its container made room for others: this uses no retry


class AttemptsFinished(Message, frozen=True, kw_only=True):
    """Results of a container, kept by the worker until `ResultsCommitted`; `window` is its credit from now on."""

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "tasks"
    container_id: str
    results: tuple[AttemptResult, ...]
    window: int


class ResultsCommitted(Message, frozen=True, kw_only=True):
    """These results are committed, or were refused for good because a newer attempt owns the task."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "worker"
    container_id: str
    attempts: tuple[AttemptKey, ...]


class AttemptsHeld(Message, frozen=True, kw_only=True):
    """After a new connection or a new leader: the attempts that a container holds, waiting or running.

    `tasks` answers with `CancelAttempts(superseded=True)` for those that are no longer its own. A `question` (not 0)
    wants to hear of the others too: the worker was cut off for so long that it starts none before `AttemptsConfirmed`.
    """

    sender: ClassVar[str] = "worker"
    receiver: ClassVar[str] = "tasks"
    container_id: str
    attempts: tuple[AttemptKey, ...]
    window: int
    question: int = 0


class AttemptsConfirmed(Message, frozen=True, kw_only=True):
    """The answer to a `question` of `AttemptsHeld`: these are still this container's, and may start."""

    sender: ClassVar[str] = "tasks"
    receiver: ClassVar[str] = "worker"
    container_id: str
    attempts: tuple[AttemptKey, ...]
    question: int
