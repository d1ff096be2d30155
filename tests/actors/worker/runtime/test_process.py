"""Containers as real process trees, through the worker's actor and a memory link."""

import os
from pathlib import Path

import cloudpickle
import msgspec
import pytest
import trio
from levers9_test_worker import PYTHON, MemoryObjects, NotedLogs, a_spec, an_order, worked

from levers9.actors.worker.runtime.process import ProcessRuntime
from levers9.model.states import End
from levers9.wire.message import Payload
from levers9.wire.scheduling import ContainerEnded, ContainerReady, StartContainer, StopContainer
from levers9.wire.work import AttemptOrder

pytestmark = pytest.mark.slow


def write(code: Path, text: str) -> None:
    (code / "mod.py").write_text(text)


async def test_a_call_runs_in_a_forked_container(processes: ProcessRuntime, code: Path, objects: MemoryObjects) -> None:
    write(code, "def function(a, b):\n    return a + b\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, 2, 3))
        result = await plane.result("task-1")
    assert (result.end, result.result) == (End.OK, Payload("msgpack", b"\x05", "", 1))


async def test_a_remote_exception_arrives_as_itself_with_its_traceback(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "def function():\n    raise KeyError('nothing here')\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.end is End.ERROR
    assert result.failure is not None
    assert repr(cloudpickle.loads(result.failure.exception)) == "KeyError('nothing here')"
    assert "mod.py" in result.failure.traceback
    assert "running.py" not in result.failure.traceback


async def test_an_exception_that_cannot_be_pickled_arrives_as_text(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "import threading\ndef function():\n    raise ValueError('with a lock', threading.Lock())\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.failure is not None
    assert (result.failure.exception, "with a lock" in result.failure.what) == (b"", True)


async def test_system_exit_is_an_error_and_the_container_goes_on(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "import sys\ndef function(leave):\n    if leave:\n        sys.exit(3)\n    return 'here'\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, True), an_order(2, False))
        first, second = await plane.result("task-1"), await plane.result("task-2")
    assert (first.end, second.end) == (End.ERROR, End.OK)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("async def function():\n    import asyncio\n    await asyncio.sleep(0)\n    return (1, 'a')\n", (1, "a")),
        ("import trio\nasync def function():\n    await trio.sleep(0)\n    return {1: 2}\n", {1: 2}),
        ("class Wrapped:\n    pass\nfunction = Wrapped()\nfunction.__levers9_function__ = lambda: {3}\n", {3}),
    ],
)
async def test_whatever_is_no_plain_value_keeps_its_type(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, body: str, value: object
) -> None:
    write(code, body)
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.result is not None
    assert (result.result.format, cloudpickle.loads(result.result.data)) == ("pickle", value)


async def test_a_function_by_value_is_fetched_from_the_object_store(
    processes: ProcessRuntime, objects: MemoryObjects
) -> None:
    factor = 3
    objects.kept["blob/f"] = cloudpickle.dumps(lambda x: x * factor)
    async with worked(processes, objects) as (plane, _):
        await plane.start(spec=a_spec("pickle:blob/f"))
        await plane.run(an_order(1, 14))
        result = await plane.result("task-1")
    assert result.result == Payload("msgpack", b"\x2a", "", 1)


async def test_large_arguments_and_results_go_through_the_object_store(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "def function(data):\n    return data + data\n")
    objects.kept["blob/a"] = msgspec.msgpack.encode([[b"x" * 600_000], {}])
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(AttemptOrder("task-1", 1, Payload("msgpack", b"", "blob/a", 600_010), 60.0))
        result = await plane.result("task-1")
    assert result.result is not None
    assert (result.result.data, result.result.size_bytes) == (b"", 1_200_005)
    assert msgspec.msgpack.decode(objects.kept[result.result.object_key]) == b"x" * 1_200_000


async def test_the_code_sees_its_own_environment_and_none_of_ours(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(code, "import os\ndef function():\n    return [[k, v] for k, v in os.environ.items()]\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start(spec=a_spec(env=(("MINE", "1"),)))
        await plane.run(an_order(1, attempt=4))
        result = await plane.result("task-1", 4)
    assert result.result is not None
    seen = dict(msgspec.msgpack.decode(result.result.data, type=list[tuple[str, str]]))
    names = ("MINE", "LEVERS9_TOKEN", "LEVERS9_CONTAINER_ID", "LEVERS9_TASK_ID", "LEVERS9_ATTEMPT")
    assert [seen[name] for name in names] == ["1", "t0", "c1", "task-1", "4"]
    assert set(seen) - set(names) <= {"LEVERS9_WORKER_PROCESS", "PATH", "HOME", "PYTHONPATH", "LC_CTYPE"}


async def test_another_python_minor_is_refused_with_the_reason(
    processes: ProcessRuntime, objects: MemoryObjects
) -> None:
    spec = msgspec.structs.replace(a_spec(), python="2.7")
    async with worked(processes, objects) as (plane, _):
        await plane.say(StartContainer(container_id="c1", stub_id="s1", workspace_id="ws", spec=spec))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    ended = plane.of(ContainerEnded)[0]
    assert ended.end is End.REFUSED
    assert "Python 2.7" in ended.why
    assert f"Python {PYTHON}" in ended.why


@pytest.mark.parametrize(
    ("body", "why"),
    [("import nothing_of_this_name\n", "nothing_of_this_name"), ("import os\nos._exit(4)\n", "exited with status 4")],
)
async def test_code_that_does_not_load_ends_the_container_with_the_reason(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, body: str, why: str
) -> None:
    write(code, body)
    async with worked(processes, objects) as (plane, _):
        await plane.say(StartContainer(container_id="c1", stub_id="s1", workspace_id="ws", spec=a_spec()))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    ended = plane.of(ContainerEnded)[0]
    assert ended.end is End.APP_FAILED_TO_LOAD
    assert why in ended.why


async def test_lines_belong_to_their_call_and_the_last_number_is_exact(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects, logs: NotedLogs
) -> None:
    write(
        code,
        "import os, sys\n"
        "def function(n):\n"
        "    for i in range(n):\n"
        "        print('line', i)\n"
        "    os.system('echo from a child')\n"
        "    sys.stderr.write('no end of line')\n",
    )
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, 3), an_order(2, 0))
        first, second = await plane.result("task-1"), await plane.result("task-2")
        await plane.say(StopContainer(container_id="c1", why="enough"))
        await plane.until(lambda: bool(plane.of(ContainerEnded)))
    assert (first.last_log_line, second.last_log_line) == (5, 2)
    numbers = {name: sorted(one.number for one in logs.lines if one.task_id == name) for name in ("task-1", "task-2")}
    assert numbers == {"task-1": [1, 2, 3, 4, 5], "task-2": [1, 2]}
    assert {one.text for one in logs.lines if one.task_id == "task-2"} == {"from a child", "no end of line"}


async def test_a_long_call_never_holds_back_the_results_before_it(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "import time\ndef function(s):\n    time.sleep(s)\n")
    async with worked(processes, objects, grace_s=0.2) as (plane, _):
        await plane.start()
        await plane.run(*(an_order(number, 0) for number in range(20)), an_order(99, 60))
        with trio.fail_after(5):
            await plane.until(lambda: len(plane.results()) == 20)
    assert ("task-99", 1) not in plane.results()


async def test_the_working_folder_is_the_checkout_and_it_comes_first(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(code, "def function():\n    return 'from the path'\n")
    data = b"import os\ndef function():\n    return sorted(os.listdir('.'))\n"
    digest = __import__("hashlib").sha256(data).hexdigest()
    manifest = msgspec.msgpack.encode({"files": [["mod.py", digest, 0o644, len(data)]]})
    objects.kept |= {f"blob/{digest}": data, "blob/" + "a" * 64: manifest}
    spec = msgspec.structs.replace(a_spec(), code_key="blob/" + "a" * 64)
    async with worked(processes, objects) as (plane, _):
        await plane.start(spec=spec)
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.result is not None
    assert "mod.py" in msgspec.msgpack.decode(result.result.data, type=list[str])


async def test_core_files_are_off_and_open_files_are_limited(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    write(
        code,
        "import resource as r\n"
        "def function():\n    return [r.getrlimit(r.RLIMIT_CORE)[0], r.getrlimit(r.RLIMIT_NOFILE)[0] <= 65536]\n",
    )
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.result == Payload("msgpack", msgspec.msgpack.encode([0, True]), "", 3)
    assert os.getpid() > 0


async def test_a_member_of_a_gang_is_told_its_rank_and_where_the_ranks_meet(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    names = "LEVERS9_RANK", "LEVERS9_WORLD_SIZE", "LEVERS9_GANG", "RANK", "WORLD_SIZE", "LOCAL_RANK"
    met = "LEVERS9_RANK0_ADDRESS", "MASTER_ADDR", "MASTER_PORT"
    write(code, f"import os\ndef function():\n    return [os.environ.get(name, '') for name in {names + met!r}]\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start(gang_id="gang-1", rank=1, world_size=2)
        await plane.start("c2")
        await plane.run(msgspec.structs.replace(an_order(1), rank0="host.example:7001"))
        await plane.run(an_order(2), container_id="c2")
        member, alone = await plane.result("task-1"), await plane.result("task-2")
        ready = {one.container_id: one.address for one in plane.of(ContainerReady)}
    assert member.result is not None
    assert alone.result is not None
    ranks = ["1", "2", "gang-1", "1", "2", "0"]
    assert msgspec.msgpack.decode(member.result.data) == [*ranks, "host.example:7001", "host.example", "7001"]
    assert msgspec.msgpack.decode(alone.result.data) == [""] * 9
    assert ready["c1"].startswith("127.0.0.1:")
    assert ready["c2"] == ""
