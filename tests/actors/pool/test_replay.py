"""Workers that exist only as messages: what they say, and when."""

from __future__ import annotations

import math

import trio
from levers9_test_deciding import SIZE, spec_of
from trio.testing import MockClock

from levers9.actors.pool.policy import Adopt, StartWorker
from levers9.actors.pool.replay import NOTHING, ReplayWorker, ReplayWorkers
from levers9.model.ids import Chance
from levers9.model.states import ContainerState, End, WorkerState
from levers9.wire import control, scheduling, work
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.post import Post
from levers9.wire.work import AttemptKey, AttemptOrder

START = scheduling.StartContainer(container_id="c1", stub_id="s", workspace_id="w", spec=spec_of())


def call(number: int) -> AttemptOrder:
    return AttemptOrder(f"task-{number}", 1, NOTHING, 60.0)


def runs(*numbers: int) -> work.RunAttempts:
    return work.RunAttempts(container_id="c1", attempts=tuple(call(number) for number in numbers))


class Stage:
    """A worker whose containers take 2 s to start and whose calls take 10 s."""

    def __init__(self) -> None:
        self.worker = ReplayWorker("w1", "p", SIZE, lambda order: 10.0, 2.0)

    def hear(self, message: Message, now_s: float = 0.0) -> list[Message]:
        return list(self.worker.hear(message, now_s))

    def due(self, now_s: float) -> list[Message]:
        return list(self.worker.due(now_s))


def finished(messages: list[Message]) -> list[tuple[str, End]]:
    return [
        (result.task_id, result.end)
        for one in messages
        if isinstance(one, work.AttemptsFinished)
        for result in one.results
    ]


def test_a_container_is_ready_after_its_start_and_runs_one_call_after_the_other() -> None:
    stage = Stage()
    assert stage.hear(START) == []
    assert (stage.due(1.9), stage.worker.next_at_s) == ([], 2.0)
    assert stage.due(2.0) == [scheduling.ContainerReady(container_id="c1", window=1)]
    assert stage.hear(runs(1, 2), 5.0) == []
    assert finished(stage.due(15.0)) == [("task-1", End.OK)]
    assert finished(stage.due(24.9)) == []
    assert finished(stage.due(25.0)) == [("task-2", End.OK)]
    assert stage.worker.next_at_s == math.inf


def test_receiving_twice_is_receiving_once() -> None:
    stage = Stage()
    for _ in range(2):
        stage.hear(START)
    stage.due(2.0)
    for _ in range(2):
        stage.hear(runs(1), 2.0)
    assert finished(stage.due(50.0)) == [("task-1", End.OK)]
    assert finished(stage.due(50.0)) == []


def test_it_reports_what_it_runs_and_what_it_owes() -> None:
    stage = Stage()
    stage.hear(START)
    stage.due(2.0)
    stage.hear(runs(1, 2), 2.0)
    stage.due(12.0)
    said = stage.hear(control.ReportAgain(epoch=2))
    assert finished(said) == [("task-1", End.OK)]
    (report,) = [one for one in said if isinstance(one, scheduling.WorkerReported)]
    assert [(one.container_id, one.state) for one in report.containers] == [("c1", ContainerState.READY)]
    assert said[-1] == work.AttemptsHeld(container_id="c1", attempts=(AttemptKey("task-2", 1),), window=1)
    stage.hear(work.ResultsCommitted(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
    assert finished(stage.hear(control.ReportAgain(epoch=2))) == []


def test_a_cancelled_call_ends_and_one_for_no_container_never_starts() -> None:
    stage = Stage()
    assert finished(stage.hear(runs(1))) == [("task-1", End.DISCONNECTED)]
    stage.hear(START)
    stage.due(2.0)
    stage.hear(runs(2), 2.0)
    cancel = work.CancelAttempts(container_id="c1", attempts=(AttemptKey("task-2", 1), AttemptKey("task-9", 1)))
    assert finished(stage.hear(cancel)) == [("task-2", End.CANCELLED)]


def test_a_stopped_container_has_ended_until_that_is_known() -> None:
    stage = Stage()
    stage.hear(START)
    stop = scheduling.StopContainer(container_id="c1", why="enough")
    ended = scheduling.ContainerEnded(container_id="c1", end=End.OK)
    assert (stage.hear(stop), stage.hear(stop)) == ([ended], [ended])
    assert ended in stage.hear(control.ReportAgain(epoch=2))
    stage.hear(scheduling.ContainerForgotten(container_id="c1"))
    assert ended not in stage.hear(control.ReportAgain(epoch=2))


def test_it_leaves_once_its_last_container_has_ended() -> None:
    stage = Stage()
    stage.hear(START)
    stage.hear(scheduling.StopWorker(worker_id="w1", why="idle"))
    assert [type(one) for one in stage.due(2.0)] == [scheduling.ContainerReady]
    stage.hear(scheduling.WorkerAccepted(worker_id="w1", stop=("c1",)))
    assert stage.due(3.0) == [scheduling.WorkerLeaving(worker_id="w1", why="idle")]
    assert (stage.worker.left, stage.due(4.0)) == (True, [])


async def test_it_lives_on_in_the_next_reign_and_one_that_is_killed_does_not(autojump_clock: MockClock) -> None:
    post = Post(chance=Chance(1), clock=trio.current_time)
    scheduler = Mailbox("scheduler")
    post.register("scheduler", scheduler)
    told: list[Message] = []
    workers = ReplayWorkers(post, "p", trio.current_time)
    async with trio.open_nursery() as reign:
        reign.start_soon(workers.start, StartWorker(worker_id="w1", token="", capacity=SIZE), told.append)
        report = (await scheduler.take()).message
        reign.cancel_scope.cancel()
    assert isinstance(report, scheduling.WorkerReported)
    assert (report.capacity, workers.alive) == (SIZE, ("w1",))
    adopt = Adopt(worker_id="w1", handle="replay:w1", state=WorkerState.AVAILABLE)
    async with trio.open_nursery() as reign:
        reign.start_soon(workers.adopt, adopt, told.append)
        await scheduler.take()
        workers.kill("w1")
    await workers.adopt(adopt, told.append)
    exits = [(one.evidence, one.expected) for one in told if isinstance(one, scheduling.WorkerExited)]
    assert exits == [("it was killed", False), ("whoever simulated it has ended", False)]
