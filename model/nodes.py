"""What a worker stands on: a node with its labels, and what may run there."""

from __future__ import annotations

import enum

import msgspec

from .resources import Capacity, Shape

ANY_RUNTIME = ""


class NodeState(enum.StrEnum):
    """What may happen on a node, as its pool sees it."""

    READY = "ready"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    NOT_READY = "not ready"
    STALE = "stale"  # nobody knows how it is now: it gets no worker, and one that runs there goes on taking work
    FULL = "full"  # others have all its cards: the same
    CARDS_UNKNOWN = "cards unknown"  # its last worker could not tell which cards were its own; it is tried again later

    @property
    def closes_worker(self) -> bool:
        """Whether nothing new may be placed on a worker that runs there already."""
        return self in (NodeState.CORDONED, NodeState.TAINTED, NodeState.NOT_READY)


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a worker lives. `node` is the name of its node, "" where the pool has no named nodes.

    `labels` are sorted by key. `runtimes` empty means: as the pool is, any that a request may name. `serves` is the one
    workspace for which the worker's own token is good, "" for any: it stays so when its pool serves others meanwhile.
    """

    node: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    gpu_sharing: bool = False
    runtimes: tuple[str, ...] = ()
    serves: str = ""

    def label(self, key: str) -> str:
        """The value of a label, "" without it."""
        return next((value for name, value in self.labels if name == key), "")

    def allows(self, shape: Shape) -> bool:
        """Whether this shape may run here at all, whatever is free."""
        return (
            (self.gpu_sharing or not shape.shared)
            and all(pair in self.labels for pair in shape.labels)
            and (not shape.runtime or not self.runtimes or shape.runtime in self.runtimes)
        )


class NodeOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A named node on which a pool could start a worker of this size, or why it does not.

    `since_s` is from when that state counts, Unix seconds: of a stale node, when its last report came. 0: nobody said.
    """

    capacity: Capacity
    traits: Traits
    state: NodeState = NodeState.READY
    since_s: float = 0.0
