"""Who is where, what is announced, and what a change of leader means."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levers9.actors.gateway.policy import (
    Announce,
    AskGatewaysToReport,
    AskPeersToReport,
    AskStoreWhoLeads,
    BrainHeard,
    BrainHushed,
    BrainOpened,
    Decision,
    DialUpstream,
    Event,
    GatewayPolicy,
    HangUpUpstream,
    LeadershipEvent,
    LeadershipRead,
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
from levers9.wire.control import GatewayReady, LeaderIs, PeerArrived, PeerQuiet

OTHER = "ws://other:1993"
OWN = "ws://own:1993"


def told(policy: GatewayPolicy, epoch: int, url: str = "") -> tuple[Decision, ...]:
    return policy.handle(LeaderTold(leader=LeaderIs(epoch=epoch, url=url)))


def led(epoch: int = 1, url: str = "") -> GatewayPolicy:
    policy = GatewayPolicy("g")
    policy.handle(BrainOpened(resumed=False))
    told(policy, epoch, url)
    return policy


def deserted(epoch: int = 1, url: str = "") -> GatewayPolicy:
    """A gateway whose brain was heard of, and then no more."""
    policy = GatewayPolicy("g", OWN)
    policy.handle(BrainOpened(resumed=False))
    told(policy, epoch, url)
    policy.handle(BrainHushed(silent_s=15.0))
    return policy


def ready(place: Place, *peers: str) -> Announce:
    return Announce(place=place, target="leader", message=GatewayReady(gateway_id="g", peers=peers))


def test_a_peer_that_arrives_is_announced_to_whoever_leads() -> None:
    here, elsewhere = led(), led(1, OTHER)
    arrived = PeerArrived(peer="worker/w")
    assert here.handle(PeerOpened(peer="worker/w")) == (Announce(place=Place.BRAIN, target="leader", message=arrived),)
    assert elsewhere.handle(PeerOpened(peer="worker/w")) == (
        Announce(place=Place.UPSTREAM, target="leader", message=arrived),
    )


def test_a_silent_peer_is_unknown_to_the_scheduler_and_stays_reachable() -> None:
    policy = led()
    policy.handle(PeerOpened(peer="worker/w"))
    quiet = policy.handle(PeerHushed(peer="worker/w", closed=False))
    message = PeerQuiet(peer="worker/w", closed=False)
    assert quiet == (Announce(place=Place.BRAIN, target="scheduler", message=message),)
    assert policy.place_of("worker/w") is Place.PEER


def test_a_peer_that_left_is_nowhere_and_nothing_more_is_said_of_it() -> None:
    policy = led()
    policy.handle(PeerOpened(peer="worker/w"))
    policy.handle(PeerLeft(peer="worker/w"))
    assert policy.place_of("worker/w") is Place.NOWHERE
    assert policy.handle(PeerHushed(peer="worker/w", closed=True)) == ()


def test_a_brain_without_memory_hears_who_is_here_and_then_everything_from_the_peers() -> None:
    policy = led(3)
    policy.handle(PeerOpened(peer="worker/w"))
    assert policy.handle(BrainOpened(resumed=True)) == ()
    assert policy.handle(BrainOpened(resumed=False)) == (ready(Place.BRAIN, "worker/w"), AskPeersToReport(epoch=3))


def test_a_brain_that_follows_hears_who_is_here_and_no_peer_is_bothered() -> None:
    policy = led(3, OTHER)
    assert policy.handle(BrainOpened(resumed=False)) == (ready(Place.BRAIN),)


def test_a_new_leader_in_our_own_brain_is_reported_to_at_once() -> None:
    policy = led(1)
    policy.handle(PeerOpened(peer="client/c"))
    assert told(policy, 2) == (ready(Place.BRAIN, "client/c"), AskPeersToReport(epoch=2))


def test_a_leader_elsewhere_is_dialled_first_and_reported_to_once_its_relay_is_open() -> None:
    policy = led(1)
    assert told(policy, 2, OTHER) == (DialUpstream(url=OTHER),)
    assert policy.handle(UpstreamOpened(resumed=False)) == (ready(Place.UPSTREAM), AskPeersToReport(epoch=2))
    assert policy.handle(UpstreamOpened(resumed=True)) == ()


def test_the_same_leader_elsewhere_with_a_new_epoch_is_not_dialled_anew() -> None:
    policy = led(1, OTHER)
    assert told(policy, 2, OTHER) == (ready(Place.UPSTREAM), AskPeersToReport(epoch=2))


def test_when_our_own_brain_leads_again_the_relay_is_hung_up() -> None:
    policy = led(1, OTHER)
    assert told(policy, 2) == (HangUpUpstream(), ready(Place.BRAIN), AskPeersToReport(epoch=2))
    assert policy.leader_place is Place.BRAIN


@pytest.mark.parametrize("before", ["", OTHER])
def test_once_our_own_brain_leads_what_speaks_through_relays_says_all_again(before: str) -> None:
    """Followers may know of it earlier than we do, and what their peers say then comes to nothing."""
    policy = led(1, before)
    policy.handle(RelayBrought(relay="relay/f", addresses=("gateway/f", "worker/far")))
    assert told(policy, 2)[-1] == AskGatewaysToReport(gateways=("gateway/f",), epoch=2)


def test_who_follows_asks_nothing_of_those_that_follow_it() -> None:
    policy = led(1, OTHER)
    policy.handle(RelayBrought(relay="relay/f", addresses=("gateway/f",)))
    assert told(policy, 2, OTHER) == (ready(Place.UPSTREAM), AskPeersToReport(epoch=2))


def test_an_older_epoch_and_a_repetition_change_nothing() -> None:
    policy = led(5)
    assert told(policy, 5) == ()
    assert told(policy, 4, OTHER) == ()
    assert policy.leader_place is Place.BRAIN


def test_what_speaks_through_a_followers_relay_is_reached_there_until_it_is_gone() -> None:
    policy = led()
    policy.handle(RelayBrought(relay="relay/f", addresses=("worker/far", "gateway/f")))
    assert (policy.place_of("worker/far"), policy.relay_of("worker/far")) == (Place.DOWNSTREAM, "relay/f")
    policy.handle(RelayLeft(relay="relay/f"))
    assert policy.place_of("worker/far") is Place.NOWHERE


def test_a_peer_that_moved_to_a_stream_of_ours_is_reached_here() -> None:
    policy = led()
    policy.handle(RelayBrought(relay="relay/f", addresses=("worker/w",)))
    policy.handle(PeerOpened(peer="worker/w"))
    policy.handle(RelayLeft(relay="relay/f"))
    assert policy.place_of("worker/w") is Place.PEER


def test_actors_of_the_control_plane_are_where_the_leader_is() -> None:
    assert {led().place_of(one) for one in ("tasks", "scheduler", "leader", "pool/p")} == {Place.BRAIN}
    assert led(1, OTHER).place_of("tasks") is Place.UPSTREAM
    assert led().place_of("gateway/g") is Place.OWN


def test_a_brain_away_for_a_lease_is_no_longer_waited_for() -> None:
    policy = led()
    assert policy.handle(BrainHushed(silent_s=0.0)) == (AskStoreWhoLeads(after_s=5.0),)
    assert policy.handle(BrainHushed(silent_s=15.0)) == ()
    assert policy.handle(BrainHeard()) == (TrustBrain(),)
    assert policy.handle(BrainHushed(silent_s=15.0)) == (AskStoreWhoLeads(after_s=0.0),)
    assert policy.handle(BrainOpened(resumed=True)) == (TrustBrain(),)
    assert policy.handle(BrainHeard()) == ()


def test_a_newer_leader_in_the_store_is_dialled_while_our_brain_is_away() -> None:
    policy = deserted(1)
    policy.handle(PeerOpened(peer="worker/w"))
    assert policy.handle(LeadershipRead(epoch=2, url=OTHER)) == (DialUpstream(url=OTHER),)
    asked = (ready(Place.UPSTREAM, "worker/w"), AskPeersToReport(epoch=2))
    assert policy.handle(UpstreamOpened(resumed=False)) == asked
    assert policy.handle(LeadershipRead(epoch=2, url=OTHER)) == ()


def test_what_the_store_says_of_the_present_epoch_or_of_nobody_changes_nothing() -> None:
    policy = deserted(2)
    before = policy.snapshot()
    for epoch, url in ((1, OTHER), (2, OTHER), (2, OWN), (3, "")):
        assert policy.handle(LeadershipRead(epoch=epoch, url=url)) == ()
    assert policy.snapshot() == before


def test_an_answer_of_the_store_that_comes_after_the_brain_is_ignored() -> None:
    policy = deserted(1)
    policy.handle(BrainHeard())
    assert policy.handle(LeadershipRead(epoch=2, url=OTHER)) == ()


def test_a_gateway_never_dials_itself() -> None:
    policy = deserted(1, OTHER)
    assert policy.handle(LeadershipRead(epoch=2, url=OWN)) == (
        HangUpUpstream(),
        ready(Place.BRAIN),
        AskPeersToReport(epoch=2),
    )
    assert policy.leader_place is Place.BRAIN
    assert told(policy, 2, OWN) == ()


def test_a_brain_that_comes_back_with_a_newer_epoch_ends_the_relay() -> None:
    policy = deserted(1)
    policy.handle(LeadershipRead(epoch=2, url=OTHER))
    assert told(policy, 1) == ()
    assert told(policy, 3) == (HangUpUpstream(), ready(Place.BRAIN), AskPeersToReport(epoch=3))


def test_a_leader_elsewhere_that_speaks_of_itself_is_not_taken_for_our_own_brain() -> None:
    policy = led(2, OTHER)
    assert policy.handle(LeaderTold(leader=LeaderIs(epoch=2), by=Place.UPSTREAM)) == ()
    renewed = policy.handle(LeaderTold(leader=LeaderIs(epoch=3), by=Place.UPSTREAM))
    assert renewed == (ready(Place.UPSTREAM), AskPeersToReport(epoch=3))
    assert policy.handle(LeaderTold(leader=LeaderIs(epoch=9), by=Place.DOWNSTREAM)) == ()
    assert (policy.snapshot().epoch, policy.snapshot().url) == (3, OTHER)


def test_a_brain_that_does_not_lead_any_more_reaches_no_peer() -> None:
    led_here, led_elsewhere = led(1), led(1, OTHER)
    places = (Place.PEER, Place.DOWNSTREAM, Place.OWN, Place.UPSTREAM)
    assert [led_here.may_speak_to_peers(place) for place in places] == [True] * 4
    assert [led_elsewhere.may_speak_to_peers(place) for place in places] == [False, False, True, True]


def test_a_brain_that_restarts_with_the_same_epoch_hears_everything_anew() -> None:
    policy = led(3)
    policy.handle(PeerOpened(peer="client/c"))
    policy.handle(BrainHushed(silent_s=0.0))
    again = (TrustBrain(), ready(Place.BRAIN, "client/c"), AskPeersToReport(epoch=3))
    assert policy.handle(BrainOpened(resumed=False)) == again


def test_a_gateway_that_restarts_learns_the_leader_and_then_has_its_peers_report() -> None:
    policy = GatewayPolicy("g", OWN)
    assert policy.handle(BrainHushed(silent_s=0.0)) == (AskStoreWhoLeads(after_s=5.0),)
    policy.handle(PeerOpened(peer="worker/w"))
    assert policy.handle(BrainOpened(resumed=False))[1:] == (ready(Place.BRAIN, "worker/w"), AskPeersToReport(epoch=0))
    assert told(policy, 7) == (ready(Place.BRAIN, "worker/w"), AskPeersToReport(epoch=7))


def test_a_gateway_that_begins_without_any_brain_finds_the_leader_in_the_store() -> None:
    policy = GatewayPolicy("g", OWN)
    policy.handle(BrainHushed(silent_s=0.0))
    assert policy.handle(LeadershipRead(epoch=4, url=OTHER)) == (DialUpstream(url=OTHER),)


def test_an_event_that_nobody_knows_is_a_defect_and_not_a_shrug() -> None:
    with pytest.raises(AssertionError, match="unknown event"):
        led().handle(Event())


PEERS = st.sampled_from(["worker/1", "worker/2", "client/1"])
RELAYS = st.sampled_from(["relay/a", "relay/b"])


class Routing(RuleBasedStateMachine):
    """The policy beside two plain dicts and a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = GatewayPolicy("g", OWN)
        self.here: dict[str, bool] = {}
        self.relayed: dict[str, str] = {}
        self.leader = (0, "")

    @rule(peer=PEERS)
    def opens(self, peer: str) -> None:
        (said,) = self.policy.handle(PeerOpened(peer=peer))
        assert isinstance(said, Announce)
        assert said.place is (Place.UPSTREAM if self.leader[1] else Place.BRAIN)
        self.here[peer] = True
        self.relayed.pop(peer, None)

    @rule(peer=PEERS)
    def leaves(self, peer: str) -> None:
        self.policy.handle(PeerLeft(peer=peer))
        self.here.pop(peer, None)

    @rule(relay=RELAYS, peer=PEERS)
    def is_relayed(self, relay: str, peer: str) -> None:
        self.policy.handle(RelayBrought(relay=relay, addresses=(peer,)))
        if peer not in self.here:
            self.relayed[peer] = relay

    @rule(relay=RELAYS)
    def relay_goes(self, relay: str) -> None:
        self.policy.handle(RelayLeft(relay=relay))
        self.relayed = {peer: by for peer, by in self.relayed.items() if by != relay}

    @rule(epoch=st.integers(0, 5), url=st.sampled_from(["", "ws://a", "ws://b"]))
    def leader_is(self, epoch: int, url: str) -> None:
        decisions = told(self.policy, epoch, url)
        if epoch < self.leader[0] or (epoch, url) == self.leader:
            assert decisions == ()
            return
        asks = AskPeersToReport(epoch=epoch) in decisions
        assert asks is not (DialUpstream(url=url) in decisions)
        self.leader = (epoch, url)

    @rule(epoch=st.integers(0, 5), url=st.sampled_from(["", "ws://a", "ws://b", OWN]), hushed=st.booleans())
    def store_says(self, epoch: int, url: str, hushed: bool) -> None:
        self.policy.handle(BrainHushed(silent_s=0.0) if hushed else BrainHeard())
        before = self.leader
        decisions = self.policy.handle(LeadershipRead(epoch=epoch, url=url))
        if hushed and url and epoch > before[0]:
            self.leader = (epoch, "" if url == OWN else url)
        assert (self.leader != before) is bool(decisions)
        assert DialUpstream(url=OWN) not in decisions

    @invariant()
    def everybody_is_where_they_were_last_seen(self) -> None:
        for peer in ("worker/1", "worker/2", "client/1"):
            place = Place.PEER if peer in self.here else Place.DOWNSTREAM if peer in self.relayed else Place.NOWHERE
            assert self.policy.place_of(peer) is place
        standing = self.policy.snapshot()
        assert (standing.epoch, standing.url) == self.leader


TestRouting = Routing.TestCase


@pytest.mark.parametrize("event", [Event(), LeadershipEvent()])
def test_an_event_that_is_none_of_those_known_is_an_error(event: Event) -> None:
    with pytest.raises(AssertionError, match="unknown event"):
        GatewayPolicy("g").handle(event)
