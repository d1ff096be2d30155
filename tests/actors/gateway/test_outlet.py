"""What is on its way to one peer never holds up whoever sent it."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from levers9.actors.gateway.outlet import Outlet
from levers9.errors import BrokenByPeer, WouldBlock
from levers9.wire.codec import Envelope, pack
from levers9.wire.control import ReportAgain


class SlowLine:
    """A session whose window holds `room` envelopes until somebody makes more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[str] = []
        self.broken = False
        self._more = trio.Event()

    def make_room(self, room: int) -> None:
        self.room += room
        self._more.set()

    def break_it(self) -> None:
        self.broken = True
        self._more.set()

    def send_nowait(self, *envelopes: Envelope) -> None:
        if self.broken:
            raise BrokenByPeer("gone")
        if len(envelopes) > self.room:
            raise WouldBlock("full")
        self.room -= len(envelopes)
        self.sent += [one.id for one in envelopes]

    async def send(self, *envelopes: Envelope) -> None:
        while True:
            try:
                return self.send_nowait(*envelopes)
            except WouldBlock:
                self._more = trio.Event()
                await self._more.wait()

    async def aclose(self) -> None:
        self.broken = True


def numbered(first: int, count: int) -> list[Envelope]:
    return [Envelope(str(n), "a", "b", pack(ReportAgain(epoch=1))) for n in range(first, first + count)]


async def test_with_room_in_the_window_nothing_waits() -> None:
    line = SlowLine(10)
    outlet = Outlet(line)
    assert outlet.put(numbered(0, 3)) == 0
    assert (line.sent, outlet.statistics().waiting) == (["0", "1", "2"], 0)


async def test_what_waits_leaves_in_order_once_there_is_room() -> None:
    line = SlowLine(0)
    outlet = Outlet(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run)
        outlet.put(numbered(0, 2))
        await wait_all_tasks_blocked()
        outlet.put(numbered(2, 1))
        line.make_room(2)
        await wait_all_tasks_blocked()
        outlet.put(numbered(3, 1))
        line.make_room(2)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert line.sent == ["0", "1", "2", "3"]


async def test_a_full_queue_ends_the_outlet_and_counts_what_was_lost() -> None:
    line = SlowLine(0)
    outlet = Outlet(line, envelopes=5)
    assert outlet.put(numbered(0, 5)) == 0
    assert outlet.put(numbered(5, 1)) == 6
    assert outlet.over
    with trio.fail_after(1):
        await outlet.run()
    assert outlet.put(numbered(6, 2)) == 2
    assert outlet.statistics().dropped == 8


async def test_a_peer_that_takes_nothing_is_given_up_once_its_queue_is_full() -> None:
    outlet = Outlet(SlowLine(0), envelopes=1)
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.run)
            outlet.put(numbered(0, 1))
            await wait_all_tasks_blocked()
            outlet.put(numbered(1, 1))
            assert outlet.put(numbered(2, 1)) == 2
    assert outlet.over


async def test_the_queue_is_bounded_in_bytes_too() -> None:
    outlet = Outlet(SlowLine(0), size_bytes=40)
    size = len(memoryview(pack(ReportAgain(epoch=1))))
    assert outlet.put(numbered(0, 40 // size)) == 0
    assert outlet.put(numbered(9, 1)) > 0


async def test_a_peer_that_is_gone_ends_the_outlet() -> None:
    line = SlowLine(0)
    outlet = Outlet(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outlet.run)
        outlet.put(numbered(0, 1))
        await wait_all_tasks_blocked()
        line.break_it()
    assert outlet.put(numbered(1, 1)) == 1
