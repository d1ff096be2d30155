"""What tests of the worker share: `plane.py`, known to them as `levers9_test_worker`."""

import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

_spec = importlib.util.spec_from_file_location("levers9_test_worker", Path(__file__).with_name("plane.py"))
assert _spec is not None
assert _spec.loader is not None
plane = sys.modules.setdefault("levers9_test_worker", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(plane)

from levers9_test_worker import MemoryObjects, NotedLogs  # noqa: E402

from levers9.actors.worker.runtime.process import ProcessRuntime, ProcessSettings  # noqa: E402


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def logs() -> NotedLogs:
    return NotedLogs()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder that containers find modules in."""
    folder = tmp_path / "modules"
    folder.mkdir()
    return folder


@pytest.fixture
async def processes(
    tmp_path: Path, code: Path, objects: MemoryObjects, logs: NotedLogs
) -> AsyncIterator[ProcessRuntime]:
    """The process runtime, with a warm fork server."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "HOME": str(tmp_path)}
    settings = ProcessSettings(environment=environment, memory_watch_s=0.02)
    runtime = ProcessRuntime(settings=settings, state_folder=tmp_path / "state", objects=objects, log_sink=logs)
    async with trio.open_nursery() as nursery:
        await nursery.start(runtime.serve)
        await runtime.warm_up()
        yield runtime
        nursery.cancel_scope.cancel()
