"""Virtual time: jobs come, run and end at their times, and whoever was preempted comes again."""

from __future__ import annotations

import msgspec

from levers9.actors.scheduler.events import (
    Decision,
    Ended,
    Event,
    More,
    Placed,
    Planned,
    Preempted,
    Request,
    Requested,
    Started,
    Ticked,
)
from levers9.actors.scheduler.simulation import Job, Outcome, Simulation

from .journals import FirstFit, request, set_node


def one_node() -> FirstFit:
    core = FirstFit()
    core.handle(set_node("n1"), 0.0)
    return core


def job(name: str, at_s: float, run_s: float) -> Job:
    return Job(at_s=at_s, request=request(name, at_s=at_s), run_s=run_s)


def times(outcomes: tuple[Outcome, ...]) -> list[tuple[str, float, float]]:
    return [(each.job.request.request_id, each.admitted_at_s, each.ended_at_s) for each in outcomes]


def test_jobs_run_as_room_is_freed() -> None:
    """A node of four cards has room for two jobs of two."""
    done = Simulation(one_node(), [job("a", 0.0, 10.0), job("b", 1.0, 20.0), job("c", 2.0, 5.0)]).run()
    assert times(done.outcomes) == [("a", 0.0, 10.0), ("b", 1.0, 21.0), ("c", 10.0, 15.0)]
    assert done.outcomes[2].waited_s == 8.0
    assert done.ended_at_s == 21.0
    assert done.used_gpu_milli_s == 2000 * (10 + 20 + 5)
    assert done.used_cpu_milli_s == 1000 * (10 + 20 + 5)


def test_what_happens_at_one_time_is_told_ends_first_and_planned_once() -> None:
    seen: list[tuple[float, Event]] = []
    jobs = [job("a", 0.0, 1.0), job("b", 1.0, 1.0), job("c", 1.0, 1.0)]
    Simulation(one_node(), jobs, watch=lambda at_s, event, _: seen.append((at_s, event))).run()
    assert [event for at_s, event in seen if at_s == 1.0] == [
        Ended(member="a"),
        Requested(requests=(jobs[1].request, jobs[2].request)),
        Ticked(),
        Planned(steps=1024),
        Started(member="b"),
        Started(member="c"),
    ]


def test_a_job_that_never_fits_does_not_keep_the_run_going() -> None:
    large = msgspec.structs.replace(request("large").shape, gpu_count=9)
    never = Job(at_s=0.0, request=request("large", shape=large), run_s=1.0)
    done = Simulation(Quiet(one_node()), [never, job("a", 0.0, 1.0)]).run()
    assert times(done.outcomes) == [("large", -1.0, -1.0), ("a", 0.0, 1.0)]


class Quiet:
    """Tells of nothing but placements, as the real core does while nothing changes."""

    def __init__(self, core: FirstFit) -> None:
        self._core = core

    def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        return tuple(each for each in self._core.handle(event, now_s) if isinstance(each, Placed))


class OneAtATime:
    """Plans in slices of one request; the newest request preempts the one that runs, once."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.running = ""
        self.told: list[Event] = []

    def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        self.told.append(event)
        match event:
            case Requested(requests=requests):
                self.waiting = [*requests, *self.waiting] if self.running else [*self.waiting, *requests]
            case Ended(member=member) if member == self.running:
                self.running = ""
            case Planned() if self.running and any("urgent" in each.request_id for each in self.waiting):
                return (Preempted(request_id=self.running, by_workspace="w", why=""), More())
            case Planned() if self.waiting and not self.running:
                urgent = [each for each in self.waiting if "urgent" in each.request_id]
                first = (urgent or self.waiting)[0]
                self.waiting.remove(first)
                self.running = first.members[0]
                return (Placed(request_id=first.request_id, spots=(("n", ()),)),)
        return ()


def test_who_was_preempted_comes_again_as_somebody_new_and_runs_all_its_time() -> None:
    core = OneAtATime()
    done = Simulation(core, [job("slow", 0.0, 10.0), job("urgent", 4.0, 3.0)]).run()
    assert times(done.outcomes) == [("slow", 0.0, 17.0), ("urgent", 4.0, 7.0)]
    assert [outcome.preemptions for outcome in done.outcomes] == [1, 0]
    again = [event.requests[0] for event in core.told if isinstance(event, Requested)][-1]
    assert (again.request_id, again.members, again.requested_at_s) == ("slow~1", ("slow~1",), 0.0)
    assert done.used_gpu_milli_s == 2000 * 17


def test_nothing_to_do_is_done_at_once() -> None:
    done = Simulation(one_node(), []).run()
    assert (done.outcomes, done.ended_at_s, done.events) == ((), 0.0, 0)
