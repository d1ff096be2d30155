"""Requests that have room, or to which room is promised: who holds what, and where."""

from __future__ import annotations

import msgspec

from ...model.reasons import Reason
from ...model.resources import Shape
from .capacity import Node
from .events import Request
from .fleet import Fleet


class Live(msgspec.Struct, kw_only=True):
    """A request with room. `nodes` and `cards` are by rank; "" is a member that has none, or none any more.

    While it is promised, it waits for workers: until `deadline_s`, for so many `workers` of `pool`.
    """

    request: Request
    flavor: str
    shape: Shape  # narrowed to the nodes of its flavor
    nodes: list[str]
    cards: list[tuple[int, ...]]
    members: list[str]
    promised: bool = False
    deadline_s: float = 0.0
    pool: str = ""
    workers: int = 0
    ready: list[bool] = msgspec.field(default_factory=list)  # by rank
    since_s: float = 0.0

    def spots(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Node and cards, rank by rank."""
        return tuple(zip(self.nodes, self.cards))


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """A gang with lost members that have no room, and what would give it to them."""

    request: Request
    shape: Shape  # in the pool of the gang
    why: Reason
    nodes: tuple[str, ...] = ()  # near the others; those on offer lack a worker
    count: int = 0  # containers, in further workers of a pool without named nodes


class Tenants:
    """Every `Live` by its request, and each container's request and rank."""

    def __init__(self, fleet: Fleet) -> None:
        self.by_request: dict[str, Live] = {}
        self.by_member: dict[str, tuple[str, int]] = {}
        self.starting: dict[str, int] = {}  # by group: containers that were placed and are not ready yet
        self.changed: dict[str, None] = {}  # requests that hold more, less or something else than when this was cleared
        self._fleet = fleet

    def seat(self, live: Live, chosen: tuple[tuple[int, ...], ...] = ()) -> None:
        """Give each member its room; cards that nobody chose are picked here."""
        self.by_request[live.request.request_id] = live
        self.changed[live.request.request_id] = None
        live.ready = [not member for member in live.members]
        for rank, member in enumerate(live.members):
            if member:
                self.by_member[member] = (live.request.request_id, rank)
                self._sit(live, rank, chosen)
        if not live.promised:
            self.count_starting(live.request.group, live.ready.count(False))

    def _sit(self, live: Live, rank: int, chosen: tuple[tuple[int, ...], ...]) -> None:
        node = self._fleet.nodes.get(live.nodes[rank])
        if node is None:
            live.nodes[rank] = ""
            return
        live.cards[rank] = chosen[rank] if chosen else node.pick_cards(live.shape)
        self._fleet.take(live.members[rank], node, live.shape, live.cards[rank], live.promised)

    def unseat(self, live: Live) -> None:
        """Take all room of a request away."""
        del self.by_request[live.request.request_id]
        self.changed[live.request.request_id] = None
        for rank, member in enumerate(live.members):
            del self.by_member[member]
            node = self._fleet.nodes.get(live.nodes[rank])
            if node is not None:
                self._fleet.give_back(member, node)

    def lift(self, live: Live) -> None:
        """Take its room away for a moment, to see what would be without it."""
        for member, node_id in zip(live.members, live.nodes):
            node = self._fleet.nodes.get(node_id)
            if node is not None:
                self._fleet.give_back(member, node)

    def put_back(self, live: Live) -> None:
        """The moment is over."""
        for member, node_id, cards in zip(live.members, live.nodes, live.cards):
            node = self._fleet.nodes.get(node_id)
            if node is not None:
                self._fleet.take(member, node, live.shape, cards, live.promised)

    def leave(self, live: Live, rank: int) -> Node | None:
        """One member has ended; returns the node whose room it had."""
        self.started(live, rank)
        self.changed[live.request.request_id] = None
        del self.by_member[live.members[rank]]
        node = self._fleet.nodes.get(live.nodes[rank])
        if node is not None:
            self._fleet.give_back(live.members[rank], node)
        live.nodes[rank] = live.members[rank] = ""
        live.cards[rank] = ()
        return node

    def replace(self, live: Live, rank: int, member: str, node: Node) -> None:
        """Another container takes a member's place."""
        self.changed[live.request.request_id] = None
        live.members[rank], live.nodes[rank] = member, node.node_id
        live.cards[rank] = node.pick_cards(live.shape)
        live.ready[rank] = False
        self.by_member[member] = (live.request.request_id, rank)
        self._fleet.take(member, node, live.shape, live.cards[rank])
        self.count_starting(live.request.group, 1)

    def lose(self, node: Node | None) -> None:
        """A node is no more: who was there is nowhere, until it ends."""
        for member in () if node is None else node.uses:
            request_id, rank = self.by_member[member]
            live = self.by_request[request_id]
            live.nodes[rank], live.cards[rank] = "", ()
            self.changed[request_id] = None

    def changes(self, node: Node) -> None:
        """A node is of another kind: so is what those hold who are there."""
        self.changed.update((self.by_member[member][0], None) for member in node.uses)

    def ends_by_s(self, member: str) -> float:
        """When a container's time limit ends, as far as is known: 0 where it has none, or has not been placed."""
        known = self.by_member.get(member)
        live = None if known is None else self.by_request[known[0]]
        if live is None or live.promised or not live.request.limit_s:
            return 0.0
        return live.since_s + live.request.limit_s

    def started(self, live: Live, rank: int) -> None:
        """A member's container is ready, or is no more."""
        if not live.ready[rank]:
            live.ready[rank] = True
            self.count_starting(live.request.group, -1)

    def count_starting(self, group: str, change: int) -> None:
        """So many more containers of a group are starting."""
        left = self.starting.get(group, 0) + change
        if left > 0:
            self.starting[group] = left
        else:
            self.starting.pop(group, None)
