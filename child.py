"""A child of a supervisor: its spec, and one life of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import msgspec
import trio

from .errors import LeversError, PeerProtocolError
from .model.figures import MAILBOX_SLOTS
from .supervision import Backoff, Ending, Lifetime
from .wire.mailbox import Mailbox
from .wire.quarantine import Quarantine


class StartChild(Protocol):
    """A child: calls `task_status.started()` when it is ready, and runs until it is cancelled or done."""

    async def __call__(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Live one life."""
        ...


class ChildSpec(msgspec.Struct, frozen=True):
    """A child and how it is to be treated.

    To stop it, it is asked first and given `finish_s` (0: it is not asked), then cancelled and given `shutdown_s`.
    A child that is not ready within `start_within_s` counts as crashed. When a `significant` child ends for good, its
    supervisor stops as well. `keep_mailbox` is for actors without a store: what waits is kept for their next life.
    Its mailbox gets `address` in the post: its name if None, no address if empty. A `quarantine` that is given outlives
    the supervisor, for one that is made anew after each failure.
    """

    name: str
    start: StartChild
    restart: Lifetime = Lifetime.PERMANENT
    shutdown_s: float = 5.0
    finish_s: float = 0.0
    start_within_s: float = 60.0
    backoff: Backoff = Backoff()
    significant: bool = False
    keep_mailbox: bool = False
    address: str | None = None
    mailbox_slots: int = MAILBOX_SLOTS
    quarantine: Quarantine | None = None

    @property
    def post_address(self) -> str:
        """Where the post finds its mailbox."""
        return self.name if self.address is None else self.address


class Life:
    """One life of a child, from its start to its end; it is also the `task_status` that the child is given."""

    def __init__(self, child: Child, clock: Callable[[], float]) -> None:
        self.scope = trio.CancelScope()
        self.settled = trio.Event()  # it is ready, or it ended before it was
        self.ended = trio.Event()
        self.ready_at_s: float | None = None
        self.asked_to_end = ""  # why
        self.late = False
        self.failure: Exception | None = None
        self.ending: Ending | None = None
        self._child = child
        self._clock = clock

    def started(self, value: None = None) -> None:
        """The child is ready."""
        self.ready_at_s = self._clock()
        self._child.state = "running"
        self.settled.set()

    def cancel(self, reason: str, *, late: bool = False) -> None:
        """End it. `late`: because it is not ready in time, which is a failure."""
        self.asked_to_end = self.asked_to_end or reason
        self.late = self.late or late
        self.scope.cancel(reason=reason)

    @property
    def suspicious(self) -> bool:
        """Whether it crashed and a letter may be the cause. Most of our own errors tell of its surroundings."""
        return self.failure is not None and any(
            not isinstance(error, LeversError) or isinstance(error, PeerProtocolError)
            for error in _leaves(self.failure)
        )

    def conclude(self) -> Ending:
        """How it ended; called once, when it has."""
        now = self._clock()
        lived_s = 0.0 if self.ready_at_s is None else now - self.ready_at_s
        crashed = self.failure is not None or self.late
        why = _words(self.failure) if self.failure is not None else self.asked_to_end or "it returned"
        self.ending = Ending(self._child.spec.name, now, why, crashed, lived_s)
        return self.ending


class Child:
    """A child over all its lives."""

    def __init__(self, spec: ChildSpec, clock: Callable[[], float]) -> None:
        self.spec = spec
        self.mailbox = Mailbox(spec.name, spec.mailbox_slots, clock=clock, quarantine=spec.quarantine)
        self.life: Life | None = None
        self.coming_back = trio.CancelScope()
        self.lives = 0
        self.state = "waiting"
        self.last_failure = ""


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for each in cast("ExceptionGroup[Exception]", error).exceptions:
            yield from _leaves(each)
    else:
        yield error


def _words(error: Exception) -> str:
    """An exception in one line; of a group, what is in it."""
    return "; ".join(f"{type(each).__name__}: {each}".removesuffix(": ") for each in _leaves(error))
