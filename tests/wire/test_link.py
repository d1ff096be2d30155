"""Links over memory carriers, in virtual time."""

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.errors import BrokenByPeer, Busy, ClosedByUs, PeerProtocolError, Refused, WouldBlock
from levers9.model.figures import RESEND_ENVELOPES
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
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
from levers9.wire.link import Acceptor, DialledLink, Link, Lost, Opened, PeerBack, PeerSilent, Received
from levers9.wire.redial import Redial
from levers9.wire.sweep import Sweep


def envelope(number: int, size: int = 0) -> Envelope:
    return Envelope(f"e{number}", "a", "b", msgspec.Raw(msgspec.msgpack.encode(b"x" * size)))


class BeatingCable(MemoryCable):
    """Both ends need heartbeats to know of each other."""

    def __init__(self) -> None:
        super().__init__()
        for end in (self.left, self.right):
            end.watch_peer = lambda changed: False  # type: ignore[method-assign]
            end.peer_heard = lambda: False  # type: ignore[method-assign]


class World:
    """An acceptor, and a dialled link that reaches it over a new cable each time."""

    def __init__(self, nursery: trio.Nursery, make_cable: Callable[[], MemoryCable]) -> None:
        self.nursery = nursery
        self.acceptor = Acceptor(chance=Chance(1))
        self.cables: list[MemoryCable] = []
        self.make_cable = make_cable
        self.reachable = True
        self.dials = 0
        self.accepted: list[Link] = []
        self.arrived = trio.Event()
        self.ended: list[str] = []
        self.dialled = self.a_dialler()

    def a_dialler(self) -> DialledLink:
        return DialledLink(name="worker/1", dial=self.dial, chance=Chance(2))

    async def dial(self) -> Carrier:
        self.dials += 1
        if not self.reachable:
            raise BrokenByPeer("nobody listens")
        cable = self.make_cable()
        self.cables.append(cable)
        self.nursery.start_soon(partial(self.acceptor.serve, cable.right, name="worker/1", on_link=self.on_link))
        return cable.left

    async def on_link(self, link: Link) -> None:
        self.accepted.append(link)
        self.arrived.set()
        await link.ended.wait()
        self.ended.append(str(link.ended_by))
        if link.ended_by is not None:
            raise link.ended_by

    @property
    def other(self) -> Link:
        return self.accepted[-1]


@contextlib.asynccontextmanager
async def a_world(make_cable: Callable[[], MemoryCable] = MemoryCable) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(nursery, make_cable)
        await nursery.start(world.acceptor.run)
        await nursery.start(world.dialled.run)
        assert await world.dialled.next_event() == Opened(resumed=False)
        await world.arrived.wait()
        assert await world.other.next_event() == Opened(resumed=False)
        with trio.fail_after(100_000):
            yield world
        nursery.cancel_scope.cancel()


async def take_all(link: Link) -> None:
    while True:
        await link.next_event()


async def received(link: Link, count: int) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        event = await link.next_event()
        if isinstance(event, Received):
            names += [one.id for one in event.envelopes]
    return names


async def test_envelopes_travel_both_ways_in_no_time(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        began = trio.current_time()
        await world.dialled.send(envelope(1), envelope(2))
        assert await received(world.other, 2) == ["e1", "e2"]
        world.other.send_nowait(envelope(3))
        assert await received(world.dialled, 1) == ["e3"]
        assert trio.current_time() == began


async def test_a_cut_carrier_is_replaced_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.dialled.send(envelope(1))
        world.cables[-1].cut()
        await world.dialled.send(envelope(2))
        assert await world.dialled.next_event() == Lost("the cable was cut")
        assert await world.dialled.next_event() == Opened(resumed=True)
        assert await received(world.other, 2) == ["e1", "e2"]
        assert (len(world.accepted), world.dialled.statistics().carriers) == (1, 2)


@pytest.mark.slow
async def test_nothing_is_lost_or_repeated_over_twenty_cuts_and_swapped_frames(autojump_clock: MockClock) -> None:
    async with a_world(partial(MemoryCable, reorder=Chance(5), copies=True, delay_s=0.01)) as world:

        async def cut_often() -> None:
            for _ in range(20):
                await trio.sleep(20)
                world.cables[-1].cut()

        async def send_much() -> None:
            for number in range(2_000):
                await world.dialled.send(envelope(number))
                if number % 5 == 0:
                    await trio.sleep(1)

        world.nursery.start_soon(cut_often)
        world.nursery.start_soon(send_much)
        assert await received(world.other, 2_000) == [f"e{number}" for number in range(2_000)]
        assert len(world.cables) > 10


async def test_an_acceptor_that_restarted_has_no_memory_and_both_are_told(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.other.send(envelope(1))
        await wait_all_tasks_blocked()
        world.acceptor = Acceptor(chance=Chance(7))
        await world.nursery.start(world.acceptor.run)
        world.cables[-1].cut()
        assert await world.dialled.next_event() == Received((envelope(1),))
        assert await world.dialled.next_event() == Lost("the cable was cut")
        assert await world.dialled.next_event() == Opened(resumed=False)
        assert await world.other.next_event() == Opened(resumed=False)
        await world.dialled.send(envelope(2))
        assert await received(world.other, 1) == ["e2"]


async def test_what_an_earlier_session_brought_is_not_acknowledged_in_the_next(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.other.send(*(envelope(number) for number in range(RESEND_ENVELOPES)))
        await wait_all_tasks_blocked()
        world.acceptor = Acceptor(chance=Chance(7))
        await world.nursery.start(world.acceptor.run)
        world.cables[-1].cut()
        world.arrived = trio.Event()
        await world.arrived.wait()
        await wait_all_tasks_blocked()
        assert len(await received(world.dialled, RESEND_ENVELOPES)) == RESEND_ENVELOPES
        await world.other.send(envelope(1))
        assert await received(world.dialled, 1) == ["e1"]
        await world.dialled.send(envelope(2))
        assert await received(world.other, 1) == ["e2"]
        assert world.dialled.statistics().carriers == 2


async def test_a_dialler_that_restarted_replaces_the_one_of_its_name(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        first = world.other
        again = world.a_dialler()
        await world.nursery.start(again.run)
        assert await again.next_event() == Opened(resumed=False)
        with pytest.raises(BrokenByPeer, match="came back without its session"):
            await first.send(envelope(1))
        assert world.ended == ["worker/1 came back without its session"]
        await again.send(envelope(2))
        assert await received(world.other, 1) == ["e2"]


async def test_a_newer_carrier_of_a_session_takes_the_place_of_the_older(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        session = world.dialled.session.identity
        cable = MemoryCable()
        await cable.left.send(pack_frame(Hello(PROTOCOL, session, 0, 0)))
        world.nursery.start_soon(partial(world.acceptor.serve, cable.right, name="worker/1", on_link=world.on_link))
        welcome = unpack_frame(await cable.left.receive())
        assert welcome == Welcome(PROTOCOL, session, True, 0, 0)
        assert await world.other.next_event() == Lost("a newer carrier took its place")
        assert await world.other.next_event() == Opened(resumed=True)


async def test_of_two_carriers_at_once_one_goes_on(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        session = world.dialled.session.identity
        cables = [MemoryCable(), MemoryCable()]
        for cable in cables:
            await cable.left.send(pack_frame(Hello(PROTOCOL, session, 0, 0)))
            world.nursery.start_soon(partial(world.acceptor.serve, cable.right, name="worker/1", on_link=world.on_link))
        await world.dialled.send(envelope(1))
        assert await received(world.other, 1) == ["e1"]
        assert len(world.accepted) == 1


async def test_a_full_window_makes_senders_wait_in_turn(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.dialled.send_nowait(*(envelope(number) for number in range(RESEND_ENVELOPES)))
        with pytest.raises(WouldBlock, match="the window of worker/1 is full"):
            world.dialled.send_nowait(envelope(0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.dialled.send, envelope(RESEND_ENVELOPES))
            await wait_all_tasks_blocked()
            nursery.start_soon(world.dialled.send, envelope(RESEND_ENVELOPES + 1))
            await wait_all_tasks_blocked()
            names = await received(world.other, RESEND_ENVELOPES + 2)
        assert names == [f"e{number}" for number in range(RESEND_ENVELOPES + 2)]


async def test_nobody_overtakes_a_sender_that_waits(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.dialled.send_nowait(*(envelope(number) for number in range(RESEND_ENVELOPES - 1)))
        world.nursery.start_soon(world.dialled.send, envelope(-1), envelope(-2))
        await wait_all_tasks_blocked()
        with pytest.raises(WouldBlock):
            world.dialled.send_nowait(envelope(-3))
        world.nursery.start_soon(world.dialled.send, envelope(-3))
        assert (await received(world.other, RESEND_ENVELOPES + 2))[-3:] == ["e-1", "e-2", "e-3"]


async def test_more_than_a_window_goes_in_parts(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        much = 2 * RESEND_ENVELOPES + 1
        world.nursery.start_soon(world.dialled.send, *(envelope(number) for number in range(much)))
        assert len(await received(world.other, much)) == much


async def test_a_cancelled_send_sends_nothing(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.dialled.send_nowait(*(envelope(number) for number in range(RESEND_ENVELOPES)))
        with trio.move_on_after(1):
            await world.dialled.send(envelope(-1), envelope(-2))
        assert (await received(world.other, RESEND_ENVELOPES))[-1] == f"e{RESEND_ENVELOPES - 1}"
        await world.dialled.send(envelope(1))
        assert await received(world.other, 1) == ["e1"]


async def test_only_one_task_takes_events(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.nursery.start_soon(take_all, world.dialled)
        await wait_all_tasks_blocked()
        with pytest.raises(Busy):
            await world.dialled.next_event()


async def test_goodbye_ends_both_ends_after_what_was_sent(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.dialled.send(envelope(1))
        await world.dialled.aclose()
        with pytest.raises(ClosedByUs):
            await world.dialled.send(envelope(2))
        assert await received(world.other, 1) == ["e1"]
        with pytest.raises(BrokenByPeer, match="left: closed"):
            await take_all(world.other)
        await wait_all_tasks_blocked()
        assert world.acceptor.statistics() == ()


async def test_a_dialler_goes_on_after_the_other_side_said_goodbye(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.other.aclose()
        assert await world.dialled.next_event() == Lost("the other side left: closed")
        assert await world.dialled.next_event() == Opened(resumed=False)
        assert len(world.accepted) == 2


async def test_goodbye_is_not_waited_for_longer_than_two_seconds(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.cables[-1].stall()
        began = trio.current_time()
        await world.other.aclose()
        assert trio.current_time() - began == 2.0
        await world.other.aclose()


async def test_a_stalled_peer_is_silent_after_15_s_and_back_at_once(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        began = trio.current_time()
        world.cables[-1].stall()
        assert await world.other.next_event() == PeerSilent()
        assert trio.current_time() - began == 15.0
        assert world.other.statistics().silent
        world.cables[-1].resume()
        assert await world.other.next_event() == PeerBack()
        assert world.acceptor.statistics()[0].open


async def test_nobody_looks_at_links_that_are_heard(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        assert world.dialled.due_at(trio.current_time()) == math.inf
        await trio.sleep(80_000)
        assert world.other.statistics().carriers == 1


async def test_a_carrier_that_is_silent_for_45_s_is_given_up(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        began = trio.current_time()
        world.cables[-1].stall()
        assert await world.other.next_event() == PeerSilent()
        assert await world.other.next_event() == Lost("nothing was heard over it for 45 s")
        assert trio.current_time() - began == 45.0
        assert await world.other.next_event() == PeerBack()
        assert await world.other.next_event() == Opened(resumed=True)


async def test_heartbeats_keep_an_idle_carrier_alive(autojump_clock: MockClock) -> None:
    async with a_world(BeatingCable) as world:
        await trio.sleep(120)
        left = world.cables[-1].left.statistics()
        assert 18 <= left.frames_sent <= 24
        assert (len(world.cables), world.other.statistics().silent) == (1, False)


async def test_silence_is_noticed_where_only_heartbeats_tell(autojump_clock: MockClock) -> None:
    async with a_world(BeatingCable) as world:
        world.cables[-1].stall()
        assert await world.other.next_event() == PeerSilent()
        assert await world.other.next_event() == Lost("nothing was heard over it for 45 s")


async def test_a_peer_that_does_not_come_back_is_forgotten_after_five_minutes(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        began = trio.current_time()
        world.reachable = False
        world.cables[-1].cut()
        with pytest.raises(BrokenByPeer, match="did not come back for 300 s"):
            await take_all(world.other)
        assert trio.current_time() - began == 300.0
        await wait_all_tasks_blocked()
        assert world.acceptor.statistics() == ()
        assert 10 < world.dials < 60


async def test_a_carrier_that_takes_no_frame_for_30_s_is_ended(autojump_clock: MockClock) -> None:
    async with a_world(BeatingCable) as world:
        world.cables[-1].stall()
        for number in range(200):
            await world.dialled.send(envelope(number, 60_000))
            await wait_all_tasks_blocked()
            if number == 100:
                break
        assert await world.dialled.next_event() == PeerSilent()
        assert await world.dialled.next_event() == Lost("it took no frame for 30 s")
        assert len(await received(world.other, 101)) == 101


async def test_our_own_outage_is_not_blamed_on_the_peer(autojump_clock: MockClock) -> None:
    looked: list[str] = []

    class Watched:
        def due_at(self, now: float) -> float:
            return now + 1.0

        def look(self, now: float) -> None:
            looked.append("looked")

        def forgive(self, now: float) -> None:
            looked.append("forgave")

    offset = 0.0
    sweep = Sweep([Watched()], lambda: trio.current_time() + offset)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep.run)
        await trio.sleep(1.5)
        assert looked == ["looked"]
        offset = 1.5
        await trio.sleep(1)
        assert looked == ["looked", "forgave", "looked"]
        nursery.cancel_scope.cancel()


async def test_a_link_forgives(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.reachable = False
        world.cables[-1].cut()
        await trio.sleep(10)
        for link in (world.dialled, world.other):
            link.forgive(trio.current_time())
        began = trio.current_time()
        with pytest.raises(BrokenByPeer, match="did not come back"):
            await take_all(world.other)
        assert trio.current_time() - began == 300.0


async def test_events_that_nobody_took_are_merged(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        for _ in range(5):
            world.cables[-1].cut()
            world.arrived = trio.Event()
            await trio.sleep(100)
            world.cables[-1].stall()
            await trio.sleep(20)
            world.cables[-1].resume()
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await world.dialled.next_event()
        for seed in (11, 12):
            world.acceptor = Acceptor(chance=Chance(seed))
            await world.nursery.start(world.acceptor.run)
            world.cables[-1].cut()
            await trio.sleep(100)
        assert await world.dialled.next_event() == Opened(resumed=False)
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await world.dialled.next_event()


@pytest.mark.parametrize("frame", [b"nonsense", pack_frame(Ack(99)), pack_frame(Goodbye(0, "bye"))])
async def test_a_peer_that_breaks_the_protocol_loses_its_session(autojump_clock: MockClock, frame: bytes) -> None:
    async with a_world() as world:
        before = world.other
        await world.cables[-1].left.send(frame)
        with pytest.raises(BrokenByPeer):
            await take_all(before)
        assert await world.dialled.next_event() == Lost("the other end was closed")
        assert await world.dialled.next_event() == Opened(resumed=False)


async def test_a_dialler_forgets_the_session_of_an_acceptor_that_breaks_the_protocol(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        await world.cables[-1].right.send(b"nonsense")
        lost = await world.dialled.next_event()
        assert isinstance(lost, Lost)
        assert lost.why.startswith("the other side sent a frame that cannot be read")
        assert await world.dialled.next_event() == Opened(resumed=False)


async def test_an_acceptor_that_does_not_answer_hello_is_left(autojump_clock: MockClock) -> None:
    cable = MemoryCable()

    async def dial() -> Carrier:
        return cable.left

    link = DialledLink(name="x", dial=dial, chance=Chance(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        assert isinstance(unpack_frame(await cable.right.receive()), Hello)
        with pytest.raises(BrokenByPeer):
            await cable.right.receive()
        assert trio.current_time() == pytest.approx(10.0)
        nursery.cancel_scope.cancel()
    with pytest.raises(ClosedByUs, match="not dialled any more"):
        await link.next_event()


async def test_whoever_does_not_say_hello_is_not_served(autojump_clock: MockClock) -> None:
    acceptor = Acceptor(chance=Chance(1))
    cables = [MemoryCable(), MemoryCable(), MemoryCable(), MemoryCable()]
    for _ in range(63):
        await cables[1].left.send(pack_frame(Ack(0)))
    await cables[2].left.send(pack_frame(Hello(PROTOCOL + 1, "", 0, 0)))
    await cables[3].left.send(b"GET / HTTP/1.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(acceptor.run)
        for cable in cables:
            await acceptor.serve(cable.right, name="x", on_link=take_all)
            with pytest.raises(BrokenByPeer):
                await cable.left.receive()
        assert acceptor.statistics() == ()
        nursery.cancel_scope.cancel()


async def test_a_flood_ahead_of_hello_is_cut_off(autojump_clock: MockClock) -> None:
    acceptor = Acceptor(chance=Chance(1))
    cable = MemoryCable()

    async def flood() -> None:
        with contextlib.suppress(BrokenByPeer):
            while True:
                await cable.left.send(pack_frame(Ack(0)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        await acceptor.serve(cable.right, name="x", on_link=take_all)
    assert trio.current_time() == 0.0


async def test_an_acceptor_must_run_before_it_serves(autojump_clock: MockClock) -> None:
    cable = MemoryCable()
    await cable.left.send(pack_frame(Hello(PROTOCOL, "", 0, 0)))
    with pytest.raises(RuntimeError, match=r"start Acceptor\.run"):
        await Acceptor(chance=Chance(1)).serve(cable.right, name="x", on_link=take_all)


async def test_a_peer_replaced_on_the_same_carrier_begins_anew(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        first = world.other
        await world.cables[-1].left.send(pack_frame(Hello(PROTOCOL, "", 0, 0)))
        with pytest.raises(BrokenByPeer, match="came back without its session"):
            await take_all(first)


async def test_a_link_whose_owner_returns_is_closed(autojump_clock: MockClock) -> None:
    async with a_world() as world:

        async def leave(link: Link) -> None:
            await link.send(envelope(1))

        world.on_link = leave  # type: ignore[method-assign]
        await world.other.aclose()
        assert await received(world.dialled, 1) == ["e1"]


async def test_an_error_of_a_links_owner_reaches_whoever_runs_the_acceptor(autojump_clock: MockClock) -> None:
    acceptor = Acceptor(chance=Chance(1))
    cable = MemoryCable()
    await cable.left.send(pack_frame(Hello(PROTOCOL, "", 0, 0)))

    async def fail(link: Link) -> None:
        raise BrokenByPeer("something of its own")

    async def serve() -> None:
        await acceptor.serve(cable.right, name="x", on_link=fail)

    own = pytest.RaisesExc(BrokenByPeer, match="something of its own")
    with pytest.RaisesGroup(own, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(acceptor.run)
            nursery.start_soon(serve)


async def test_a_session_that_ended_takes_no_carrier(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.dialled.end(PeerProtocolError("enough"))
        cable = MemoryCable()
        await world.dialled.carry(cable.left, lambda: [])
        assert cable.left.statistics().frames_sent == 0


async def test_a_refusal_ends_a_dialled_link_at_once(autojump_clock: MockClock) -> None:
    async def dial() -> Carrier:
        raise Refused("This token is not known.")

    link = DialledLink(name="x", dial=dial, chance=Chance(1))
    with pytest.raises(Refused, match="not known"):
        await link.run()
    assert trio.current_time() == 0.0
    with pytest.raises(Refused, match="not known"):
        await link.send(envelope(1))


async def test_a_dial_that_hangs_is_tried_again(autojump_clock: MockClock) -> None:
    dials = 0

    async def dial() -> Carrier:
        nonlocal dials
        dials += 1
        await trio.sleep_forever()
        raise AssertionError

    link = DialledLink(name="x", dial=dial, chance=Chance(1), redial=Redial(first_min_s=1, first_max_s=1, max_s=1))
    with trio.move_on_after(100):
        await link.run()
    assert dials == 7


@pytest.mark.slow
async def test_memory_stays_bounded_when_a_peer_is_away(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        world.reachable = False
        world.cables[-1].cut()
        with trio.move_on_after(5):
            for number in range(2 * RESEND_ENVELOPES):
                await world.dialled.send(envelope(number))
        assert world.dialled.statistics().session.unacknowledged == RESEND_ENVELOPES
        assert world.dialled.statistics().carrier is None


async def test_a_frame_that_comes_with_the_end_of_its_carrier_is_not_taken(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        late = PackedData(1, 0, [msgspec.Raw(pack_envelope(envelope(1)))])
        await world.cables[-1].left.send(pack_frame(late))
        world.other.end(BrokenByPeer("over"))
        await wait_all_tasks_blocked()
        assert await world.other.next_event() == Lost("over")
        with pytest.raises(BrokenByPeer, match="over"):
            await world.other.next_event()
