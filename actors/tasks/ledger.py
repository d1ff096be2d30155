"""What `tasks` remembers between messages: calls that have not ended, their stubs, and the containers that run them."""

from __future__ import annotations

from collections import deque

import msgspec

from ...model.states import TASK_TRANSITIONS, TaskEvent, TaskState
from ...wire.client import StubSpec
from ...wire.message import Payload


class Call(msgspec.Struct, kw_only=True):
    """A task that has not ended. `attempt` counts the attempts started so far."""

    task_id: str
    stub_id: str
    arguments: Payload
    state: TaskState = TaskState.PENDING
    attempt: int = 0
    retries_used: int = 0
    container_id: str = ""
    accepted_at_s: float = 0.0
    retry_at_s: float = 0.0
    watchers: tuple[str, ...] = ()

    def move(self, event: TaskEvent) -> None:
        """Follow the table of task states. Raises KeyError for a pair that the table does not know."""
        self.state = TASK_TRANSITIONS[self.state, event]

    @property
    def waits(self) -> bool:
        """Whether the call may be delivered."""
        return self.state in (TaskState.PENDING, TaskState.RETRY)


class Warm(msgspec.Struct, kw_only=True):
    """A container of a stub: requested, or available with `window` credits. `holding` are its tasks, oldest first."""

    container_id: str
    stub_id: str
    requested_at_s: float
    worker_id: str = ""
    available: bool = False
    window: int = 0
    holding: dict[str, None] = msgspec.field(default_factory=dict)
    idle_since_s: float = 0.0
    leaving: bool = False

    @property
    def credits(self) -> int:
        """How many more calls it takes now."""
        return 0 if self.leaving or not self.available else max(0, self.window - len(self.holding))


class Stub(msgspec.Struct, kw_only=True):
    """A function, its waiting calls in order, its containers, and what is known of its durations and failures."""

    stub_id: str
    workspace_id: str
    spec: StubSpec
    waiting: deque[str] = msgspec.field(default_factory=deque)
    unfinished: int = 0
    containers: dict[str, Warm] = msgspec.field(default_factory=dict)
    mean_s: float | None = None
    first_started_at_s: float | None = None
    failed_starts: int = 0
    blocked_until_s: float = 0.0
    why_failed: str = ""
    why_held: str = ""
    progress_due: bool = False

    def learn_duration(self, duration_s: float) -> None:
        """Keep a moving mean of how long a call takes."""
        self.mean_s = duration_s if self.mean_s is None else 0.8 * self.mean_s + 0.2 * duration_s

    @property
    def available(self) -> int:
        """How many containers are warm."""
        return sum(warm.available for warm in self.containers.values())
