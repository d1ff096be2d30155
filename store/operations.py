"""The closed set of operations on the truth. Nothing else reads or changes it.

Each write is one conditional statement: it applies to the rows that meet its condition, and its answer names those.
A lost compare-and-set is an answer, never an error, so operations of one group never undo each other.
Times are Unix seconds, given by the caller: the store has no clock of its own.
"""

from __future__ import annotations

from typing import TypeVar, cast

import msgspec

from ..model.states import End, TaskState, TokenKind
from ..model.tokens import hash_of, hint_of
from ..wire.client import StubSpec
from ..wire.message import Failure, Payload
from .fleet_operations import *  # noqa: F403 (one set of operations, told in two files)
from .operation import Answer as Answer
from .operation import Applied as Applied
from .operation import Operation as Operation
from .operation import Row as Row

# Leadership


class Leadership(Row, frozen=True, kw_only=True):
    """Who leads, when by its own clock it last said so, and where its streams are dialled (`ws://host:1993`)."""

    epoch: int
    holder: str
    url: str
    renewed_at_s: float


class TakeLeadership(Operation, frozen=True, kw_only=True):
    """Lead with the next epoch if nobody leads, or if the leader has said nothing since. Answers `Leadership`.

    Nothing since: its epoch and its last renewal (by its own clock) still are those that the caller has seen for a
    whole lease (by the caller's), so no clock is compared with another. Without them only what nobody holds is taken.
    """

    holder: str
    url: str
    now_s: float
    silent_epoch: int = 0
    silent_since_s: float = 0.0


class RenewLeadership(Operation, frozen=True, kw_only=True):
    """Say that the leader of this epoch is alive. Answers `Leadership`; another epoch in it means: you lead no more."""

    epoch: int
    now_s: float


class ReadLeadership(Operation, frozen=True, kw_only=True):
    """Answers `Leadership`, or None when nobody ever led."""


class ResignLeadership(Operation, frozen=True, kw_only=True):
    """A leader that stops lets the next one begin at once, and its epoch writes no more. Answers `Applied`."""

    epoch: int


# Workspaces, tokens, stubs


class WorkspaceRow(Row, frozen=True, kw_only=True):
    """A workspace."""

    workspace_id: str
    name: str
    created_at_s: float


class CreateWorkspace(Operation, frozen=True, kw_only=True):
    """Answers `Applied` with the id, or nothing when the name is taken."""

    workspace_id: str
    name: str
    now_s: float


class ListWorkspaces(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `WorkspaceRow`, by name."""


class TokenRow(Row, frozen=True, kw_only=True):
    """A token without its value: `hash` is SHA-256, `hint` its first 6 and last 4 characters, `subject` a worker."""

    token_id: str
    workspace_id: str  # "" for the platform's own
    kind: TokenKind
    name: str
    hash: bytes
    hint: str
    active: bool
    created_at_s: float
    subject: str = ""

    @classmethod
    def of(
        cls,
        value: str,
        kind: TokenKind,
        workspace_id: str,
        name: str,
        *,
        token_id: str,
        now_s: float,
        subject: str = "",
    ) -> TokenRow:
        """What is kept of a new token with this value."""
        return cls(
            token_id=token_id,
            workspace_id=workspace_id,
            kind=kind,
            name=name,
            hash=hash_of(value),
            hint=hint_of(value),
            active=True,
            created_at_s=now_s,
            subject=subject,
        )


class CreateToken(Operation, frozen=True, kw_only=True):
    """Answers `Applied`."""

    token: TokenRow


class CreateTokens(Operation, frozen=True, kw_only=True):
    """Many at once, by id; known ids and hashes are left as they are. Answers `Applied` with the new ids."""

    tokens: tuple[TokenRow, ...]


class FindToken(Operation, frozen=True, kw_only=True):
    """Answers the active `TokenRow` with this hash, or None."""

    hash: bytes


class FindTokenOf(Operation, frozen=True, kw_only=True):
    """Answers the newest active `TokenRow` of this subject, or None."""

    subject: str


class ListTokens(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `TokenRow`, oldest first; `workspace_id` None lists all of them."""

    workspace_id: str | None = None


class RevokeTokens(Operation, frozen=True, kw_only=True):
    """Make tokens invalid, by id or subject, within a workspace (None: any).

    Answers `Applied` with the ids of those that were active.
    """

    token_ids: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    workspace_id: str | None = None


class StubRow(Row, frozen=True, kw_only=True):
    """A stub and its spec."""

    stub_id: str
    workspace_id: str
    spec: StubSpec
    created_at_s: float


class PutStub(Operation, frozen=True, kw_only=True):
    """Keep a stub; keeping it twice is keeping it once. Answers `Applied` with the id if it is new."""

    stub: StubRow


class ReadStubs(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `StubRow`; empty `stub_ids` means all of the workspace, or of all with None."""

    stub_ids: tuple[str, ...] = ()
    workspace_id: str | None = None


# Tasks


class TaskToAccept(msgspec.Struct, frozen=True, kw_only=True):
    """A call to commit. With `container_id` its first attempt starts there in the same statement."""

    task_id: str
    arguments: Payload
    container_id: str = ""
    worker_id: str = ""


class AcceptTasks(Operation, frozen=True, kw_only=True):
    """Commit calls as PENDING, or as RUNNING attempt 1 where a container is named. Known task ids are left as they are.

    Answers `Applied` with the ids that are new.
    """

    workspace_id: str
    stub_id: str
    tasks: tuple[TaskToAccept, ...]
    now_s: float


class AttemptStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start of attempt number `attempt` (from 1) in a container."""

    task_id: str
    attempt: int
    container_id: str
    worker_id: str


class StartAttempts(Operation, frozen=True, kw_only=True):
    """PENDING or RETRY with `attempt - 1` attempts so far becomes RUNNING. Answers `Applied` with the task ids."""

    starts: tuple[AttemptStart, ...]
    now_s: float


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a task with this attempt: a terminal state, or RETRY not before `retry_at_s`.

    `attempt` 0 ends a task that waits (PENDING or RETRY), whatever its number. `end` is how the attempt itself ended.
    """

    task_id: str
    attempt: int
    state: TaskState
    end: End
    result: Payload | None = None
    failure: Failure | None = None
    last_log_line: int = 0
    retry_at_s: float = 0.0
    uses_retry: bool = False  # adds 1 to the task's `retries_used`


class EndAttempts(Operation, frozen=True, kw_only=True):
    """RUNNING or CANCELLING with this very attempt (or waiting, for attempt 0) moves on. Answers `Applied`: task ids.

    A row in CANCELLING never becomes RETRY: it becomes CANCELLED then. COMPLETE stays COMPLETE in CANCELLING.
    """

    ends: tuple[AttemptEnd, ...]
    now_s: float


class CancelTasks(Operation, frozen=True, kw_only=True):
    """Waiting becomes CANCELLED, RUNNING becomes CANCELLING; terminal stays. Within a workspace (None: any).

    Answers a tuple of `TaskRow` without payloads: each task that exists, as it is now.
    """

    task_ids: tuple[str, ...]
    now_s: float
    workspace_id: str | None = None


class TaskRow(Row, frozen=True, kw_only=True):
    """A task. `attempt` counts the attempts started so far; `container_id` and `worker_id` are those of the newest."""

    task_id: str
    workspace_id: str
    stub_id: str
    state: TaskState
    attempt: int
    retries_used: int = 0
    arguments: Payload | None = None
    container_id: str = ""
    worker_id: str = ""
    accepted_at_s: float = 0.0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    retry_at_s: float = 0.0
    taken_at_s: float = 0.0
    result: Payload | None = None
    failure: Failure | None = None
    last_log_line: int = 0


class ReadTasks(Operation, frozen=True, kw_only=True):
    """Answers a tuple of whole `TaskRow`; unknown ids, and other workspaces' (None: any), are missing."""

    task_ids: tuple[str, ...]
    workspace_id: str | None = None


class ListTasks(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `TaskRow` without payloads, newest first; `before_s` pages on."""

    workspace_id: str | None = None
    states: tuple[TaskState, ...] = ()
    stub_id: str = ""
    limit: int = 100
    before_s: float = 0.0


class LoadUnfinished(Operation, frozen=True, kw_only=True):
    """Answers a tuple of whole `TaskRow`, not terminal, by (accepted_at_s, task_id), after that key, up to `limit`."""

    after: tuple[float, str] = (0.0, "")
    limit: int = 5000


class MarkTaken(Operation, frozen=True, kw_only=True):
    """The caller has the results. Answers `Applied` with those that have ended and were not taken before."""

    task_ids: tuple[str, ...]
    now_s: float


class PruneTasks(Operation, frozen=True, kw_only=True):
    """Delete terminal tasks taken or ended before these times, at most `limit`. Answers `Applied`."""

    taken_before_s: float
    ended_before_s: float
    limit: int = 5000


class AttemptRow(Row, frozen=True, kw_only=True):
    """An attempt that ended otherwise than well: the history of `task show`."""

    task_id: str
    attempt: int
    container_id: str
    worker_id: str
    end: End
    ended_at_s: float
    why: str = ""


class ListAttempts(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `AttemptRow`, oldest first; `EndAttempts` writes one for each end other than `End.OK`."""

    task_id: str


# The outbox


class OutboxRow(Row, frozen=True, kw_only=True):
    """A message that is owed: to whom, its key (one row a key), the packed message."""

    key: str
    target: str
    payload: bytes
    created_at_s: float


class PutOutbox(Operation, frozen=True, kw_only=True):
    """Owe messages; a known key is replaced. Answers `Applied` with the keys."""

    rows: tuple[OutboxRow, ...]


class AckOutbox(Operation, frozen=True, kw_only=True):
    """The receiver acknowledged. Answers `Applied`."""

    keys: tuple[str, ...]


class LoadOutbox(Operation, frozen=True, kw_only=True):
    """Answers a tuple of `OutboxRow`, oldest first."""


RowOf = TypeVar("RowOf", bound=Row)


def rows_of(answer: Answer, kind: type[RowOf]) -> tuple[RowOf, ...]:
    """The rows of an answer that is known to be a tuple of them. Raises TypeError for any other answer."""
    if not isinstance(answer, tuple) or not all(isinstance(row, kind) for row in answer):
        raise TypeError(f"the store answered {type(answer).__name__}, not rows of {kind.__name__}")
    return cast("tuple[RowOf, ...]", answer)
