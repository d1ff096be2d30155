"""One call: from a plain thread, under asyncio, and under Trio."""

from __future__ import annotations

import asyncio
import threading
import traceback
from types import ModuleType

import pytest
import trio

from levers9.errors import Refused, TaskCancelled, TaskFailed
from levers9.model.states import TaskState
from levers9.sdk.failures import RemoteTraceback
from levers9.wire.client import CancelTasks, RegisterStub, ResultsTaken, SubmitTasks
from levers9.wire.message import Failure

from .control_plane import FakeControlPlane


def test_a_call_returns_what_the_function_returned(plane: FakeControlPlane, work: ModuleType) -> None:
    assert work.double.remote(21) == 42


def test_keywords_and_defaults_travel(plane: FakeControlPlane, work: ModuleType) -> None:
    assert work.add.remote(1) == 2
    assert work.add.remote(1, b=5) == 6


def test_an_instance_of_a_class_comes_back_as_one(plane: FakeControlPlane, work: ModuleType) -> None:
    assert work.swap.remote(work.Point(1, 2)) == work.Point(2, 1)


def test_a_plain_call_and_local_run_here(plane: FakeControlPlane, work: ModuleType) -> None:
    assert (work.double(4), work.double.local(4)) == (8, 8)
    assert plane.seen == []


def test_wrong_arguments_are_a_type_error_before_anything_is_sent(plane: FakeControlPlane, work: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"double\(\) missing a required argument: 'x'"):
        work.double.remote()
    assert plane.seen == []


def test_a_remote_exception_arrives_as_itself_with_its_traceback(plane: FakeControlPlane, work: ModuleType) -> None:
    with pytest.raises(work.Unhappy, match="unhappy about 3") as caught:
        work.fail_on_odd.remote(3)
    assert caught.value.what == "3"
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in fail_on_odd" in shown
    assert "levers9 task logs task-" in shown


def test_a_remote_exit_does_not_end_this_program(plane: FakeControlPlane, work: ModuleType) -> None:
    with pytest.raises(TaskFailed, match="SystemExit"):
        work.quit_now.remote()


def test_what_the_function_needs_is_registered_once(plane: FakeControlPlane, work: ModuleType) -> None:
    work.swap.remote(work.Point(1, 2))
    work.swap.remote(work.Point(3, 4))
    specs = [message.spec for message in plane.seen if isinstance(message, RegisterStub)]
    assert len(specs) == 1
    assert (specs[0].app, specs[0].name, specs[0].handler) == ("samples", "swapper", "sample_work:swap")
    assert (specs[0].shape.cpu_milli, specs[0].shape.memory_mib) == (500, 1024)
    assert (specs[0].timeout_s, specs[0].retries, specs[0].env) == (60.0, 1, (("COLOUR", "blue"),))


def test_the_code_of_the_project_is_sent(plane: FakeControlPlane, work: ModuleType) -> None:
    work.double.remote(1)
    spec = next(message.spec for message in plane.seen if isinstance(message, RegisterStub))
    assert b"sample_work.py" in plane.http.objects[spec.code_key]
    assert plane.http.tokens == {"Bearer token-of-a-test"}


def test_a_large_argument_and_a_large_result_go_through_the_object_store(
    plane: FakeControlPlane, work: ModuleType
) -> None:
    data = b"x" * (600 << 10)
    assert work.same.remote(data) == data
    submitted = next(message for message in plane.seen if isinstance(message, SubmitTasks))
    assert submitted.tasks[0].arguments.object_key.startswith("blob/")
    assert submitted.tasks[0].arguments.data == b""


def test_a_result_is_acknowledged(plane: FakeControlPlane, work: ModuleType) -> None:
    task = work.double.submit(1)
    assert task.result(wait=True) == 2
    plane.wait_until(lambda: task.id in plane.taken)
    assert any(isinstance(message, ResultsTaken) for message in plane.seen)


def test_many_threads_share_one_connection(plane: FakeControlPlane, work: ModuleType) -> None:
    results: dict[int, int] = {}

    def call(x: int) -> None:
        results[x] = work.double.remote(x)

    threads = [threading.Thread(target=call, args=(x,)) for x in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {x: 2 * x for x in range(20)}
    assert plane.dials == 1


def test_a_refusal_is_raised_with_what_to_do(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.refuse.append(Failure("unknown_gpu", "No pool has a H9000.", "You may use: A100.", "Ask for one of those."))
    with pytest.raises(Refused, match=r"No pool has a H9000. You may use: A100. Ask for one of those.") as caught:
        work.double.remote(1)
    assert caught.value.code == "unknown_gpu"


def test_a_refusal_that_passes_is_tried_again(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.refuse.append(Failure("store_unavailable", "The store is restarting."))
    assert work.double.remote(1) == 2


def test_a_function_nobody_knows_any_more_is_registered_anew_at_the_next_call(
    plane: FakeControlPlane, work: ModuleType
) -> None:
    work.double.remote(1)
    plane.stubs.clear()
    assert work.double.remote(2) == 4


def test_a_control_plane_that_is_not_there_is_told_at_once(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.outage = ConnectionRefusedError("connection refused")
    with pytest.raises(Refused, match=r"cannot be reached: connection refused.*Start `levers9 dev`"):
        work.double.remote(1)
    plane.outage = None
    assert work.double.remote(1) == 2


def test_an_async_function_is_awaited_there(plane: FakeControlPlane, work: ModuleType) -> None:
    task = work.later.submit(1)
    assert task.result(wait=True) == 2


def test_it_works_inside_asyncio_without_blocking_the_loop(plane: FakeControlPlane, work: ModuleType) -> None:
    async def main() -> list[int]:
        return list(await asyncio.gather(*(work.double.remote.aio(x) for x in range(10))))

    assert asyncio.run(main()) == [2 * x for x in range(10)]


async def test_it_works_inside_trio_without_blocking_the_loop(plane: FakeControlPlane, work: ModuleType) -> None:
    results: dict[int, int] = {}

    async def call(x: int) -> None:
        results[x] = await work.double.remote.aio(x)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for x in range(10):
                nursery.start_soon(call, x)
    assert results == {x: 2 * x for x in range(10)}


async def test_a_cancelled_wait_cancels_the_call(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.double.remote.aio, 1)
            await trio.to_thread.run_sync(lambda: plane.wait_until(lambda: bool(plane.tasks)))
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(lambda: plane.wait_until(lambda: bool(plane.results)))
    assert any(isinstance(message, CancelTasks) for message in plane.seen)


def test_the_blocking_face_works_inside_a_running_asyncio_program(plane: FakeControlPlane, work: ModuleType) -> None:
    async def main() -> int:
        result: int = work.double.remote(5)
        return result

    assert asyncio.run(main()) == 10


def test_a_cancelled_task_says_so(plane: FakeControlPlane, work: ModuleType) -> None:
    plane.hold = True
    task = work.double.submit(1)
    assert task.cancel() == TaskState.CANCELLED
    assert task.is_complete
    with pytest.raises(TaskCancelled):
        task.result(wait=True)
