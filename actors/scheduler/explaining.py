"""One step of a journal, told: what the core was told, what stood before, what it decided and why, in sentences."""

from __future__ import annotations

from typing import Final

import msgspec

from ...errors import NOT_FOUND, Refused
from ...model.resources import Amount, Capacity, Shape, amount_of
from .capacity import Node
from .events import Decision, Event, Placed, Request
from .journal import Segment
from .tally import Tally
from .telling import Sentence, tell

SHOWN_MAX: Final = 20  # nodes, and requests: the ones that matter come first


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it stood: what was free, and how many containers like the one in question had room."""

    node: str
    pool: str
    standing: str
    free: str
    rooms: int


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waited."""

    place: int
    request_id: str
    workspace: str
    queue: str
    priority: str
    asks: str
    waited_s: float


class ShareLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a workspace held, and its part of all that there was of what it held most of, in thousandths."""

    workspace: str
    holds: str
    dominant_milli: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One step, counted from 1. Lists are cut; the numbers beside them are whole."""

    number: int
    now_s: float
    event: Event
    nodes_open: int
    nodes: tuple[NodeLine, ...]
    waiting: int
    queue: tuple[QueueLine, ...]
    shares: tuple[ShareLine, ...]
    decisions: tuple[Decision, ...]
    sentences: tuple[str, ...]


def explain(segment: Segment, at: int, sentence: Sentence) -> Explanation:
    """Tell step `at` of a segment, counted from 1. Raises `Refused` where there is none."""
    if not 1 <= at <= len(segment.records):
        steps = f"It has steps 1 to {len(segment.records)}." if segment.records else "It has none."
        raise Refused(f"The journal has no step {at}.", steps, code=NOT_FOUND)
    tally = Tally()
    for event in segment.opening:
        tally.saw(event, (), segment.opened_at_s)
    for before in segment.records[: at - 1]:
        tally.saw(before.event, before.decisions, before.now_s)
    record = segment.records[at - 1]
    tally.saw(record.event, (), record.now_s)
    subject = _subject(record.decisions, tally)
    return Explanation(
        number=at,
        now_s=record.now_s,
        event=record.event,
        nodes_open=sum(node.standing == "open" for node in tally.nodes.values()),
        nodes=_nodes(tally, subject),
        waiting=len(tally.waiting),
        queue=_queue(tally, record.now_s),
        shares=_shares(tally),
        decisions=record.decisions,
        sentences=tuple(
            line for decision in record.decisions for line in _told(decision, tally, sentence, record.now_s)
        ),
    )


def _subject(decisions: tuple[Decision, ...], tally: Tally) -> Request | None:
    """The request that was placed, or the first that waits: nodes are shown as it sees them."""
    placed = (tally.waiting.get(each.request_id) for each in decisions if isinstance(each, Placed))
    return next((request for request in placed if request), next(iter(tally.waiting.values()), None))


def _nodes(tally: Tally, subject: Request | None) -> tuple[NodeLine, ...]:
    """Those with room for the request in question, the fullest first; then the others."""
    rooms = {node.node_id: node.count(subject.shape) if subject else 0 for node in tally.nodes.values()}
    order = sorted(tally.nodes.values(), key=lambda node: (rooms[node.node_id] < 1, rooms[node.node_id], node.node_id))
    return tuple(_node_line(node, rooms[node.node_id]) for node in order[:SHOWN_MAX])


def _node_line(node: Node, rooms: int) -> NodeLine:
    why = f" ({node.why_closed})" if node.why_closed else ""
    free = _amount(node.free, node.kind.capacity.gpu_type)
    return NodeLine(node=node.name, pool=node.kind.pool, standing=f"{node.standing}{why}", free=free, rooms=rooms)


def _queue(tally: Tally, now_s: float) -> tuple[QueueLine, ...]:
    first = list(tally.waiting.values())[:SHOWN_MAX]
    return tuple(
        QueueLine(
            place=place,
            request_id=request.request_id,
            workspace=request.workspace,
            queue=request.queue,
            priority=request.priority,
            asks=asks(request),
            waited_s=max(0.0, now_s - request.requested_at_s),
        )
        for place, request in enumerate(first, start=1)
    )


def _shares(tally: Tally) -> tuple[ShareLine, ...]:
    whole = Amount()
    for node in tally.nodes.values():
        whole = whole.plus(_whole(node.kind.capacity))
    lines = [
        ShareLine(workspace=name, holds=_amount(held), dominant_milli=_dominant(held, whole))
        for name, held in tally.by_workspace.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.dominant_milli, line.workspace)))[:SHOWN_MAX]


def _whole(capacity: Capacity) -> Amount:
    return Amount(capacity.cpu_milli, capacity.memory_mib, capacity.gpu_count * 1000)


def _dominant(held: Amount, whole: Amount) -> int:
    parts = ((held.cpu_milli, whole.cpu_milli), (held.memory_mib, whole.memory_mib), (held.gpu_milli, whole.gpu_milli))
    return max(part * 1000 // of if of else 0 for part, of in parts)


def asks(request: Request) -> str:
    """What a request asks for, such as "8 × (1 GB200, 4 CPUs, 1024 MiB)"."""
    each = _shape(request.shape)
    return f"{len(request.members)} × ({each})" if request.gang else each


def _shape(shape: Shape) -> str:
    return _amount(amount_of(shape), " or ".join(shape.gpu_types))


def _amount(amount: Amount, gpu_type: str = "") -> str:
    cards = f"{amount.gpu_milli / 1000:g} {gpu_type or 'cards'}, " if amount.gpu_milli else ""
    return f"{cards}{amount.cpu_milli / 1000:g} CPUs, {amount.memory_mib} MiB"


def _told(decision: Decision, tally: Tally, sentence: Sentence, now_s: float) -> list[str]:
    """A decision in sentences; a kind without words of its own is told by its fields."""
    words = tell(decision, sentence, now_s)
    if isinstance(decision, Placed) and decision.request_id in tally.waiting:
        request = tally.waiting[decision.request_id]
        return [f"{words[0]} It asks for {asks(request)}, for workspace {request.workspace}.", *words[1:]]
    return words
