"""How long a pool waits after workers that ended early: each time longer, one time a try."""

from __future__ import annotations

from typing import Final

FIRST_BACK_OFF_S: Final = 1.0
BACK_OFF_MAX_S: Final = 60.0
HEALTHY_AFTER_S: Final = 30.0  # a worker that lived this long does not count as a failed start


class BackOff:
    """The failures of one pool in a row."""

    def __init__(self) -> None:
        self.failures = 0
        self._failed_at_s = 0.0
        self._until_s = 0.0

    def ended(self, ordered_at_s: float, expected: bool, now_s: float) -> None:
        """A worker has ended; `expected` when it was told to leave.

        Workers that were ordered before the last failure, as those of a gang are, belong to the try that failed then.
        """
        if expected or now_s - ordered_at_s >= HEALTHY_AFTER_S:
            self.failures = 0
        elif not self.failures or ordered_at_s >= self._failed_at_s:
            self.failures += 1
            self._failed_at_s = now_s
            if self.failures > 1:
                doublings = min(self.failures - 2, 64)
                self._until_s = now_s + min(FIRST_BACK_OFF_S * 2.0**doublings, BACK_OFF_MAX_S)

    def waits(self, now_s: float) -> bool:
        """Whether nothing is ordered now."""
        return now_s < self._until_s
