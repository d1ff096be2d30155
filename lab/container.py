"""The life of one container: pulled, configured, started, probed, started again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from ..errors import KubeRefused, KubeUnavailable
from .images import wait_s
from .logfile import ContainerLog
from .objects import Container, Probe
from .podstatus import ContainerState, Note, Running, Terminated, Waiting, will_restart
from .probes import Prober, exit_code_of
from .processes import CannotStart, ContainerProcess, start
from .volumes import ConfigMissing

START_FAILED: Final = 128
# Under which names a kubelet tells of what a container waits for.
_EVENTS: Final = {
    "ErrImagePull": "Failed",
    "ImagePullBackOff": "BackOff",
    "CreateContainerConfigError": "Failed",
    "CrashLoopBackOff": "BackOff",
}
CONFIG_RETRY_S: Final = 2.0
_STEADY_S: Final = 600.0  # one that ran so long has no failures behind it


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a container's process is started with."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: Path


class Host(Protocol):
    """What a container asks of its pod and node."""

    grace_s: float
    stopping: trio.Event

    def changed(self) -> None:
        """The status has changed."""
        ...

    def note(self, note: Note) -> None:
        """Something has happened that `kubectl describe` is to show."""
        ...

    def has_image(self, container: Container) -> bool:
        """Whether the node has the container's image, or gets it just now."""
        ...

    async def wait(self, seconds: float) -> None:
        """So long, or until the node's pulls have healed or the pod is to stop."""
        ...

    async def configure(self, state: ContainerState) -> Setting:
        """Variables, volumes and command. Raises `ConfigMissing`."""
        ...


class ContainerLife:
    """One container over all its restarts. `policy` says when it is started again."""

    def __init__(self, state: ContainerState, policy: str, host: Host, folder: Path, address: str, uid: str) -> None:
        self.state = state
        self.started = trio.Event()  # once, in the sense of its startup probe
        self.setting: Setting | None = None
        self.logs: list[ContainerLog] = []  # the last two
        self._policy = policy
        self._host = host
        self._folder = folder
        self._address = address
        self._uid = uid
        self._process: ContainerProcess | None = None
        self._failures = 0

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.exit_code is None

    async def run(self) -> None:
        """Until it is over for good, or its pod stops. Cancelled, nothing of it is left."""
        while not self._host.stopping.is_set():
            if not await self._pull():
                return
            setting = await self._configure()
            if setting is None:
                return
            ended = await self._live(setting)
            self._settle(ended)
            if self._host.stopping.is_set() or not will_restart(self._policy, ended.exit_code):
                return
            await self._back_off(ended)

    async def stop(self, grace_s: float) -> None:
        """End the process that runs now."""
        if self._process is not None and self._process.exit_code is None:
            await self._process.stop(grace_s)

    async def execute(self, argv: Sequence[str]) -> int:
        """Run a command beside the process, and return its exit code."""
        assert self.setting is not None
        return await exit_code_of(argv, self.setting.environment, str(self.setting.folder))

    async def _pull(self) -> bool:
        image = self.state.container.image
        failures = 0
        while not self._host.has_image(self.state.container):
            failures += 1
            why = f'failed to pull and unpack image "{image}": no node of this lab has it'
            self._wait_for("ErrImagePull", why)
            await self._host.wait(1.0)
            if self._host.has_image(self.state.container):
                break
            self._wait_for("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}')
            await self._host.wait(wait_s(failures))
            if self._host.stopping.is_set():
                return False
        return not self._host.stopping.is_set()

    async def _configure(self) -> Setting | None:
        while not self._host.stopping.is_set():
            try:
                return await self._host.configure(self.state)
            except (ConfigMissing, KubeRefused, KubeUnavailable, OSError, ValueError) as error:
                self._wait_for("CreateContainerConfigError", str(error))
                await self._host.wait(CONFIG_RETRY_S)
        return None

    async def _live(self, setting: Setting) -> Terminated:
        self.setting = setting
        log = ContainerLog(self._folder / f"{self.state.restarts}.log")
        self.logs = [*self.logs[-1:], log]
        started_at = now_s()
        self.state.container_id = f"lab://{self._uid}-{self.state.container.name}-{self.state.restarts}"
        try:
            self._process = process = start(setting.argv, setting.environment, setting.folder)
        except CannotStart as error:
            log.finish()
            return Terminated(
                exit_code=START_FAILED,
                started_at=started_at,
                finished_at=now_s(),
                reason="StartError",
                message=str(error),
            )
        self.state.state = Running(started_at)
        self._host.note(Note("Started", f"Started container {self.state.container.name}"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._probe)
            if self._host.stopping.is_set():
                nursery.start_soon(process.stop, self._host.grace_s)
            await process.attend(log)
            nursery.cancel_scope.cancel(reason="the process has ended")
        assert process.exit_code is not None
        return Terminated(exit_code=process.exit_code, started_at=started_at, finished_at=now_s())

    async def _probe(self) -> None:
        container = self.state.container
        prober = Prober(container, self._address, self.execute)
        self._host.changed()
        if container.startup_probe is not None:
            await self._until_started(prober, container.startup_probe)
        self._has_started()
        async with trio.open_nursery() as nursery:
            if container.readiness_probe is not None:
                nursery.start_soon(prober.watch, container.readiness_probe, False, self._hear_readiness)
            if container.liveness_probe is not None:
                nursery.start_soon(prober.watch, container.liveness_probe, True, self._hear_liveness(nursery))

    async def _until_started(self, prober: Prober, probe: Probe) -> None:
        async with trio.open_nursery() as nursery:

            def hear(well: bool) -> None:
                if well:
                    nursery.cancel_scope.cancel(reason="it has started")
                else:
                    nursery.start_soon(self.stop, self._host.grace_s)

            await prober.watch(probe, False, hear)

    def _has_started(self) -> None:
        self.state.started = True
        self.state.ready = self.state.container.readiness_probe is None
        self.started.set()
        self._host.changed()

    def _hear_readiness(self, well: bool) -> None:
        self.state.ready = well
        self._host.changed()

    def _hear_liveness(self, nursery: trio.Nursery) -> Callable[[bool], None]:
        def hear(well: bool) -> None:
            if not well:
                nursery.start_soon(self.stop, self._host.grace_s)

        return hear

    def _settle(self, ended: Terminated) -> None:
        self.state.state = ended
        self.state.ready = False
        self.state.started = False
        self._host.changed()

    async def _back_off(self, ended: Terminated) -> None:
        lived_s = _seconds(ended.finished_at) - _seconds(ended.started_at)
        self._failures = 1 if lived_s >= _STEADY_S else self._failures + 1
        self.state.last = ended
        wait = wait_s(self._failures - 1) if self._failures > 1 else 0.0  # the first time it starts again at once
        if wait:
            name = self.state.container.name
            self._wait_for("CrashLoopBackOff", f"back-off {wait:.0f}s restarting failed container={name}")
            deadline = trio.current_time() + wait
            while trio.current_time() < deadline and not self._host.stopping.is_set():
                await self._host.wait(deadline - trio.current_time())
        if not self._host.stopping.is_set():
            self.state.restarts += 1

    def _wait_for(self, reason: str, message: str) -> None:
        self.state.state = Waiting(reason, message)
        self._host.note(Note(_EVENTS[reason], message, is_warning=reason != "ImagePullBackOff"))
        self._host.changed()


def now_s() -> str:
    """The time as Kubernetes writes it, to the second."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp() if time else math.nan
