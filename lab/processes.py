"""A container's process: a group of its own, with its output in a log, ended with TERM and then KILL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from ..child_process import Program, tied, wait_for_exit
from ..errors import LeversError
from .environment import CONTAINER_VARIABLE
from .logfile import ContainerLog
from .marks import kill_marked

_PIECE_BYTES: Final = 64 << 10
_DRAIN_S: Final = 0.5  # for what a process wrote just before it ended, where a grandchild holds its output open


class CannotStart(LeversError):
    """The command of a container is not there, or can't be run."""

    code = "lab_start"


class ContainerProcess:
    """A started process. `exit_code` is None while it runs; one that a signal ended has 128 and the signal's number."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self._process = process
        self._mark = mark  # which all of its descendants carry in their environment
        self.exit_code: int | None = None
        self.ended = trio.Event()
        self._reading = trio.CancelScope(shield=True)

    @property
    def pid(self) -> int:
        """Its number, and that of its group."""
        return self._process.pid

    def kill(self) -> None:
        """KILL to the whole group; nothing happens where it has ended."""
        if self.exit_code is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # it is not reaped, so that the id is still its own

    async def stop(self, grace_s: float) -> None:
        """TERM to the process alone, as in a container, and KILL to all after the grace; returns at its end."""
        with trio.CancelScope(shield=True):
            if self.exit_code is None:
                self._process.send_signal(signal.SIGTERM)
            with trio.move_on_after(grace_s):
                await self.ended.wait()
            self.kill()
            await self.ended.wait()

    async def attend(self, log: ContainerLog) -> None:
        """Read what it writes and wait for its end; cancelled, it kills the group first."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, self._process.stdout.fileno(), self._process.stderr.fileno(), log)
                await self._reaped()
        finally:
            self._reading.cancel(reason="the process has ended")
            log.finish()
            self._process.stdout.close()
            self._process.stderr.close()
            self.ended.set()

    async def _reaped(self) -> None:
        """Until it has ended, and all that it has started; cancelled, it is killed."""
        try:
            await wait_for_exit(self._process)
        finally:
            self.kill()  # what is left of its group goes with it
            kill_marked(CONTAINER_VARIABLE, self._mark)
            with trio.CancelScope(shield=True):  # a killed process ends at once
                await wait_for_exit(self._process)
            code = self._process.wait()
            self.exit_code = code if code >= 0 else 128 - code
            self._reading.deadline = trio.current_time() + _DRAIN_S

    async def _read(self, stdout: int, stderr: int, log: ContainerLog) -> None:
        """What it still writes while it is being ended counts as well."""
        with self._reading:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_copy, stdout, "stdout", log)
                nursery.start_soon(_copy, stderr, "stderr", log)


def start(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> ContainerProcess:
    """Start a process. Raises `CannotStart`."""
    program = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if program is None:
        raise CannotStart(f'exec: "{argv[0]}": executable file not found in $PATH')
    if not folder.is_dir():
        raise CannotStart(f"chdir to cwd ({str(folder)!r}) failed: no such file or directory")
    try:
        process = subprocess.Popen(
            tied(Program(argv=(program, *argv[1:]))),
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotStart(f"exec: {argv[0]!r}: {error.strerror}") from error
    return ContainerProcess(process, environment[CONTAINER_VARIABLE])


async def _copy(descriptor: int, name: str, log: ContainerLog) -> None:
    async with trio.lowlevel.FdStream(os.dup(descriptor)) as stream:
        while data := bytes(await stream.receive_some(_PIECE_BYTES)):
            log.write(name, data)
