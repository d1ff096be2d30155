"""Identities and chance, injected: production draws from the system, a world in virtual time from its seed."""

from __future__ import annotations

import random
import secrets
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 20  # 100 bits


class Chance:
    """A source of ids and jitter. Give `seed` for a reproducible one; without it, it is the system's."""

    def __init__(self, seed: int | None = None) -> None:
        self._random: random.Random = secrets.SystemRandom() if seed is None else random.Random(seed)

    def id(self, kind: str) -> str:
        """A new identity such as `task-7h2k…`: a kind, and 100 random bits."""
        bits = self._random.getrandbits(5 * _LENGTH)
        return f"{kind}-" + "".join(_ALPHABET[(bits >> (5 * i)) & 31] for i in range(_LENGTH))

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        return self._random.uniform(low, high)

    def secret(self, size_bytes: int) -> bytes:
        """Random bytes: a token's, say."""
        return self._random.getrandbits(8 * size_bytes).to_bytes(size_bytes, "big")
