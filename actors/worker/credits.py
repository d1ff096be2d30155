"""How many calls a container may hold, so that short calls never wait for a round trip and long ones wait nowhere."""

from __future__ import annotations

from typing import Final

from ...model.figures import CREDIT_HORIZON_S, CREDIT_WINDOW_MAX

_WEIGHT: Final = 0.25  # of the newest batch in the running mean
_SHORTEST_S: Final = 1e-4


class CreditWindow:
    """A window that starts at 1 and aims at `CREDIT_HORIZON_S` of work.

    It at most doubles with each batch of results, so that one lucky call does not fill it; a long call shrinks it
    at once, because calls behind a long one would wait where another container could run them.
    """

    def __init__(self) -> None:
        self.size = 1
        self._mean_s = 0.0

    def learn(self, durations_s: tuple[float, ...]) -> None:
        """Take in how long a batch of calls took, each."""
        if not durations_s:
            return
        batch_s = sum(durations_s) / len(durations_s)
        longest_s = max(durations_s)
        smoothed_s = self._mean_s + _WEIGHT * (batch_s - self._mean_s) if self._mean_s else batch_s
        self._mean_s = longest_s if longest_s > CREDIT_HORIZON_S else smoothed_s
        wanted = int(CREDIT_HORIZON_S / max(self._mean_s, _SHORTEST_S))
        self.size = max(1, min(wanted, 2 * self.size, CREDIT_WINDOW_MAX))
