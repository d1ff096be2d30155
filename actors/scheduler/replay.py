"""Runs a journal again: exactly, to prove that the same events give the same decisions, or with another policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from .events import Decision, Event, PoolSet, Recalled
from .journal import Segment
from .tally import Tally, Waiting

DIFFERENCES_KEPT: Final = 20


class Decides(Protocol):
    """The core, as far as a replay needs it."""

    def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        """Take one event in; what it leads to."""
        ...


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A record, counted from 1, of which the decisions are not those of before."""

    number: int
    now_s: float
    event: Event
    before: tuple[Decision, ...]
    after: tuple[Decision, ...]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a journal with one policy. Cards are in thousandths; `mean_gpu_milli` is over time."""

    placement: str
    placed: int
    preempted: int
    gpu_milli: int
    mean_gpu_milli: int
    cpu_milli: int
    waiting: tuple[Waiting, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two policies on the same events; `differences` are the first ones of so many."""

    first: Side
    second: Side
    steps: int
    different: int
    differences: tuple[Difference, ...]


def replay(segment: Segment, core: Decides) -> Iterator[Difference]:
    """Tell an empty core what the journal's was told; yields where it decides otherwise: nothing when all is equal."""
    open_core(segment, core)
    for number, record in enumerate(segment.records, start=1):
        after = core.handle(record.event, record.now_s)
        if after != record.decisions:
            yield Difference(
                number=number, now_s=record.now_s, event=record.event, before=record.decisions, after=after
            )


def open_core(segment: Segment, core: Decides) -> None:
    """Bring an empty core into the standing in which the segment opens."""
    for event in segment.opening:
        core.handle(event, segment.opened_at_s)


def diff(segment: Segment, make_core: Callable[[], Decides], first: str, second: str) -> Comparison:
    """Run the same events with two placement policies, each in all pools."""
    sides = [_Run(make_core(), name, segment) for name in (first, second)]
    found: list[Difference] = []
    different = 0
    for number, record in enumerate(segment.records, start=1):
        before, after = (side.step(record.event, record.now_s) for side in sides)
        if before == after:
            continue
        different += 1
        if len(found) < DIFFERENCES_KEPT:
            found.append(Difference(number=number, now_s=record.now_s, event=record.event, before=before, after=after))
    return Comparison(
        first=sides[0].side(),
        second=sides[1].side(),
        steps=len(segment.records),
        different=different,
        differences=tuple(found),
    )


def placing_with(placement: str, events: Iterable[Event]) -> Iterator[Event]:
    """The same events, with this policy in all pools. It has seen no demand: what another one saw may not be for it."""
    for event in events:
        match event:
            case PoolSet():
                yield msgspec.structs.replace(event, placement=placement)
            case Recalled():
                yield msgspec.structs.replace(event, demand=())
            case _:
                yield event


class _Run:
    """One policy on one journal."""

    def __init__(self, core: Decides, placement: str, segment: Segment) -> None:
        self._core = core
        self._placement = placement
        self._tally = Tally()
        for event in segment.opening:
            self.step(event, segment.opened_at_s)

    def step(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        """One event, and what it leads to with this policy."""
        (told,) = placing_with(self._placement, (event,))
        decisions = self._core.handle(told, now_s)
        self._tally.saw(told, decisions, now_s)
        return decisions

    def side(self) -> Side:
        """What came of it until now."""
        tally = self._tally
        return Side(
            placement=self._placement,
            placed=tally.placed,
            preempted=tally.preempted,
            gpu_milli=tally.used.gpu_milli,
            mean_gpu_milli=tally.mean_gpu_milli(),
            cpu_milli=tally.used.cpu_milli,
            waiting=tally.waiting_by_class(),
        )
