"""Starts process containers one after another in a worker's runtime; each tells when its module's first line ran.

The clock starts where a worker starts a container: its code is on the disk, its fork server is warm, nothing of the
container itself exists.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import trio

from levers9.actors.worker.events import Launch
from levers9.actors.worker.logs import LogLine
from levers9.actors.worker.objects import Owner
from levers9.actors.worker.runtime.face import RunningContainer
from levers9.actors.worker.runtime.process import ProcessRuntime, ProcessSettings
from levers9.daemons.worker import PRELOAD
from levers9.errors import Refused
from levers9.model.resources import Shape
from levers9.wire.client import StubSpec
from levers9.wire.message import Payload
from levers9.wire.work import AttemptOrder, AttemptResult

MODULE = "import time\nBORN = time.time()\n\n\ndef born():\n    return BORN\n"


class Outside:
    """A world without objects, and without readers of logs."""

    async def get(self, owner: Owner, key: str) -> bytes:
        raise Refused(f"There is no object {key!r}.")

    async def get_many(self, owner: Owner, keys: tuple[str, ...]) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        return {}

    async def put(self, owner: Owner, key: str, data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def send(self, container_id: str, chunk: int, lines: tuple[LogLine, ...]) -> None:
        await trio.lowlevel.checkpoint()


class Ear:
    """Hears the one result of a container."""

    def __init__(self) -> None:
        self.heard = trio.Event()
        self.result: AttemptResult | None = None

    def loaded(self) -> None:
        """The module is there."""

    def finished(self, results: tuple[AttemptResult, ...]) -> None:
        self.result = results[0]
        self.heard.set()


async def start_one(runtime: ProcessRuntime, number: int) -> float:
    """The milliseconds from the order to the first line of the module."""
    spec = StubSpec(
        app="bench",
        name="born",
        kind="job",
        handler="born:born",
        code_key="",
        python=f"{sys.version_info[0]}.{sys.version_info[1]}",
        shape=Shape(cpu_milli=500, memory_mib=256),
        timeout_s=60.0,
        retries=0,
    )
    launch = Launch(container_id=f"c{number}", workspace_id="w", spec=spec, token="")
    ear = Ear()
    async with trio.open_nursery() as nursery:
        began = time.time()
        container: RunningContainer = await nursery.start(runtime.run, launch, ear)
        container.give((AttemptOrder("t", 1, Payload("msgpack", msgspec.msgpack.encode([[], {}])), 60.0),))
        await ear.heard.wait()
        container.kill()
    assert ear.result is not None
    assert ear.result.result is not None, ear.result
    return (msgspec.msgpack.decode(ear.result.result.data, type=float) - began) * 1000


async def measure(starts: int, folder: Path) -> list[float]:
    """Start so many, one after another, after one that warms the disk."""
    (folder / "born.py").write_text(MODULE)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "HOME": str(folder)}
    settings = ProcessSettings(environment=environment, preload=PRELOAD)
    outside = Outside()
    runtime = ProcessRuntime(settings=settings, state_folder=folder / "state", objects=outside, log_sink=outside)
    async with trio.open_nursery() as nursery:
        await nursery.start(runtime.serve)
        await runtime.warm_up()
        await start_one(runtime, 0)
        found = [await start_one(runtime, number + 1) for number in range(starts)]
        nursery.cancel_scope.cancel()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=50)
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(trio.run(measure, parser.parse_args().starts, Path(temporary))), flush=True)
