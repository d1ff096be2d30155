"""Who is where, what is announced to whom, and what a change of leader means. Pure: events in, decisions out.

A gateway has a brain (the process beside it), peers (workers and callers on its own streams), and at times relays:
the gateways of followers that pass their peers' envelopes on to us, or, when another replica leads, the one that we
dial there. What comes in over a relay for the control plane always goes to our own brain, so nothing ever circles.
"""

from __future__ import annotations

import enum

import msgspec

from ...model.figures import LEADER_LEASE_S
from ...wire.control import GatewayReady, LeaderIs, PeerArrived, PeerQuiet
from ...wire.message import Message

_PEER_KINDS = ("worker/", "agent/", "client/", "gateway/")


class Place(enum.Enum):
    """Where an envelope goes."""

    BRAIN = "brain"
    UPSTREAM = "upstream"  # the relay that we dialled to the leader's gateway
    DOWNSTREAM = "downstream"  # a relay that a follower's gateway dialled to us
    PEER = "peer"
    OWN = "own"
    NOWHERE = "nowhere"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what happens to a gateway."""


class LeadershipEvent(Event, frozen=True, kw_only=True):
    """Base of what bears on who leads, and on our way there."""


class PeerOpened(Event, frozen=True, kw_only=True):
    """A stream of this peer is open (again)."""

    peer: str


class PeerHushed(Event, frozen=True, kw_only=True):
    """A peer was silent for too long, or its stream closed; its session may still come back."""

    peer: str
    closed: bool


class PeerLeft(Event, frozen=True, kw_only=True):
    """A peer's session is over."""

    peer: str


class LeaderTold(LeadershipEvent, frozen=True, kw_only=True):
    """A brain says who leads: our own, or the one behind the relay that we dialled. Without a url it is that brain."""

    leader: LeaderIs
    by: Place = Place.BRAIN


class BrainOpened(LeadershipEvent, frozen=True, kw_only=True):
    """The link to the brain is open; without `resumed` the brain has no memory of us."""

    resumed: bool


class BrainHushed(LeadershipEvent, frozen=True, kw_only=True):
    """The link to the brain is lost, or not yet open, or nothing was heard over it for so long."""

    silent_s: float


class BrainHeard(LeadershipEvent, frozen=True, kw_only=True):
    """The brain is heard again after a silence."""


class LeadershipRead(LeadershipEvent, frozen=True, kw_only=True):
    """The store says who leads, and where its streams are dialled; nobody does where the url is empty."""

    epoch: int
    url: str


class UpstreamOpened(LeadershipEvent, frozen=True, kw_only=True):
    """The relay to the leader's gateway is open; without `resumed` that gateway has no memory of us."""

    resumed: bool


class RelayBrought(Event, frozen=True, kw_only=True):
    """These addresses speak through this relay from a follower."""

    relay: str
    addresses: tuple[str, ...]


class RelayLeft(Event, frozen=True, kw_only=True):
    """A follower's relay is gone, and what spoke through it cannot be reached there."""

    relay: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what a gateway does."""


class Announce(Decision, frozen=True, kw_only=True):
    """Send this message to an actor of the control plane, at a place that is BRAIN or UPSTREAM."""

    place: Place
    target: str
    message: Message


class AskPeersToReport(Decision, frozen=True, kw_only=True):
    """Each peer reports all that it holds to the leader of this epoch."""

    epoch: int


class AskGatewaysToReport(Decision, frozen=True, kw_only=True):
    """The peers of these followers' gateways report all that they hold to our brain, which leads this epoch."""

    gateways: tuple[str, ...]
    epoch: int


class DialUpstream(Decision, frozen=True, kw_only=True):
    """Keep a relay to this gateway, in place of any other."""

    url: str


class HangUpUpstream(Decision, frozen=True, kw_only=True):
    """The relay to another replica is no longer needed."""


class AskStoreWhoLeads(Decision, frozen=True, kw_only=True):
    """Our brain does not say who leads: ask the store, first after so long, and again until `TrustBrain`."""

    after_s: float


class TrustBrain(Decision, frozen=True, kw_only=True):
    """Our brain says who leads; the store is not asked any more."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy knows, for tests and inspection."""

    peers: tuple[str, ...]
    relayed: tuple[tuple[str, str], ...]
    epoch: int
    url: str


class GatewayPolicy:
    """The routing of one gateway. `own_url` is where other replicas dial us: a leader there is our own brain."""

    def __init__(self, gateway_id: str, own_url: str = "") -> None:
        self.address = f"gateway/{gateway_id}"
        self._gateway_id = gateway_id
        self._own_url = own_url
        self._peers: dict[str, None] = {}
        self._relayed: dict[str, str] = {}
        self._epoch = 0
        self._url = ""
        self._asks_store = False

    def snapshot(self) -> Standing:
        """What is known now."""
        return Standing(
            peers=tuple(self._peers), relayed=tuple(self._relayed.items()), epoch=self._epoch, url=self._url
        )

    @property
    def leader_place(self) -> Place:
        """Where envelopes of our own peers for the control plane go."""
        return Place.UPSTREAM if self._url else Place.BRAIN

    def place_of(self, target: str) -> Place:
        """Where an envelope for `target` goes, when a peer of ours or the brain sent it."""
        if target in self._peers:
            return Place.PEER
        if not target.startswith(_PEER_KINDS):
            return self.leader_place
        if target == self.address:
            return Place.OWN
        return Place.DOWNSTREAM if target in self._relayed else Place.NOWHERE

    def relay_of(self, target: str) -> str:
        """The follower's relay through which `target` speaks, or an empty text."""
        return self._relayed.get(target, "")

    def may_speak_to_peers(self, place: Place) -> bool:
        """Whether the brain may reach a peer at this place: once another leads, what it says late is out of date."""
        return not self._url or place not in (Place.PEER, Place.DOWNSTREAM)

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Take in what happened and say what to do."""
        match event:
            case PeerOpened(peer=peer):
                self._peers[peer] = None
                self._relayed.pop(peer, None)
                return (self._announce("leader", PeerArrived(peer=peer)),)
            case PeerHushed(peer=peer, closed=closed):
                who = "clusters" if peer.startswith("agent/") else "scheduler"
                return (self._announce(who, PeerQuiet(peer=peer, closed=closed)),) if peer in self._peers else ()
            case PeerLeft(peer=peer):
                self._peers.pop(peer, None)
                return ()
            case LeadershipEvent():
                return self._handle_leadership(event)
            case RelayBrought(relay=relay, addresses=addresses):
                self._relayed.update((address, relay) for address in addresses if address not in self._peers)
                return ()
            case RelayLeft(relay=relay):
                self._relayed = {address: by for address, by in self._relayed.items() if by != relay}
                return ()
        raise AssertionError(f"unknown event {event!r}")

    def _handle_leadership(self, event: LeadershipEvent) -> tuple[Decision, ...]:
        match event:
            case LeaderTold(leader=leader, by=by):
                return self._told(leader, by)
            case BrainOpened(resumed=resumed):
                return (*self._trust_brain(), *self._opened(Place.BRAIN, resumed))
            case BrainHeard():
                return self._trust_brain()
            case BrainHushed(silent_s=silent_s):
                return self._doubt_brain(silent_s)
            case LeadershipRead(epoch=epoch, url=url):
                return self._read(epoch, url)
            case UpstreamOpened(resumed=resumed):
                return self._opened(Place.UPSTREAM, resumed)
        raise AssertionError(f"unknown event {event!r}")

    def _doubt_brain(self, silent_s: float) -> tuple[Decision, ...]:
        """A brain away for as long as a lease may be superseded without knowing it, or stand still for ever."""
        if self._asks_store:
            return ()
        self._asks_store = True
        return (AskStoreWhoLeads(after_s=max(0.0, LEADER_LEASE_S - silent_s)),)

    def _trust_brain(self) -> tuple[Decision, ...]:
        if not self._asks_store:
            return ()
        self._asks_store = False
        return (TrustBrain(),)

    def _read(self, epoch: int, url: str) -> tuple[Decision, ...]:
        """Only a newer epoch counts: of the present one our brain knew more than the row says."""
        if not self._asks_store or epoch <= self._epoch or not url:
            return ()
        return self._follow(epoch, url)

    def _told(self, leader: LeaderIs, by: Place) -> tuple[Decision, ...]:
        """A follower's relay has no say in who leads; the brain behind our own relay speaks of itself without a url."""
        if by is Place.BRAIN:
            return self._follow(leader.epoch, leader.url)
        return self._follow(leader.epoch, leader.url or self._url) if by is Place.UPSTREAM else ()

    def _announce(self, target: str, message: Message) -> Announce:
        return Announce(place=self.leader_place, target=target, message=message)

    def _ready(self, place: Place) -> Announce:
        message = GatewayReady(gateway_id=self._gateway_id, peers=tuple(self._peers))
        return Announce(place=place, target="leader", message=message)

    def _opened(self, place: Place, resumed: bool) -> tuple[Decision, ...]:
        """A leader without memory of us is told who is here, and hears everything anew from the peers themselves."""
        if resumed:
            return ()
        ready = self._ready(place)
        return (ready, AskPeersToReport(epoch=self._epoch)) if place is self.leader_place else (ready,)

    def _follow(self, epoch: int, url: str) -> tuple[Decision, ...]:
        """Turn to a new leader. One that is dialled is asked for nothing before its relay is open."""
        url = "" if url == self._own_url else url
        if epoch < self._epoch or (epoch, url) == (self._epoch, self._url):
            return ()
        moved, self._epoch, self._url = url != self._url, epoch, url
        if url and moved:
            return (DialUpstream(url=url),)
        hang_up = (HangUpUpstream(),) if moved else ()
        return (*hang_up, self._ready(self.leader_place), AskPeersToReport(epoch=epoch), *self._ask_followers())

    def _ask_followers(self) -> tuple[Decision, ...]:
        """Followers may read in the store that our brain leads before it is ready to, and we before it says so.

        What their peers say in between, and what is answered, comes to nothing: they have to say it again.
        """
        gateways = tuple(address for address in self._relayed if address.startswith("gateway/"))
        if self._url or not gateways:
            return ()
        return (AskGatewaysToReport(gateways=gateways, epoch=self._epoch),)
