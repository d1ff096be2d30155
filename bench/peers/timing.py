"""What each peer's script does with its two callables; standard library only, as it runs on the peer's Python."""

import argparse
import json
import math
import time
from collections.abc import Callable


def arguments() -> argparse.Namespace:
    """Parse how many calls to make."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mapped", type=int, default=10_000)
    parser.add_argument("--sequential", type=int, default=500)
    return parser.parse_args()


def report(mapped: int, sequential: int, run_map: Callable[[int], object], run_one: Callable[[int], object]) -> None:
    """Warm up, measure, and print calls a second and the percentiles of single calls as one line of JSON."""
    run_map(max(mapped // 10, 200))
    began = time.perf_counter()
    run_map(mapped)
    calls_per_s = mapped / (time.perf_counter() - began)
    for argument in range(20):
        run_one(argument)
    latencies_ms = sorted(_milliseconds(run_one, argument) for argument in range(sequential))
    figures = {"calls_per_s": calls_per_s, "p50_ms": _rank(latencies_ms, 50), "p99_ms": _rank(latencies_ms, 99)}
    print(json.dumps(figures), flush=True)


def _milliseconds(run_one: Callable[[int], object], argument: int) -> float:
    began = time.perf_counter()
    run_one(argument)
    return (time.perf_counter() - began) * 1000


def _rank(ordered: list[float], percent: float) -> float:
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
