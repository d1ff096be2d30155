"""Configurations of queues put together and taken apart, by part and name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from .queues import FairShare, Queue, Queueing, Share

PARTS: Final = ("flavors", "cohorts", "quotas", "queues", "shares", "priorities", "topologies")

WORDS: Final = {
    "flavors": "flavor",
    "cohorts": "cohort",
    "quotas": "quota",
    "queues": "queue",
    "shares": "share of workspace",
    "priorities": "priority",
    "topologies": "topology",
}


def name_of(thing: msgspec.Struct) -> str:
    """By what a thing is known within its part: a share by its workspace, a queue by workspace/name."""
    match thing:
        case Queue(workspace=workspace, name=name):
            return f"{workspace}/{name}"
        case Share(workspace=workspace):
            return workspace
        case _:
            return str(getattr(thing, "name"))  # noqa: B009 (each of the others has one)


def merged(under: Queueing, over: Queueing) -> Queueing:
    """Both together; of things with the same name that of `over` counts."""
    parts = {part: _united(getattr(under, part), getattr(over, part)) for part in PARTS}
    fair_share = under.fair_share if over.fair_share == FairShare() else over.fair_share
    return msgspec.structs.replace(Queueing(fair_share=fair_share), **parts)


def _united(under: Iterable[msgspec.Struct], over: Iterable[msgspec.Struct]) -> tuple[msgspec.Struct, ...]:
    by_name = {name_of(thing): thing for thing in under}
    by_name.update({name_of(thing): thing for thing in over})
    return tuple(by_name.values())


def without(queueing: Queueing, part: str, name: str) -> Queueing:
    """All but one thing; nothing happens where there is none of this name."""
    left = tuple(thing for thing in getattr(queueing, part) if name_of(thing) != name)
    return msgspec.structs.replace(queueing, **{part: left})
