"""Who sits on a stream of ours, and what a relay needs of the links that it moves envelopes between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import trio

from ...errors import BrokenByPeer
from ...wire.codec import Envelope
from ...wire.link import Lost, Opened, PeerBack, PeerSilent, Received
from .outlet import Line, Outlet

LinkEvent = Opened | Received | PeerSilent | PeerBack | Lost


class Session(Line, Protocol):
    """What a relay needs of a link."""

    async def next_event(self) -> LinkEvent:
        """What happened next."""
        ...


class DialledSession(Session, Protocol):
    """A link that dials."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Dial and redial until cancelled."""
        ...


@dataclass(eq=False)
class Seat:
    """A peer, or a follower's relay, on a stream of ours."""

    address: str
    role: str
    token_hash: bytes
    line: Session
    outlet: Outlet


class Nobody:
    """The line to a leader that cannot be dialled yet."""

    async def send(self, *envelopes: Envelope) -> None:
        """Raises `BrokenByPeer`."""
        raise BrokenByPeer("the leader's gateway is not dialled yet")

    def send_nowait(self, *envelopes: Envelope) -> None:
        """Raises `BrokenByPeer`."""
        raise BrokenByPeer("the leader's gateway is not dialled yet")

    async def aclose(self) -> None:
        """Nothing to close."""
