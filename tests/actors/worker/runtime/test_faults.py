"""What must survive: killed runners and workers, trees that resist, memory, time, cancels. Real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from levers9_test_worker import MemoryObjects, a_spec, an_order, worked

from levers9.actors.worker.runtime.leftovers import end_leftovers
from levers9.actors.worker.runtime.process import ProcessRuntime
from levers9.model.states import End
from levers9.wire.scheduling import ContainerEnded, StartContainer, StopContainer
from levers9.wire.work import AttemptKey, CancelAttempts

pytestmark = pytest.mark.slow

GONE_WITHIN_S = 3.0  # about a second, on a machine that is busy

STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
def note(folder):
    pathlib.Path(folder, str(os.getpid())).touch()
def stubborn_child(folder):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(folder)
        if os.fork() == 0:
            os.setsid()
            note(folder)
        time.sleep(120)
        os._exit(0)
def function(folder, ignores=True):
    if ignores:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stubborn_child(folder)
    note(folder)
    time.sleep(120)
"""
KILLED = "import os, signal\ndef function():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
HUNGRY = "import time\ndef function(mib):\n    data = bytearray(mib << 20)\n    time.sleep(60)\n    return len(data)\n"
LEAVES = "\ndef leave(folder):\n    stubborn_child(folder)\n    time.sleep(0.2)\n    os._exit(0)\n"
TOUCHES = """
import pathlib, time
def function(folder, name, until):
    pathlib.Path(folder, name).touch()
    while not pathlib.Path(folder, until).exists():
        time.sleep(0.01)
"""
SLEEPS = "import time\ndef function(s):\n    time.sleep(s)\n    return 'done'\n"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def fork_servers(of: str = "self") -> list[int]:
    """They were started by any of a worker's threads."""
    lists = [path.read_text().split() for path in Path(f"/proc/{of}/task").glob("*/children")]
    pids = [int(pid) for pids in lists for pid in pids]
    return [pid for pid in pids if b"start.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def noted(folder: Path) -> list[int]:
    return [int(entry.name) for entry in folder.iterdir()]


async def until(done: Callable[[], bool], within_s: float = 10.0) -> None:
    """Look again and again: what is waited for happens in other processes."""
    with trio.fail_after(within_s):
        while not done():  # noqa: ASYNC110
            await trio.sleep(0.005)


async def test_a_killed_runner_ends_its_call_as_killed_and_frees_the_rest(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text(KILLED)
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1), an_order(2))
        first, second = await plane.result("task-1"), await plane.result("task-2")
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert (first.end, first.started) == (End.KILLED, True)
    assert (second.end, second.started) == (End.DISCONNECTED, False)
    assert plane.of(ContainerEnded)[0].end is End.KILLED


async def test_a_tree_that_ignores_term_and_left_its_session_is_killed_after_the_grace(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path
) -> None:
    (code / "mod.py").write_text(STUBBORN)
    folder = tmp_path / "pids"
    folder.mkdir()
    async with worked(processes, objects, grace_s=0.3) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, str(folder)))
        await until(lambda: len(noted(folder)) == 3)
        await plane.say(StopContainer(container_id="c1", why="enough"))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
        assert [pid for pid in noted(folder) if alive(pid)] == []
        assert (await plane.result("task-1")).end is End.DISCONNECTED


async def test_children_left_behind_by_a_runner_that_ended_are_killed(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path
) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    (code / "mod.py").write_text(STUBBORN + LEAVES)
    async with worked(processes, objects) as (plane, _):
        await plane.start(spec=a_spec("mod:leave"))
        await plane.run(an_order(1, str(folder)))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
        assert len(noted(folder)) == 2
        assert [pid for pid in noted(folder) if alive(pid)] == []


WORKER = """
import sys, trio, os
from pathlib import Path
import importlib.util
spec = importlib.util.spec_from_file_location("levers9_test_worker", sys.argv[1])
plane = importlib.util.module_from_spec(spec); sys.modules["levers9_test_worker"] = plane
spec.loader.exec_module(plane)
from levers9.actors.worker.runtime.process import ProcessRuntime, ProcessSettings
async def main():
    objects = plane.MemoryObjects()
    settings = ProcessSettings(environment={"PYTHONPATH": sys.argv[2], "PATH": os.environ["PATH"]})
    folder, logs = Path(sys.argv[3]), plane.NotedLogs()
    runtime = ProcessRuntime(settings=settings, state_folder=folder, objects=objects, log_sink=logs)
    async with trio.open_nursery() as nursery:
        await nursery.start(runtime.serve)
        async with plane.worked(runtime, objects) as (control, _):
            await control.start()
            await control.run(plane.an_order(1, sys.argv[4]))
            await trio.sleep_forever()
trio.run(main)
"""


async def test_when_the_worker_is_killed_the_whole_tree_is_gone_within_a_second(code: Path, tmp_path: Path) -> None:
    (code / "mod.py").write_text(STUBBORN)
    folder = tmp_path / "pids"
    folder.mkdir()
    plane = Path(__file__).parent.parent / "plane.py"
    argv = [sys.executable, "-c", WORKER, str(plane), str(code), str(tmp_path / "state"), str(folder)]
    process = await trio.lowlevel.open_process(argv, cwd=tmp_path, stdin=subprocess.DEVNULL)
    try:
        await until(lambda: len(noted(folder)) == 3, 20)
    finally:
        process.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        await process.wait()
    await until(lambda: not any(map(alive, noted(folder))))
    assert time.monotonic() - killed_at < 1.0


WANDERS = """
import os, pathlib, subprocess, sys, time
def note(folder):
    pathlib.Path(folder, str(os.getpid())).touch()
def function(folder):
    if os.fork() == 0:
        os.setsid()
        note(folder)
        if os.fork() == 0:
            os.setsid()
            note(folder)
        time.sleep(120)
        os._exit(0)
    for env in (None, {}):
        code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(120)"
        subprocess.Popen([sys.executable, "-S", "-c", code, folder], env=env, start_new_session=True)
    note(folder)
    time.sleep(120)
"""


def keepers() -> list[int]:
    return [int(pid) for server in fork_servers() for pid in children(server)]


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("use_cgroup", [True, False])
async def test_a_killed_keeper_s_tree_is_ended_in_whatever_sessions_it_is_and_others_go_on(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path, use_cgroup: bool
) -> None:
    (code / "mod.py").write_text(WANDERS)
    (code / "other.py").write_text(SLEEPS)
    processes._settings = msgspec.structs.replace(processes._settings, use_cgroup=use_cgroup)
    folder = tmp_path / "pids"
    folder.mkdir()
    async with worked(processes, objects) as (plane, _):
        await plane.start("c1")
        (keeper,) = keepers()
        await plane.start("c2", a_spec("other:function"))
        await plane.run(an_order(1, str(folder)))
        await until(lambda: len(noted(folder)) == 5)
        os.kill(keeper, signal.SIGKILL)
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
        assert [pid for pid in noted(folder) if alive(pid)] == []
        await plane.run(an_order(2, 0), container_id="c2")
        assert (await plane.result("task-2")).end is End.OK
    groups = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
    assert not [group for group in groups if (group / "levers9-c1").exists()]


async def test_what_a_worker_and_its_keeper_left_when_both_were_killed_is_ended_by_the_next_worker(
    code: Path, tmp_path: Path
) -> None:
    (code / "mod.py").write_text(WANDERS.replace("(None, {})", "(None,)"))
    folder, state = tmp_path / "pids", tmp_path / "state"
    folder.mkdir()
    plane = Path(__file__).parent.parent / "plane.py"
    argv = [sys.executable, "-c", WORKER, str(plane), str(code), str(state), str(folder)]
    process = await trio.lowlevel.open_process(argv, cwd=tmp_path, stdin=subprocess.DEVNULL)
    ours = [process.pid]
    try:
        await until(lambda: len(noted(folder)) == 4, 20)
        ours += fork_servers(str(process.pid))
        ours += [int(pid) for pid in children(ours[1])]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees another die
            for pid in ours:
                os.kill(pid, number)
    finally:
        process.kill()
        await process.wait()
    await until(lambda: sum(map(alive, noted(folder))) == 3)  # the runner has died with its keeper
    assert end_leftovers(tmp_path / "another state") == 0
    assert end_leftovers(state) >= 3
    assert not any(map(alive, noted(folder)))


@pytest.mark.parametrize("use_cgroup", [True, False])
async def test_out_of_memory_is_an_end_of_its_own_with_the_numbers(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, use_cgroup: bool
) -> None:
    (code / "mod.py").write_text(HUNGRY)
    processes._settings = msgspec.structs.replace(processes._settings, use_cgroup=use_cgroup)
    async with worked(processes, objects) as (plane, _):
        await plane.start(spec=a_spec(memory_mib=64))
        await plane.run(an_order(1, 200))
        result = await plane.result("task-1")
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert result.end is End.OUT_OF_MEMORY
    assert result.failure is not None
    assert "its limit is 64 MiB" in result.failure.why
    assert plane.of(ContainerEnded)[0].end is End.OUT_OF_MEMORY


async def test_a_call_that_runs_too_long_is_ended_and_those_behind_it_were_not_started(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text(SLEEPS)
    async with worked(processes, objects, grace_s=0.2) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, 0), an_order(2, 60, timeout_s=0.3), an_order(3, 0))
        results = [await plane.result(f"task-{number}") for number in (1, 2, 3)]
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert [(one.end, one.started) for one in results] == [
        (End.OK, True),
        (End.TIMED_OUT, True),
        (End.DISCONNECTED, False),
    ]
    assert plane.of(ContainerEnded)[0].end is End.TIMED_OUT


async def test_a_waiting_call_that_is_cancelled_never_starts_and_its_neighbours_go_on(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path
) -> None:
    (code / "mod.py").write_text(TOUCHES)
    folder = str(tmp_path)
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(*(an_order(number, folder, f"began-{number}", "go") for number in (1, 2, 3)))
        await until(lambda: (tmp_path / "began-1").exists())
        await plane.say(CancelAttempts(container_id="c1", attempts=(AttemptKey("task-2", 1),)))
        cancelled = await plane.result("task-2")
        assert ("task-1", 1) not in plane.results()
        (tmp_path / "go").touch()
        last = await plane.result("task-3")
    assert (cancelled.end, cancelled.started, last.end) == (End.CANCELLED, False, End.OK)
    assert not (tmp_path / "began-2").exists()


async def test_a_running_call_that_is_cancelled_cleans_up_and_ends_its_container(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path
) -> None:
    (code / "mod.py").write_text(
        "import pathlib, time\n"
        "def function(folder):\n"
        "    try:\n        pathlib.Path(folder, 'began').touch()\n        time.sleep(60)\n"
        "    finally:\n        pathlib.Path(folder, 'cleaned').touch()\n"
    )
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, str(tmp_path)), an_order(2, str(tmp_path)))
        await until(lambda: (tmp_path / "began").exists())
        await plane.say(CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
        first, second = await plane.result("task-1"), await plane.result("task-2")
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert (first.end, first.started, second.end, second.started) == (End.CANCELLED, True, End.DISCONNECTED, False)
    assert (tmp_path / "cleaned").exists()


async def test_a_cancel_after_the_end_gets_the_result_again(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text(SLEEPS)
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, 0))
        assert (await plane.result("task-1")).end is End.OK
        plane.heard.clear()
        await plane.say(CancelAttempts(container_id="c1", attempts=(AttemptKey("task-1", 1),)))
        assert (await plane.result("task-1")).end is End.OK


async def test_a_stopped_container_leaves_no_process_and_no_control_group(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text("import os\ndef function():\n    return os.getpid()\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start("c-unique-1")
        await plane.run(an_order(1), container_id="c-unique-1")
        result = await plane.result("task-1")
        await plane.say(StopContainer(container_id="c-unique-1", why="enough"))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert result.result is not None
    assert not alive(msgspec.msgpack.decode(result.result.data, type=int))
    groups = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
    assert not [group for group in groups if (group / "levers9-c-unique-1").exists()]
    assert os.getpid() > 0


async def test_a_machine_that_cannot_hold_the_code_says_so_and_the_worker_goes_on(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, tmp_path: Path
) -> None:
    (code / "mod.py").write_text("def function():\n    return 1\n")
    (tmp_path / "state").write_text("a file where the checkouts should be")
    objects.kept["blob/" + "a" * 64] = msgspec.msgpack.encode({"files": [["x.py", "b" * 64, 0o644, 1]]})
    objects.kept["blob/" + "b" * 64] = b"1"
    async with worked(processes, objects) as (plane, _):
        spec = msgspec.structs.replace(a_spec(), code_key="blob/" + "a" * 64)
        await plane.say(StartContainer(container_id="c1", stub_id="s1", workspace_id="ws", spec=spec))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
        await plane.start("c2")
    assert "could not be started on this machine" in plane.of(ContainerEnded)[0].why


async def test_a_fork_server_that_was_killed_is_started_anew(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text("import os\ndef function():\n    return os.getpid()\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start("c1")
        server = await processes._servers.get("")
        for pid in fork_servers():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not server.alive)
        await plane.start("c2")
        await plane.run(an_order(1), container_id="c1")
        assert (await plane.result("task-1")).end is End.OK


SLOW_TO_LOAD = "import time\ntime.sleep(60)\n"
RESISTS_WHILE_LOADING = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)\n"


@pytest.mark.parametrize("before", [SLOW_TO_LOAD, RESISTS_WHILE_LOADING, ""])
@pytest.mark.parametrize("after_s", [0.0, 0.3])
async def test_a_container_that_is_told_to_stop_while_it_starts_is_gone_at_once(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, before: str, after_s: float
) -> None:
    (code / "mod.py").write_text(before + "def function():\n    return 1\n")
    async with worked(processes, objects) as (plane, actor):
        await plane.say(StartContainer(container_id="c1", stub_id="s1", workspace_id="ws", spec=a_spec()))
        await until(lambda: "c1" in actor._hosted and actor._hosted["c1"].container is not None)
        await trio.sleep(after_s)
        with trio.fail_after(GONE_WITHIN_S):
            await plane.say(StopContainer(container_id="c1", why="enough"))
            await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert plane.of(ContainerEnded)[0].end is End.OK
