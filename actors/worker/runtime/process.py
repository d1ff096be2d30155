"""The process runtime: each container is a process tree in sessions of its own, held by a keeper."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from ....errors import WRONG_PYTHON, Refused
from ....model.figures import PAYLOAD_MAX_BYTES
from ....wire.client import StubSpec
from ..checkout import Checkouts
from ..events import Launch
from ..logs import LogShipper, LogSink, LogSplitter
from ..objects import Objects, Owner
from ..pruning import PRUNE_EVERY_S, prune
from .cards import card_variables
from .container import ProcessContainer
from .environment import rank_variables
from .face import Exit, RunningContainer, Sink
from .leftovers import WORKER_MARK, end_container, end_leftovers, worker_mark
from .pipes import LogPipes
from .servers import ForkServer, ForkServers

OPEN_FILES: Final = 65_536
LOGS_LEFT_S: Final = 5.0  # after the end, the last chunk of logs has this long to get through
_log = structlog.get_logger()


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How containers are run. `processes` below zero is no limit on their number; `cards` are those of the worker.

    None of them is a worker without cards that has its machine to itself: what its code sees of them stays as it is.

    `preload` are modules that a fork server imports, where its interpreter has them, before the first container.
    """

    environment: dict[str, str]
    processes: int = -1
    open_files: int = OPEN_FILES
    memory_watch_s: float = 0.1
    use_cgroup: bool = True
    cards: int | None = None
    preload: tuple[str, ...] = ()


class ProcessRuntime:
    """Runs containers as process trees."""

    def __init__(
        self,
        *,
        settings: ProcessSettings,
        state_folder: Path,
        objects: Objects,
        log_sink: LogSink,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        mark = {WORKER_MARK: worker_mark(state_folder)}
        self._settings = msgspec.structs.replace(settings, environment=settings.environment | mark)
        self._state_folder = state_folder
        self._objects = objects
        self._log_sink = log_sink
        self._unix_time = unix_time
        self._checkouts = Checkouts(state_folder / "workspaces", objects)
        self._servers = ForkServers(self._settings.environment, settings.preload)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the fork servers until cancelled; `run` works while this does."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tidy)
            await self._servers.run(task_status=task_status)

    async def _tidy(self) -> None:
        """End what dead workers left running, then remove old checkouts, now and again."""
        ended = await trio.to_thread.run_sync(end_leftovers, self._state_folder)
        if ended:
            _log.warning("processes that a dead worker had left were ended", count=ended)
        while True:
            try:
                removed = await trio.to_thread.run_sync(prune, self._state_folder / "workspaces", self._unix_time())
            except OSError as error:  # it costs room, and no call
                _log.warning("old checkouts could not be removed", error=str(error))
            else:
                if removed:
                    _log.info("old checkouts were removed", count=removed)
            await trio.sleep(PRUNE_EVERY_S)

    async def warm_up(self, interpreter: str = "") -> None:
        """Start an interpreter's fork server before its first container comes."""
        await self._servers.get(interpreter)

    async def run(self, launch: Launch, sink: Sink, *, task_status: trio.TaskStatus[RunningContainer]) -> Exit:
        """Run one container to its end; see `Runtime`."""
        owner = Owner(workspace_id=launch.workspace_id, container_id=launch.container_id, token=launch.token)
        server = await self._servers.get(launch.spec.interpreter)
        _check_python(launch.spec, server.python)
        async with self._code(owner, launch.spec.code_key) as code:
            kind, _, key = launch.spec.handler.partition(":")
            function = await self._objects.get(owner, key) if kind == "pickle" else b""
            shipper = LogShipper(launch.container_id, self._log_sink, self._unix_time)
            container = await self._fork(launch, server, code, function, shipper, sink)
            task_status.started(container)
            return await _see_through(container, shipper)

    @contextlib.asynccontextmanager
    async def _code(self, owner: Owner, code_key: str) -> AsyncIterator[str]:
        """The folder of the code, kept while the container runs; empty where it has none."""
        if not code_key:
            yield ""
            return
        async with self._checkouts.use(owner, code_key) as folder:
            yield str(folder)

    async def _fork(
        self, launch: Launch, server: ForkServer, code: str, function: bytes, shipper: LogShipper, sink: Sink
    ) -> ProcessContainer:
        marker = b"\0" + secrets.token_hex(4).encode()
        memory_bytes = launch.spec.shape.memory_mib << 20
        pipes = LogPipes(LogSplitter(marker), shipper, self._unix_time)
        runner, their_runner = socket.socketpair()
        keeper, their_keeper = socket.socketpair()
        claims_out, claims_in = os.pipe()
        os.set_blocking(claims_out, False)
        os.set_blocking(claims_in, False)

        async def end_rest() -> None:
            await trio.to_thread.run_sync(end_container, launch.container_id, server.pid)

        container = ProcessContainer(runner, keeper, (claims_out, claims_in), pipes, sink, memory_bytes, end_rest)
        try:
            with their_runner, their_keeper:
                descriptors = (their_runner.fileno(), claims_out, *pipes.theirs, their_keeper.fileno())
                await server.fork(self._request(launch, code, function, marker), descriptors)
        except BaseException:
            pipes.close_theirs()
            container.close()
            raise
        pipes.close_theirs()
        return container

    def _request(self, launch: Launch, code: str, function: bytes, marker: bytes) -> bytes:
        settings, spec = self._settings, launch.spec
        environment = settings.environment | dict(spec.env)
        environment |= {"LEVERS9_CONTAINER_ID": launch.container_id, "LEVERS9_TOKEN": launch.token}
        environment |= rank_variables(launch)
        if settings.cards is not None:
            environment |= card_variables(launch.cards, settings.environment)
        fields = (launch.container_id, spec.handler, function, code, environment)
        limits = (spec.shape.cpu_milli, spec.shape.memory_mib << 20, settings.open_files, settings.processes)
        rest = (marker, settings.memory_watch_s, PAYLOAD_MAX_BYTES, settings.use_cgroup)
        return msgspec.msgpack.encode((*fields, *limits, *rest))


async def _see_through(container: ProcessContainer, shipper: LogShipper) -> Exit:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shipper.run)
        ended = await container.run()
        nursery.cancel_scope.cancel(reason="the container has ended")
    with trio.move_on_after(LOGS_LEFT_S):
        await shipper.flush()
    return ended


def _check_python(spec: StubSpec, python: str) -> None:
    if spec.python != python:
        raise Refused(
            f"The function was made with Python {spec.python}, and this worker would run it with Python {python}.",
            "Pickles travel between equal minor versions only.",
            f"Call it from Python {python}, or give the pool an interpreter of Python {spec.python}.",
            WRONG_PYTHON,
        )
