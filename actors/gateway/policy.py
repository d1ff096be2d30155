"""Who is where, what is announced to whom, and what a change of leader means. Pure: events in, decisions out.

A gateway has a brain (the process beside it), peers (workers and callers on its own streams), and at times relays:
the gateways of followers that pass their peers' envelopes on to us, or, when another replica leads, the one that we
dial there. What comes in over a relay for the control plane always goes to our own brain, so nothing ever circles.
"""

from __future__ import annotations

import enum

import msgspec

from ...wire.control import GatewayReady, LeaderIs, PeerArrived, PeerQuiet
from ...wire.message import Message

_PEER_KINDS = ("worker/", "client/", "gateway/")


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


class LeaderTold(Event, frozen=True, kw_only=True):
    """The brain says who leads."""

    leader: LeaderIs


class BrainOpened(Event, frozen=True, kw_only=True):
    """The link to the brain is open; without `resumed` the brain has no memory of us."""

    resumed: bool


class UpstreamOpened(Event, frozen=True, kw_only=True):
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


class DialUpstream(Decision, frozen=True, kw_only=True):
    """Keep a relay to this gateway, in place of any other."""

    url: str


class HangUpUpstream(Decision, frozen=True, kw_only=True):
    """The relay to another replica is no longer needed."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy knows, for tests and inspection."""

    peers: tuple[str, ...]
    relayed: tuple[tuple[str, str], ...]
    epoch: int
    url: str


class GatewayPolicy:
    """The routing of one gateway."""

    def __init__(self, gateway_id: str) -> None:
        self.address = f"gateway/{gateway_id}"
        self._gateway_id = gateway_id
        self._peers: dict[str, None] = {}
        self._relayed: dict[str, str] = {}
        self._epoch = 0
        self._url = ""

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

    def handle(self, event: Event) -> tuple[Decision, ...]:
        """Take in what happened and say what to do."""
        match event:
            case PeerOpened(peer=peer):
                self._peers[peer] = None
                self._relayed.pop(peer, None)
                return (self._announce("leader", PeerArrived(peer=peer)),)
            case PeerHushed(peer=peer, closed=closed):
                return (
                    (self._announce("scheduler", PeerQuiet(peer=peer, closed=closed)),) if peer in self._peers else ()
                )
            case PeerLeft(peer=peer):
                self._peers.pop(peer, None)
                return ()
            case LeaderTold(leader=leader):
                return self._follow(leader)
            case BrainOpened(resumed=resumed):
                return self._opened(Place.BRAIN, resumed)
            case UpstreamOpened(resumed=resumed):
                return self._opened(Place.UPSTREAM, resumed)
            case RelayBrought(relay=relay, addresses=addresses):
                self._relayed.update((address, relay) for address in addresses if address not in self._peers)
                return ()
            case RelayLeft(relay=relay):
                self._relayed = {address: by for address, by in self._relayed.items() if by != relay}
                return ()
        raise AssertionError(f"unknown event {event!r}")

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

    def _follow(self, leader: LeaderIs) -> tuple[Decision, ...]:
        """Turn to a new leader. One that is dialled is asked for nothing before its relay is open."""
        if leader.epoch < self._epoch or (leader.epoch, leader.url) == (self._epoch, self._url):
            return ()
        moved, self._epoch, self._url = leader.url != self._url, leader.epoch, leader.url
        if leader.url and moved:
            return (DialUpstream(url=leader.url),)
        hang_up = (HangUpUpstream(),) if moved else ()
        return (*hang_up, self._ready(self.leader_place), AskPeersToReport(epoch=self._epoch))
