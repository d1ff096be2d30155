"""Links: sessions kept alive over carriers. `DialledLink` dials and redials; `Acceptor` takes what arrives."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import trio

from ..errors import BrokenByPeer, ClosedByUs, LeversError, PeerProtocolError, Refused, WouldBlock
from ..model.figures import (
    CARRIER_WRITE_LIMIT_S,
    DIAL_LIMIT_S,
    GOODBYE_WAIT_S,
    HANDSHAKE_LIMIT_S,
    RESEND_BYTES,
    RESEND_ENVELOPES,
    SESSION_KEPT_S,
)
from ..model.ids import Chance
from .carrier import Carrier, CarrierStatistics
from .codec import Envelope
from .frames import PROTOCOL, Hello, pack_envelope, unpack_frame
from .inbox import Inbox, LinkEvent
from .redial import Redial
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
from .sweep import Sweep, next_tick

__all__ = [
    "Acceptor",
    "DialledLink",
    "Link",
    "LinkEvent",
    "LinkStatistics",
    "Lost",
    "Opened",
    "PeerBack",
    "PeerSilent",
    "Received",
]

_EARLY_FRAMES: Final = 64  # frames of an earlier carrier that may arrive ahead of HELLO


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
        self._session = session
        self._clock = clock
        self._inbox = Inbox()
        self._wake = trio.Event()
        self._room = trio.Event()
        self._turn = trio.StrictFIFOLock()
        self._ended = trio.Event()
        self._ended_by: LeversError | None = None
        self._carrier: Carrier | None = None
        self._idle = trio.Event()
        self._idle.set()
        self._scope = trio.CancelScope()
        self._carriers = 0
        self._needs_beats = False
        self._lost_at = clock()
        self._greeted_again: Hello | None = None

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
            for part in _window_fulls(packed):
                while not self._put(part):
                    self._room = trio.Event()
                    await self._room.wait()

    def _put(self, packed: list[bytes]) -> bool:
        if self._ended_by is not None:
            raise self._ended_by
        if not self._session.fits(packed):
            return False
        self._session.put(packed)
        self._wake.set()
        return True

    # Receiving.

    async def next_event(self) -> LinkEvent:
        """What happened next; taking envelopes acknowledges them. After the end raises as `send`."""
        event = await self._inbox.take()
        if isinstance(event, Received) and self._session.take(len(event.envelopes)):
            self._wake.set()
        return event

    # The end.

    async def aclose(self) -> None:
        """Send what is queued, say goodbye, and end the session; within two seconds."""
        if self._ended_by is None and self._carrier is not None:
            self._session.say_goodbye("closed")
            self._wake.set()
            with trio.move_on_after(GOODBYE_WAIT_S, shield=True):
                await self._idle.wait()
        self._end(ClosedByUs(f"{self.name} was closed"))
        await trio.lowlevel.checkpoint()

    def _end(self, error: LeversError) -> None:
        if self._ended_by is None:
            self._ended_by = error
            self._drop(str(error))
            self._inbox.close(error)
            self._room.set()
            self._ended.set()

    def statistics(self) -> LinkStatistics:
        """The link now."""
        return LinkStatistics(
            name=self.name,
            open=self._session.phase is Phase.OPEN,
            silent=self._session.liveness.silent,
            carriers=self._carriers,
            session=self._session.statistics(),
            carrier=None if self._carrier is None else self._carrier.statistics(),
        )

    # One carrier: a reader and a writer, until either ends it.

    async def _carry(self, carrier: Carrier, start: Callable[[], list[SessionEvent]]) -> None:
        self._drop("a newer carrier took its place")
        await self._idle.wait()
        if self._ended_by is not None:
            return
        self._idle = trio.Event()
        self._greeted_again = None
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
                if self._handle(carrier, start):
                    nursery.start_soon(self._write, carrier)
                    nursery.start_soon(self._read, carrier)
        self._drop_carrier(carrier, f"HELLO was not answered within {HANDSHAKE_LIMIT_S:g} s")

    async def _read(self, carrier: Carrier) -> None:
        try:
            while self._carrier is carrier:
                frame = await carrier.receive()
                if self._carrier is carrier:
                    self._handle(carrier, partial(self._session.receive, frame, self._clock()))
        except (BrokenByPeer, ClosedByUs) as error:
            self._drop_carrier(carrier, str(error))

    def _handle(self, carrier: Carrier, step: Callable[[], list[SessionEvent]]) -> bool:
        try:
            for event in step():
                self._happened(event)
        except PeerProtocolError as error:
            self._drop_carrier(carrier, str(error))
            return False
        self._wake.set()
        self._room.set()
        return True

    def _happened(self, event: SessionEvent) -> None:
        if isinstance(event, SaidGoodbye):
            self._peer_left(event.why)
        elif isinstance(event, GreetedAgain):
            self._greeted_again = event.hello
            self._drop("the other side began anew")
        else:
            if isinstance(event, Opened):
                self._scope.deadline = math.inf
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
        frame = self._session.frame_to_send(self._clock())
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
        was_open = self._session.phase is Phase.OPEN
        self._carrier = None
        self._lost_at = self._clock()
        self._session.lose()
        self._scope.cancel()
        if was_open:
            self._inbox.put(Lost(why))
        self._due_changed()

    # What the two kinds of link do differently.

    def _opened(self) -> None:
        """A carrier is up."""

    def _peer_left(self, why: str) -> None:
        """The other side said goodbye."""
        self._end(BrokenByPeer(f"the other side of {self.name} left: {why}"))

    def _due_changed(self) -> None:
        """Something may be due earlier than it was."""

    # The sweep looks here.

    def _peer_changed(self) -> None:
        carrier = self._carrier
        if carrier is not None:
            if self._session.liveness.heard(self._clock()):
                self._inbox.put(PeerBack())
            self._due_changed()

    def due_at(self, now: float) -> float:
        """When silence begins, or a heartbeat may be due."""
        if self._needs_beats and (self._carrier is not None or not self._session.liveness.silent):
            return next_tick(now)
        heard = self._carrier is not None and self._carrier.peer_heard()
        return math.inf if heard or self._session.liveness.silent else self._session.liveness.silent_at

    def look(self, now: float) -> None:
        """Send a heartbeat where one is due, and tell of silence."""
        liveness = self._session.liveness
        if self._needs_beats and self._session.phase is Phase.OPEN and liveness.heartbeat_due(now):
            self._session.beat()
            self._wake.set()
        heard = not self._needs_beats and self._carrier is not None and self._carrier.peer_heard()
        if not heard and liveness.fell_silent(now):
            self._inbox.put(PeerSilent())

    def forgive(self, now: float) -> None:
        """Silence counts from now."""
        self._session.liveness.forgive(now)


class DialledLink(Link):
    """The end that dials. Its sessions end when the other side forgets them; the link goes on with a new one."""

    def __init__(
        self,
        *,
        name: str,
        dial: Callable[[], Awaitable[Carrier]],
        chance: Chance,
        redial: Redial | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        super().__init__(name, Session(now=clock()), clock)
        self._dial = dial
        self._chance = chance
        self._redial = redial or Redial()
        self._sweep = Sweep((self,), clock)
        self._opened_at = math.inf
        self._task_status: trio.TaskStatus[None] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Dial, and redial with full jitter, until cancelled or closed. Started once the first session is open.

        Raises `Refused` as soon as the other side refuses us for good.
        """
        self._task_status = task_status
        refused: Refused | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep.run)
            try:
                await self._keep_dialling()
            except Refused as error:
                refused = error
            nursery.cancel_scope.cancel()
        if refused is not None:
            self._end(refused)
            raise refused

    async def _keep_dialling(self) -> None:
        while self._ended_by is None:
            self._opened_at = math.inf
            await self._dial_once()
            healthy_s = max(0.0, self._clock() - self._opened_at)
            with trio.move_on_after(self._redial.wait_s(self._chance, healthy_s)):
                await self._ended.wait()

    async def _dial_once(self) -> None:
        try:
            with trio.fail_after(DIAL_LIMIT_S):
                carrier = await self._dial()
        except (BrokenByPeer, OSError, trio.TooSlowError):
            return
        try:
            await self._carry(carrier, lambda: self._greet(carrier))
        finally:
            await carrier.aclose()

    def _greet(self, carrier: Carrier) -> list[SessionEvent]:
        self._session.dial(ordered=carrier.ordered)
        return []

    def _opened(self) -> None:
        self._opened_at = self._clock()
        self._due_changed()
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None

    def _peer_left(self, why: str) -> None:
        self._drop(f"the other side left: {why}")

    def _due_changed(self) -> None:
        self._sweep.changed()


class _AcceptedLink(Link):
    """The end that was dialled. It is over for good when the other side leaves or stays away for too long."""

    def __init__(self, name: str, session: Session, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        super().__init__(name, session, acceptor.clock)

    def _due_changed(self) -> None:
        self._acceptor.due_changed()

    def due_at(self, now: float) -> float:
        gone_at = math.inf if self._carrier is not None else self._lost_at + self._acceptor.kept_s
        return min(super().due_at(now), gone_at)

    def look(self, now: float) -> None:
        super().look(now)
        if self._carrier is None and now - self._lost_at >= self._acceptor.kept_s:
            self._end(BrokenByPeer(f"{self.name} did not come back for {self._acceptor.kept_s:g} s"))

    def forgive(self, now: float) -> None:
        super().forgive(now)
        self._lost_at = max(self._lost_at, now)


class Acceptor:
    """Takes carriers that arrive, resumes the sessions it knows, and keeps those that lost theirs for a while.

    Start `run` first (`await nursery.start(acceptor.run)`): the links' owners and the one sweep live in it.
    """

    def __init__(
        self,
        *,
        chance: Chance,
        clock: Callable[[], float] = trio.current_time,
        kept_s: float = SESSION_KEPT_S,
    ) -> None:
        self.clock = clock
        self.kept_s = kept_s
        self._chance = chance
        self._links: dict[str, _AcceptedLink] = {}
        self._identities: dict[str, str] = {}
        self._swept: set[_AcceptedLink] = set()
        self._sweep = Sweep(self._swept, clock)
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all links until cancelled; an error of a link's owner ends it."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._sweep.run)
            task_status.started()

    def due_changed(self) -> None:
        """A link has something due earlier than before."""
        self._sweep.changed()

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """All links, those without a carrier too, by name."""
        return tuple(self._links[name].statistics() for name in sorted(self._links))

    async def serve(self, carrier: Carrier, *, name: str, on_link: Callable[[Link], Awaitable[None]]) -> None:
        """Run one arrived carrier until it ends.

        `on_link(link)` runs in `run`, once a session and not once a carrier, and the link is closed when it returns.
        A peer that comes as `name` without a session we know replaces the one of that name: its link breaks.
        """
        try:
            hello = await self._first_hello(carrier)
            while hello is not None:
                hello = await self._serve_session(carrier, hello, name, on_link)
        except BrokenByPeer:
            pass  # it left before it said who it is
        finally:
            await carrier.aclose()

    async def _first_hello(self, carrier: Carrier) -> Hello | None:
        with trio.move_on_after(HANDSHAKE_LIMIT_S):
            for _ in range(_EARLY_FRAMES):
                message = unpack_frame(await carrier.receive())
                if isinstance(message, Hello):
                    return message
        return None

    async def _serve_session(
        self, carrier: Carrier, hello: Hello, name: str, on_link: Callable[[Link], Awaitable[None]]
    ) -> Hello | None:
        if hello.protocol != PROTOCOL:
            raise PeerProtocolError(f"{name} speaks protocol {hello.protocol}; ours is {PROTOCOL}")
        link = self._links.get(name)
        resumed = link is not None and bool(hello.session) and self._identities[name] == hello.session
        if link is None or not resumed:
            link = self._new_link(name, on_link)
        session = link._session
        await link._carry(
            carrier, lambda: session.accept(hello, self.clock(), resumed=resumed, ordered=carrier.ordered)
        )
        return link._greeted_again

    def _new_link(self, name: str, on_link: Callable[[Link], Awaitable[None]]) -> _AcceptedLink:
        if self._nursery is None:
            raise RuntimeError("start Acceptor.run before Acceptor.serve")
        earlier = self._links.get(name)
        if earlier is not None:
            earlier._end(BrokenByPeer(f"{name} came back without its session"))
        identity = self._chance.id("session")
        link = _AcceptedLink(name, Session(now=self.clock(), identity=identity), self)
        self._links[name] = link
        self._identities[name] = identity
        self._swept.add(link)
        self._nursery.start_soon(self._own, link, on_link)
        return link

    async def _own(self, link: _AcceptedLink, on_link: Callable[[Link], Awaitable[None]]) -> None:
        try:
            await on_link(link)
        except BrokenByPeer:
            if link._ended_by is None:
                raise
        finally:
            self._forget(link)
            await link.aclose()

    def _forget(self, link: _AcceptedLink) -> None:
        self._swept.discard(link)
        if self._links.get(link.name) is link:
            del self._links[link.name], self._identities[link.name]


def _window_fulls(packed: list[bytes]) -> list[list[bytes]]:
    parts: list[list[bytes]] = [[]]
    size = 0
    for one in packed:
        if len(parts[-1]) == RESEND_ENVELOPES or size + len(one) > RESEND_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += len(one)
    return parts
