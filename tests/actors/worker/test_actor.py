"""The worker's shell over a memory link, in virtual time with simulated containers."""

import msgspec
import trio
from levers9_test_worker import ControlPlane, MemoryObjects, an_order, worked

from levers9.actors.worker.events import Launch
from levers9.actors.worker.runtime.face import Exit
from levers9.actors.worker.runtime.simulated import Ran, SimulatedRuntime
from levers9.model.ids import Chance
from levers9.model.states import End
from levers9.wire.codec import Envelope
from levers9.wire.scheduling import ContainerEnded, StopContainer, StopWorker, WorkerLeaving, WorkerReported
from levers9.wire.work import (
    AttemptKey,
    AttemptOrder,
    AttemptsFinished,
    AttemptsHeld,
    CancelAttempts,
    ResultsCommitted,
)


def taking(duration_s: float) -> SimulatedRuntime:
    return SimulatedRuntime(lambda launch, order: Ran(duration_s=duration_s))


async def commit(plane: ControlPlane, *numbers: int) -> None:
    keys = tuple(AttemptKey(f"task-{number}", 1) for number in numbers)
    await plane.say(ResultsCommitted(container_id="c1", attempts=keys))


async def test_a_worker_that_lost_its_stream_goes_on_and_tells_what_is_not_committed(
    autojump_clock: trio.testing.MockClock, objects: MemoryObjects
) -> None:
    async with worked(taking(0.8), objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1), an_order(2))
        await plane.result("task-1")
        await commit(plane, 1)
        await plane.result("task-2")
        plane.heard.clear()
        plane.acceptor = plane.new_acceptor()
        await plane.nursery.start(plane.acceptor.run)
        plane.cables[-1].cut()
        await plane.until(lambda: bool(plane.of(AttemptsHeld)))
    kinds = [type(message) for message in plane.heard]
    assert kinds == [AttemptsFinished, WorkerReported, AttemptsHeld]
    assert [one.task_id for one in plane.of(AttemptsFinished)[0].results] == ["task-2"]


async def test_a_simulated_container_keeps_the_rules_of_a_real_one(
    autojump_clock: trio.testing.MockClock, objects: MemoryObjects
) -> None:
    def behave(launch: Launch, order: AttemptOrder) -> Ran:
        exits = Exit(end=End.OUT_OF_MEMORY, why="too much") if order.task_id == "task-3" else None
        return Ran(duration_s=0.5, exits=exits)

    async with worked(SimulatedRuntime(behave), objects) as (plane, _):
        await plane.start()
        await plane.run(*(an_order(number) for number in range(1, 5)))
        await plane.say(CancelAttempts(container_id="c1", attempts=(AttemptKey("task-2", 1),)))
        ends = [(await plane.result(f"task-{number}")).end for number in range(1, 5)]
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert ends == [End.OK, End.CANCELLED, End.OUT_OF_MEMORY, End.DISCONNECTED]


async def test_a_container_that_resists_is_killed_after_the_grace(
    autojump_clock: trio.testing.MockClock, objects: MemoryObjects
) -> None:
    runtime = SimulatedRuntime(lambda launch, order: Ran(duration_s=1000.0), stop_s=500.0)
    async with worked(runtime, objects, grace_s=5.0) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        asked_at_s = trio.current_time()
        await plane.say(StopContainer(container_id="c1", why="enough"))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
        assert 4.9 < trio.current_time() - asked_at_s < 5.5


async def test_a_worker_told_to_stop_says_goodbye_and_returns(
    autojump_clock: trio.testing.MockClock, objects: MemoryObjects
) -> None:
    async with worked(taking(1.0), objects) as (plane, _):
        await plane.say(StopWorker(worker_id="w1", why="idle"))
        await plane.until(lambda: bool(plane.of(WorkerLeaving)))
    assert plane.of(WorkerLeaving)[0].why == "idle"


async def test_a_message_that_cannot_be_read_is_passed_over(
    autojump_clock: trio.testing.MockClock, objects: MemoryObjects
) -> None:
    async with worked(taking(0.0), objects) as (plane, _):
        assert plane.link is not None
        newer = msgspec.Raw(msgspec.msgpack.encode({"type": "OfTheFuture"}))
        await plane.link.send(Envelope(Chance(9).id("m"), "tasks", "worker/w1", newer))
        await plane.start()
        await plane.run(an_order(1))
        assert (await plane.result("task-1")).end is End.OK
