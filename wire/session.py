"""A session: envelopes once and in order over carriers that come and go. Sans-IO (SPEC.md).

Whoever owns a session gives it the bytes that arrive, asks it for frames to send, and tells it the time.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Sequence

import msgspec

from ..errors import PeerProtocolError, WouldBlock
from ..model.figures import RESEND_ENVELOPES
from .codec import Envelope
from .frames import (
    PROTOCOL,
    Ack,
    Data,
    Frame,
    Goodbye,
    Hello,
    Welcome,
    pack_envelope,
    pack_frame,
    unpack_frame,
)
from .liveness import Liveness
from .window import Incoming, Outgoing


class Opened(msgspec.Struct, frozen=True):
    """A carrier is up. Not `resumed`: the other side has no memory of us, so bring it up to date."""

    resumed: bool


class Received(msgspec.Struct, frozen=True):
    """Envelopes, each once and in order."""

    envelopes: tuple[Envelope, ...]


class PeerSilent(msgspec.Struct, frozen=True):
    """Nothing was heard for 15 s. The other side is unknown, not dead."""


class PeerBack(msgspec.Struct, frozen=True):
    """The other side is heard again."""


class Lost(msgspec.Struct, frozen=True):
    """The carrier ended; the session goes on over the next one."""

    why: str


class SaidGoodbye(msgspec.Struct, frozen=True):
    """The other side ended the session, and everything it had sent before has arrived."""

    why: str


class GreetedAgain(msgspec.Struct, frozen=True):
    """A HELLO on an open carrier: whoever was there before has been replaced."""

    hello: Hello


SessionEvent = Opened | Received | PeerBack | SaidGoodbye | GreetedAgain


class SessionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has done since it was made or reset."""

    sent: int
    resent: int
    received: int
    duplicates: int
    unacknowledged: int
    unacknowledged_bytes: int
    untaken: int


class Phase(enum.Enum):
    """Where a session stands with its carrier."""

    DOWN = "down"
    GREETING = "greeting"
    OPEN = "open"


class Session:
    """One end. The dialler's is made without an identity and gets it with WELCOME; the acceptor's with one."""

    def __init__(self, *, now: float, identity: str = "") -> None:
        self.identity = identity
        self.phase = Phase.DOWN
        self.liveness = Liveness(now if identity else math.inf)
        self._outgoing = Outgoing()
        self._incoming = Incoming()
        self._greeting: bytes | None = None
        self._ordered = True
        self._opened_before = False
        self._beat = False
        self._farewell: str | None = None
        self._their_farewell: Goodbye | None = None
        self._early: deque[bytes] = deque()

    # Carriers come and go.

    def dial(self, *, ordered: bool = True) -> None:
        """The dialler has a new carrier: HELLO goes out first."""
        self._new_carrier(ordered)
        self.phase = Phase.GREETING
        self._greeting = pack_frame(
            Hello(PROTOCOL, self.identity, self._incoming.received, self._incoming.acknowledge())
        )

    def knows(self, hello: Hello) -> bool:
        """Whether the dialler can go on with this session."""
        known = bool(hello.session) and hello.session == self.identity
        return known and self._outgoing.can_rewind(hello.received, hello.acknowledged)

    def accept(self, hello: Hello, now: float, *, ordered: bool = True) -> list[SessionEvent]:
        """The acceptor answers a HELLO: of a dialler it knows, or, on a session that is new, of any other."""
        self._new_carrier(ordered)
        resumed = self.knows(hello)
        if resumed:
            self._outgoing.rewind(hello.received, hello.acknowledged)
        self.phase = Phase.OPEN
        self._greeting = pack_frame(
            Welcome(PROTOCOL, self.identity, resumed, self._incoming.received, self._incoming.acknowledge())
        )
        events: list[SessionEvent] = [PeerBack()] if self.liveness.heard(now) else []
        return [*events, Opened(resumed)]

    def _new_carrier(self, ordered: bool) -> None:
        self.lose()
        self._ordered = ordered

    def forget(self) -> None:
        """Nothing of this session can be resumed: the next HELLO asks for a new one."""
        self.identity = ""

    def lose(self) -> None:
        """The carrier is gone; what was not acknowledged is kept for the next."""
        self.phase = Phase.DOWN
        self._greeting = None
        self._beat = False
        self._their_farewell = None
        self._early.clear()

    # Sending.

    def send(self, *envelopes: Envelope) -> None:
        """Queue all of these or none. Raises `WouldBlock` when the window is full, `Refused` for one too large."""
        packed = [pack_envelope(envelope) for envelope in envelopes]
        if not self.fits(packed):
            raise WouldBlock(f"{len(self._outgoing)} messages are not acknowledged; the window is full")
        self.put(packed)

    def fits(self, packed: Sequence[bytes]) -> bool:
        """Whether all of these packed envelopes have room in the window now."""
        return self._outgoing.fits(packed)

    def put(self, packed: Sequence[bytes]) -> None:
        """Queue packed envelopes that fit."""
        self._outgoing.put(packed)

    def beat(self) -> None:
        """A heartbeat goes out next, unless data does."""
        self._beat = True

    def say_goodbye(self, why: str) -> None:
        """End the session once everything queued has been sent."""
        self._farewell = why

    def frame_to_send(self, now: float) -> bytes | None:
        """The next frame, or None when nothing is due. A batch holds what is ready, up to 64 KiB."""
        frame = self._next_frame()
        if frame is not None:
            self.liveness.spoke(now)
        return frame

    def _next_frame(self) -> bytes | None:
        if self._greeting is not None:
            frame, self._greeting = self._greeting, None
            return frame
        if self.phase is not Phase.OPEN:
            return None
        if self._outgoing.pending:
            self._beat = False
            return pack_frame(self._outgoing.next_batch(self._incoming.acknowledge()))
        if self._farewell is not None:
            frame, self._farewell = pack_frame(Goodbye(self._outgoing.sent, self._farewell)), None
            return frame
        if self._beat or self._incoming.ack_due:
            self._beat = False
            return pack_frame(Ack(self._incoming.acknowledge()))
        return None

    # Receiving.

    def receive(self, frame: bytes, now: float) -> list[SessionEvent]:
        """What a frame means. Raises `PeerProtocolError`; the carrier is to be ended then."""
        events: list[SessionEvent] = [PeerBack()] if self.liveness.heard(now) else []
        message = unpack_frame(frame)
        if self.phase is Phase.GREETING:
            return events + self._receive_greeting(message, frame)
        return events + self._receive_open(message, len(frame))

    def take(self, count: int) -> bool:
        """The owner took this many envelopes; says whether an acknowledgement is due for that alone."""
        self._incoming.take(count)
        return self._incoming.ack_due

    def _receive_greeting(self, message: Frame, frame: bytes) -> list[SessionEvent]:
        if isinstance(message, Welcome):
            return self._welcomed(message)
        if self._ordered or len(self._early) >= RESEND_ENVELOPES:
            raise PeerProtocolError(f"the other side sent {type(message).__name__} where Welcome comes first")
        self._early.append(frame)
        return []

    def _welcomed(self, welcome: Welcome) -> list[SessionEvent]:
        resumed = welcome.resumed
        if welcome.protocol != PROTOCOL or not welcome.session or (resumed and welcome.session != self.identity):
            raise PeerProtocolError(f"the other side answered with {welcome}")
        if resumed:
            self._outgoing.rewind(welcome.received, welcome.acknowledged)
        elif self._opened_before:
            self._outgoing, self._incoming = Outgoing(), Incoming()
        self.identity = welcome.session
        self._opened_before = True
        self.phase = Phase.OPEN
        events: list[SessionEvent] = [Opened(resumed)]
        while self._early:
            early = self._early.popleft()
            events += self._receive_open(unpack_frame(early), len(early))
        return events

    def _receive_open(self, message: Frame, size_bytes: int) -> list[SessionEvent]:
        events: list[SessionEvent] = []
        if isinstance(message, Data):
            self._outgoing.acknowledge(message.acknowledged)
            envelopes = self._incoming.accept(message, size_bytes, ordered=self._ordered)
            events = [Received(envelopes)] if envelopes else []
        elif isinstance(message, Ack):
            self._outgoing.acknowledge(message.acknowledged)
        elif isinstance(message, Goodbye):
            self._their_farewell = message
        elif isinstance(message, Hello):
            return [GreetedAgain(message)]
        else:
            raise PeerProtocolError("the other side sent Welcome to an open session")
        if self._their_farewell is not None:
            events += self._part(self._their_farewell)
        return events

    def _part(self, goodbye: Goodbye) -> list[SessionEvent]:
        if self._incoming.received >= goodbye.sent:
            self.forget()
            return [SaidGoodbye(goodbye.why)]
        if self._ordered:
            raise PeerProtocolError(f"the other side left after {goodbye.sent}; {self._incoming.received} arrived")
        return []

    def statistics(self) -> SessionStatistics:
        """Counts since the session was made or reset."""
        outgoing, incoming = self._outgoing, self._incoming
        return SessionStatistics(
            sent=outgoing.sent,
            resent=outgoing.resent,
            received=incoming.received,
            duplicates=incoming.duplicates,
            unacknowledged=len(outgoing),
            unacknowledged_bytes=outgoing.size_bytes,
            untaken=incoming.received - incoming.taken,
        )
