"""Containers as real process trees, through the worker's actor and a memory link."""

from pathlib import Path

import cloudpickle
import pytest
from levers9_test_worker import MemoryObjects, an_order, worked

from levers9.actors.worker.runtime.process import ProcessRuntime
from levers9.model.states import End
from levers9.wire.message import Payload

pytestmark = pytest.mark.slow


async def test_a_call_runs_in_a_forked_container(processes: ProcessRuntime, code: Path, objects: MemoryObjects) -> None:
    (code / "mod.py").write_text("def function(a, b):\n    return a + b\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1, 2, 3))
        result = await plane.result("task-1")
    assert (result.end, result.result) == (End.OK, Payload("msgpack", b"\x05", "", 1))


async def test_a_remote_exception_arrives_as_itself_with_its_traceback(
    processes: ProcessRuntime, code: Path, objects: MemoryObjects
) -> None:
    (code / "mod.py").write_text("def function():\n    raise KeyError('nothing here')\n")
    async with worked(processes, objects) as (plane, _):
        await plane.start()
        await plane.run(an_order(1))
        result = await plane.result("task-1")
    assert result.end is End.ERROR
    assert result.failure is not None
    assert repr(cloudpickle.loads(result.failure.exception)) == "KeyError('nothing here')"
    assert "mod.py" in result.failure.traceback
    assert "running.py" not in result.failure.traceback
