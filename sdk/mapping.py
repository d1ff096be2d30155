"""`f.map(inputs)`: one call an input, many under way, results as an iterator, in plain and in async programs."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, cast, overload

from ..errors import INVALID, LeversError, Refused
from ..model.figures import MAX_IN_FLIGHT
from .calling import Caller
from .fan import Fan
from .interrupt import cancel_and_tell, say_cancelled
from .ledger import Arrival
from .progress import EVERY_S, ProgressLine
from .waiting import Inbox, in_thread

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a map stands. `waiting_because` is empty while nothing holds it up."""

    submitted: int
    finished: int
    running: int
    containers: int
    per_s: float
    waiting_because: str


class _Results(Generic[T]):
    """What both kinds of iterator share."""

    def __init__(self, fan: Fan, return_exceptions: bool) -> None:
        self._fan = fan
        self._inbox = Inbox()
        self._return_exceptions = return_exceptions
        self._begun_s = time.monotonic()

    def progress(self) -> Progress:
        """Where it stands now."""
        fan = self._fan
        told = fan.connection.progress(fan.stub_id) if fan.connection is not None else None
        spent = max(1e-9, time.monotonic() - self._begun_s)
        return Progress(
            submitted=fan.submitted,
            finished=fan.finished,
            running=told.running if told is not None else 0,
            containers=told.containers if told is not None else 0,
            per_s=fan.finished / spent,
            waiting_because=told.waiting_because if told is not None else "",
        )

    def close(self) -> None:
        """Make no more calls, and cancel those that have no result."""
        outstanding = self._fan.give_up()
        if outstanding and self._fan.connection is not None:
            try:
                self._fan.connection.abandon(outstanding)
            except LeversError:
                return  # the connection is gone, and its callers were told

    def _advance(self) -> Arrival | None:
        """The next result if it is here, after having called what there is room for."""
        self._fan.take(self._inbox.take_ready())
        arrival = self._fan.next_ready()
        while arrival is None and self._fan.has_room:
            self._fan.call_more(self._inbox)
            self._fan.take(self._inbox.take_ready())
            arrival = self._fan.next_ready()
        if arrival is not None and self._fan.has_room:
            self._fan.call_more(self._inbox)
        return arrival

    def _value(self, arrival: Arrival) -> T:
        try:
            return cast(T, self._fan.value(arrival))
        except Exception as error:  # whatever the person's function raised elsewhere: they may want it as a value
            if self._return_exceptions:
                return cast(T, error)
            self.close()
            raise


class MapResults(_Results[T], Iterator[T]):
    """The results of a map. Ctrl-C cancels what is outstanding; so do `close`, and dropping it early."""

    def __init__(self, fan: Fan, return_exceptions: bool, line: ProgressLine, total: int) -> None:
        super().__init__(fan, return_exceptions)
        self._line = line
        self._total = total
        fan.prepare()
        _unfinished.add(cast(MapResults[object], self))
        while fan.has_room and not fan.finished:
            fan.call_more(self._inbox)
            fan.take(self._inbox.take_ready())

    def __iter__(self) -> MapResults[T]:
        return self

    def __next__(self) -> T:
        try:
            value = self._value(self._wait())
        except KeyboardInterrupt:
            self._line.clear()
            self.interrupt()
            raise
        except BaseException:
            self._line.clear()
            raise
        self._draw()
        return value

    def __del__(self) -> None:
        global _dropped
        outstanding = len(self._fan.outstanding)
        if outstanding:
            _dropped = outstanding
            self.close()

    def interrupt(self) -> None:
        """Cancel what is outstanding, and say so."""
        outstanding = self._fan.give_up()
        if self._fan.connection is not None:
            cancel_and_tell(self._fan.connection, outstanding)

    def _wait(self) -> Arrival:
        while True:
            arrival = self._advance()
            if arrival is not None:
                return arrival
            if self._fan.over:
                raise StopIteration
            self._fan.take(self._inbox.take(EVERY_S if self._line.on else None))
            self._draw()

    def _draw(self) -> None:
        if self._line.on:
            now = self.progress()
            busy = f"{now.running:,} running in {now.containers:,} containers" if now.containers else ""
            self._line.show(now.finished, self._total, now.waiting_because or busy)


class AsyncMapResults(_Results[T], AsyncIterator[T]):
    """The results of a map for `async for`. Cancelling it cancels what is outstanding."""

    def __aiter__(self) -> AsyncMapResults[T]:
        return self

    async def __anext__(self) -> T:
        try:
            arrival = await self._wait()
        except StopAsyncIteration:
            raise
        except BaseException:
            self.close()
            raise
        return self._value(arrival)

    async def aclose(self) -> None:
        """Make no more calls, and cancel those that have no result."""
        self.close()

    def __del__(self) -> None:
        self.close()

    async def _wait(self) -> Arrival:
        if self._fan.connection is None:
            await in_thread(self._fan.prepare)
        while True:
            arrival = self._advance()
            if arrival is not None:
                return arrival
            if self._fan.over:
                raise StopAsyncIteration
            self._fan.take(await self._inbox.take_async())


class Map(Generic[R]):
    """Each input is one positional argument, a tuple too. Inputs are taken as there is room, so they may be endless.

    `ordered`: results in the order of the inputs, else as they come. By default the first failure is raised as soon as
    it is known, and the rest is cancelled; with `return_exceptions` failures are handed out in their places.
    `max_in_flight` is how many calls may be under way or wait to be handed out. `progress` draws a line on a terminal:
    how many, how fast, how long still, and what it waits for.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @overload
    def __call__(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: Literal[False] = False,
        max_in_flight: int = MAX_IN_FLIGHT,
        progress: bool = False,
    ) -> MapResults[R]: ...
    @overload
    def __call__(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: bool,
        max_in_flight: int = MAX_IN_FLIGHT,
        progress: bool = False,
    ) -> MapResults[R | Exception]: ...
    def __call__(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
        progress: bool = False,
    ) -> MapResults[R] | MapResults[R | Exception]:
        """Start calling; returns an iterator."""
        fan = self._fan(inputs, ordered, return_exceptions, max_in_flight)
        line = ProgressLine(self._caller.function.__name__, on=progress)
        return MapResults(fan, return_exceptions, line, len(inputs) if isinstance(inputs, Sized) else 0)

    @overload
    def aio(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: Literal[False] = False,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> AsyncMapResults[R]: ...
    @overload
    def aio(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: bool,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> AsyncMapResults[R | Exception]: ...
    def aio(
        self,
        inputs: Iterable[object],
        *,
        ordered: bool = True,
        return_exceptions: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> AsyncMapResults[R] | AsyncMapResults[R | Exception]:
        """The same for `async for`; calls begin with the first step."""
        return AsyncMapResults(self._fan(inputs, ordered, return_exceptions, max_in_flight), return_exceptions)

    def _fan(self, inputs: Iterable[object], ordered: bool, return_exceptions: bool, max_in_flight: int) -> Fan:
        if max_in_flight < 1:
            raise Refused(f"max_in_flight={max_in_flight} lets nothing run.", fix="Give 1 or more.", code=INVALID)
        return Fan(self._caller, inputs, ordered=ordered, fail_fast=not return_exceptions, max_in_flight=max_in_flight)


_dropped = 0  # calls of the map that was left last, for whatever reason
_unfinished: weakref.WeakSet[MapResults[object]] = weakref.WeakSet()


def interrupt_unfinished() -> None:
    """At the end of the program: cancel the maps that a Ctrl-C between two results left behind, and say so."""
    if _dropped and getattr(sys, "last_type", None) is KeyboardInterrupt:
        say_cancelled(_dropped)
    for results in tuple(_unfinished):
        results.interrupt()
