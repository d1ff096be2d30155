"""How long one waits: `levers9 dev` from the command to the first result, and a container to its first line of code."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec
from harness import Figure, Options, median_of, percentile, run_bench, seconds

PEERS_FOLDER: Final = Path(__file__).parent / "peers"
DEADLINE_S: Final = 120
FIRST_RESULT_GOAL_S: Final = 3.0
CONTAINER_GOAL_MS: Final = 30.0


def first_result_s(state_dir: str) -> float:
    """The seconds from the command `levers9 dev --run` to the first line that the program prints."""
    command = [str(Path(sys.executable).with_name("levers9")), "dev", "--state-dir", state_dir]
    command += ["--stream-port", "0", "--http-port", "0", "--run", str(PEERS_FOLDER / "first_levers9.py")]
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=PEERS_FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        took_s = next((time.perf_counter() - began for line in process.stdout if line.startswith("first result")), -1.0)
        _, complaint = process.communicate(timeout=DEADLINE_S)
    if took_s < 0 or process.returncode != 0:
        raise RuntimeError(f"levers9 dev ended with {process.returncode}:\n{complaint[-4000:]}")
    return took_s


def container_starts_ms(starts: int) -> list[float]:
    """Each start of a process container, from the order to the first line of the person's module."""
    command = [sys.executable, str(PEERS_FOLDER / "container_levers9.py"), "--starts", str(starts)]
    done = subprocess.run(command, cwd=PEERS_FOLDER, capture_output=True, check=True, timeout=DEADLINE_S)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[float])


def python_start_ms() -> float:
    """A bare interpreter that runs one line and ends."""
    return 1000 * seconds(lambda: subprocess.run([sys.executable, "-c", "import time; time.time()"], check=True))


def measure(options: Options) -> list[Figure]:
    """Measure with a warm disk: the first start of each, which makes a database or compiles modules, does not count."""
    repeats, starts = (1, 10) if options.short else (5, 50)
    with tempfile.TemporaryDirectory(prefix="levers9-bench-") as state_dir:
        first_result_s(state_dir)
        dev_s = median_of(repeats, lambda: first_result_s(state_dir))
    python_ms = median_of(starts, python_start_ms)
    container_ms = container_starts_ms(starts)
    return [
        Figure(name="levers9 dev to the first result", value=dev_s, unit="s", better="lower", goal=FIRST_RESULT_GOAL_S),
        _container("a container to the first line of code, p50", container_ms, 50, CONTAINER_GOAL_MS, python_ms),
        _container("a container to the first line of code, p99", container_ms, 99, None, python_ms),
    ]


def _container(name: str, values_ms: list[float], percent: float, goal_ms: float | None, python_ms: float) -> Figure:
    return Figure(
        name=name,
        value=percentile(values_ms, percent),
        unit="ms",
        better="lower",
        goal=goal_ms,
        peer="python -c",
        peer_value=python_ms,
    )


if __name__ == "__main__":
    run_bench("Starting", measure)
