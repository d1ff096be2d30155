"""Chance for pure modules: a generator of whole numbers that gives the same ones on every machine."""

from __future__ import annotations

from typing import Final

_MASK: Final = (1 << 64) - 1
_STEP: Final = (
    0x9E3779B97F4A7C15  # these three: Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
)
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB


class Chance:
    """SplitMix64: quick, small, and good enough to break ties."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1; its bias is below `limit` / 2^64."""
        self._state = (self._state + _STEP) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * _FIRST) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * _SECOND) & _MASK
        return ((mixed ^ (mixed >> 31)) * limit) >> 64
