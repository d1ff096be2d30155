"""Journals for tests: a small core that places by first fit, so that a journal can be made without the real one."""

from __future__ import annotations

from levers9.actors.scheduler.capacity import Node, Standing, new_node
from levers9.actors.scheduler.events import (
    Decision,
    Ended,
    Event,
    Held,
    NodeSet,
    Placed,
    Planned,
    PoolSet,
    Request,
    Requested,
    Restored,
)
from levers9.actors.scheduler.journal import Header, Record, Segment
from levers9.model.reasons import HoldKind, Lack, Reason
from levers9.model.resources import Capacity, Shape

CAPACITY = Capacity(cpu_milli=8000, memory_mib=8192, gpu_count=4, gpu_type="A100")
SHAPE = Shape(cpu_milli=1000, memory_mib=1024, gpu_count=2)
LACK = Reason(kind=HoldKind.ROOM, lacks=(Lack("A100", 2000),))


class FirstFit:
    """Decides as the core does: when it is told to plan. `backwards` tries the last node first."""

    def __init__(self, *, backwards: bool = False) -> None:
        self.backwards = backwards
        self.pools: dict[str, PoolSet] = {}
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, Request] = {}
        self.placed: dict[str, tuple[Request, str, tuple[int, ...]]] = {}

    def handle(self, event: Event, now_s: float) -> tuple[Decision, ...]:
        match event:
            case PoolSet(pool=pool, placement=placement):
                self.pools[pool] = event
                self.backwards = placement == "backwards"
            case NodeSet(node_id=node_id, pool=pool, capacity=capacity):
                self.nodes[node_id] = new_node(node_id, pool, capacity)
            case Requested(requests=requests):
                self.waiting.update({request.request_id: request for request in requests})
            case Restored(request=request, spots=((node_id, cards),)):
                self._take(request, node_id, cards)
            case Ended(member=member):
                self.waiting.pop(member, None)
                if member in self.placed:
                    self.nodes[self.placed.pop(member)[1]].give_back(member)
            case Planned():
                return tuple(self._place(request) for request in tuple(self.waiting.values()))
        return ()

    def _place(self, request: Request) -> Decision:
        nodes = reversed(self.nodes.values()) if self.backwards else self.nodes.values()
        node = next((node for node in nodes if node.fits(request.shape)), None)
        if node is None:
            return Held(group=request.group, reasons=(LACK,))
        del self.waiting[request.request_id]
        cards = node.pick_cards(request.shape)
        self._take(request, node.node_id, cards)
        return Placed(request_id=request.request_id, spots=((node.node_id, cards),))

    def _take(self, request: Request, node_id: str, cards: tuple[int, ...]) -> None:
        self.nodes[node_id].take(request.request_id, request.shape, cards)
        self.placed[request.request_id] = (request, node_id, cards)

    def snapshot(self) -> tuple[Event, ...]:
        nodes = [set_node(node_id) for node_id in self.nodes]
        restored = [
            Restored(request=request, spots=((node_id, cards),)) for request, node_id, cards in self.placed.values()
        ]
        return (*self.pools.values(), *nodes, *restored, Requested(requests=tuple(self.waiting.values())))


def set_node(node_id: str) -> NodeSet:
    return NodeSet(node_id=node_id, pool="p", capacity=CAPACITY, standing=Standing.OPEN)


def request(name: str, *, workspace: str = "w", shape: Shape = SHAPE, at_s: float = 0.0) -> Request:
    return Request(request_id=name, group="f", workspace=workspace, members=(name,), shape=shape, requested_at_s=at_s)


def recorded(events: list[Event], core: FirstFit, *, from_s: float = 100.0) -> Segment:
    """What the journal of these events would hold, one second between them."""
    opening = core.snapshot()
    records = [Record(from_s + at, event, core.handle(event, from_s + at)) for at, event in enumerate(events)]
    return Segment(
        header=Header(7, 3, "0.1", "ours"), opened_at_s=from_s, opening=opening, records=tuple(records), closed=True
    )


def busy_segment() -> Segment:
    """Two nodes of four cards; of five requests for two cards each the last one waits until another ends."""
    core = FirstFit()
    core.handle(PoolSet(pool="p"), 0.0)
    core.handle(set_node("n1"), 0.0)
    core.handle(set_node("n2"), 0.0)
    requests = tuple(request(f"r{number}", workspace="v" if number < 2 else "w", at_s=90.0) for number in range(5))
    return recorded([Requested(requests=requests), Planned(), Ended(member="r0"), Planned()], core)
