"""Moves envelopes between peers, the brain, and other replicas' gateways; performs what the policy decides.

Towards the leader a peer's reader waits while the window is full, and so only that peer waits. Towards peers nobody
waits: each has an outlet of its own, and one that is too slow for it is cut off and resynchronises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog
import trio

from ...errors import FORBIDDEN, BrokenByPeer, ClosedByUs, PeerProtocolError, Refused
from ...model.figures import PEER_SILENT_AFTER_S
from ...model.ids import Chance
from ...wire.client import RequestRefused
from ...wire.cluster import DialWorkers
from ...wire.codec import Envelope, pack
from ...wire.control import GatewayReady, LeaderIs, ReportAgain
from ...wire.letter import Letter, open_envelope
from ...wire.link import Lost, Opened, PeerBack, PeerSilent, Received
from ...wire.message import Failure, Message
from ...wire.post import Post
from .leadership import LeadershipWatch, ReadLeader
from .outlet import QUEUE_BYTES, Line, Outlet
from .policy import (
    Announce,
    AskGatewaysToReport,
    AskPeersToReport,
    AskStoreWhoLeads,
    BrainHeard,
    BrainHushed,
    BrainOpened,
    DialUpstream,
    Event,
    GatewayPolicy,
    HangUpUpstream,
    LeaderTold,
    PeerHushed,
    PeerLeft,
    PeerOpened,
    Place,
    RelayBrought,
    RelayLeft,
    TrustBrain,
    UpstreamOpened,
)
from .seats import DialledSession, LinkEvent, Nobody, Seat, Session
from .stamps import Stamp, by_target, stamped, tag_of

REFUSED_AGAIN_AFTER_S: Final = 5.0  # another replica refuses our token: an operator has to act, and may have
_UNSENDABLE: Final = (BrokenByPeer, ClosedByUs, Refused)
_log: Final = structlog.get_logger("gateway.relay")


class RelayStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a relay has and did so far, in envelopes."""

    clients: int
    workers: int
    agents: int
    relays: int
    up: int
    down: int
    dropped: int
    refused: int
    overflows: int
    epoch: int
    leader_url: str
    brain_open: bool


class _Counts:
    def __init__(self) -> None:
        self.up = self.down = self.dropped = self.refused = self.overflows = 0


class Relay:
    """One gateway's relay. `dial_upstream` makes a link to another replica's gateway; `read_leader` asks the store.

    `queue_bytes` is what may wait for one peer beyond the window of its session.
    """

    def __init__(
        self,
        *,
        policy: GatewayPolicy,
        brain: DialledSession,
        dial_upstream: Callable[[str], DialledSession],
        read_leader: ReadLeader,
        post: Post,
        chance: Chance,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._policy = policy
        self._brain = brain
        self._to_brain = Outlet(brain)
        self._dial_upstream = dial_upstream
        self._post = post
        self._chance = chance
        self._queue_bytes = queue_bytes
        self._seats: dict[str, Seat] = {}
        self._relays: dict[str, Seat] = {}
        self._upstream: Session | None = None
        self._to_upstream: Outlet | None = None
        self._upstream_scope = trio.CancelScope()
        self._watch = LeadershipWatch(read_leader, self._happened)
        self._waiting: dict[trio.CancelScope, None] = {}
        self._nursery: trio.Nursery | None = None
        self._counts = _Counts()
        self._brain_open = False
        self.leader_known = trio.Event()
        self.on_dial: Callable[[DialWorkers], None] = lambda _: None

    def statistics(self) -> RelayStatistics:
        """What it has and did so far."""
        standing, counts = self._policy.snapshot(), self._counts
        roles = [seat.role for seat in self._seats.values()]
        return RelayStatistics(
            clients=roles.count("client"),
            workers=roles.count("worker"),
            agents=roles.count("agent"),
            relays=len(self._relays),
            up=counts.up,
            down=counts.down,
            dropped=counts.dropped,
            refused=counts.refused,
            overflows=counts.overflows,
            epoch=standing.epoch,
            leader_url=standing.url,
            brain_open=self._brain_open,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the links to the brain and, while another replica leads, to that one; until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._brain.run)
            self._nursery.start_soon(self._to_brain.run)
            self._nursery.start_soon(self._read_brain)
            self._happened(BrainHushed(silent_s=0.0))
            task_status.started()

    async def send(self, *envelopes: Envelope) -> None:
        """Send to the control plane, as one of our peers would; waits while the window is full."""
        await self._leader_line().send(*envelopes)

    def send_nowait(self, *envelopes: Envelope) -> None:
        """Send to the control plane. Raises `WouldBlock` while the window is full."""
        self._leader_line().send_nowait(*envelopes)

    # --- Peers ---------------------------------------------------------------------------------------------------

    async def serve_peer(self, line: Session, stamp: Stamp, token_hash: bytes) -> None:
        """Serve one peer's session until it is over. A newer session of the same peer takes its place."""
        seat = Seat(stamp.source, stamp.role, token_hash, line, Outlet(line, size_bytes=self._queue_bytes))
        self._seats[seat.address] = seat
        try:
            await self._serve(seat, lambda event: self._from_peer(seat, stamp, event))
        finally:
            if self._seats.get(seat.address) is seat:
                del self._seats[seat.address]
                self._happened(PeerHushed(peer=seat.address, closed=True))
                self._happened(PeerLeft(peer=seat.address))

    async def serve_relay(self, line: Session, name: str, token_hash: bytes) -> None:
        """Serve the relay of a follower's gateway until it is over."""
        seat = Seat(name, "relay", token_hash, line, Outlet(line, size_bytes=self._queue_bytes))
        self._relays[name] = seat
        try:
            await self._serve(seat, lambda event: self._from_relay(seat, event))
        finally:
            if self._relays.get(name) is seat:
                del self._relays[name]
                self._happened(RelayLeft(relay=name))

    async def close_streams_of(self, token_hashes: Iterable[bytes]) -> int:
        """End the sessions that these tokens opened: they are revoked. Answers how many."""
        gone = frozenset(token_hashes)
        seats = [seat for seat in (*self._seats.values(), *self._relays.values()) if seat.token_hash in gone]
        for seat in seats:
            await seat.line.aclose()
        return len(seats)

    def token_hashes(self) -> tuple[bytes, ...]:
        """The tokens by which the open sessions came."""
        seats = (*self._seats.values(), *self._relays.values())
        return tuple(dict.fromkeys(seat.token_hash for seat in seats if seat.token_hash))

    async def _serve(self, seat: Seat, take: Callable[[LinkEvent], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, seat, nursery.cancel_scope)
            try:
                while True:
                    await take(await seat.line.next_event())
            except (BrokenByPeer, ClosedByUs) as error:
                if isinstance(error, PeerProtocolError):
                    _log.warning("a peer broke the protocol", peer=seat.address, why=str(error))
            nursery.cancel_scope.cancel()

    async def _pump(self, seat: Seat, scope: trio.CancelScope) -> None:
        await seat.outlet.run()
        scope.cancel()

    async def _from_peer(self, seat: Seat, stamp: Stamp, event: LinkEvent) -> None:
        match event:
            case Received(envelopes=envelopes):
                passed, refused = stamped(stamp, envelopes)
                if refused:
                    self._refuse(seat, refused)
                if passed:
                    await self._send_by(self._leader_line(), passed)
            case Opened() | PeerBack():
                self._happened(PeerOpened(peer=seat.address))
            case PeerSilent():
                self._happened(PeerHushed(peer=seat.address, closed=False))
            case Lost():
                self._happened(PeerHushed(peer=seat.address, closed=True))

    async def _send_by(self, line: Line, envelopes: Sequence[Envelope]) -> None:
        """Wait for room at whoever leads. When another does meanwhile, what waited is dropped, and asked for again."""
        sent = False
        with trio.CancelScope() as scope:
            self._waiting[scope] = None
            try:
                await line.send(*envelopes)
                sent = True
            except _UNSENDABLE:
                pass  # counted below: the ends resynchronise
            finally:
                del self._waiting[scope]
        self._counts.up += len(envelopes) if sent else 0
        self._counts.dropped += 0 if sent else len(envelopes)

    def _refuse(self, seat: Seat, envelopes: Sequence[Envelope]) -> None:
        self._counts.refused += len(envelopes)
        for one in envelopes:
            tag = tag_of(one.payload).decode(errors="replace") or "something unreadable"
            _log.warning("a peer may not send this", peer=seat.address, message=tag, target=one.target)
            if one.id and seat.role == "client":
                what = f"A client may not send {tag} to {one.target!r}."
                failure = Failure(FORBIDDEN, what, "It is another's to say, or this gateway is older than the client.")
                self._put(seat, [self._envelope(RequestRefused(failure=failure), seat.address, one.id)])

    # --- The brain, and other replicas -----------------------------------------------------------------------------

    async def _read_brain(self) -> None:
        while True:
            event = await self._brain.next_event()
            match event:
                case Received(envelopes=envelopes):
                    self._dispatch(envelopes, Place.BRAIN)
                case Opened(resumed=resumed):
                    self._brain_open = True
                    self._happened(BrainOpened(resumed=resumed))
                case Lost(why=why):
                    self._brain_open = False
                    _log.warning("the brain cannot be reached", why=why)
                    self._happened(BrainHushed(silent_s=0.0))
                case PeerSilent():
                    _log.warning("the brain is silent", for_s=PEER_SILENT_AFTER_S)
                    self._happened(BrainHushed(silent_s=PEER_SILENT_AFTER_S))
                case PeerBack():
                    _log.info("the brain is heard again")
                    self._happened(BrainHeard())

    async def _from_relay(self, seat: Seat, event: LinkEvent) -> None:
        if not isinstance(event, Received):
            return
        self._learn(seat, event.envelopes)
        up = [one for one in event.envelopes if not self._is_peer(one.target)]
        self._dispatch([one for one in event.envelopes if self._is_peer(one.target)], Place.DOWNSTREAM)
        if up:
            await self._send_by(self._brain, up)

    def _learn(self, seat: Seat, envelopes: Sequence[Envelope]) -> None:
        new = {one.source for one in envelopes if self._policy.relay_of(one.source) != seat.address}
        for one in envelopes:
            if tag_of(one.payload) == b"GatewayReady":
                message = open_envelope(one).message
                new |= set(message.peers) if isinstance(message, GatewayReady) else set()
        if new:
            self._happened(RelayBrought(relay=seat.address, addresses=tuple(sorted(new))))

    def _is_peer(self, target: str) -> bool:
        return self._policy.place_of(target) not in (Place.BRAIN, Place.UPSTREAM)

    async def _run_upstream(self, url: str, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                await self._dial(url)
                await trio.sleep(REFUSED_AGAIN_AFTER_S)

    async def _dial(self, url: str) -> None:
        """One link to the leader's gateway, until that refuses us for good or another leads."""
        link = self._dial_upstream(url)
        self._upstream, self._to_upstream = link, Outlet(link)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._to_upstream.run)
                nursery.start_soon(self._read_upstream, link)
                await link.run()
                nursery.cancel_scope.cancel()
        except* Refused as refusal:
            _log.error("the leader's gateway refuses us", url=url, why=str(refusal.exceptions[0]))
        except* (BrokenByPeer, ClosedByUs) as broken:
            _log.warning("the relay to the leader ended", url=url, why=str(broken.exceptions[0]))
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose()

    async def _read_upstream(self, link: Session) -> None:
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                self._dispatch(event.envelopes, Place.UPSTREAM)
            elif isinstance(event, Opened):
                _log.info("the relay to the leader is open", resumed=event.resumed)
                self._happened(UpstreamOpened(resumed=event.resumed))

    # --- Dispatch ------------------------------------------------------------------------------------------------

    def _dispatch(self, envelopes: Sequence[Envelope], came_from: Place) -> None:
        """Envelopes for peers and for ourselves; of the brain also those for a leader elsewhere."""
        from_brain = came_from is Place.BRAIN
        for target, group in by_target(envelopes).items():
            place = self._policy.place_of(target)
            if from_brain and not self._policy.may_speak_to_peers(place):
                self._counts.dropped += len(group)
            elif place is Place.PEER:
                self._put(self._seats.get(target), group)
            elif place is Place.DOWNSTREAM:
                self._put(self._relays.get(self._policy.relay_of(target)), group)
            elif place is Place.OWN:
                self._take_own(group, came_from)
            elif place is Place.UPSTREAM and from_brain and self._to_upstream is not None:
                self._counts.dropped += self._to_upstream.put(group)
            else:
                self._counts.dropped += len(group)

    def _put(self, seat: Seat | None, group: Sequence[Envelope]) -> None:
        if seat is None:
            self._counts.dropped += len(group)
            return
        was_over = seat.outlet.over
        lost = seat.outlet.put(group)
        self._counts.down += len(group) if not lost else 0
        self._counts.dropped += lost
        if seat.outlet.over and not was_over:
            self._counts.overflows += 1
            _log.warning("a peer was too slow and has to begin anew", peer=seat.address, dropped=lost)

    def _take_own(self, group: Sequence[Envelope], came_from: Place) -> None:
        for envelope in group:
            letter = self._opened(envelope)
            if letter is None:
                self._counts.dropped += 1
            elif isinstance(letter.message, LeaderIs):
                self.leader_known.set()
                self._happened(LeaderTold(leader=letter.message, by=came_from))
            elif isinstance(letter.message, DialWorkers):
                self.on_dial(letter.message)
            elif isinstance(letter.message, ReportAgain):
                self._ask_peers(letter.message.epoch)
            else:
                self._post.send_nowait(letter)

    def _opened(self, envelope: Envelope) -> Letter | None:
        try:
            return open_envelope(envelope)
        except PeerProtocolError as error:
            _log.error("the control plane says what this gateway does not know", why=str(error))
            return None

    # --- Decisions -----------------------------------------------------------------------------------------------

    def _happened(self, event: Event) -> None:
        for decision in self._policy.handle(event):
            match decision:
                case Announce(place=place, target=target, message=message):
                    self._announce(place, self._envelope(message, target))
                case AskPeersToReport(epoch=epoch):
                    self._ask_peers(epoch)
                case AskGatewaysToReport(gateways=gateways, epoch=epoch):
                    asked = [self._envelope(ReportAgain(epoch=epoch), one, source="leader") for one in gateways]
                    self._dispatch(asked, Place.BRAIN)
                case DialUpstream(url=url):
                    _log.info("another replica leads", url=url)
                    self._turn_to(url)
                case HangUpUpstream():
                    _log.info("our own brain leads")
                    self._turn_to("")
                case AskStoreWhoLeads(after_s=after_s) if self._nursery is not None:
                    self._watch.start(self._nursery, after_s)
                case TrustBrain():
                    self._watch.stop()

    def _announce(self, place: Place, envelope: Envelope) -> None:
        outlet = self._to_upstream if place is Place.UPSTREAM else self._to_brain
        self._counts.dropped += outlet.put((envelope,)) if outlet is not None else 1

    def _ask_peers(self, epoch: int) -> None:
        for seat in tuple(self._seats.values()):
            self._put(seat, [self._envelope(ReportAgain(epoch=epoch), seat.address, source="leader")])

    def _turn_to(self, url: str) -> None:
        self._upstream_scope.cancel()
        self._upstream = self._to_upstream = None
        for scope in self._waiting:
            scope.cancel(reason="another replica leads")
        if url and self._nursery is not None:
            self._upstream_scope = trio.CancelScope()
            self._nursery.start_soon(self._run_upstream, url, self._upstream_scope)

    def _leader_line(self) -> Line:
        if self._policy.leader_place is Place.UPSTREAM:
            return self._upstream or Nobody()
        return self._brain

    def _envelope(self, message: Message, target: str, correlation: str = "", source: str = "") -> Envelope:
        return Envelope(
            id="" if correlation else self._chance.id("m"),
            source=source or self._policy.address,
            target=target,
            payload=pack(message),
            correlation=correlation,
        )
