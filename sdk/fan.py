"""The window of a map: which inputs are under way, which results are ready, and whose turn it is. It never waits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from ..errors import LeversError
from ..model.figures import INLINE_MAX_BYTES
from ..model.states import TaskState
from ..wire.client import NewTask
from .calling import Caller
from .connection import Connection
from .ledger import Arrival, Receiver
from .outbox import Outbox

MOMENT_S: Final = 0.005
ROOM_CALLS: Final = 500  # as many as travel in one message
BYTES_IN_FLIGHT: Final = 64 << 20


class Fan:
    """Everything of one map but the waiting."""

    def __init__(
        self, caller: Caller, inputs: Iterable[object], *, ordered: bool, fail_fast: bool, max_in_flight: int
    ) -> None:
        self._caller = caller
        self._inputs: Iterator[object] = iter(inputs)
        self._ordered = ordered
        self._fail_fast = fail_fast
        self._max = max_in_flight
        self.connection: Connection | None = None
        self._stub_id = ""
        self._outbox: Outbox | None = None
        self._checked = False
        self._exhausted = False
        self._submitted = 0
        self._yielded = 0
        self._bytes = 0
        self._places: dict[str, tuple[int, int]] = {}  # task -> its place among the inputs, its bytes
        self._ready: dict[int, Arrival] = {}
        self._order: deque[int] = deque()  # places as they became ready, for those who want them so
        self._failed: Arrival | None = None

    @property
    def outstanding(self) -> tuple[str, ...]:
        """The calls that have no result yet."""
        return tuple(self._places)

    @property
    def finished(self) -> int:
        """How many results have arrived."""
        return self._submitted - len(self._places)

    @property
    def submitted(self) -> int:
        """How many calls were made."""
        return self._submitted

    @property
    def stub_id(self) -> str:
        """The function's identity, once a call was made."""
        return self._stub_id

    @property
    def over(self) -> bool:
        """Whether every input was called and every result handed out."""
        return self._exhausted and self._yielded == self._submitted

    @property
    def has_room(self) -> bool:
        """Whether more inputs may be called now; not before a good part of the window is free, for large batches."""
        if self._exhausted or self._bytes >= BYTES_IN_FLIGHT:
            return False
        free = self._max - (self._submitted - self._yielded)
        return free >= min(ROOM_CALLS, max(1, self._max // 4)) or (free > 0 and not self._places)

    def call_more(self, receiver: Receiver) -> None:
        """Call the next inputs, until there is no room or a moment has passed: results must not wait for inputs."""
        if self._outbox is None:
            assert self.connection is not None
            self._outbox = Outbox(self.connection, self._stub_id, receiver)
        until_s = time.perf_counter() + MOMENT_S
        while self._submitted - self._yielded < self._max and self._bytes < BYTES_IN_FLIGHT:
            task = self._next()
            if task is None:
                return
            self._outbox.put(task)
            if time.perf_counter() > until_s:
                return

    def take(self, arrivals: list[Arrival]) -> None:
        """Results that came."""
        for arrival in arrivals:
            known = self._places.pop(arrival[0], None)
            if known is None:
                continue
            place, size = known
            self._bytes -= size
            if self._fail_fast and _is_failure(arrival) and self._failed is None:
                self._failed = arrival
            self._ready[place] = arrival
            if not self._ordered:
                self._order.append(place)

    def next_ready(self) -> Arrival | None:
        """The next result to hand out, if it is there. The first failure comes ahead of its turn, if so asked."""
        if self._failed is not None:
            return self._failed
        place = self._yielded if self._ordered else (self._order[0] if self._order else -1)
        arrival = self._ready.pop(place, None)
        if arrival is None:
            return None
        if not self._ordered:
            self._order.popleft()
        self._yielded += 1
        return arrival

    def value(self, arrival: Arrival) -> object:
        """The result in an arrival, or an exception raised."""
        assert self.connection is not None
        return self._caller.value(self.connection, arrival)

    def give_up(self) -> tuple[str, ...]:
        """Call no more inputs; returns what is outstanding and forgets it."""
        outstanding = self.outstanding
        self._exhausted = True
        self._places.clear()
        self._ready.clear()
        self._order.clear()
        self._failed = None
        self._yielded = self._submitted
        return outstanding

    def prepare(self) -> None:
        """Send code and register the function, the first time."""
        if self.connection is None:
            self.connection, self._stub_id = self._caller.stub()

    def _next(self) -> NewTask | None:
        try:
            argument = next(self._inputs)
        except StopIteration:
            self._exhausted = True
            return None
        if not self._checked:  # each call has one positional argument, so what is true of one is true of all
            self._caller.check((argument,), {})
            self._checked = True
        assert self.connection is not None
        task = self._caller.new_task(self.connection, self._caller.pack((argument,), {}))
        size = min(task.arguments.size_bytes, INLINE_MAX_BYTES)
        self._places[task.task_id] = (self._submitted, size)
        self._bytes += size
        self._submitted += 1
        return task


def _is_failure(arrival: Arrival) -> bool:
    return isinstance(arrival[1], LeversError) or arrival[1].state is not TaskState.COMPLETE
