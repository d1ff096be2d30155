"""A `levers9 dev` of its own for a module of tests, and programs and command lines that find it as a person's would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .controlplane import all_pids, command_of

STARTS_WITHIN_S = 90.0
ENDS_WITHIN_S = 60.0
LEVERS9 = (sys.executable, "-c", "from levers9.cli import main; main()")


class Laptop:
    """A person's machine: a home, a folder with their program, and what `levers9 dev` says on its terminal."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.runtime = folder / "home", folder / "project", folder / "run"
        self.state = self.home / ".levers9" / "dev"
        for one in (self.home, self.project, self.runtime):
            one.mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("LEVERS9_", "XDG_"))}
        self.env |= {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.runtime)}
        self.terminal = folder / "terminal"

    def start(self, *flags: str, says: str = "levers9 runs") -> None:
        """`levers9 dev`, until it says that it runs, or something else."""
        self.begin(*flags)
        self.wait_until_it_says(says)

    def begin(self, *flags: str) -> None:
        """`levers9 dev`, and wait for nothing."""
        argv = [*LEVERS9, "dev", "--stream-port", "0", "--http-port", "0", *flags]
        with self.terminal.open("wb") as terminal:
            self.process = subprocess.Popen(
                argv, env=self.env, stdout=terminal, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait_until_it_says(self, words: str, within_s: float = STARTS_WITHIN_S) -> None:
        """Return once these words stand on its terminal."""
        self.wait_until(lambda: words in self.terminal.read_text(), within_s, f"did not say {words!r}")

    def wait_until(
        self, is_so: Callable[[], bool], within_s: float = STARTS_WITHIN_S, else_it: str = "is not so far"
    ) -> None:
        """Return once it is so."""
        ends_s = time.monotonic() + within_s
        while not is_so():
            assert self.process.poll() is None, f"levers9 dev ended:\n{self._said()}"
            assert time.monotonic() < ends_s, f"levers9 dev {else_it}:\n{self._said()}"
            time.sleep(0.02)

    def _said(self) -> str:
        return self.terminal.read_text() if self.terminal.exists() else ""

    def stop(self) -> float:
        """Ctrl-C; returns how many seconds it took to end."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ENDS_WITHIN_S)
        finally:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - began_s

    def leftovers(self) -> list[str]:
        """The processes that have this machine's folders in their command lines or environments."""
        mark = str(self.home.parent)
        return [f"{pid} {command_of(pid)}" for pid in all_pids() if mark in command_of(pid) + _environment_of(pid)]

    def file(self, name: str, text: str) -> Path:
        """A file of the person's project."""
        path = self.project / name
        path.write_text(text)
        return path

    def open(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """A program in the project's folder, in a session of its own, as below a shell with job control."""
        return subprocess.Popen(
            argv,
            cwd=self.project,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A program in the project's folder, to its end."""
        with self.open(*argv, **env) as process:
            try:
                out, err = process.communicate(timeout=ENDS_WITHIN_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def python(self, program: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A script of the person's."""
        return self.run(sys.executable, str(self.file("program.py", program)), **env)

    def typed(self, program: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A program without a file, as typed into a shell or a notebook: its functions go by value."""
        return self.run(sys.executable, "-c", program, **env)

    def levers9(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command line."""
        return self.run(*LEVERS9, *arguments, **env)


def _environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def a_laptop() -> Iterator[Laptop]:
    """A machine without anything; pytest's own folders are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="levers9-") as folder:
        yield Laptop(Path(folder))


@contextmanager
def a_running_laptop(*flags: str) -> Iterator[Laptop]:
    """A machine on which `levers9 dev` runs."""
    with a_laptop() as laptop:
        laptop.start(*flags)
        try:
            yield laptop
        finally:
            laptop.stop()
