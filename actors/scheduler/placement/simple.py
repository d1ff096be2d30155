"""Best fit: of the workers with room, the one that is left with least. Integers only, ties by identity."""

from __future__ import annotations

from collections.abc import Iterable

from ....model.resources import Capacity, Shape
from ..ledger import Host


def best_fit(shape: Shape, hosts: Iterable[Host]) -> Host | None:
    """The fullest open worker on which this shape fits; cards weigh most, then CPU, then memory."""
    fitting = (host for host in hosts if shape.pool in ("", host.pool) and host.free.fits(shape))
    return min(fitting, key=lambda host: (_left(host.free, shape), host.worker_id), default=None)


def _left(free: Capacity, shape: Shape) -> tuple[int, int, int, int]:
    """What would be left. A worker with cards is kept for those who want cards; earlier card types are preferred."""
    rank = shape.gpu_types.index(free.gpu_type) if free.gpu_type in shape.gpu_types else 0
    return (
        free.gpu_count - shape.gpu_count,
        rank,
        free.cpu_milli - shape.cpu_milli,
        free.memory_mib - shape.memory_mib,
    )


def shortfall(shape: Shape, hosts: list[Host]) -> str:
    """Why none of the open workers has room, in words: what the fullest free one lacks."""
    named = [host for host in hosts if shape.pool in ("", host.pool)]
    if not named:
        return "no worker is running"
    lacking = []
    if shape.gpu_count:
        cards = max((host.free.gpu_count for host in named if _right_type(host, shape)), default=0)
        if cards < shape.gpu_count:
            wanted = " or ".join(shape.gpu_types) or "any"
            lacking.append(f"{shape.gpu_count - max(0, cards)} more cards ({wanted}) on one worker")
    cpu = max(host.free.cpu_milli for host in named)
    if cpu < shape.cpu_milli:
        lacking.append(f"{(shape.cpu_milli - max(0, cpu)) / 1000:g} more CPUs on one worker")
    memory = max(host.free.memory_mib for host in named)
    if memory < shape.memory_mib:
        lacking.append(f"{shape.memory_mib - max(0, memory)} MiB more memory on one worker")
    return ", ".join(lacking) + " needed" if lacking else "no single worker has all of it free"


def _right_type(host: Host, shape: Shape) -> bool:
    return not shape.gpu_types or host.capacity.gpu_type in shape.gpu_types
