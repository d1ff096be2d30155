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
from ...wire import scheduling
from ...wire.message import Message
from .policy import Adopt, StartWorker

STOP_WITHIN_S: Final = 5.0
_START_TICKS: Final = 19  # field 22 of /proc/PID/stat, counted behind the command's closing parenthesis


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker's process is started: the command without its identity, and where its output goes."""

    argv: tuple[str, ...]
    env: dict[str, str]
    log_dir: Path


class WorkerProcesses:
    """The processes of one pool. `tell` posts what happened to the pool's actor; `clock` is Unix time in seconds."""

    def __init__(self, launch: Launch, clock: Callable[[], float]) -> None:
        self._launch = launch
        self._clock = clock
        self._pidfds: dict[str, int] = {}
        self._one_ended = trio.Event()

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Start the process of an order and stay until it has ended."""
        argv = [*self._launch.argv, "--id", order.worker_id]
        env = {**self._launch.env, "LEVERS9_WORKER_TOKEN": order.token}
        self._launch.log_dir.mkdir(parents=True, exist_ok=True)
        log = os.open(self._launch.log_dir / f"{order.worker_id}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await trio.lowlevel.open_process(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence=f"it could not be started: {error}"))
            return
        finally:
            os.close(log)
        handle = handle_of(process.pid)
        tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle or "", at_s=self._clock()))
        pidfd = self._pidfds[order.worker_id] = os.pidfd_open(process.pid)
        try:
            code = await process.wait()
        finally:
            self._close(order.worker_id, pidfd)
        evidence = f"its process exited with {code}" if code >= 0 else f"its process was ended by signal {-code}"
        tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence=evidence, expected=code == 0))

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Watch the process of an earlier leader's order until it ends. One of another host is left to its lease."""
        handle = order.handle or find_process(order.worker_id) or ""
        if handle and not handle.startswith(f"{_host()}:"):
            return
        pidfd = open_handle(handle) if handle else None
        if pidfd is not None:
            if order.state is WorkerState.ORDERED:
                tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle=handle, at_s=self._clock()))
            self._pidfds[order.worker_id] = pidfd
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                self._close(order.worker_id, pidfd)
        evidence = "its process has ended" if handle else "its process was never started"
        tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence=evidence))

    def _close(self, worker_id: str, pidfd: int) -> None:
        self._pidfds.pop(worker_id, None)
        os.close(pidfd)
        self._one_ended.set()

    def signal_all(self, number: signal.Signals) -> int:
        """Send a signal to each process that lives; returns how many there are."""
        for pidfd in self._pidfds.values():
            try:
                signal.pidfd_send_signal(pidfd, number)
            except ProcessLookupError:
                continue
        return len(self._pidfds)

    async def stop_all(self) -> None:
        """TERM, up to 5 s, then KILL: for a laptop, where nothing is left running."""
        if not self.signal_all(signal.SIGTERM):
            return
        with trio.move_on_after(STOP_WITHIN_S):
            while self._pidfds:
                self._one_ended = trio.Event()
                await self._one_ended.wait()
        self.signal_all(signal.SIGKILL)


def handle_of(pid: int) -> str | None:
    """The handle of a living process of this host, or None."""
    ticks = _start_ticks(pid)
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
    if str(_start_ticks(pid)) != ticks:
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


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[_START_TICKS])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _host() -> str:
    return socket.gethostname()
