"""How long to wait before dialling again: full jitter, so that a thousand peers never come at once. Pure.

Later waits are longer than any first one. Otherwise those who come a second time would meet those who come first, and a
control plane that was away for 12 s would see an eighth of all its peers within a second.
"""

from __future__ import annotations

from ..model.figures import REDIAL_FIRST_MAX_S, REDIAL_FIRST_MIN_S, REDIAL_MAX_S, REDIAL_RESET_AFTER_S
from ..model.ids import Chance


class Redial:
    """The first wait is within 0.5–15 s, later ones within 15–30 s; 60 s of health begin anew."""

    def __init__(
        self,
        *,
        first_min_s: float = REDIAL_FIRST_MIN_S,
        first_max_s: float = REDIAL_FIRST_MAX_S,
        max_s: float = REDIAL_MAX_S,
        reset_after_s: float = REDIAL_RESET_AFTER_S,
    ) -> None:
        self._first_min_s = first_min_s
        self._first_max_s = first_max_s
        self._max_s = max_s
        self._reset_after_s = reset_after_s
        self._least_s = first_min_s
        self._ceiling_s = first_max_s

    def wait_s(self, chance: Chance, healthy_s: float) -> float:
        """How long to wait after a connection that was open for `healthy_s` (0 for one that never was)."""
        if healthy_s >= self._reset_after_s:
            self._least_s, self._ceiling_s = self._first_min_s, self._first_max_s
        wait = chance.uniform(self._least_s, self._ceiling_s)
        self._least_s = self._first_max_s
        self._ceiling_s = min(self._max_s, 2 * self._ceiling_s)
        return wait
