"""Starting and ending a lab from outside: its daemon in the background, and every process that it has left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ..child_process import READY_FD
from ..errors import Refused
from ..process_identity import start_ticks
from .folder import MARK_VARIABLE, LabFolder, LabSettings, write_whole
from .marks import marked, signal_exactly
from .talk import steps

STEP_WITHIN_S: Final = 120.0  # of a start; mostly it is some seconds
_STOP_S: Final = 20.0
_KILLED_S: Final = 5.0
_TAIL_LINES: Final = 5

Say = Callable[[str], None]


def is_running(folder: LabFolder) -> bool:
    """Whether the daemon that was noted here is alive, and no other process with its number."""
    mark = folder.daemon()
    return mark is not None and start_ticks(mark.pid) == mark.start_ticks


def start_lab(folder: LabFolder, settings: LabSettings, say: Say, within_s: float = STEP_WITHIN_S) -> None:
    """Start a lab and wait until its nodes are ready, for each step at most `within_s`.

    Raises `Refused` when one runs already, or it fails.
    """
    folder.create()
    with _alone(folder):
        if is_running(folder):
            fix = "See it: levers9 lab status. End it: levers9 lab down."
            raise Refused("A lab runs here already.", fix=fix, code="lab_runs")
        clear(folder)
        folder.create()
        write_whole(folder.settings_file, msgspec.json.encode(settings))
        try:
            _follow(folder, say, within_s)
        except BaseException:
            end_lab(folder)
            raise


def end_lab(folder: LabFolder) -> bool:
    """End everything of the lab here, also what a killed daemon has left; False where there was nothing."""
    was_there = folder.settings() is not None
    mark = folder.daemon()
    if mark is not None and start_ticks(mark.pid) == mark.start_ticks:
        signal_exactly(mark.pid, mark.start_ticks, signal.SIGTERM)
        _wait_gone([(mark.pid, mark.start_ticks)], _STOP_S)
    clear(folder)
    return was_there


def clear(folder: LabFolder) -> None:
    """Kill what is left of a lab whose daemon is gone, and remove its files."""
    settings = folder.settings()
    if settings is not None:
        left = list(marked(MARK_VARIABLE, settings.lab_id))
        for pid, ticks in left:
            signal_exactly(pid, ticks, signal.SIGKILL)
        _wait_gone(left, _KILLED_S)
    for entry in folder.path.iterdir() if folder.path.is_dir() else ():
        if entry == folder.lock_file:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _follow(folder: LabFolder, say: Say, within_s: float) -> None:
    """Start the daemon and pass on what it says, until the lab is ready."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe, folder.log_file.open("ab") as log:
        settings = folder.settings()
        assert settings is not None
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "levers9.lab.daemon", str(folder.path)],
            env={**os.environ, READY_FD: str(theirs), MARK_VARIABLE: settings.lab_id},
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        os.close(theirs)
        with _ended_if_it_fails(process):
            for line in _lines(pipe.fileno(), folder, within_s):
                step = steps.decode(line)
                if step.failed:
                    process.wait()
                    raise Refused("The lab could not be started.", step.words, code="lab_start")
                say(step.words)
                if step.done:
                    process.returncode = 0  # it lives on without us
                    return
            process.wait()
    raise Refused("The lab ended before it was ready.", _tail(folder.log_file), code="lab_start")


@contextmanager
def _ended_if_it_fails(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()
        process.wait()
        raise


def _lines(pipe: int, folder: LabFolder, within_s: float) -> Iterator[bytes]:
    """What the daemon says, line by line. Raises `Refused` when it says nothing for so long."""
    begun = b""
    while select.select([pipe], [], [], within_s)[0]:
        came = os.read(pipe, 65_536)
        if not came:
            return
        *lines, begun = (begun + came).split(b"\n")
        yield from lines
    logs = [folder.log_file, *sorted(folder.logs.glob("*.log"))]
    said = " ".join(f"{path.name}: {_tail(path)}" for path in logs if _tail(path))
    why = f"The last step took more than {within_s:g} s. {said}".strip()
    fix = "Look whether this machine is busy, or its disk full, and try again; fewer --trays start sooner."
    raise Refused("The lab did not become ready, and was ended.", why, fix, code="lab_start")


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return f"Its log ends with: {' | '.join(lines)}" if lines else ""


def _wait_gone(processes: list[tuple[int, int]], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for pid, ticks in processes:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if start_ticks(pid) == ticks:
                select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)


@contextmanager
def _alone(folder: LabFolder) -> Iterator[None]:
    """Two starts at the same time: the later one is told."""
    with folder.lock_file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("Somebody else starts a lab here right now.", fix="Wait, then: levers9 lab status.") from None
        yield
