"""When to say that we live, and when the other side has been silent for too long. Pure; time is passed in."""

from __future__ import annotations

from ..model.figures import CARRIER_DEAD_AFTER_S, HEARTBEAT_S, PEER_SILENT_AFTER_S


class Liveness:
    """Heartbeats are due 5 s after the last frame out, silence begins 15 s after the last one in.

    `heard_at` is when the other side was heard first; `inf` for one that was never there.
    """

    def __init__(self, heard_at: float) -> None:
        self._heard = heard_at
        self._spoke = heard_at
        self.silent = False

    def spoke(self, now: float) -> None:
        """A frame left."""
        self._spoke = now

    def heard(self, now: float) -> bool:
        """Something arrived; says whether that ended a silence."""
        self._heard = now
        was_silent, self.silent = self.silent, False
        return was_silent

    def forgive(self, now: float) -> None:
        """Our own loop stood still until now: nobody is blamed for the silence in it."""
        self._heard = max(self._heard, now)

    def heartbeat_due(self, now: float) -> bool:
        """Whether nothing left for 5 s."""
        return now - self._spoke >= HEARTBEAT_S

    @property
    def silent_at(self) -> float:
        """When silence begins if nothing arrives."""
        return self._heard + PEER_SILENT_AFTER_S

    @property
    def dead_at(self) -> float:
        """When a carrier is given up if nothing arrives."""
        return self._heard + CARRIER_DEAD_AFTER_S

    def fell_silent(self, now: float) -> bool:
        """True once, 15 s after the last frame in."""
        if self.silent or now < self.silent_at:
            return False
        self.silent = True
        return True
