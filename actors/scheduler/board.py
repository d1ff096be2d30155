"""What the parts of the core share: nodes, queues, who has room, who waits, and what time it is."""

from __future__ import annotations

from collections.abc import Callable

from ...model.queues import Queueing
from .capacity import Node, Standing
from .events import Request
from .finding import Finder
from .fleet import Fleet
from .live import Lacking, Tenants
from .placement import Placement
from .promises import Promises
from .queues import Queues
from .reservations import Reservations
from .topology import Topologies


class Board:
    """The standing of the core. `new_placement` makes a placement policy by its name ("": the default)."""

    def __init__(self, new_placement: Callable[[str], Placement], queueing: Queueing) -> None:
        self.topologies = Topologies()
        self.fleet = Fleet(new_placement, self.topologies)
        self.queues = Queues()
        self.tenants = Tenants(self.fleet)
        self.finder = Finder(self.fleet, self.topologies)
        self.reservations = Reservations(self.topologies, self.tenants.ends_by_s, self.fleet.asked)
        self.promises = Promises(self.fleet, self.tenants, self.finder, self.queues, self.reservations)
        self.queueing = queueing
        self.places_from_s = 0.0
        self.now_s = 0.0
        self.waiting: dict[str, Request] = {}
        self.in_group: dict[str, int] = {}  # requests that wait
        self.lost: dict[str, tuple[str, int]] = {}  # by member that replaces one: its request and rank
        self.lacking: dict[str, Lacking] = {}  # by request: what it takes to replace those whom it lost

    def wake_by(self, node: Node) -> None:
        """Room came, was freed, or can be had again: whoever may fit there now is looked at again."""
        if node.standing is not Standing.CLOSED:
            self.queues.wake_room(*node.takers())

    def would_help(self, request_id: str, workspace: str) -> bool:
        """Whether what a request holds is where this workspace may run anything."""
        known = (self.fleet.nodes.get(node_id) for node_id in self.tenants.by_request[request_id].nodes)
        return any(node is not None and self.fleet.takes(node, workspace) for node in known)
