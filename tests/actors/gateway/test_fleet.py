"""What the metrics find when a part of the platform does not answer."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from levers9.actors.gateway.fleet import ANSWER_WITHIN_S, FleetObserver
from levers9.actors.gateway.questions import Questions
from levers9.model.ids import Chance
from levers9.store.memory import MemoryStore
from levers9.wire.codec import Envelope
from levers9.wire.post import Post


class DeafLine:
    """A way to a brain that never answers."""

    def __init__(self) -> None:
        self.sent: list[Envelope] = []

    async def send(self, *envelopes: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        self.sent += envelopes

    def send_nowait(self, *envelopes: Envelope) -> None:
        self.sent += envelopes


async def test_a_brain_that_does_not_answer_is_left_out_in_time(autojump_clock: MockClock) -> None:
    line = DeafLine()
    questions = Questions("gateway/g", Post(chance=Chance(1)), line)
    found = await FleetObserver(MemoryStore(), questions).look()
    assert (found.tree, found.store_read_s, len(line.sent)) == (None, 0.0, 1)
    assert trio.current_time() == ANSWER_WITHIN_S
