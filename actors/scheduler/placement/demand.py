"""What was asked for until now, and which of it is typical."""

from __future__ import annotations

from typing import Final

import msgspec

from ....model.resources import Shape

SHAPES_MAX: Final = 4096  # counted; beyond it, those asked for once are forgotten
TYPICAL_PCT: Final = 95  # FGD (USENIX ATC 2023) looks at the commonest shapes that together make up this much


class Typical(msgspec.Struct, frozen=True):
    """A shape, and how many asked for it."""

    shape: Shape
    count: int


class Demand:
    """How often each shape was asked for, memory aside."""

    def __init__(self, counted: tuple[Typical, ...] = ()) -> None:
        self.total = sum(one.count for one in counted)
        self._counts = {one.shape: one.count for one in counted}
        self._plain: dict[Shape, Shape] = {}  # of some shapes: themselves without memory

    def saw(self, shape: Shape) -> None:
        """One container of this shape was asked for."""
        plain = self._plain.get(shape)
        if plain is None:
            if len(self._plain) >= SHAPES_MAX:
                self._plain.clear()
            plain = self._plain[shape] = msgspec.structs.replace(shape, memory_mib=0)
        if plain not in self._counts and len(self._counts) >= SHAPES_MAX:
            self._forget()
        self._counts[plain] = self._counts.get(plain, 0) + 1
        self.total += 1

    def counted(self) -> tuple[Typical, ...]:
        """All that is counted, for another one to begin with."""
        return tuple([Typical(shape, count) for shape, count in self._counts.items()])

    def typical(self) -> tuple[Typical, ...]:
        """The commonest shapes that together make up 95 % of what was asked for, the commonest first."""
        kept: list[Typical] = []
        missing = TYPICAL_PCT * self.total
        for shape, count in sorted(self._counts.items(), key=_commonest):
            if missing <= 0:
                break
            kept.append(Typical(shape, count))
            missing -= 100 * count
        return tuple(kept)

    def _forget(self) -> None:
        self._counts = {shape: count for shape, count in self._counts.items() if count > 1}
        while len(self._counts) >= SHAPES_MAX:
            del self._counts[min(self._counts, key=self._counts.__getitem__)]
        self.total = sum(self._counts.values())


def _commonest(counted: tuple[Shape, int]) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Of equally common ones, the order that they were first asked for in doesn't matter."""
    shape, count = counted
    return (-count, shape.cpu_milli, shape.gpu_count, shape.gpu_milli, shape.gpu_types)
