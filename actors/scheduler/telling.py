"""Events and decisions of the core in words, for people who read a journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ...model.reasons import Reason
from .events import (
    Decision,
    Event,
    GangGivenBack,
    Held,
    More,
    NodeSet,
    NodesOffered,
    Placed,
    Preempted,
    Replaced,
    Requested,
    RoomWanted,
    Yielded,
)

_SPOTS_TOLD: Final = 8

Sentence = Callable[[Reason, float], str]  # a reason at a time, in Unix seconds


def tell_event(event: Event) -> str:
    """What the core was told, in one line."""
    match event:
        case Requested(requests=requests):
            return f"Requested: {_some([request.request_id for request in requests])}."
        case NodesOffered(pool=pool, offers=offers):
            return f"NodesOffered: {len(offers)} of pool {pool}."
        case NodeSet(node_id=node_id, pool=pool, standing=standing, why_closed=why):
            return f"NodeSet: {node_id} of pool {pool} is {standing}{f' ({why})' if why else ''}."
    return f"{type(event).__name__}: {_fields(event)}."


def tell(decision: Decision, sentence: Sentence, now_s: float) -> list[str]:
    """What the core decided at this time, a sentence each; `sentence` puts reasons into words."""
    match decision:
        case Placed(request_id=request_id, spots=spots):
            return [f"{request_id} gets room: {_spots(spots)}."]
        case Replaced(member=member, node_id=node_id):
            return [f"{member}, a replacement, gets room on {node_id}."]
        case Preempted(request_id=request_id, by_workspace=workspace, why=why):
            return [f"{request_id} stops to make room for {workspace}: {why}"]
        case Yielded(member=member):
            return [f"{member} ends after the calls that it has: its workspace is over its share."]
        case Held(group=group, reasons=()):
            return [f"Nothing of {group} waits any more."]
        case Held(group=group, reasons=reasons):
            return [f"{group} waits. {sentence(reason, now_s)}" for reason in reasons]
        case RoomWanted(pool=pool, shapes=shapes, gangs=gangs):
            containers = sum(number for _, number in shapes)
            return [f"Pool {pool} lacks room for {containers} containers and {len(gangs)} gangs."]
        case GangGivenBack(request_id=request_id, nodes=nodes, why=why):
            return [f"{request_id} gives back {_some(nodes)}: {why}"]
        case More():
            return ["There is more to plan."]
    return [f"{type(decision).__name__}: {_fields(decision)}."]


def _spots(spots: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    told = [
        f"{node_id} (card{'s' if len(cards) > 1 else ''} {', '.join(map(str, cards))})" if cards else node_id
        for node_id, cards in spots
    ]
    return _some(told)


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _SPOTS_TOLD} more" if len(names) > _SPOTS_TOLD else ""
    return ", ".join(names[:_SPOTS_TOLD]) + more


def _fields(told: msgspec.Struct) -> str:
    """Fields that say something, by name."""
    named = ((name, getattr(told, name)) for name in told.__struct_fields__)
    return ", ".join(f"{name}={value}" for name, value in named if value not in ("", (), None))
