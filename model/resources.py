"""Resources and quantities: what a container asks for, and what a worker has. Integers throughout."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ..errors import INVALID, Refused

CARD_MILLI: Final = 1000  # a whole card
QUANTITY_MAX: Final = 1 << 40  # of each quantity of one container: sums over every gang stay within 64 bits


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What one container asks for. `gpu_types` is a preference list; empty with cards means any type.

    `gpu_milli` below 1000 is a share of one card, in pools that share cards: of its time, never of its memory.
    """

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_types: tuple[str, ...] = ()
    pool: str = ""  # a pool's name, or any
    gpu_milli: int = CARD_MILLI  # of each card
    gpu_any_order: bool = False  # the types of the list are as good as each other
    labels: tuple[tuple[str, str], ...] = ()  # that the node must have
    runtime: str = ""  # "process", "runc", "gvisor", or any
    accelerator: str = ""  # the card type that a checkpoint was taken on: no other will do

    @property
    def shared(self) -> bool:
        """Whether it asks for a share of a card."""
        return self.gpu_count > 0 and self.gpu_milli < CARD_MILLI

    @property
    def gpu_total_milli(self) -> int:
        """All cards that it asks for, in thousandths."""
        return self.gpu_count * self.gpu_milli

    def takes_type(self, gpu_type: str) -> bool:
        """Whether cards of this type will do."""
        return (not self.gpu_types or gpu_type in self.gpu_types) and self.accelerator in ("", gpu_type)

    def preference(self, gpu_type: str) -> int:
        """The place of a type in the preference list, from 0; 0 where all are as good as each other."""
        return self.gpu_types.index(gpu_type) if gpu_type in self.gpu_types and not self.gpu_any_order else 0


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
        return shape.gpu_count <= self.gpu_count and shape.takes_type(self.gpu_type)

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


class Amount(msgspec.Struct, frozen=True):
    """So much of each resource that quotas and shares count: thousandths of CPUs, MiB, thousandths of cards."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_milli: int = 0

    def plus(self, other: Amount) -> Amount:
        """The sum."""
        return Amount(
            self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib, self.gpu_milli + other.gpu_milli
        )

    def less(self, other: Amount) -> Amount:
        """The difference; may be below zero."""
        return self.plus(other.times(-1))

    def times(self, count: int) -> Amount:
        """So many of it."""
        return Amount(self.cpu_milli * count, self.memory_mib * count, self.gpu_milli * count)


NOTHING: Final = Amount()


def amount_of(shape: Shape, count: int = 1) -> Amount:
    """What so many containers of a shape take."""
    return Amount(shape.cpu_milli, shape.memory_mib, shape.gpu_total_milli).times(count)


_MEMORY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|Mi|Gi|Ti|M|G|T)B?\s*\Z")
_MIB: Final = {"": 1.0, "Mi": 1.0, "Gi": 1024.0, "Ti": 1024.0**2, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20}


def memory_mib(value: int | str) -> int:
    """Mebibytes of `512`, `"512Mi"`, `"1Gi"` or `"1.5G"`. Raises `Refused` for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= QUANTITY_MAX:
        return value
    match = _MEMORY.match(value) if isinstance(value, str) else None
    try:
        mib = round(float(match[1]) * _MIB[match[2]]) if match else 0
    except OverflowError:
        mib = 0
    if not 0 < mib <= QUANTITY_MAX:
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
    if not 0 < milli <= QUANTITY_MAX:
        raise Refused(
            f"cpu={value!r} is not a quantity.", fix='Give CPUs as a number such as 0.5, or "500m".', code=INVALID
        )
    return milli
