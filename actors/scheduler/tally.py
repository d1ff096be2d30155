"""What a journal's events and decisions amount to, counted apart from the core: who holds what, and who waits.

A replay and an explanation read it, so that what they say does not rest on the core that is in question.
"""

from __future__ import annotations

import msgspec

from ...model.resources import Amount, amount_of
from .capacity import Node, new_node
from .events import (
    Decision,
    Ended,
    Event,
    NodeGone,
    NodeSet,
    Placed,
    Preempted,
    Replaced,
    Replacement,
    Request,
    Requested,
    Restored,
)

_NOTHING = Amount()


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of a class wait, and how long the first of them has."""

    size: str
    requests: int
    longest_s: float


def size_class(request: Request) -> str:
    """The class of a request by the cards that it asks for in all."""
    cards = request.shape.gpu_total_milli * len(request.members)
    if not cards:
        return "no card"
    if cards < 1000:
        return "a share of a card"
    whole = -(-cards // 1000)
    return "1 card" if whole == 1 else next((name for most, name in _CLASSES if whole <= most), "over 64 cards")


_CLASSES = ((4, "2 to 4 cards"), (8, "5 to 8 cards"), (16, "9 to 16 cards"), (64, "17 to 64 cards"))


class Tally:
    """Follows a journal, event by event. `waiting` are requests without room, in the order in which they came."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, Request] = {}
        self.used = Amount()
        self.by_workspace: dict[str, Amount] = {}
        self.placed = 0
        self.preempted = 0
        self._requests: dict[str, Request] = {}
        self._request_of: dict[str, str] = {}  # by member
        self._members: dict[str, int] = {}  # by request: those that have not ended
        self._node_of: dict[str, str] = {}  # by member that has room
        self._since_s: float | None = None
        self._from_s = 0.0
        self._gpu_milli_s = 0.0
        self._now_s = 0.0

    def saw(self, event: Event, decisions: tuple[Decision, ...], now_s: float) -> None:
        """One step of the core."""
        self._pass(now_s)
        self._took(event)
        for decision in decisions:
            self._decided(decision)

    def mean_gpu_milli(self) -> int:
        """Thousandths of cards that were held, over the time that was seen."""
        seen_s = self._now_s - self._from_s
        return round(self._gpu_milli_s / seen_s) if seen_s > 0 else self.used.gpu_milli

    def waiting_by_class(self) -> tuple[Waiting, ...]:
        """Who waits, by class, the names in order."""
        longest: dict[str, float] = {}
        counts: dict[str, int] = {}
        for request in self.waiting.values():
            size = size_class(request)
            counts[size] = counts.get(size, 0) + 1
            longest[size] = max(longest.get(size, 0.0), self._now_s - request.requested_at_s)
        return tuple(Waiting(size=size, requests=counts[size], longest_s=longest[size]) for size in sorted(counts))

    def _pass(self, now_s: float) -> None:
        if self._since_s is None:
            self._since_s = self._from_s = now_s
        self._gpu_milli_s += self.used.gpu_milli * max(0.0, now_s - self._since_s)
        self._since_s = max(self._since_s, now_s)
        self._now_s = self._since_s

    def _took(self, event: Event) -> None:
        match event:
            case Requested(requests=requests):
                for request in requests:
                    self._know(request)
            case Restored(request=request, spots=spots):
                self._know(request)
                self._place(request.request_id, spots)
                for member, (node_id, _) in zip(request.members, spots):
                    if not node_id:
                        self._end(member)
            case Replacement(request_id=request_id, member=member):
                self._join(request_id, member)
            case Ended(member=member):
                self._end(member)
            case NodeSet():
                self._set_node(event)
            case NodeGone(node_id=node_id):
                self.nodes.pop(node_id, None)

    def _decided(self, decision: Decision) -> None:
        match decision:
            case Placed(request_id=request_id, spots=spots):
                self.placed += 1
                self._place(request_id, spots)
            case Replaced(member=member, node_id=node_id, cards=cards):
                self._hold(member, node_id, cards)
            case Preempted():
                self.preempted += 1

    def _know(self, request: Request) -> None:
        if request.request_id not in self._requests:
            self._requests[request.request_id] = self.waiting[request.request_id] = request
            for member in request.members:
                self._join(request.request_id, member)

    def _join(self, request_id: str, member: str) -> None:
        self._request_of[member] = request_id
        self._members[request_id] = self._members.get(request_id, 0) + 1

    def _place(self, request_id: str, spots: tuple[tuple[str, tuple[int, ...]], ...]) -> None:
        request = self._requests.get(request_id)
        if request is None:
            return
        self.waiting.pop(request_id, None)
        for member, (node_id, cards) in zip(request.members, spots):
            if node_id:
                self._hold(member, node_id, cards)

    def _hold(self, member: str, node_id: str, cards: tuple[int, ...]) -> None:
        request = self._requests[self._request_of[member]]
        self._node_of[member] = node_id
        self._add(request, 1)
        if node_id in self.nodes:
            self.nodes[node_id].take(member, request.shape, cards)

    def _end(self, member: str) -> None:
        """The end of a member that waits ends its whole request: a gang is all or nothing."""
        request = self._requests.get(self._request_of.pop(member, ""))
        if request is None:
            return
        node_id = self._node_of.pop(member, "")
        if node_id:
            self._add(request, -1)
        if node_id in self.nodes:
            self.nodes[node_id].give_back(member)
        self._members[request.request_id] -= 1
        if not self._members[request.request_id] or request.request_id in self.waiting:
            self._forget(request)

    def _forget(self, request: Request) -> None:
        self.waiting.pop(request.request_id, None)
        del self._members[request.request_id], self._requests[request.request_id]
        for member in request.members:
            self._request_of.pop(member, None)

    def _add(self, request: Request, count: int) -> None:
        amount = amount_of(request.shape, count)
        self.used = self.used.plus(amount)
        theirs = self.by_workspace.get(request.workspace, _NOTHING)
        self.by_workspace[request.workspace] = theirs.plus(amount)

    def _set_node(self, event: NodeSet) -> None:
        node = self.nodes.get(event.node_id)
        if node is None:
            traits = msgspec.structs.replace(event.traits, serves="")  # it is counted for whoever may use it
            self.nodes[event.node_id] = new_node(
                event.node_id, event.pool, event.capacity, traits, event.standing, event.why_closed
            )
            return
        node.standing, node.why_closed = event.standing, event.why_closed
        if node.kind.capacity != event.capacity:
            node.resize(event.capacity)
