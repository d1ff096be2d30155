"""Room kept for those that wait too long."""

from __future__ import annotations

from ...model.resources import Shape
from .events import Request
from .fleet import NOWHERE, Fleet
from .topology import Topologies


class Reservations:
    """At most one at a time; none yet."""

    def __init__(self, fleet: Fleet, topologies: Topologies) -> None:
        self._fleet = fleet
        self._topologies = topologies

    def reserve(self, request: Request, shape: Shape, now_s: float) -> float | None:
        """When it would start at the latest."""

    def without(self, request: Request, now_s: float) -> frozenset[str]:
        """Nodes closed to this request."""
        return NOWHERE

    def release(self, request_id: str) -> None:
        """Its room is kept no more."""
