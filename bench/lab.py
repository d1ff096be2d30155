"""How long a person waits for an emulated cluster: `lab up`, and `cluster join` to a first result on one of its cards.

Each round begins in an empty home, with the programs of Kubernetes built already, and types what the README says.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from harness import Figure, Options, run_bench, seconds

from levers9.lab.binaries import provide

ROOT: Final = Path(__file__).resolve().parents[1]
LEVERS9: Final = str(Path(sys.executable).with_name("levers9"))
DEADLINE_S: Final = 120.0
UP_GOAL_S: Final = 10.0
RESULT_GOAL_S: Final = 15.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, in seconds."""

    up_s: float
    join_s: float
    result_s: float  # from the command `cluster join`


class Home:
    """A person with an empty home."""

    def __init__(self, folder: str, found: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEVERS9_", "KUBE", "XDG_"))}
        assets = str(Path(found["kube-apiserver"]).parent)
        self._environment = {**kept, "HOME": folder, "XDG_RUNTIME_DIR": folder, "KUBEBUILDER_ASSETS": assets}
        self._log = Path(folder) / "dev.log"

    def types(self, *command: str) -> str:
        """What a command prints. Raises where it fails."""
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def lab(self) -> Iterator[float]:
        """A lab, and how long it took to come up."""
        try:
            took_s = seconds(lambda: self.types(LEVERS9, "lab", "up"))
            self._environment["KUBECONFIG"] = self.types(LEVERS9, "lab", "kubeconfig").strip()
            yield took_s
        finally:
            self.types(LEVERS9, "lab", "down")

    @contextmanager
    def dev(self) -> Iterator[None]:
        """A control plane that is left running."""
        command = [LEVERS9, "dev", "--stream-port", "0", "--http-port", "0"]
        with self._log.open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        try:
            ends_s = time.monotonic() + DEADLINE_S
            while "levers9 runs" not in self._log.read_text():
                if process.poll() is not None or time.monotonic() > ends_s:
                    raise RuntimeError(f"levers9 dev does not run:\n{self._log.read_text()[-3000:]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(timeout=DEADLINE_S)


def one_round(found: dict[str, str]) -> Round:
    """From nothing to a result on an emulated card."""
    with tempfile.TemporaryDirectory(prefix="levers9-bench-") as folder:
        home = Home(folder, found)
        with home.lab() as up_s, home.dev():
            began_s = time.perf_counter()
            home.types(LEVERS9, "cluster", "join", "lab", "--gpu", "GB200")
            joined_s = time.perf_counter()
            home.types(sys.executable, "examples/on_a_card.py")
            ended_s = time.perf_counter()
    return Round(up_s=up_s, join_s=joined_s - began_s, result_s=ended_s - began_s)


def measure(options: Options) -> list[Figure]:
    """The median of some rounds; the first, which compiles modules, does not count."""
    found = provide(os.environ, lambda words: print(words, file=sys.stderr))
    rounds = [one_round(found) for _ in range(1 if options.short else 4)]
    counted = rounds[1:] or rounds
    middle = {name: statistics.median(getattr(one, name) for one in counted) for name in Round.__struct_fields__}
    return [
        Figure(name="lab up, programs built", value=middle["up_s"], unit="s", better="lower", goal=UP_GOAL_S),
        Figure(name="cluster join until its nodes are shown", value=middle["join_s"], unit="s", better="lower"),
        Figure(
            name="cluster join to the first result on a card",
            value=middle["result_s"],
            unit="s",
            better="lower",
            goal=RESULT_GOAL_S,
        ),
    ]


if __name__ == "__main__":
    run_bench("An emulated cluster", measure)
