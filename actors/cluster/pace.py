"""How often a cluster is listened to: one leader hears all clusters in one loop, and large reports take it longest."""

from __future__ import annotations

from typing import Final

from ...wire.cluster import ClusterReported

HEARD_PER_S: Final = 10_000  # nodes and Jobs of one cluster: about a quarter of a leader's loop
AHEAD_S: Final = 2.0  # so much is heard at once: two whole reports of the largest clusters


class Pace:
    """Reports of one cluster, as far as they may be heard now."""

    def __init__(self) -> None:
        self._owes_until_s = 0.0

    def takes(self, report: ClusterReported, now_s: float) -> bool:
        """Whether this one may be heard now; then it counts."""
        if self._owes_until_s > now_s + AHEAD_S:
            return False
        entries = 1 + len(report.nodes) + len(report.jobs)
        self._owes_until_s = max(self._owes_until_s, now_s) + entries / HEARD_PER_S
        return True
