"""Resources and quantities: what a container asks for, and what a worker has. Integers throughout."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..errors import INVALID, Refused


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks for. `gpu_types` is a preference list; empty with cards means any type."""

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_types: tuple[str, ...] = ()
    pool: str = ""  # a pool's name, or any


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has, or has left. A worker's cards are all of one type."""

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_type: str = ""

    def fits(self, shape: Shape) -> bool:
        """Whether a container of this shape has room here."""
        return (
            shape.cpu_milli <= self.cpu_milli
            and shape.memory_mib <= self.memory_mib
            and (not shape.gpu_count or self._has_cards(shape))
        )

    def _has_cards(self, shape: Shape) -> bool:
        """A worker that lost cards may have fewer than none free, and still takes those who want none."""
        return shape.gpu_count <= self.gpu_count and (not shape.gpu_types or self.gpu_type in shape.gpu_types)

    def less(self, shape: Shape) -> Capacity:
        """What is left when a container of this shape is here; may be below zero."""
        return msgspec.structs.replace(
            self,
            cpu_milli=self.cpu_milli - shape.cpu_milli,
            memory_mib=self.memory_mib - shape.memory_mib,
            gpu_count=self.gpu_count - shape.gpu_count,
        )

    def plus(self, shape: Shape) -> Capacity:
        """What is left when a container of this shape has gone."""
        return msgspec.structs.replace(
            self,
            cpu_milli=self.cpu_milli + shape.cpu_milli,
            memory_mib=self.memory_mib + shape.memory_mib,
            gpu_count=self.gpu_count + shape.gpu_count,
        )


_MEMORY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|Mi|Gi|Ti|M|G|T)B?\s*\Z")
_MIB: Final = {"": 1.0, "Mi": 1.0, "Gi": 1024.0, "Ti": 1024.0**2, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20}


def memory_mib(value: int | str) -> int:
    """Mebibytes of `512`, `"512Mi"`, `"1Gi"` or `"1.5G"`. Raises `Refused` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _MEMORY.match(value) if isinstance(value, str) else None
    mib = round(float(match[1]) * _MIB[match[2]]) if match else 0
    if mib <= 0:
        raise Refused(
            f"memory={value!r} is not a quantity.", fix='Give MiB as a number, or "512Mi", "1Gi".', code=INVALID
        )
    return mib


def cpu_milli(value: float | str) -> int:
    """Thousandths of a CPU of `0.125`, `2` or `"500m"`. Raises `Refused` for anything else."""
    try:
        milli = int(value[:-1]) if isinstance(value, str) and value.endswith("m") else round(float(value) * 1000)
    except (ValueError, OverflowError):
        milli = 0
    if milli <= 0:
        raise Refused(
            f"cpu={value!r} is not a quantity.", fix='Give CPUs as a number such as 0.5, or "500m".', code=INVALID
        )
    return milli
