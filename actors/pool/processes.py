"""Workers as processes: started in sessions of their own, found again after a restart, seen to end by pidfd.

A worker outlives the brain that started it: its output goes to a file, never to a pipe. A handle is
`host:boot:pid:ticks`; the start time in ticks tells a process from a later one with the same number.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from ...model.states import WorkerState
from ...process_identity import start_ticks
from ...wire import scheduling
from ...wire.message import Message
from .policy import Adopt, EndWorker, StartWorker

STOP_WITHIN_S: Final = 5.0
_LEAVE_WITHIN_S: Final = 0.1  # an idle worker has stopped its containers by then
_STOP_STEPS: Final = (
    (signal.SIGTERM, _LEAVE_WITHIN_S),
    (signal.SIGTERM, STOP_WITHIN_S),
    (signal.SIGKILL, STOP_WITHIN_S),
)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker's process is started: the command without its identity, and where its output goes."""

    argv: tuple[str, ...]
    env: dict[str, str]
    log_dir: Path


class _Alive(msgspec.Struct):
    """A process that had not ended when we last looked; `child` when this very process started it."""

    pidfd: int
    handle: str
    child: trio.Process | None = None

    def signal(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:  # it ended a moment ago
            pass

    async def ended(self) -> None:
        pidfd = os.dup(self.pidfd)  # whoever else waits for it has a descriptor of their own
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)


class WorkerProcesses:
    """The processes of one pool, over all reigns of this brain. `clock` is Unix time in seconds.

    `tell` posts what happened to the pool's actor of the moment. A reign's end ends its watching, not the processes.
    """

    def __init__(self, launch: Launch, clock: Callable[[], float]) -> None:
        self._launch = launch
        self._clock = clock
        self._alive: dict[str, _Alive] = {}
        self._why_ended: dict[str, str] = {}  # of those that we end ourselves

    @property
    def alive(self) -> tuple[str, ...]:
        """The workers whose processes run, as far as is known."""
        return tuple(self._alive)

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Start the process of an order and stay until it has ended."""
        try:
            child = await self._open(order)
        except OSError as error:
            tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence=f"it could not be started: {error}"))
            return
        handle = handle_of(child.pid) or ""
        self._alive[order.worker_id] = _Alive(os.pidfd_open(child.pid), handle, child)
        tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle, at_s=self._clock()))
        await self._watch(order.worker_id, tell)

    async def _open(self, order: StartWorker) -> trio.Process:
        self._launch.log_dir.mkdir(parents=True, exist_ok=True)
        log = os.open(self._launch.log_dir / f"{order.worker_id}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        token = _readable(order.token)
        try:
            return await trio.lowlevel.open_process(
                [*self._launch.argv, "--id", order.worker_id, "--token-fd", str(token), *_of(order)],
                env=self._launch.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(token,),
                start_new_session=True,
            )
        finally:
            os.close(log)
            os.close(token)

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Watch the worker of an earlier leader until it ends. One that another host may run is left to its lease."""
        if order.worker_id not in self._alive and not self._find(order):
            if _is_ours(order):
                why = "its process has ended" if order.handle else "its process was never started"
                tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence=why))
            return
        if not order.handle:
            handle = self._alive[order.worker_id].handle
            tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle, at_s=self._clock()))
        await self._watch(order.worker_id, tell)

    def _find(self, order: Adopt) -> bool:
        handle = order.handle or find_process(order.worker_id) or ""
        pidfd = open_handle(handle) if handle.startswith(f"{_host()}:") else None
        if pidfd is not None:
            self._alive[order.worker_id] = _Alive(pidfd, handle)
        return pidfd is not None

    async def _watch(self, worker_id: str, tell: Callable[[Message], None]) -> None:
        alive = self._alive[worker_id]
        await alive.ended()
        code = self._forget(worker_id)
        if code is None:
            evidence = "its process has ended"
        else:
            evidence = f"its process exited with {code}" if code >= 0 else f"its process was ended by signal {-code}"
        why = self._why_ended.pop(worker_id, "")
        evidence = f"{why}: {evidence}" if why else evidence
        tell(scheduling.WorkerExited(worker_id=worker_id, evidence=evidence, expected=bool(why), left=code == 0))

    def _forget(self, worker_id: str) -> int | None:
        """Its process has ended; reaps it where it is our child, and returns its exit code then."""
        alive = self._alive.pop(worker_id, None)
        if alive is None:
            return None
        os.close(alive.pidfd)
        return None if alive.child is None else alive.child.returncode

    async def end(self, order: EndWorker) -> None:
        """Ask one to leave, and then KILL. One of another host is left alone."""
        alive = self._alive.get(order.worker_id)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if alive is None or self._alive.get(order.worker_id) is not alive:
                return
            self._why_ended[order.worker_id] = order.why
            alive.signal(number)
            with trio.move_on_after(STOP_WITHIN_S):
                await alive.ended()
                return

    async def stop_all(self) -> None:
        """For a laptop, where nothing is left running: ask each to leave, soon to end at once, and at last KILL.

        The second TERM tells a worker not to wait for answers: the gateways through which they would come are gone.
        """
        for number, within_s in _STOP_STEPS:
            for alive in self._alive.values():
                alive.signal(number)
            with trio.move_on_after(within_s):
                for worker_id, alive in tuple(self._alive.items()):
                    await alive.ended()
                    self._forget(worker_id)


def _readable(token: str) -> int:
    """A descriptor from which the token can be read once: an environment could be read by every process of the user."""
    end, write_end = os.pipe()
    with open(write_end, "wb") as pipe:
        pipe.write(token.encode())
    return end


def _of(order: StartWorker) -> tuple[str, ...]:
    """What a worker is told of itself: its size, and its node's name."""
    size = order.capacity
    words = ["--cpu-milli", str(size.cpu_milli), "--memory-mib", str(size.memory_mib)]
    if size.gpu_count:
        words += ["--gpu-type", size.gpu_type, "--gpu-count", str(size.gpu_count)]
    return (*words, "--node", order.traits.node) if order.traits.node else tuple(words)


def _is_ours(order: Adopt) -> bool:
    """Whether not finding its process here says that there is none."""
    if order.handle:
        return order.handle.startswith(f"{_host()}:")
    return order.state in (WorkerState.ORDERED, WorkerState.PENDING)  # it never reported, and nothing was placed on it


def handle_of(pid: int) -> str | None:
    """The handle of a living process of this host, or None."""
    ticks = start_ticks(pid)
    return None if ticks is None else f"{_host()}:{_boot()}:{pid}:{ticks}"


def open_handle(handle: str) -> int | None:
    """A pidfd of the very process that a handle names, or None when it has ended."""
    _, boot, pid_text, ticks = handle.rsplit(":", 3)
    pid = int(pid_text)
    if boot != _boot():
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if str(start_ticks(pid)) != ticks:
        os.close(pidfd)
        return None
    return pidfd


def find_process(worker_id: str) -> str | None:
    """The handle of the process that was started for this order, found by its command line; None when there is none."""
    wanted = worker_id.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and b"--id" in words:
            return handle_of(int(entry.name))
    return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _host() -> str:
    return socket.gethostname()
