"""A thousand agents whose control plane was away come back one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from levers9.errors import BrokenByPeer
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.link import Acceptor, DialledLink, Link
from levers9.wire.redial import Redial

pytestmark = pytest.mark.slow
AGENTS = 1_000
HEALTHY_S = 80.0  # longer than what begins the waits anew
SETTLED_S = 60.0  # after it is back, all agents are
AWAY_S = 12.0  # while some of them come a second time, others come first
WINDOW_S = 1.0


class ControlPlane:
    """Takes streams, notes when it was dialled, and can be away."""

    def __init__(self) -> None:
        self.acceptor = Acceptor(chance=Chance(0))
        self.dialled_at: list[float] = []
        self.is_away = False
        self._cables: list[MemoryCable] = []
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self.acceptor.run)
            task_status.started()

    async def dial(self, name: str) -> Carrier:
        self.dialled_at.append(trio.current_time())
        await trio.sleep(0.01)
        if self.is_away:
            raise BrokenByPeer("nobody listens")
        cable = MemoryCable(delay_s=0.01)
        self._cables.append(cable)
        assert self._nursery is not None
        self._nursery.start_soon(self._serve, cable, name)
        return cable.left

    async def _serve(self, cable: MemoryCable, name: str) -> None:
        await self.acceptor.serve(cable.right, name=name, on_link=_listen)

    def go_away(self) -> None:
        self.is_away = True
        cables, self._cables = self._cables, []
        for cable in cables:
            cable.cut("the control plane is gone")


async def _listen(link: Link) -> None:
    while True:
        await link.next_event()


def _fullest(times: list[float], window_s: float) -> int:
    """The most of these moments that any window of this length holds, wherever it begins."""
    return max(_held_by_windows(sorted(times), window_s))


def _held_by_windows(times: list[float], window_s: float) -> Iterator[int]:
    first = 0
    for last, at_s in enumerate(times):
        while times[first] <= at_s - window_s:
            first += 1
        yield last - first + 1


async def test_no_second_sees_more_than_a_tenth_of_a_thousand_agents_redial(
    autojump_clock: trio.testing.MockClock,
) -> None:
    control_plane = ControlPlane()
    links = [
        DialledLink(
            name=f"agent/{number}",
            dial=lambda number=number: control_plane.dial(f"agent/{number}"),  # type: ignore[misc]
            chance=Chance(number),
            redial=Redial(),
        )
        for number in range(AGENTS)
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(control_plane.run)
        for link in links:
            nursery.start_soon(link.run)
        await trio.sleep(HEALTHY_S)

        control_plane.go_away()
        await trio.sleep(AWAY_S)
        control_plane.is_away = False
        back_at_s = trio.current_time()
        await trio.sleep(SETTLED_S)

        redialled = [at_s for at_s in control_plane.dialled_at if at_s >= back_at_s]
        connected = sum(one.carrier is not None for one in control_plane.acceptor.statistics())
        nursery.cancel_scope.cancel()
    assert connected == AGENTS
    assert len(redialled) >= AGENTS - AGENTS // 10
    assert _fullest(redialled, WINDOW_S) <= AGENTS // 10
