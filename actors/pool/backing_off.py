"""How long a pool waits after workers that failed to start: each time longer, one time a try."""

from __future__ import annotations

from typing import Final

from ...model.doubling import doubled_s
from .orders import Order

FIRST_BACK_OFF_S: Final = 1.0
BACK_OFF_MAX_S: Final = 60.0
STEADY_AFTER_S: Final = 5.0  # a worker that reported and fell over sooner has not really started


class BackOff:
    """The failures of one pool in a row. What was asked to go, or was pushed out, says nothing of the next one."""

    def __init__(self) -> None:
        self.failures = 0
        self._failed_at_s = 0.0
        self._until_s = 0.0

    def ended(self, order: Order, now_s: float, *, expected: bool, left: bool = False) -> None:
        """A worker has ended; `expected` when that was asked of it, or its place was taken from it.

        One that `left` ended by itself, and well, if it had come: else it never was a worker.

        Workers that were ordered before the last failure, as those of a gang are, belong to the try that failed then.
        """
        if not order.pending and (expected or left or now_s - order.came_at_s >= STEADY_AFTER_S):
            self.failures, self._until_s = 0, 0.0
        elif expected and not order.given_up:
            return
        elif not self.failures or order.ordered_at_s >= self._failed_at_s:
            self.failures += 1
            self._failed_at_s = now_s
            if self.failures > 1:
                self._until_s = now_s + doubled_s(FIRST_BACK_OFF_S, self.failures - 2, BACK_OFF_MAX_S)

    def waits(self, now_s: float) -> bool:
        """Whether nothing is ordered now."""
        return now_s < self._until_s
