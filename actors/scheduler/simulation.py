"""Drives a core in virtual time: jobs come at their times, run for as long as they run, and end.

What it stands for is a pool whose nodes are open at once and whose containers start at once. It is pure: no clock, no
chance, so that a trace of weeks is replayed in seconds, and the same each time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ...model.resources import Amount, amount_of
from .events import Decision, Ended, Event, More, Placed, Planned, Preempted, Request, Requested, Started, Ticked
from .replay import Decides

IDLE_TICKS_MAX: Final = 1_000  # in a row without a decision, while nothing runs: whoever waits then waits for ever

Watch = Callable[[float, Event, tuple[Decision, ...]], None]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request, when it comes, and how long it runs once it has room."""

    at_s: float
    request: Request
    run_s: float


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a job. Times are -1 for what has not happened; `admitted_at_s` is the first time."""

    job: Job
    admitted_at_s: float = -1.0
    ended_at_s: float = -1.0
    preemptions: int = 0

    @property
    def waited_s(self) -> float:
        """From its coming to its first room."""
        return self.admitted_at_s - self.job.at_s


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. `used_s` is resources times seconds; `events` and `decisions` are the core's."""

    outcomes: tuple[Outcome, ...]
    ended_at_s: float
    used_cpu_milli_s: float
    used_gpu_milli_s: float
    events: int
    decisions: int


class Simulation:
    """One run of jobs, in the order of their coming, through a core that knows its nodes and queues already."""

    def __init__(
        self, core: Decides, jobs: Iterable[Job], *, tick_s: float = 1.0, steps: int = 1024, watch: Watch | None = None
    ) -> None:
        self._core = core
        self._jobs = iter(jobs)
        self._next = next(self._jobs, None)
        self._tick_s = tick_s
        self._planned = Planned(steps=steps)
        self._watch = watch
        self._now_s = 0.0 if self._next is None else self._next.at_s
        self._ticked_at_s = self._now_s
        self._outcomes: list[Outcome] = []
        self._waiting: dict[str, Outcome] = {}  # by request
        self._running: dict[str, tuple[Outcome, Request]] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._used = Amount()
        self._used_cpu_milli_s = self._used_gpu_milli_s = 0.0
        self._number = self._events = self._decisions = self._idle_ticks = 0

    def run(self) -> Summary:
        """Until all jobs have ended, or nothing can happen any more."""
        while (at_s := self._next_time()) is not None:
            self._pass(at_s)
            decided = self._decisions
            for event in self._due():
                self._tell(event)
            self._plan()
            idle = decided == self._decisions and not self._running and self._next is None
            self._idle_ticks = self._idle_ticks + 1 if idle else 0
        return Summary(
            outcomes=tuple(self._outcomes),
            ended_at_s=self._now_s,
            used_cpu_milli_s=self._used_cpu_milli_s,
            used_gpu_milli_s=self._used_gpu_milli_s,
            events=self._events,
            decisions=self._decisions,
        )

    # Time

    def _next_time(self) -> float | None:
        times = [self._ends[0][0]] if self._ends else []
        if self._next is not None:
            times.append(self._next.at_s)
        if self._waiting and self._idle_ticks < IDLE_TICKS_MAX:
            times.append(self._ticked_at_s + self._tick_s)
        return max(self._now_s, min(times)) if times else None

    def _pass(self, at_s: float) -> None:
        seconds = at_s - self._now_s
        self._used_cpu_milli_s += self._used.cpu_milli * seconds
        self._used_gpu_milli_s += self._used.gpu_milli * seconds
        self._now_s = at_s

    def _due(self) -> Iterator[Event]:
        """What happens now: ends first, then who comes, then the passing of time."""
        while self._ends and self._ends[0][0] <= self._now_s:
            yield from self._end(heapq.heappop(self._ends)[2])
        coming = []
        while self._next is not None and self._next.at_s <= self._now_s:
            outcome = Outcome(job=self._next)
            self._outcomes.append(outcome)
            self._waiting[outcome.job.request.request_id] = outcome
            coming.append(outcome.job.request)
            self._next = next(self._jobs, None)
        if coming:
            yield Requested(requests=tuple(coming))
        if self._now_s >= self._ticked_at_s + self._tick_s:
            self._ticked_at_s = self._now_s
            yield Ticked()

    def _end(self, request_id: str) -> Iterator[Event]:
        """A job has run for its time, unless it was stopped before."""
        if request_id in self._running:
            outcome, request = self._running.pop(request_id)
            outcome.ended_at_s = self._now_s
            yield from self._leave(request)

    def _leave(self, request: Request) -> Iterator[Event]:
        self._used = self._used.less(amount_of(request.shape, len(request.members)))
        for member in request.members:
            yield Ended(member=member)

    # The core

    def _tell(self, event: Event) -> tuple[Decision, ...]:
        decisions = self._core.handle(event, self._now_s)
        self._events += 1
        self._decisions += len(decisions)
        if self._watch is not None:
            self._watch(self._now_s, event, decisions)
        for decision in decisions:
            match decision:
                case Placed(request_id=request_id):
                    self._placed(request_id)
                case Preempted(request_id=request_id):
                    self._preempted(request_id)
        return decisions

    def _plan(self) -> None:
        """All slices; what was preempted has stopped, and is planned again with the others."""
        again = True
        while again:
            decisions = self._tell(self._planned)
            again = any(isinstance(decision, More | Preempted) for decision in decisions)

    def _placed(self, request_id: str) -> None:
        outcome = self._waiting.pop(request_id)
        request = msgspec.structs.replace(outcome.job.request, request_id=request_id, members=self._members(outcome))
        if outcome.admitted_at_s < 0:
            outcome.admitted_at_s = self._now_s
        self._running[request_id] = (outcome, request)
        self._used = self._used.plus(amount_of(request.shape, len(request.members)))
        self._number += 1
        heapq.heappush(self._ends, (self._now_s + outcome.job.run_s, self._number, request_id))
        for member in request.members:
            self._tell(Started(member=member))

    def _preempted(self, request_id: str) -> None:
        """Its containers stop at once, and it comes again as a new request, in line by the time of the first."""
        if request_id not in self._running:
            return
        outcome, request = self._running.pop(request_id)
        for event in self._leave(request):
            self._tell(event)
        outcome.preemptions += 1
        again = msgspec.structs.replace(
            outcome.job.request,
            request_id=f"{outcome.job.request.request_id}~{outcome.preemptions}",
            members=self._members(outcome),
        )
        self._number += 1
        self._waiting[again.request_id] = outcome
        self._tell(Requested(requests=(again,)))

    @staticmethod
    def _members(outcome: Outcome) -> tuple[str, ...]:
        """Containers are never started twice: those of a later try have names of their own."""
        members = outcome.job.request.members
        tries = outcome.preemptions
        return tuple(f"{member}~{tries}" for member in members) if tries else members
