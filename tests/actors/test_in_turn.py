"""What follows from plans is done one after the other."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from levers9.actors.in_turn import InTurn


async def test_changes_are_carried_out_one_after_the_other_in_order(autojump_clock: MockClock) -> None:
    changes: InTurn[int] = InTurn()
    done: list[tuple[int, float]] = []

    async def one(change: int) -> None:
        await trio.sleep(1.0)
        done.append((change, trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.carry_out, one)
        begun_s = trio.current_time()
        changes.add(1, 2)
        await trio.sleep(5.0)
        changes.add(3)
        await trio.sleep(2.0)
        nursery.cancel_scope.cancel()
    assert [(change, at_s - begun_s) for change, at_s in done] == [(1, 1.0), (2, 2.0), (3, 6.0)]
