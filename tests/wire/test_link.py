"""Links over memory carriers, in virtual time."""

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
import trio

from levers9.errors import BrokenByPeer
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.codec import Envelope
from levers9.wire.link import Acceptor, DialledLink, Link, Lost, Opened, Received


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return autojump_clock


def envelope(number: int, size: int = 0) -> Envelope:
    return Envelope(f"e{number}", "a", "b", msgspec.Raw(msgspec.msgpack.encode(b"x" * size)))


class World:
    """An acceptor, and a dialled link that reaches it over a new cable each time."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.acceptor = Acceptor(chance=Chance(1))
        self.cables: list[MemoryCable] = []
        self.make_cable: Callable[[], MemoryCable] = MemoryCable
        self.reachable = True
        self.accepted: list[Link] = []
        self.arrived = trio.Event()
        self.dialled = DialledLink(name="worker/1", dial=self.dial, chance=Chance(2))

    async def dial(self) -> Carrier:
        if not self.reachable:
            raise BrokenByPeer("nobody listens")
        cable = self.make_cable()
        self.cables.append(cable)

        async def serve() -> None:
            await self.acceptor.serve(cable.right, name="worker/1", on_link=self.on_link)

        self.nursery.start_soon(serve)
        return cable.left

    async def on_link(self, link: Link) -> None:
        self.accepted.append(link)
        self.arrived.set()
        await trio.sleep_forever()


@contextlib.asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await nursery.start(world.acceptor.run)
        await nursery.start(world.dialled.run)
        await world.arrived.wait()
        assert await world.dialled.next_event() == Opened(resumed=False)
        assert await world.accepted[0].next_event() == Opened(resumed=False)
        yield world
        nursery.cancel_scope.cancel()


async def received(link: Link, count: int) -> list[str]:
    names: list[str] = []
    while len(names) < count:
        event = await link.next_event()
        if isinstance(event, Received):
            names += [one.id for one in event.envelopes]
    return names


async def test_envelopes_travel_both_ways(clock: trio.testing.MockClock) -> None:
    async with a_world() as world:
        await world.dialled.send(envelope(1), envelope(2))
        assert await received(world.accepted[0], 2) == ["e1", "e2"]
        world.accepted[0].send_nowait(envelope(3))
        assert await received(world.dialled, 1) == ["e3"]
        assert trio.current_time() - clock.current_time() == 0


async def test_a_cut_carrier_is_replaced_and_nothing_is_lost(clock: trio.testing.MockClock) -> None:
    async with a_world() as world:
        await world.dialled.send(envelope(1))
        world.cables[-1].cut()
        await world.dialled.send(envelope(2))
        assert await world.dialled.next_event() == Lost("the cable was cut")
        assert await world.dialled.next_event() == Opened(resumed=True)
        assert await received(world.accepted[0], 2) == ["e1", "e2"]
        assert len(world.accepted) == 1
