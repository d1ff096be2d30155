"""What every bench uses: figures, repeats, percentiles, the machine, and virtual environments for the peers."""

import argparse
import hashlib
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from rich.console import Console
from rich.table import Table

INSTALL_DEADLINE_S: Final = 900


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number, with the goal it is held to and the best peer's number beside it."""

    name: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    goal: float | None = None
    peer: str | None = None
    peer_value: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met; None where there is no goal."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were measured on; nothing in it tells whose machine it is."""

    cores: int
    memory_mib: int
    kernel: str
    architecture: str
    python: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    machine: Machine
    figures: list[Figure]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line of a bench says."""

    short: bool
    json_path: Path | None
    more: tuple[tuple[str, str], ...] = ()  # the bench's own options

    def said(self, name: str) -> str:
        """What was said for an option of the bench's own; "" for nothing."""
        return dict(self.more).get(name, "")


def machine() -> Machine:
    """Describe this machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_mib=memory_bytes // 2**20,
        kernel=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        python=platform.python_version(),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of the values that at least `percent` per cent of them do not exceed."""
    ordered = sorted(values)
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """Measure several times and return the median, so that one bad moment of the machine doesn't decide."""
    return statistics.median(measure() for _ in range(repeats))


def seconds(run: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def run_bench(
    what: str, measure: Callable[[Options], list[Figure]], more: Callable[[argparse.ArgumentParser], None] | None = None
) -> None:
    """Parse the command line, measure, print a table, and write the report where `--json` says.

    `more` adds options of the bench's own.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--short", action="store_true", help="fewer repeats and calls: a check that the bench works")
    parser.add_argument("--json", type=Path, metavar="FILE", dest="json_path", help="write the figures there")
    if more is not None:
        more(parser)
    parsed = vars(parser.parse_args())
    short, json_path = parsed.pop("short"), parsed.pop("json_path")
    options = Options(
        short=short, json_path=json_path, more=tuple((name, str(said or "")) for name, said in parsed.items())
    )
    report = Report(machine=machine(), figures=measure(options))
    show(what, report)
    if options.json_path is not None:
        options.json_path.parent.mkdir(parents=True, exist_ok=True)
        options.json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def show(what: str, report: Report) -> None:
    """Print the figures as a table."""
    here = report.machine
    caption = f"{here.cores} cores, {here.memory_mib:,} MiB, {here.kernel}, Python {here.python}"
    table = Table(title=what, caption=caption)
    table.add_column("figure")
    for heading in ("measured", "goal", "peer"):
        table.add_column(heading, justify="right")
    for figure in report.figures:
        table.add_row(figure.name, _measured(figure), _goal(figure), _peer(figure))
    Console().print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _measured(figure: Figure) -> str:
    colour = {True: "green", False: "red", None: "default"}[figure.reached]
    return f"[{colour}]{_number(figure.value)} {figure.unit}[/]"


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"{'≥' if figure.better == 'higher' else '≤'} {_number(figure.goal)}"


def _peer(figure: Figure) -> str:
    return "" if figure.peer_value is None else f"{figure.peer} {_number(figure.peer_value)}"


Install = Callable[[Path, Path, Sequence[str]], None]


def peer_venv(name: str, pins: Sequence[str], install: Install | None = None) -> Path:
    """Return the Python of a virtual environment that holds the pins; made once, outside the repository.

    It lies in LEVERS9_BENCH_CACHE or ~/.cache/levers9-bench, under a name that changes with the pins. Raises
    subprocess.CalledProcessError where a peer cannot be installed.
    """
    cache = Path(os.environ.get("LEVERS9_BENCH_CACHE") or Path.home() / ".cache" / "levers9-bench")
    identity = hashlib.sha256("\n".join([platform.python_version(), *pins]).encode()).hexdigest()[:12]
    folder = cache / f"{name}-{identity}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (install or _install)(folder, python, pins)
        complete.touch()
    return python


def _install(folder: Path, python: Path, pins: Sequence[str]) -> None:
    Console(stderr=True).print(f"Installing {' '.join(pins)} into {folder} …", highlight=False)
    uv = shutil.which("uv")
    if uv is None:
        _must_run(sys.executable, "-m", "venv", str(folder))
        _must_run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins)
    else:
        _must_run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        _must_run(uv, "pip", "install", "--quiet", "--python", str(python), *pins)


def _must_run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_DEADLINE_S)
