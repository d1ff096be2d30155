"""What a relay says of peers that fall silent, and does with messages it does not know."""

from __future__ import annotations

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from levers9.actors.gateway.policy import GatewayPolicy
from levers9.actors.gateway.relay import Relay
from levers9.actors.gateway.seats import LinkEvent
from levers9.actors.gateway.stamps import Stamp
from levers9.errors import BrokenByPeer, WouldBlock
from levers9.model.ids import Chance
from levers9.wire.codec import Envelope, unpack
from levers9.wire.control import PeerArrived, PeerQuiet
from levers9.wire.link import Lost, Opened, PeerBack, PeerSilent, Received
from levers9.wire.message import Message
from levers9.wire.post import Post


class ScriptedLink:
    """A link whose events a test tells."""

    def __init__(self) -> None:
        self.say, self._events = trio.open_memory_channel[LinkEvent](100)
        self.sent: list[Envelope] = []
        self.full = False

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
        self.relay = Relay(
            policy=GatewayPolicy("g"),
            brain=self.brain,
            dial_upstream=lambda _: ScriptedLink(),
            post=Post(chance=chance),
            chance=chance,
        )

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
