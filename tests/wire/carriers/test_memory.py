"""The memory carrier and what can be done to it."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.errors import BrokenByPeer, ClosedByUs
from levers9.model.ids import Chance
from levers9.wire.carriers.memory import SLOTS, MemoryCable


async def test_frames_arrive_in_order_after_the_delay(autojump_clock: MockClock) -> None:
    cable = MemoryCable(delay_s=2.0)
    began = trio.current_time()
    await cable.left.send(b"1")
    await cable.left.send(b"2")
    assert [await cable.right.receive(), await cable.right.receive()] == [b"1", b"2"]
    assert trio.current_time() - began == pytest.approx(2.0)
    assert cable.left.statistics().frames_sent == cable.right.statistics().frames_received == 2


async def test_a_stalled_cable_delivers_nothing_and_loses_nothing(autojump_clock: MockClock) -> None:
    cable = MemoryCable()
    told: list[bool] = []
    assert cable.right.watch_peer(lambda: told.append(cable.right.peer_heard()))
    cable.stall()
    await cable.left.send(b"1")
    with trio.move_on_after(100) as scope:
        await cable.right.receive()
    assert scope.cancelled_caught
    cable.resume()
    assert await cable.right.receive() == b"1"
    assert told == [False, True]


async def test_a_sender_waits_while_64_frames_are_under_way(autojump_clock: MockClock) -> None:
    cable = MemoryCable()
    for _ in range(SLOTS):
        await cable.left.send(b"x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cable.left.send, b"last")
        await wait_all_tasks_blocked()
        assert cable.left.statistics().frames_sent == SLOTS
        await cable.right.receive()
    assert cable.left.statistics().frames_sent == SLOTS + 1


async def test_a_cut_loses_what_is_under_way(autojump_clock: MockClock) -> None:
    cable = MemoryCable(delay_s=1.0)
    await cable.left.send(b"lost")
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(BrokenByPeer, match="cut"):
                await cable.right.receive()

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        cable.cut()
    with pytest.raises(BrokenByPeer, match="cut"):
        await cable.left.send(b"x")


async def test_after_a_close_the_other_end_receives_the_rest(autojump_clock: MockClock) -> None:
    cable = MemoryCable()
    await cable.left.send(b"last words")
    await cable.left.aclose()
    assert await cable.right.receive() == b"last words"
    with pytest.raises(BrokenByPeer, match="closed"):
        await cable.right.receive()
    with pytest.raises(BrokenByPeer, match="closed"):
        await cable.right.send(b"x")
    with pytest.raises(ClosedByUs):
        await cable.left.send(b"x")
    with pytest.raises(ClosedByUs):
        await cable.left.receive()


async def test_a_sender_that_waits_learns_of_the_close(autojump_clock: MockClock) -> None:
    cable = MemoryCable()
    for _ in range(SLOTS):
        await cable.left.send(b"x")
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(BrokenByPeer):
                await cable.left.send(b"x")

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        await cable.right.aclose()


async def test_frames_are_swapped_where_asked_and_none_is_lost(autojump_clock: MockClock) -> None:
    cable = MemoryCable(reorder=Chance(3), copies=True)
    sent = [bytes([number]) for number in range(20)]
    for frame in sent:
        await cable.left.send(frame)
    arrived = [await cable.right.receive() for _ in sent]
    assert not cable.right.ordered
    assert arrived != sent
    assert sorted(arrived) == sent
