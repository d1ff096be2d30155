"""One end of a session, with a reader and a writer for the carrier it has now. `link.py` makes the two kinds of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import msgspec
import trio

from ..errors import BrokenByPeer, ClosedByUs, LeversError, PeerProtocolError, WouldBlock
from ..model.figures import CARRIER_DEAD_AFTER_S, CARRIER_WRITE_LIMIT_S, GOODBYE_WAIT_S, HANDSHAKE_LIMIT_S
from .carrier import Carrier, CarrierStatistics
from .codec import Envelope
from .frames import Hello, pack_envelope
from .inbox import Inbox, LinkEvent
from .session import (
    GreetedAgain,
    Lost,
    Opened,
    PeerBack,
    PeerSilent,
    Phase,
    Received,
    SaidGoodbye,
    Session,
    SessionEvent,
    SessionStatistics,
)
from .sweep import next_tick
from .window import window_fulls


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A link at a glance: its session, the carrier it has now, and how many it had."""

    name: str
    open: bool
    silent: bool
    carriers: int
    session: SessionStatistics
    carrier: CarrierStatistics | None


class Link:
    """One end of a session. Any task may send; one task takes events."""

    def __init__(self, name: str, session: Session, clock: Callable[[], float]) -> None:
        self.name = name
        self.session = session
        self._clock = clock
        self._inbox = Inbox()
        self._wake = trio.Event()
        self._room = trio.Event()
        self._turn = trio.StrictFIFOLock()
        self.ended = trio.Event()
        self.ended_by: LeversError | None = None
        self._carrier: Carrier | None = None
        self._idle = trio.Event()
        self._idle.set()
        self._scope = trio.CancelScope()
        self._carriers = 0
        self._stale = 0  # envelopes of an earlier session that wait in the inbox: not to be acknowledged in this one
        self._needs_beats = False
        self._lost_at = clock()
        self.greeted_again: Hello | None = None

    # Sending.

    async def send(self, *envelopes: Envelope) -> None:
        """Queue these in order, waiting while the window is full; what is queued leaves at once.

        Cancelled while waiting, none of them is sent (unless together they are larger than a whole window).
        Raises `BrokenByPeer` once the session is over, `ClosedByUs` after `aclose`, `Refused` for one too large.
        """
        packed = [pack_envelope(envelope) for envelope in envelopes]
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._turn.locked() or not self._put(packed):
            await self._send_in_turn(packed)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def send_nowait(self, *envelopes: Envelope) -> None:
        """Queue all of these or none. Raises `WouldBlock` when the window is full; else as `send`."""
        packed = [pack_envelope(envelope) for envelope in envelopes]
        if self._turn.locked() or not self._put(packed):
            raise WouldBlock(f"the window of {self.name} is full")

    async def _send_in_turn(self, packed: list[bytes]) -> None:
        async with self._turn:
            for part in window_fulls(packed):
                while not self._put(part):
                    self._room = trio.Event()
                    await self._room.wait()

    def _put(self, packed: list[bytes]) -> bool:
        if self.ended_by is not None:
            raise self.ended_by
        if not self.session.fits(packed):
            return False
        self.session.put(packed)
        self._wake.set()
        return True

    # Receiving.

    async def next_event(self) -> LinkEvent:
        """What happened next; taking envelopes acknowledges them. After the end raises as `send`."""
        event = await self._inbox.take()
        if isinstance(event, Received):
            stale = min(self._stale, len(event.envelopes))
            self._stale -= stale
            if self.session.take(len(event.envelopes) - stale):
                self._wake.set()
        return event

    # The end.

    async def aclose(self) -> None:
        """Send what is queued, say goodbye, and end the session; within two seconds."""
        if self.ended_by is None and self.session.phase is Phase.OPEN:
            self.session.say_goodbye("closed")
            self._wake.set()
            with trio.move_on_after(GOODBYE_WAIT_S, shield=True):
                await self._idle.wait()
        self.end(ClosedByUs(f"{self.name} was closed"))
        await trio.lowlevel.checkpoint()

    def end(self, error: LeversError) -> None:
        """End the session for good: what was received can still be taken, then everything raises `error`."""
        if self.ended_by is None:
            self.ended_by = error
            self._drop(str(error))
            self._inbox.close(error)
            self._room.set()
            self.ended.set()

    def statistics(self) -> LinkStatistics:
        """The link now."""
        return LinkStatistics(
            name=self.name,
            open=self.session.phase is Phase.OPEN,
            silent=self.session.liveness.silent,
            carriers=self._carriers,
            session=self.session.statistics(),
            carrier=None if self._carrier is None else self._carrier.statistics(),
        )

    # One carrier: a reader and a writer, until either ends it.

    async def carry(self, carrier: Carrier, start: Callable[[], list[SessionEvent]]) -> None:
        """Go on over this carrier, in place of any other, until it ends. `start` is the session's first step on it."""
        while not self._idle.is_set():
            self._drop("a newer carrier took its place")
            await self._idle.wait()
        if self.ended_by is not None:
            return
        self._idle = trio.Event()
        self.greeted_again = None
        self._carrier = carrier
        self._carriers += 1
        try:
            await self._pump(carrier, start)
        finally:
            self._drop_carrier(carrier, "it was cancelled")
            self._idle.set()

    async def _pump(self, carrier: Carrier, start: Callable[[], list[SessionEvent]]) -> None:
        with trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_LIMIT_S) as self._scope:
            async with trio.open_nursery() as nursery:
                self._needs_beats = not carrier.watch_peer(self._peer_changed)
                self.due_changed()
                self._handle(start)
                nursery.start_soon(self._write, carrier)
                nursery.start_soon(self._read, carrier)
        self._drop_carrier(carrier, f"HELLO was not answered within {HANDSHAKE_LIMIT_S:g} s")

    async def _read(self, carrier: Carrier) -> None:
        try:
            while self._carrier is carrier:
                frame = await carrier.receive()
                if self._carrier is carrier:
                    self._handle(partial(self.session.receive, frame, self._clock()))
        except (BrokenByPeer, ClosedByUs) as error:
            self._drop_carrier(carrier, str(error))

    def _handle(self, step: Callable[[], list[SessionEvent]]) -> None:
        try:
            for event in step():
                self._happened(event)
        except PeerProtocolError as error:
            self._violated(error)
        self._room.set()

    def _happened(self, event: SessionEvent) -> None:
        if isinstance(event, SaidGoodbye):
            self._peer_left(event.why)
        elif isinstance(event, GreetedAgain):
            self.greeted_again = event.hello
            self._drop("the other side began anew")
        else:
            if isinstance(event, Opened):
                self._scope.deadline = math.inf
                self._wake.set()
                self._stale = self._stale if event.resumed else self._inbox.envelopes
                self._opened()
            self._inbox.put(event)

    async def _write(self, carrier: Carrier) -> None:
        with trio.CancelScope() as scope:
            try:
                while self._carrier is carrier:
                    await self._write_next(carrier, scope)
            except (BrokenByPeer, ClosedByUs) as error:
                self._drop_carrier(carrier, str(error))
        if scope.cancelled_caught:
            self._drop_carrier(carrier, f"it took no frame for {CARRIER_WRITE_LIMIT_S:g} s")

    async def _write_next(self, carrier: Carrier, scope: trio.CancelScope) -> None:
        frame = self.session.frame_to_send(self._clock())
        if frame is None:
            self._wake = trio.Event()
            await self._wake.wait()
            return
        scope.deadline = trio.current_time() + CARRIER_WRITE_LIMIT_S
        await carrier.send(frame)
        scope.deadline = math.inf

    def _drop(self, why: str) -> None:
        if self._carrier is not None:
            self._drop_carrier(self._carrier, why)

    def _drop_carrier(self, carrier: Carrier, why: str) -> None:
        if self._carrier is not carrier:
            return
        was_open = self.session.phase is Phase.OPEN
        self._carrier = None
        self._lost_at = self._clock()
        self.session.lose()
        self._scope.cancel()
        if was_open:
            self._inbox.put(Lost(why))
        self.due_changed()

    # What the two kinds of link do differently.

    def _opened(self) -> None:
        """A carrier is up."""

    def _peer_left(self, why: str) -> None:
        """The other side said goodbye."""
        self.end(BrokenByPeer(f"the other side of {self.name} left: {why}"))

    def _violated(self, error: PeerProtocolError) -> None:
        """The other side broke the protocol: the session is not to be resumed."""
        self.end(error)

    def due_changed(self) -> None:
        """Something may be due earlier than it was."""

    # The sweep looks here.

    def _peer_changed(self) -> None:
        carrier = self._carrier
        if carrier is not None:
            if self.session.liveness.heard(self._clock()):
                self._inbox.put(PeerBack())
            self.due_changed()

    def due_at(self, now: float) -> float:
        """When silence begins, a carrier is dead, or a heartbeat may be due."""
        liveness = self.session.liveness
        if self._needs_beats and (self._carrier is not None or not liveness.silent):
            return next_tick(now)
        if self._heard_now():
            return math.inf
        if not liveness.silent:
            return liveness.silent_at
        return math.inf if self._carrier is None else liveness.dead_at

    def look(self, now: float) -> None:
        """Send a heartbeat where one is due, tell of silence, and end a carrier that has been silent for too long."""
        liveness = self.session.liveness
        if self._needs_beats and self.session.phase is Phase.OPEN and liveness.heartbeat_due(now):
            self.session.beat()
            self._wake.set()
        if self._heard_now():
            return
        if liveness.fell_silent(now):
            self._inbox.put(PeerSilent())
        if now >= liveness.dead_at:
            self._drop(f"nothing was heard over it for {CARRIER_DEAD_AFTER_S:g} s")

    def _heard_now(self) -> bool:
        return not self._needs_beats and self._carrier is not None and self._carrier.peer_heard()

    def forgive(self, now: float) -> None:
        """Silence counts from now."""
        self.session.liveness.forgive(now)
