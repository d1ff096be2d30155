"""Identities and chance, injected: production draws from the system, a world in virtual time from its seed."""

from __future__ import annotations

import random
import secrets
from typing import Final

_BYTES: Final = 12  # 96 bits; one is drawn for each call, so what it costs matters


class Chance:
    """A source of ids and jitter. Give `seed` for a reproducible one; without it, it is the system's."""

    def __init__(self, seed: int | None = None) -> None:
        self._random: random.Random = secrets.SystemRandom() if seed is None else random.Random(seed)

    def id(self, kind: str) -> str:
        """A new identity such as `task-7d2c…`: a kind, and 96 random bits in hexadecimal digits."""
        return f"{kind}-{self._random.randbytes(_BYTES).hex()}"

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def secret(self, size_bytes: int) -> bytes:
        """Random bytes: a token's, say."""
        return self._random.randbytes(size_bytes)
