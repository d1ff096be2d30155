"""An operating-system process as a child of a supervisor: ready when it says so, ended with TERM and then KILL.

The process is the leader of a session of its own, so that Ctrl-C reaches only the root of the tree, which then stops it
in order; what is left of its process group when it has ended is killed, before its id can go to anybody else.

It is forked from the calling thread: Linux ties PR_SET_PDEATHSIG to the thread that forked, and Trio's own
`open_process` forks from a worker thread that ends when it is idle.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
import trio

from .errors import ChildFailed
from .wire.mailbox import Mailbox

_log: Final = logging.getLogger("levers9.process")
_LINE_MAX_BYTES: Final = 64 << 10  # a longer line is passed on in pieces
_DRAIN_S: Final = 1.0  # for what a process wrote just before it ended
_POLL_S: Final = 0.05  # where the kernel has no pidfd
READY_FD: Final = "LEVERS9_READY_FD"

# Runs in the new process: ties it to its parent, checks that the parent still lives, then becomes the program.
_TIE: Final = (
    "import ctypes, os, sys\n"
    "parent, death, *argv = sys.argv[1:]\n"
    "ctypes.CDLL(None).prctl(1, int(death), 0, 0, 0)\n"
    "if os.getppid() != int(parent): sys.exit('the parent is gone')\n"
    "os.execvp(argv[0], argv)\n"
)


class ReadyLine(msgspec.Struct, frozen=True):
    """Ready when it writes a line that holds `text`."""

    text: str


class ReadyFd(msgspec.Struct, frozen=True):
    """Ready when it writes to the descriptor whose number is in `LEVERS9_READY_FD`."""


class ReadyProbe(msgspec.Struct, frozen=True):
    """Ready when `probe` says so; it is asked every `every_s` seconds."""

    probe: Callable[[], Awaitable[bool]]
    every_s: float = 0.05


class AtOnce(msgspec.Struct, frozen=True):
    """Ready when it runs."""


Readiness = ReadyLine | ReadyFd | ReadyProbe | AtOnce


class ProcessChild:
    """The `start` of a child that is a process. It returns when the process exits with 0, else raises `ChildFailed`.

    When it is cancelled the process gets `stop_signal`, and KILL after `stop_s`: its `shutdown_s` must be larger.
    `dies_with_us` is the signal that the kernel sends when this process is gone, None to outlive it (Linux only).
    `on_line` gets each line of its output, without the end of line.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        user: int | None = None,
        ready: Readiness = AtOnce(),  # noqa: B008  # frozen
        on_line: Callable[[str], None] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_s: float = 10.0,
        dies_with_us: signal.Signals | None = signal.SIGKILL,
    ) -> None:
        self.process_id = 0
        self._argv = tuple(argv)
        self._env = env
        self._cwd = cwd
        self._user = user
        self._ready = ready
        self._on_line = on_line or self._log_line
        self._stop_signal = stop_signal
        self._stop_s = stop_s
        self._dies_with_us = dies_with_us

    async def __call__(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Live one life: from fork to reaped."""
        ready_end, their_end = os.pipe() if isinstance(self._ready, ReadyFd) else (-1, -1)
        try:
            process = self._spawn(their_end)
        except OSError as error:
            _close(ready_end)
            raise ChildFailed(self._argv[0], f"it can't be started: {error}") from error
        finally:
            _close(their_end)
        self.process_id = process.pid
        try:
            await self._attend(process, ready_end, task_status)
        finally:
            with trio.CancelScope(shield=True):  # bounded by stop_s, then by KILL
                await self._end(process)
            self.process_id = 0
        if process.returncode:
            raise ChildFailed(self._argv[0], _exit_words(process.returncode))

    def _spawn(self, ready_fd: int) -> subprocess.Popen[bytes]:
        env = dict(os.environ if self._env is None else self._env)
        if ready_fd >= 0:
            env[READY_FD] = str(ready_fd)
        argv = self._argv
        if self._dies_with_us is not None and sys.platform == "linux":
            argv = (sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), str(int(self._dies_with_us)), *argv)
        return subprocess.Popen(
            argv,
            env=env,
            cwd=self._cwd,
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(ready_fd,) if ready_fd >= 0 else (),
            start_new_session=True,
        )

    async def _attend(
        self, process: subprocess.Popen[bytes], ready_end: int, task_status: trio.TaskStatus[None]
    ) -> None:
        assert process.stdout is not None
        said_ready, output_ended = trio.Event(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_lines_on, process.stdout, said_ready, output_ended)
            nursery.start_soon(self._say_when_ready, ready_end, said_ready, task_status)
            await _wait_for_exit(process)
            with trio.move_on_after(_DRAIN_S):
                await output_ended.wait()
            nursery.cancel_scope.cancel(reason="the process has ended")

    async def _pass_lines_on(self, output: IO[bytes], said_ready: trio.Event, ended: trio.Event) -> None:
        text = self._ready.text if isinstance(self._ready, ReadyLine) else None
        lines = _Lines()
        async with trio.lowlevel.FdStream(os.dup(output.fileno())) as stream:
            while True:
                data = await stream.receive_some()
                for line in lines.feed(bytes(data)):
                    if text is not None and text in line:
                        said_ready.set()
                    self._on_line(line)
                if not data:
                    break
        ended.set()

    async def _say_when_ready(self, ready_end: int, said: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        ready = self._ready
        if isinstance(ready, ReadyLine):
            await said.wait()
        elif isinstance(ready, ReadyFd):
            async with trio.lowlevel.FdStream(ready_end) as stream:
                if not await stream.receive_some(1):
                    return  # closed without a word: its exit will be judged
        elif isinstance(ready, ReadyProbe):
            while not await ready.probe():  # noqa: ASYNC110  # another process has no event for us
                await trio.sleep(ready.every_s)
        task_status.started()

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Leave nothing of the process: TERM, KILL after the budget, KILL to what is left of its group, reap."""
        if not _has_exited(process):
            process.send_signal(self._stop_signal)
            with trio.move_on_after(self._stop_s):
                await _wait_for_exit(process)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so that the id is still its own
        except ProcessLookupError:
            pass
        await _wait_for_exit(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _log_line(self, line: str) -> None:
        _log.info("%s[%d] %s", Path(self._argv[0]).name, self.process_id, line)


async def _wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has exited, and leave it to be reaped."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while not _has_exited(process):  # noqa: ASYNC110  # this kernel has no event for us
            await trio.sleep(_POLL_S)
        return
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Lines:
    """Cuts bytes into lines; what is too long for a line comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete with `data`; with no data, what is left."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > _LINE_MAX_BYTES):
            lines.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace").rstrip("\r") for line in lines]


def _exit_words(code: int) -> str:
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it exited with {code}"


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
