"""The errors of levers9: one root, leaves that name the culprit, and a stable code for each that travels.

An error says what happened, why, and what to do; its message is built from its fields.
"""

from __future__ import annotations

from typing import ClassVar, Final


class LeversError(Exception):
    """Root of everything that levers9 raises on purpose. `code` is stable and travels; the text is for people."""

    code: ClassVar[str] = "internal"


class ClosedByUs(LeversError):
    """We closed the resource ourselves, then used it."""

    code = "closed"


class BrokenByPeer(LeversError):
    """The other side went away or broke the connection."""

    code = "broken"


class PeerProtocolError(BrokenByPeer):
    """The other side sent what the protocol does not allow."""

    code = "protocol"


class Busy(LeversError):
    """Two tasks use one direction of a resource at the same time."""

    code = "busy"


class WouldBlock(LeversError):
    """A `*_nowait` call could not be done at once, because a bounded buffer is full or empty."""

    code = "would_block"


class MailboxOverflowed(LeversError):
    """An actor was told more than it could take in; it restarts and reads the truth anew."""

    code = "overflowed"


class DeadlinePassed(LeversError):
    """An answer did not come before its deadline. Whether the request was carried out is not known."""

    code = "deadline"


class ChildFailed(LeversError):
    """A child of a supervisor ended before it was ready, or a process ended with a failure."""

    code = "child_failed"

    def __init__(self, child: str, why: str) -> None:
        self.child = child
        self.why = why
        super().__init__(f"{child}: {why}")


class SupervisorGaveUp(LeversError):
    """Children failed more often than their supervisor allows; `history` names them, oldest first."""

    code = "gave_up"

    def __init__(self, supervisor: str, history: tuple[str, ...]) -> None:
        self.supervisor = supervisor
        self.history = history
        super().__init__(f"{supervisor} gave up after {len(history)} failures: " + "; ".join(history[-5:]))


class StoreUnavailable(LeversError):
    """The store did not answer, and nothing was changed."""

    code = "store_unavailable"


class OutcomeUnknown(StoreUnavailable):
    """The connection broke during a commit: it may or may not have happened. Read the truth again."""

    code = "outcome_unknown"


class EpochSuperseded(LeversError):
    """A newer owner exists; what the older one says is refused."""

    code = "epoch_superseded"

    def __init__(self, owner: str, epoch: int) -> None:
        self.owner = owner
        self.epoch = epoch
        super().__init__(f"{owner} with epoch {epoch} has been superseded by a newer one")


class Refused(LeversError):
    """A request was understood and refused; `why` and `fix` are sentences for a person."""

    code = "refused"

    def __init__(self, what: str, why: str = "", fix: str = "", code: str = "refused") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        self.code = code  # type: ignore[misc]  # each refusal has its own code
        super().__init__(" ".join(part for part in (what, why, fix) if part))


class KubeUnavailable(LeversError):
    """A Kubernetes API server cannot be reached, or fails: nothing is known of what it would have said."""

    code = "kube_unavailable"


class KubeRefused(LeversError):
    """A Kubernetes API server said no; `status` is its HTTP status, `reason` its own word, such as "Forbidden"."""

    code = "kube_refused"

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"The Kubernetes API server refused it ({status} {reason}): {message}")


class AlreadyThere(KubeRefused):
    """An object of this name exists."""

    code = "kube_already_there"


class VersionGone(KubeRefused):
    """The version from which a watch was to go on is no longer kept: list again."""

    code = "kube_version_gone"


class TaskFailed(LeversError):
    """A task ended without a result, and its own exception could not be brought back. `state` says how it ended."""

    code = "task_failed"

    def __init__(self, task_id: str, state: str, why: str) -> None:
        self.task_id = task_id
        self.state = state
        self.why = why
        super().__init__(f"task {task_id} ended {state}: {why}")


class TaskCancelled(TaskFailed):
    """A task was cancelled before it had a result."""

    code = "task_cancelled"


class TaskTimedOut(TaskFailed):
    """A task ran longer than its `timeout`."""

    code = "task_timed_out"


class TaskExpired(TaskFailed):
    """A task waited longer than its `wait_s`, or its result is no longer kept."""

    code = "task_expired"


class TaskOutOfMemory(TaskFailed):
    """A task used more memory than it had asked for."""

    code = "task_out_of_memory"


class TaskLost(TaskFailed):
    """The worker that ran a task went away, and no retry was left."""

    code = "task_lost"


class JournalUnreadable(LeversError):
    """A journal is damaged, or of a version that this program does not read; `segment` counts from 1, 0 is the file."""

    code = "journal"

    def __init__(self, segment: int, why: str) -> None:
        self.segment = segment
        self.why = why
        where = f"Segment {segment} of this journal" if segment else "This file"
        super().__init__(f"{where} cannot be read: {why}. Record it anew with `levers9 trace record`.")


class ConfigError(LeversError):
    """A configuration file or variable is wrong; the message names the file, the line and the nearest right key."""

    code = "config"


UNAUTHENTICATED: Final = "unauthenticated"
FORBIDDEN: Final = "forbidden"
NOT_FOUND: Final = "not_found"
TOO_LARGE: Final = "too_large"
INVALID: Final = "invalid"
UNKNOWN_GPU: Final = "unknown_gpu"
NEVER_FITS: Final = "never_fits"
WRONG_PYTHON: Final = "wrong_python"
NOT_LEADER: Final = "not_leader"
RATE_LIMITED: Final = "rate_limited"
