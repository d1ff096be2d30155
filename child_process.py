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
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

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
    "try: os.execvp(argv[0], argv)\n"
    'except OSError as error: sys.exit(f"{argv[0]} can\'t be started: {error}")\n'
)


class ReadyLine(msgspec.Struct, frozen=True):
    """Ready when it writes a line that holds `text`."""

    text: str


class ReadyFd(msgspec.Struct, frozen=True):
    """Ready when it writes to the descriptor whose number is in `LEVERS9_READY_FD`."""


class ReadyWhen(msgspec.Struct, frozen=True):
    """Ready when the awaited function returns: one that asks the server until it answers, say."""

    returned: Callable[[], Awaitable[None]]


class AtOnce(msgspec.Struct, frozen=True):
    """Ready when it runs."""


Readiness = ReadyLine | ReadyFd | ReadyWhen | AtOnce


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, when it is ready, and how it ends.

    It gets `stop_signal`, and KILL after `stop_s`: the `shutdown_s` of its ChildSpec must be larger. `dies_with_us` is
    the signal that the kernel sends it when this process is gone, None to outlive it (Linux only).
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    ready: Readiness = AtOnce()
    stop_signal: signal.Signals = signal.SIGTERM
    stop_s: float = 10.0
    dies_with_us: signal.Signals | None = signal.SIGKILL


class ProcessChild:
    """The `start` of a child that is a process. It returns when the process exits with 0, else raises `ChildFailed`.

    `program` is what to run, or a function that prepares it anew for each life. `on_line` gets each line of its output,
    without the end of line; by default it goes to the log.
    """

    def __init__(
        self, program: Program | Callable[[], Awaitable[Program]], *, on_line: Callable[[str], None] | None = None
    ) -> None:
        self.process_id = 0
        self._program = program
        self._on_line = on_line or self._log_line

    async def __call__(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Live one life: from fork to reaped."""
        program = self._program if isinstance(self._program, Program) else await self._program()
        process, ready_fd = _spawn(program)
        self.process_id = process.pid
        try:
            await _Run(program, process, ready_fd, self._on_line).attend(task_status)
        finally:
            self.process_id = 0
        if process.returncode:
            raise ChildFailed(program.argv[0], _exit_words(process.returncode))

    def _log_line(self, line: str) -> None:
        _log.info("[%d] %s", self.process_id, line)


class _Run:
    """One life of a process, from after its fork until it is reaped."""

    def __init__(
        self, program: Program, process: subprocess.Popen[bytes], ready_fd: int, on_line: Callable[[str], None]
    ) -> None:
        self._program = program
        self._process = process
        self._ready_fd = ready_fd
        self._on_line = on_line
        self._said_ready = trio.Event()
        self._output_ended = trio.Event()
        self._reading = trio.CancelScope(shield=True)  # what it writes is read while it is being stopped, too

    async def attend(self, task_status: trio.TaskStatus[None]) -> None:
        """Until it has exited; when cancelled, end it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_output)
            try:
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(self._say_when_ready, task_status)
                    await wait_for_exit(self._process)
                    waiting.cancel_scope.cancel(reason="the process has exited")
            finally:
                with trio.CancelScope(shield=True):  # bounded: TERM has its budget, then comes KILL
                    await self._end()
                    with trio.move_on_after(_DRAIN_S):
                        await self._output_ended.wait()
                self._reading.cancel(reason="the process has ended")

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        lines = _Lines()
        with self._process.stdout as output, self._reading:
            async with trio.lowlevel.FdStream(os.dup(output.fileno())) as stream:
                while data := bytes(await stream.receive_some()):
                    self._pass_on(lines.feed(data))
        self._pass_on(lines.rest())
        self._output_ended.set()

    def _pass_on(self, lines: list[str]) -> None:
        ready = self._program.ready
        for line in lines:
            if isinstance(ready, ReadyLine) and ready.text in line:
                self._said_ready.set()
            self._on_line(line)

    async def _say_when_ready(self, task_status: trio.TaskStatus[None]) -> None:
        ready = self._program.ready
        if isinstance(ready, ReadyLine):
            await self._said_ready.wait()
        elif isinstance(ready, ReadyWhen):
            await ready.returned()
        elif isinstance(ready, ReadyFd):
            async with trio.lowlevel.FdStream(self._ready_fd) as stream:
                if not await stream.receive_some(1):
                    return  # closed without a word: how it exits is what counts
        task_status.started()

    async def _end(self) -> None:
        """Leave nothing of it: its stop signal, KILL after the budget, KILL to what is left of its group, reap."""
        if not has_exited(self._process):
            self._process.send_signal(self._program.stop_signal)
            with trio.move_on_after(self._program.stop_s):
                await wait_for_exit(self._process)
        os.killpg(self._process.pid, signal.SIGKILL)  # it is not reaped, so that the id is still its own
        await wait_for_exit(self._process)
        self._process.wait()


def _spawn(program: Program) -> tuple[subprocess.Popen[bytes], int]:
    """Fork and run; returns the process, and where it says that it is ready if that is a descriptor."""
    env = dict(os.environ if program.env is None else program.env)
    ready_end, their_end = os.pipe() if isinstance(program.ready, ReadyFd) else (-1, -1)
    if their_end >= 0:
        env[READY_FD] = str(their_end)
    try:
        process = subprocess.Popen(
            tied(program),
            env=env,
            cwd=program.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(their_end,) if their_end >= 0 else (),
            start_new_session=True,
        )
    except OSError as error:
        _close(ready_end)
        raise ChildFailed(program.argv[0], f"it can't be started: {error}") from error
    finally:
        _close(their_end)
    return process, ready_end


def tied(program: Program) -> tuple[str, ...]:
    """The command, so that it dies with us where that is wanted."""
    if program.dies_with_us is None or sys.platform != "linux":
        return program.argv
    return (sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), str(int(program.dies_with_us)), *program.argv)


async def wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has exited, and leave it to be reaped."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while not has_exited(process):  # noqa: ASYNC110  # this kernel has no event for us
            await trio.sleep(_POLL_S)
        return
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited; it is left to be reaped."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Lines:
    """Cuts bytes into lines; what is too long for a line comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete with `data`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_MAX_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in lines]

    def rest(self) -> list[str]:
        """The last line, where no end of line came after it."""
        return [self._rest.decode(errors="replace")] if self._rest else []


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"it exited with {code}"
    named = -code in {each.value for each in signal.Signals}  # most real-time signals have no name
    return f"it was ended by {signal.Signals(-code).name if named else f'signal {-code}'}"


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
