"""Decorated functions as a person writes them; the folder is a project of its own."""

import threading
from dataclasses import dataclass

from levers9 import job


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Unhappy(Exception):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"unhappy about {what}")


@job
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


@job(cpu=0.5, memory="1Gi", env={"COLOUR": "blue"}, timeout=60, retries=1, name="swapper", app="samples")
def swap(point: Point) -> Point:
    return Point(point.y, point.x)


@job
def fail_on_odd(x: int) -> int:
    if x % 2:
        raise Unhappy(f"{x}")
    return x


@job
def same(value: object) -> object:
    return value


@job
def add(a: int, b: int = 1) -> int:
    return a + b


@job
def quit_now() -> None:
    raise SystemExit(3)


@job
def unpicklable_result() -> object:
    return threading.Lock()


@job
async def later(x: int) -> int:
    return x + 1
