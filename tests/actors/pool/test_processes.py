"""Workers as real processes: found again by their handles, told apart from later ones, seen to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from levers9.actors.pool import Launch, WorkerProcesses
from levers9.actors.pool.policy import Adopt, EndWorker, StartWorker
from levers9.actors.pool.processes import find_process, handle_of, open_handle
from levers9.model.nodes import Traits
from levers9.model.resources import Capacity
from levers9.model.states import WorkerState
from levers9.wire import scheduling
from levers9.wire.message import Message

pytestmark = pytest.mark.slow
SLEEPER = "import sys, time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that somebody else started for order worker-x-PID."""
    argv = [sys.executable, "-c", SLEEPER, "--id", f"worker-x-{os.getpid()}"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


class Told:
    """What is told of workers, to be waited for."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[Message](10)

    def __call__(self, message: Message) -> None:
        self.send.send_nowait(message)

    async def next(self) -> Message:
        with trio.fail_after(10):
            return await self.receive.receive()


def processes(tmp_path: Path, program: str = SLEEPER) -> WorkerProcesses:
    launch = Launch(argv=(sys.executable, "-c", program), env=dict(os.environ), log_dir=tmp_path / "logs")
    return WorkerProcesses(launch, lambda: 7.0)


def adoption(worker_id: str, handle: str = "", state: WorkerState = WorkerState.PENDING) -> Adopt:
    return Adopt(worker_id=worker_id, handle=handle, state=state)


async def test_a_process_is_started_and_its_end_is_told(tmp_path: Path) -> None:
    program = "import os, sys; print(os.read(int(sys.argv[sys.argv.index('--token-fd') + 1]), 100).decode())"
    workers, told = processes(tmp_path, program), Told()
    await workers.start(StartWorker(worker_id="worker-1", token="secret"), told)
    started = await told.next()
    assert isinstance(started, scheduling.WorkerStarted)
    assert started.at_s == 7.0
    assert await told.next() == scheduling.WorkerExited(
        worker_id="worker-1", evidence="its process exited with 0", left=True
    )
    log = tmp_path / "logs" / "worker-1.log"
    assert log.read_text() == "secret\n"
    assert log.stat().st_mode & 0o077 == 0
    assert workers.alive == ()


async def test_a_worker_is_told_its_size_and_its_node(tmp_path: Path) -> None:
    capacity = Capacity(cpu_milli=500, memory_mib=700, gpu_count=2, gpu_type="A100")
    order = StartWorker(worker_id="worker-1", token="secret", capacity=capacity, traits=Traits(node="n1"))
    workers, told = processes(tmp_path, "import sys; print(*sys.argv[1:], sep='\\n')"), Told()
    await workers.start(order, told)
    words = (tmp_path / "logs" / "worker-1.log").read_text().split("\n")
    pairs = dict(zip(words[::2], words[1::2]))
    assert (pairs["--id"], pairs["--node"], pairs["--cpu-milli"], pairs["--memory-mib"]) == (
        "worker-1", "n1", "500", "700",
    )  # fmt: skip
    assert (pairs["--gpu-type"], pairs["--gpu-count"]) == ("A100", "2")


async def test_an_end_by_a_signal_is_told_as_such(tmp_path: Path) -> None:
    workers, told = processes(tmp_path, "import os; os.kill(os.getpid(), 9)"), Told()
    await workers.start(StartWorker(worker_id="worker-1", token=""), told)
    await told.next()
    exited = await told.next()
    assert exited == scheduling.WorkerExited(worker_id="worker-1", evidence="its process was ended by signal 9")


async def test_a_worker_that_cannot_be_started_has_ended(tmp_path: Path) -> None:
    launch = Launch(argv=("/no/such/program",), env={}, log_dir=tmp_path)
    told = Told()
    await WorkerProcesses(launch, lambda: 0.0).start(StartWorker(worker_id="worker-1", token=""), told)
    exited = await told.next()
    assert isinstance(exited, scheduling.WorkerExited)
    assert exited.evidence.startswith("it could not be started: ")


async def test_neither_has_one_that_nobody_can_keep_a_log_of(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file is in the way")
    told = Told()
    await processes(tmp_path).start(StartWorker(worker_id="worker-1", token=""), told)
    exited = await told.next()
    assert isinstance(exited, scheduling.WorkerExited)
    assert "could not be started" in exited.evidence


async def test_a_process_outlives_the_reign_that_started_it_and_is_adopted_with_its_exit_code(tmp_path: Path) -> None:
    workers, told = processes(tmp_path), Told()
    async with trio.open_nursery() as reign:
        reign.start_soon(workers.start, StartWorker(worker_id="worker-1", token=""), told)
        started = await told.next()
        assert isinstance(started, scheduling.WorkerStarted)
        reign.cancel_scope.cancel()
    assert workers.alive == ("worker-1",)
    async with trio.open_nursery() as reign:
        reign.start_soon(workers.adopt, adoption("worker-1", started.handle), told)
        await trio.testing.wait_all_tasks_blocked()
        os.kill(int(started.handle.split(":")[2]), signal.SIGKILL)
        exited = await told.next()
    assert exited == scheduling.WorkerExited(worker_id="worker-1", evidence="its process was ended by signal 9")


async def test_a_process_is_found_by_its_handle_after_its_starter_died(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    workers, told = processes(tmp_path), Told()
    handle = handle_of(sleeper.pid)
    assert handle is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.adopt, adoption("worker-x", handle), told)
        await trio.testing.wait_all_tasks_blocked()
        sleeper.kill()
        exited = await told.next()
    assert exited == scheduling.WorkerExited(worker_id="worker-x", evidence="its process has ended")


async def test_an_order_without_a_handle_is_found_by_its_command_line(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    worker_id = f"worker-x-{os.getpid()}"
    workers, told = processes(tmp_path), Told()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.adopt, adoption(worker_id, state=WorkerState.ORDERED), told)
        started = await told.next()
        assert isinstance(started, scheduling.WorkerStarted)
        assert started.handle == handle_of(sleeper.pid)
        nursery.cancel_scope.cancel()


async def test_an_order_that_was_never_started_has_ended_if_nothing_was_placed_on_it(tmp_path: Path) -> None:
    workers, told = processes(tmp_path), Told()
    await workers.adopt(adoption("worker-nobody", state=WorkerState.ORDERED), told)
    assert await told.next() == scheduling.WorkerExited(
        worker_id="worker-nobody", evidence="its process was never started"
    )
    await workers.adopt(adoption("worker-nobody", state=WorkerState.AVAILABLE), told)
    with pytest.raises(trio.WouldBlock):
        told.receive.receive_nowait()


async def test_a_worker_of_another_host_is_left_to_its_lease(tmp_path: Path) -> None:
    workers, told = processes(tmp_path), Told()
    await workers.adopt(adoption("worker-1", "elsewhere:boot:1:2"), told)
    with pytest.raises(trio.WouldBlock):
        told.receive.receive_nowait()


def test_a_later_process_with_the_same_number_is_another_one(sleeper: subprocess.Popen[bytes]) -> None:
    handle = handle_of(sleeper.pid)
    assert handle is not None
    pidfd = open_handle(handle)
    assert pidfd is not None
    os.close(pidfd)
    name, ticks = handle.rsplit(":", 1)
    assert open_handle(f"{name}:{int(ticks) - 1}") is None
    host, _, pid, ticks = handle.rsplit(":", 3)
    assert open_handle(f"{host}:another-boot:{pid}:{ticks}") is None


def test_a_process_that_has_ended_has_no_handle(sleeper: subprocess.Popen[bytes]) -> None:
    handle = handle_of(sleeper.pid)
    assert handle is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert (handle_of(sleeper.pid), open_handle(handle)) == (None, None)  # it is a zombie
    sleeper.wait()
    assert (handle_of(sleeper.pid), open_handle(handle)) == (None, None)
    assert find_process(f"worker-x-{os.getpid()}") is None


async def test_all_are_stopped_also_after_their_reign(tmp_path: Path) -> None:
    workers, told = processes(tmp_path), Told()
    async with trio.open_nursery() as reign:
        for number in range(2):
            reign.start_soon(workers.start, StartWorker(worker_id=f"worker-{number}", token=""), told)
        handles = []
        for _ in range(2):
            started = await told.next()
            assert isinstance(started, scheduling.WorkerStarted)
            handles.append(started.handle)
        reign.cancel_scope.cancel()
    with trio.fail_after(10):
        await workers.stop_all()
    assert workers.alive == ()
    assert [open_handle(handle) for handle in handles] == [None, None]


async def test_one_that_does_not_heed_the_first_word_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ((signal.SIGTERM, 0.1), (signal.SIGKILL, 5.0))
    monkeypatch.setattr("levers9.actors.pool.processes._STOP_STEPS", steps)
    up = tmp_path / "up"
    os.mkfifo(up)
    stubborn = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(up)!r}, 'w').close()"
    workers, told = processes(tmp_path, f"{stubborn}; time.sleep(60)"), Told()
    async with trio.open_nursery() as reign:
        reign.start_soon(workers.start, StartWorker(worker_id="worker-1", token=""), told)
        with trio.fail_after(10):
            await trio.to_thread.run_sync(up.read_bytes)
        reign.cancel_scope.cancel()
    with trio.fail_after(10):
        await workers.stop_all()
    assert workers.alive == ()


async def test_one_is_ended_and_its_end_says_why(tmp_path: Path) -> None:
    workers, told = processes(tmp_path), Told()
    async with trio.open_nursery() as reign:
        for number in range(2):
            reign.start_soon(workers.start, StartWorker(worker_id=f"worker-{number}", token=""), told)
            await told.next()
        await workers.end(EndWorker(worker_id="worker-0", why="it was of no use"))
        await workers.end(EndWorker(worker_id="worker-7", why="of another host"))
        evidence = "it was of no use: its process was ended by signal 15"
        assert await told.next() == scheduling.WorkerExited(worker_id="worker-0", evidence=evidence, expected=True)
        assert workers.alive == ("worker-1",)
        reign.cancel_scope.cancel()
    await workers.stop_all()
