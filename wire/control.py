"""The conversation that holds the house together: gateways and their brain, leaders, silence, inspection."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from .message import Message, WhenFull


class GatewayReady(Message, frozen=True, kw_only=True):
    """A gateway process is up and routes envelopes of these peers."""

    sender: ClassVar[str] = "gateway"
    receiver: ClassVar[str] = "leader"
    gateway_id: str
    peers: tuple[str, ...] = ()


class LeaderIs(Message, frozen=True, kw_only=True):
    """Who leads. Envelopes for its actors go there; `url` is empty when the brain that says so leads itself."""

    sender: ClassVar[str] = "leader"
    receiver: ClassVar[str] = "gateway"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    epoch: int
    url: str = ""

    def coalesce_key(self) -> str:
        """There is one leader."""
        return ""


class ReportAgain(Message, frozen=True, kw_only=True):
    """A new leader asks: workers report all they hold, callers watch their tasks anew and submit the unanswered."""

    sender: ClassVar[str] = "leader"
    receiver: ClassVar[str] = "peer"
    epoch: int


class PeerArrived(Message, frozen=True, kw_only=True):
    """A peer (worker or caller) opened a stream on this gateway."""

    sender: ClassVar[str] = "gateway"
    receiver: ClassVar[str] = "leader"
    peer: str


class PeerQuiet(Message, frozen=True, kw_only=True):
    """Nothing was heard of a peer for 15 s, or its stream closed. It is unknown, not dead.

    Of an agent `clusters` is told, of all others the scheduler.
    """

    sender: ClassVar[str] = "gateway"
    receiver: ClassVar[str] = "scheduler"
    peer: str
    closed: bool


class Down(Message, frozen=True, kw_only=True):
    """A child of a supervisor ended a life: it crashed, ended by itself, or was stopped. It may come back."""

    sender: ClassVar[str] = "supervisor"
    receiver: ClassVar[str] = "watcher"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    name: str
    reason: str

    def coalesce_key(self) -> str:
        """One a child."""
        return self.name


class StopAsked(Message, frozen=True, kw_only=True):
    """Finish what is in hand and return; whoever does not is cancelled when its time is over."""

    sender: ClassVar[str] = "supervisor"
    receiver: ClassVar[str] = "child"
    when_full: ClassVar[WhenFull] = WhenFull.COALESCE
    reason: str

    def coalesce_key(self) -> str:
        """It is asked once."""
        return ""


class Inspect(Message, frozen=True, kw_only=True):
    """Show the live tree."""

    sender: ClassVar[str] = "client"
    receiver: ClassVar[str] = "supervisor"


class ChildStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One child in the supervision tree."""

    path: str  # "brain/scheduler"
    kind: str  # "actor", "supervisor", "process"
    state: str  # "starting", "running", "waiting", "stopped", "gave up", "quarantined"
    restarts: int
    mailbox_depth: int = 0
    mailbox_slots: int = 0
    received: int = 0
    handled: int = 0
    failed: int = 0
    received_per_s: float = 0.0
    last_failure: str = ""
    process_id: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What a brain counted since its process began: calls, the commits of its actors, and what its store says.

    `tasks_failed` are those of `tasks_finished` that did not complete. `commit_s` is the time that `commits` took in
    all, as the actors wait for them.
    """

    tasks_accepted: int = 0
    tasks_finished: int = 0
    tasks_failed: int = 0
    commits: int = 0
    commit_s: float = 0.0
    store_operations: int = 0
    store_commits: int = 0
    store_failures: int = 0
    store_largest_group: int = 0
    store_waiting: int = 0


class Inspected(Message, frozen=True, kw_only=True):
    """The tree, depth first, and how many dead letters there are, newest sentences last."""

    sender: ClassVar[str] = "supervisor"
    receiver: ClassVar[str] = "client"
    children: tuple[ChildStanding, ...]
    dead_letters: int = 0
    latest_dead: tuple[str, ...] = ()
    totals: Totals = Totals()
