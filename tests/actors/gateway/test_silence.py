"""What a relay says of peers that fall silent, and does with messages it does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.actors.gateway.policy import GatewayPolicy, LeadershipRead
from levers9.actors.gateway.relay import Relay
from levers9.actors.gateway.seats import LinkEvent
from levers9.actors.gateway.stamps import Stamp
from levers9.errors import BrokenByPeer, StoreUnavailable, WouldBlock
from levers9.model.ids import Chance
from levers9.wire.codec import Envelope, pack, unpack
from levers9.wire.control import GatewayReady, PeerArrived, PeerQuiet, ReportAgain
from levers9.wire.link import Lost, Opened, PeerBack, PeerSilent, Received
from levers9.wire.message import Message
from levers9.wire.post import Post
from levers9.wire.scheduling import StopContainer
from levers9.wire.work import AttemptsHeld


class ScriptedLink:
    """A link whose events a test tells."""

    def __init__(self) -> None:
        self.say, self._events = trio.open_memory_channel[LinkEvent](100)
        self.sent: list[Envelope] = []
        self.full = False
        self.stuck = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def next_event(self) -> LinkEvent:
        try:
            return await self._events.receive()
        except trio.EndOfChannel:
            raise BrokenByPeer("over") from None

    def send_nowait(self, *envelopes: Envelope) -> None:
        if self.full:
            raise WouldBlock("full")
        self.sent += envelopes

    async def send(self, *envelopes: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        if self.stuck:
            await trio.sleep_forever()
        self.sent += envelopes

    async def aclose(self) -> None:
        self.say.close()

    def messages(self) -> list[Message]:
        return [unpack(one.payload) for one in self.sent]


class Scene:
    """A relay between a scripted brain and one scripted worker."""

    def __init__(self) -> None:
        chance = Chance(1)
        self.brain, self.worker = ScriptedLink(), ScriptedLink()
        self.row: LeadershipRead | None = None
        self.store_is_away = False
        self.reads: list[float] = []
        self.dialled: list[str] = []
        self.upstream = ScriptedLink()
        self.relay = Relay(
            policy=GatewayPolicy("g"),
            brain=self.brain,
            dial_upstream=self.dial,
            read_leader=self.read_leader,
            post=Post(chance=chance),
            chance=chance,
        )

    def dial(self, url: str) -> ScriptedLink:
        self.dialled.append(url)
        return self.upstream

    async def read_leader(self) -> LeadershipRead | None:
        await trio.lowlevel.checkpoint()
        self.reads.append(trio.current_time())
        if self.store_is_away:
            raise StoreUnavailable("away")
        return self.row

    async def play(self, *events: LinkEvent, then_over: bool = False) -> list[Message]:
        """What the brain hears after these events of the worker."""
        stamp = Stamp(role="worker", source="worker/w", workspace="", kind="worker")
        async with trio.open_nursery() as nursery:
            await nursery.start(self.relay.run)
            nursery.start_soon(self.relay.serve_peer, self.worker, stamp, b"hash")
            for event in events:
                self.worker.say.send_nowait(event)
            await wait_all_tasks_blocked()
            if then_over:
                self.worker.say.close()
                await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return self.brain.messages()


async def test_a_peer_that_falls_silent_and_comes_back_is_told_both_times() -> None:
    heard = await Scene().play(Opened(False), PeerSilent(), PeerBack())
    assert heard[:3] == [
        PeerArrived(peer="worker/w"),
        PeerQuiet(peer="worker/w", closed=False),
        PeerArrived(peer="worker/w"),
    ]


async def test_a_peer_whose_stream_closes_is_told_as_closed() -> None:
    heard = await Scene().play(Opened(False), Lost("cut"))
    assert heard[1] == PeerQuiet(peer="worker/w", closed=True)


async def test_a_session_that_is_over_is_told_and_forgotten() -> None:
    scene = Scene()
    heard = await scene.play(Opened(False), then_over=True)
    assert heard[1:] == [PeerQuiet(peer="worker/w", closed=True)]
    assert scene.relay.statistics().workers == 0


async def test_a_message_that_this_gateway_does_not_know_is_dropped_and_counted() -> None:
    scene = Scene()
    unknown = Envelope("", "leader", "gateway/g", msgspec.Raw(msgspec.msgpack.encode({"type": "FromTomorrow"})))
    scene.brain.say.send_nowait(Received((unknown,)))
    await scene.play(Opened(False))
    assert scene.relay.statistics().dropped == 1


async def test_what_the_brain_says_while_its_window_is_full_the_other_way_is_kept_in_order() -> None:
    scene = Scene()
    scene.brain.full = True
    heard = await scene.play(Opened(False), PeerSilent(), PeerBack())
    assert [type(one) for one in heard] == [PeerArrived, PeerQuiet, PeerArrived]


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    """The relay with its worker, whose brain was there and then fell silent."""
    stamp = Stamp(role="worker", source="worker/w", workspace="", kind="worker")
    async with trio.open_nursery() as nursery:
        await nursery.start(scene.relay.run)
        nursery.start_soon(scene.relay.serve_peer, scene.worker, stamp, b"hash")
        for event in (Opened(False), PeerSilent()):
            scene.brain.say.send_nowait(event)
        scene.worker.say.send_nowait(Opened(False))
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_a_silent_brain_is_passed_over_as_soon_as_the_store_names_another_leader(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    async with running(scene):
        await trio.sleep(2.5)
        scene.row = LeadershipRead(epoch=2, url="ws://other")
        await trio.sleep(1.2)
        scene.upstream.say.send_nowait(Opened(False))
        await wait_all_tasks_blocked()
    assert scene.reads == [0.0, 1.0, 2.0, 3.0]
    assert scene.dialled == ["ws://other"]
    assert GatewayReady(gateway_id="g", peers=("worker/w",)) in scene.upstream.messages()
    assert scene.worker.messages()[-1] == ReportAgain(epoch=2)


async def test_a_store_that_is_away_as_well_is_asked_again(autojump_clock: MockClock) -> None:
    scene = Scene()
    scene.store_is_away = True
    async with running(scene):
        await trio.sleep(1.5)
        scene.store_is_away, scene.row = False, LeadershipRead(epoch=2, url="ws://other")
        await trio.sleep(1.2)
    assert scene.dialled == ["ws://other"]


async def test_a_brain_that_is_heard_again_is_trusted_and_the_store_asked_no_more(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with running(scene):
        scene.brain.say.send_nowait(PeerBack())
        await wait_all_tasks_blocked()
        asked = len(scene.reads)
        scene.row = LeadershipRead(epoch=2, url="ws://other")
        await trio.sleep(10.0)
    assert (len(scene.reads), scene.dialled) == (asked, [])


async def test_a_lost_brain_has_as_long_as_a_lease_to_come_back(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with trio.open_nursery() as nursery:
        await nursery.start(scene.relay.run)
        scene.brain.say.send_nowait(Opened(False))
        await trio.sleep(1.0)
        scene.brain.say.send_nowait(Lost("killed"))
        await trio.sleep(5.5)
        nursery.cancel_scope.cancel()
    assert scene.reads == [6.0]


async def test_a_peer_that_waits_for_a_brain_that_stands_still_is_freed_when_another_leads(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    scene.brain.stuck = True
    async with running(scene):
        scene.worker.say.send_nowait(Received((said_by_worker(),)))
        await wait_all_tasks_blocked()
        scene.row = LeadershipRead(epoch=2, url="ws://other")
        await trio.sleep(1.2)
        scene.worker.say.send_nowait(Received((said_by_worker(),)))
        await wait_all_tasks_blocked()
    assert scene.relay.statistics().dropped == 1
    assert AttemptsHeld(container_id="c", attempts=(), window=1) in scene.upstream.messages()


async def test_what_a_superseded_brain_still_says_reaches_no_peer(autojump_clock: MockClock) -> None:
    scene = Scene()
    late = Envelope("", "tasks", "worker/w", pack(StopContainer(container_id="c", why="late")))
    async with running(scene):
        scene.row = LeadershipRead(epoch=2, url="ws://other")
        await trio.sleep(1.2)
        scene.brain.say.send_nowait(Received((late,)))
        await wait_all_tasks_blocked()
    assert StopContainer(container_id="c", why="late") not in scene.worker.messages()
    assert scene.relay.statistics().dropped == 1


def said_by_worker() -> Envelope:
    message = AttemptsHeld(container_id="c", attempts=(), window=1)
    return Envelope("", "forged", message.receiver, pack(message))
