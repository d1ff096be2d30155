"""Two sessions and a channel that cuts, delays, duplicates, reorders, and forgets one side."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levers9.errors import TOO_LARGE, PeerProtocolError, Refused, WouldBlock
from levers9.model.figures import BATCH_BYTES, FRAME_MAX_BYTES, RESEND_BYTES, RESEND_ENVELOPES
from levers9.wire.codec import Envelope
from levers9.wire.frames import (
    PROTOCOL,
    Ack,
    Goodbye,
    Hello,
    PackedData,
    Welcome,
    pack_envelope,
    pack_frame,
    unpack_frame,
)
from levers9.wire.session import (
    GreetedAgain,
    Opened,
    PeerBack,
    Phase,
    Received,
    SaidGoodbye,
    Session,
    SessionEvent,
)


def envelope(name: str, size: int = 0) -> Envelope:
    return Envelope(name, "a", "b", msgspec.Raw(msgspec.msgpack.encode(b"x" * size)))


class Side:
    """A session and what its owner has seen."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sent: list[str] = []
        self.seen: list[str] = []
        self.untaken = 0
        self.opened: list[bool] = []

    def happened(self, events: list[SessionEvent]) -> None:
        for event in events:
            if isinstance(event, Opened):
                self.opened.append(event.resumed)
            elif isinstance(event, Received):
                self.seen += [one.id for one in event.envelopes]
                self.untaken += len(event.envelopes)


class FaultyChannel(RuleBasedStateMachine):
    """The model is a list: what one side sent in a session the other sees, once, in order, and all in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = 0
        self.names = 0
        self.ordered = True
        self.dialler = Side(Session(now=0.0))
        self.acceptor = self.a_new_acceptor()
        self.to_acceptor: list[bytes] = []
        self.to_dialler: list[bytes] = []
        self.up = False

    def a_new_acceptor(self) -> Side:
        self.sessions += 1
        return Side(Session(now=0.0, identity=f"session-{self.sessions}"))

    @precondition(lambda self: not self.up)
    @rule(ordered=st.booleans())
    def connect(self, ordered: bool) -> None:
        self.up, self.ordered = True, ordered
        self.dialler.session.dial(ordered=ordered)
        self.pump_out()

    @precondition(lambda self: self.up)
    @rule()
    def cut(self) -> None:
        self.up = False
        self.to_acceptor.clear()
        self.to_dialler.clear()
        self.dialler.session.lose()
        self.acceptor.session.lose()

    @precondition(lambda self: not self.up)
    @rule()
    def the_acceptor_restarts(self) -> None:
        self.acceptor = self.a_new_acceptor()

    @precondition(lambda self: not self.up)
    @rule()
    def the_dialler_restarts(self) -> None:
        self.dialler = Side(Session(now=0.0))

    @rule(count=st.integers(1, 5), size=st.sampled_from([0, 10, 40_000]), dialler=st.booleans())
    def send(self, count: int, size: int, dialler: bool) -> None:
        side = self.dialler if dialler else self.acceptor
        if not dialler and not side.opened:
            return  # an acceptor's session begins with a HELLO
        for _ in range(count):
            self.names += 1
            side.session.send(envelope(str(self.names), size))
            side.sent.append(str(self.names))
        self.pump_out()

    @rule(dialler=st.booleans(), count=st.integers(1, 100))
    def take(self, dialler: bool, count: int) -> None:
        side = self.dialler if dialler else self.acceptor
        taken = min(side.untaken, count)
        side.untaken -= taken
        side.session.take(taken)
        self.pump_out()

    @rule(dialler=st.booleans())
    def beat(self, dialler: bool) -> None:
        (self.dialler if dialler else self.acceptor).session.beat()
        self.pump_out()

    @precondition(lambda self: self.to_acceptor or self.to_dialler)
    @rule(pick=st.integers(0, 1000), duplicate=st.booleans())
    def deliver(self, pick: int, duplicate: bool) -> None:
        ways = [way for way in (self.to_acceptor, self.to_dialler) if way]
        way = ways[pick % len(ways)]
        index = 0 if self.ordered else pick % len(way)
        frame = way[index]
        greeting = isinstance(unpack_frame(frame), Hello | Welcome)
        if not duplicate or greeting:
            del way[index]
        self.arrive(frame, at_acceptor=way is self.to_acceptor)
        self.pump_out()

    def arrive(self, frame: bytes, *, at_acceptor: bool) -> None:
        if not at_acceptor:
            before = self.dialler.session.identity
            self.dialler.happened(self.dialler.session.receive(frame, 0.0))
            if self.dialler.session.identity != before:
                self.the_dialler_has_a_new_session(before)
            return
        hello = unpack_frame(frame)
        if not isinstance(hello, Hello):
            self.acceptor.happened(self.acceptor.session.receive(frame, 0.0))
            return
        same = bool(self.acceptor.opened) and hello.session == self.acceptor.session.identity
        assert self.acceptor.session.knows(hello) == same
        if self.acceptor.opened and not same:
            self.acceptor = self.a_new_acceptor()
        self.acceptor.happened(self.acceptor.session.accept(hello, 0.0, ordered=self.ordered))

    def the_dialler_has_a_new_session(self, before: str) -> None:
        assert self.dialler.opened[-1] is False
        if before:  # what was sent in the earlier session is lost, and what was seen belongs to it
            self.dialler.sent, self.dialler.seen, self.dialler.untaken = [], [], 0

    def pump_out(self) -> None:
        for side, way in ((self.dialler, self.to_acceptor), (self.acceptor, self.to_dialler)):
            while (frame := side.session.frame_to_send(0.0)) is not None:
                assert len(frame) <= FRAME_MAX_BYTES
                way.append(frame)

    @invariant()
    def each_is_seen_once_and_in_order(self) -> None:
        if self.dialler.session.identity == self.acceptor.session.identity:
            assert self.acceptor.seen == self.dialler.sent[: len(self.acceptor.seen)]
            assert self.dialler.seen == self.acceptor.sent[: len(self.dialler.seen)]

    @invariant()
    def nothing_unacknowledged_is_lost(self) -> None:
        if self.dialler.session.identity == self.acceptor.session.identity:
            for sender, receiver in ((self.dialler, self.acceptor), (self.acceptor, self.dialler)):
                kept = sender.session.statistics().unacknowledged
                assert len(sender.sent) - kept <= len(receiver.seen) - receiver.untaken
                assert kept <= RESEND_ENVELOPES

    @invariant()
    def both_sides_agree_on_what_was_resumed(self) -> None:
        same = self.dialler.session.identity == self.acceptor.session.identity
        if same and self.up and self.dialler.session.phase is Phase.OPEN:
            assert self.acceptor.opened[0] is False
            assert self.dialler.opened[-1] == (self.acceptor.opened[-1])

    def teardown(self) -> None:
        """A quiet channel brings everything across."""
        if not self.up:
            self.connect(True)
        while self.to_acceptor or self.to_dialler:
            self.deliver(0, False)
        for _ in range(3):
            for side in (self.dialler, self.acceptor):
                side.session.take(side.untaken)
                side.untaken = 0
                side.session.beat()
            self.pump_out()
            while self.to_acceptor or self.to_dialler:
                self.deliver(0, False)
        assert self.dialler.session.identity == self.acceptor.session.identity
        assert self.acceptor.seen == self.dialler.sent
        assert self.dialler.seen == self.acceptor.sent
        assert self.dialler.session.statistics().unacknowledged == 0
        assert self.acceptor.session.statistics().unacknowledged == 0


FaultyChannel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestFaultyChannel = pytest.mark.slow(FaultyChannel.TestCase)


# What the machine does not reach.


def a_pair(*, ordered: bool = True) -> tuple[Session, Session]:
    """Return a dialler and an acceptor with an open carrier."""
    dialler, acceptor = Session(now=0.0), Session(now=0.0, identity="session-1")
    dialler.dial(ordered=ordered)
    acceptor.accept(hello_of(dialler), 0.0, ordered=ordered)
    assert dialler.receive(next_frame(acceptor), 0.0) == [Opened(resumed=False)]
    return dialler, acceptor


def hello_of(dialler: Session) -> Hello:
    hello = unpack_frame(next_frame(dialler))
    assert isinstance(hello, Hello)
    return hello


def next_frame(session: Session, now: float = 0.0) -> bytes:
    frame = session.frame_to_send(now)
    assert frame is not None
    return frame


def data(first: int, *names: str, acknowledged: int = 0) -> bytes:
    return pack_frame(PackedData(first, acknowledged, [msgspec.Raw(pack_envelope(envelope(name))) for name in names]))


def test_a_batch_ends_at_64_kib_where_more_is_ready() -> None:
    dialler, _ = a_pair()
    dialler.send(*(envelope(str(number), 10_000) for number in range(10)))
    frames = [next_frame(dialler), next_frame(dialler)]
    assert [len(frame) <= BATCH_BYTES + 64 for frame in frames] == [True, True]
    assert dialler.frame_to_send(0.0) is None
    assert len(frames[0]) > BATCH_BYTES - 11_000


def test_one_large_envelope_travels_alone_and_a_larger_one_is_refused() -> None:
    dialler, acceptor = a_pair()
    dialler.send(envelope("large", FRAME_MAX_BYTES - 200))
    assert len(acceptor.receive(next_frame(dialler), 0.0)) == 1
    with pytest.raises(Refused, match="too large") as caught:
        dialler.send(envelope("larger", FRAME_MAX_BYTES))
    assert caught.value.code == TOO_LARGE


@pytest.mark.parametrize(("count", "size"), [(RESEND_ENVELOPES, 0), (RESEND_BYTES // 500_000, 500_000 - 30)])
def test_the_window_is_bounded_and_opens_with_the_acknowledgement(count: int, size: int) -> None:
    dialler, acceptor = a_pair()
    for number in range(count):
        dialler.send(envelope(str(number), size))
    with pytest.raises(WouldBlock):
        dialler.send(envelope("one more", 500_000 if size else 0))
    arrived = 0
    while (frame := dialler.frame_to_send(0.0)) is not None:
        arrived += sum(len(event.envelopes) for event in acceptor.receive(frame, 0.0) if isinstance(event, Received))
    assert (arrived, acceptor.frame_to_send(0.0)) == (count, None)
    assert acceptor.take(arrived)
    dialler.receive(next_frame(acceptor), 0.0)
    assert dialler.statistics().unacknowledged == 0
    dialler.send(envelope("one more"))


def test_little_that_was_taken_is_acknowledged_with_the_next_data_or_heartbeat() -> None:
    dialler, acceptor = a_pair()
    dialler.send(envelope("1"))
    acceptor.receive(next_frame(dialler), 0.0)
    assert (acceptor.take(1), acceptor.frame_to_send(0.0)) == (False, None)
    acceptor.send(envelope("2"))
    dialler.receive(next_frame(acceptor), 0.0)
    assert dialler.statistics().unacknowledged == 0
    dialler.beat()
    dialler.take(1)
    acceptor.receive(next_frame(dialler), 0.0)
    assert acceptor.statistics().unacknowledged == 0


def test_a_peer_that_ignores_the_window_breaks_the_protocol() -> None:
    dialler, _ = a_pair()
    for first in range(1, RESEND_ENVELOPES, 64):
        dialler.receive(data(first, *"x" * 64), 0.0)
    with pytest.raises(PeerProtocolError, match="more than 4096 unacknowledged messages"):
        dialler.receive(data(RESEND_ENVELOPES + 1, "one more"), 0.0)


def test_a_peer_that_ignores_the_windows_bytes_breaks_the_protocol() -> None:
    dialler, _ = a_pair()
    large = msgspec.Raw(pack_envelope(envelope("x", 1_000_000)))
    for first in range(1, 10):
        dialler.receive(pack_frame(PackedData(first, 0, [large])), 0.0)
    with pytest.raises(PeerProtocolError, match="unacknowledged bytes"):
        dialler.receive(pack_frame(PackedData(10, 0, [large])), 0.0)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"nonsense", "cannot be read"),
        (b"x" * (FRAME_MAX_BYTES + 1), "are allowed"),
        (data(2, "later"), "sent 2 where 1 comes next"),
        (data(1, "x", acknowledged=1), "acknowledged 1, but 0"),
        (pack_frame(Ack(7)), "acknowledged 7, but 0"),
        (pack_frame(Goodbye(3, "bye")), "left after 3; 0 arrived"),
        (pack_frame(Welcome(PROTOCOL, "session-1", True, 0, 0)), "Welcome to an open session"),
    ],
)
def test_what_an_open_session_does_not_allow(frame: bytes, why: str) -> None:
    dialler, _ = a_pair()
    with pytest.raises(PeerProtocolError, match=why):
        dialler.receive(frame, 0.0)


@pytest.mark.parametrize(
    "frame",
    [
        data(1, "early"),
        pack_frame(Welcome(PROTOCOL + 1, "session-1", False, 0, 0)),
        pack_frame(Welcome(PROTOCOL, "", False, 0, 0)),
        pack_frame(Welcome(PROTOCOL, "another", True, 0, 0)),
        pack_frame(Welcome(PROTOCOL, "session-1", True, 9, 0)),
    ],
)
def test_what_a_greeting_does_not_allow(frame: bytes) -> None:
    dialler, _ = a_pair()
    dialler.dial()
    with pytest.raises(PeerProtocolError):
        dialler.receive(frame, 0.0)


def test_data_may_overtake_welcome_where_frames_are_reordered() -> None:
    dialler, acceptor = a_pair()
    dialler.dial(ordered=False)
    acceptor.accept(hello_of(dialler), 0.0, ordered=False)
    welcome = next_frame(acceptor)
    acceptor.send(envelope("1"))
    assert dialler.receive(next_frame(acceptor), 0.0) == []
    opened, received = dialler.receive(welcome, 0.0)
    assert opened == Opened(resumed=True)
    assert isinstance(received, Received)


def test_too_much_ahead_of_welcome_breaks_the_protocol() -> None:
    dialler = Session(now=0.0)
    dialler.dial(ordered=False)
    for _ in range(RESEND_ENVELOPES):
        dialler.receive(pack_frame(Ack(0)), 0.0)
    with pytest.raises(PeerProtocolError, match="where Welcome comes first"):
        dialler.receive(pack_frame(Ack(0)), 0.0)


def test_what_waits_for_earlier_envelopes_is_bounded() -> None:
    dialler, _ = a_pair(ordered=False)
    large = msgspec.Raw(pack_envelope(envelope("x", 1_000_000)))
    for first in range(2, 11):
        dialler.receive(pack_frame(PackedData(first, 0, [large])), 0.0)
    with pytest.raises(PeerProtocolError, match="unacknowledged bytes"):
        dialler.receive(pack_frame(PackedData(11, 0, [large])), 0.0)
    with pytest.raises(PeerProtocolError, match="unacknowledged messages"):
        dialler.receive(data(RESEND_ENVELOPES + 1, "far ahead"), 0.0)


def test_held_frames_that_overlap_are_put_together() -> None:
    dialler, _ = a_pair(ordered=False)
    for frame in (data(3, "3"), data(3, "3", "4"), data(3, "3"), data(2, "2", "3"), data(6, "6")):
        assert dialler.receive(frame, 0.0) == []
    (received,) = dialler.receive(data(1, "1"), 0.0)
    assert isinstance(received, Received)
    assert [one.id for one in received.envelopes] == ["1", "2", "3", "4"]


def test_goodbye_comes_after_everything_sent_before_it() -> None:
    dialler, acceptor = a_pair(ordered=False)
    acceptor.send(envelope("1"))
    acceptor.say_goodbye("done")
    last, goodbye = next_frame(acceptor), next_frame(acceptor)
    assert acceptor.frame_to_send(0.0) is None
    assert dialler.receive(goodbye, 0.0) == []
    assert dialler.receive(last, 0.0)[-1] == SaidGoodbye("done")
    dialler.lose()
    dialler.dial()
    assert hello_of(dialler).session == ""


def test_hello_in_an_open_session_says_that_the_peer_was_replaced() -> None:
    _, acceptor = a_pair()
    hello = Hello(PROTOCOL, "", 0, 0)
    assert acceptor.receive(pack_frame(hello), 0.0) == [GreetedAgain(hello)]


def test_an_acceptor_does_not_know_a_hello_that_cannot_be() -> None:
    _, acceptor = a_pair()
    assert acceptor.knows(Hello(PROTOCOL, "session-1", 0, 0))
    assert not acceptor.knows(Hello(PROTOCOL, "session-1", 5, 0))
    assert not acceptor.knows(Hello(PROTOCOL, "session-2", 0, 0))
    acceptor.forget()
    assert not acceptor.knows(Hello(PROTOCOL, "", 0, 0))


def test_a_byte_after_silence_brings_the_peer_back() -> None:
    dialler, acceptor = a_pair()
    assert (dialler.liveness.fell_silent(14.9), dialler.liveness.fell_silent(15.0)) == (False, True)
    assert not dialler.liveness.fell_silent(16.0)
    acceptor.beat()
    assert dialler.receive(next_frame(acceptor), 20.0) == [PeerBack()]
    dialler.liveness.fell_silent(40.0)
    dialler.dial()
    acceptor.liveness.fell_silent(40.0)
    assert acceptor.accept(hello_of(dialler), 41.0) == [PeerBack(), Opened(resumed=True)]


def test_a_resend_is_the_same_bytes() -> None:
    dialler, acceptor = a_pair()
    dialler.send(envelope("1"))
    first = next_frame(dialler)
    dialler.dial()
    acceptor.accept(hello_of(dialler), 0.0)
    dialler.receive(next_frame(acceptor), 0.0)
    assert next_frame(dialler) == first
    assert dialler.statistics().resent == 1
