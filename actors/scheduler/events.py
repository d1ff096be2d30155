"""What the core is told, and what it decides. Both are journaled, so that any decision can be replayed."""

from __future__ import annotations

import msgspec

from ...model.gangs import Together
from ...model.nodes import NodeOffer, Traits
from ...model.queues import DEFAULT, Queueing
from ...model.reasons import Reason
from ...model.resources import Capacity, Shape
from .capacity import Standing


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A demand for room, admitted as one: a container, or a gang of them, in order of their ranks.

    `group` is what equal requests share (a stub): they go in order, and are held for the same reason. `limit_s` is how
    long it runs at most, 0 where nobody knows.
    """

    request_id: str
    group: str
    label: str = ""  # what a person calls the group: the function's name
    workspace: str
    members: tuple[str, ...]  # containers; for one of its own, its own identity
    shape: Shape  # of each member
    queue: str = DEFAULT
    priority: str = DEFAULT
    together: Together = Together()
    limit_s: float = 0.0
    requested_at_s: float = 0.0

    @property
    def gang(self) -> bool:
        """Whether it has several members."""
        return len(self.members) > 1


def with_members(request: Request, members: tuple[str, ...]) -> Request:
    """The same request, of these members."""
    return msgspec.structs.replace(request, members=members)


Stopping = tuple[tuple[str, tuple[str, ...]], ...]  # by request that waits: those that make room for it


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of what the core is told."""


class PoolSet(Event, frozen=True, kw_only=True):
    """A pool as it is configured.

    `size` is that of its workers where they are all alike and have no named nodes; None: it starts none, or by node.
    `serves` is the one workspace whose work it takes; empty: anybody's.
    """

    pool: str
    size: Capacity | None = None
    traits: Traits = Traits()
    serves: str = ""
    placement: str = ""  # "" is the default policy
    max_workers: int = 0  # 0: nobody knows
    rank: int = 0  # pools are asked in this order, then by name
    owner: str = ""  # the workspace whose own machines it has: others are not told their names
    known_as: str = ""  # what its owner calls it, "" where that is its name
    gpu_type: str = ""  # that its nodes are said to have, while none is known


class PoolDropped(Event, frozen=True, kw_only=True):
    """A pool is no more; its workers' nodes are closed one by one by whoever knows."""

    pool: str


class NodesOffered(Event, frozen=True, kw_only=True):
    """All named nodes of a pool, with what a worker on each would have; the newest replaces older ones."""

    pool: str
    offers: tuple[NodeOffer, ...]


class PoolHolds(Event, frozen=True, kw_only=True):
    """Why a pool orders nothing (None: it does), for all that is wanted of it or for one gang."""

    pool: str
    reason: Reason | None = None
    request_id: str = ""


class NodeSet(Event, frozen=True, kw_only=True):
    """A worker: its size and standing as of now. Known requests on it stay."""

    node_id: str
    pool: str
    capacity: Capacity
    traits: Traits = Traits()
    standing: Standing
    why_closed: str = ""


class NodeGone(Event, frozen=True, kw_only=True):
    """A worker is no more. What ran there is ended one by one by whoever knows, before or after."""

    node_id: str


class QueueingSet(Event, frozen=True, kw_only=True):
    """The whole configuration of queues, checked before."""

    queueing: Queueing


class Requested(Event, frozen=True, kw_only=True):
    """New requests. Knowing one twice is knowing it once."""

    requests: tuple[Request, ...]


class Restored(Event, frozen=True, kw_only=True):
    """A request that an earlier leader placed: by rank its members, and for each the node and the cards.

    A member that has ended is "", and so is its node.
    """

    request: Request
    spots: tuple[tuple[str, tuple[int, ...]], ...]
    flavor: str = ""
    since_s: float = 0.0  # 0: from now
    pool: str = ""  # of a gang, which stays in it


class Promised(Event, frozen=True, kw_only=True):
    """A gang that waits for its workers: by rank the nodes that it has been promised, "" for none yet."""

    request: Request
    nodes: tuple[str, ...]
    flavor: str
    pool: str
    workers: int
    deadline_s: float
    cards: tuple[tuple[int, ...], ...] = ()  # on each of those nodes; where left out they are picked


class Ended(Event, frozen=True, kw_only=True):
    """A member needs no room any more, whether it had any or not. The last one ends its request."""

    member: str


class Replacement(Event, frozen=True, kw_only=True):
    """The member of this rank of a placed gang was lost; this one takes its place, near the others."""

    request_id: str
    rank: int
    member: str


class Started(Event, frozen=True, kw_only=True):
    """A member's container is ready: from here its slice and its time limit count."""

    member: str


class Recalled(Event, frozen=True, kw_only=True):
    """What a core that is rebuilt remembers of the past: used shares, and the demand that a pool's policy has seen."""

    shares: bytes = b""
    demand: tuple[tuple[str, bytes], ...] = ()  # by pool
    reserved: bytes = b""  # room that is kept for those who wait long
    retries: tuple[tuple[str, float], ...] = ()  # gangs that gave back, and from when they may be promised room again
    gave_back: tuple[tuple[str, str], ...] = ()  # by gang, the pool that did not have its workers in time
    stopping: Stopping = ()


class PlacementsFrom(Event, frozen=True, kw_only=True):
    """A new leader waits with placing until then (Unix seconds); 0 ends the wait."""

    at_s: float


class Ticked(Event, frozen=True, kw_only=True):
    """Time has passed."""


class Planned(Event, frozen=True, kw_only=True):
    """Decide, in one slice of at most `steps` requests; repeat while it answers `More`."""

    steps: int = 256


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of what the core decides."""


class Placed(Decision, frozen=True, kw_only=True):
    """All members of a request have room: node and cards, member by member."""

    request_id: str
    spots: tuple[tuple[str, tuple[int, ...]], ...]
    flavor: str = ""


class Replaced(Decision, frozen=True, kw_only=True):
    """A replacement has room."""

    request_id: str
    rank: int
    member: str
    node_id: str
    cards: tuple[int, ...] = ()


class NotReplaced(Decision, frozen=True, kw_only=True):
    """A container that was to take a lost member's place never will: end it."""

    member: str
    why: str


class Preempted(Decision, frozen=True, kw_only=True):
    """Stop this request's containers and ask for their room anew: it makes room for another. Uses no retry."""

    request_id: str
    by_workspace: str
    why: str


class Yielded(Decision, frozen=True, kw_only=True):
    """Its workspace is over its share and its slice is over: let this container finish its calls, and end."""

    member: str


class Held(Decision, frozen=True, kw_only=True):
    """Why the requests of a group wait; no reasons: none waits any more."""

    group: str
    reasons: tuple[Reason, ...] = ()


class GangWanted(msgspec.Struct, frozen=True, array_like=True):
    """All of these workers or none: named nodes, or so many workers of the pool's size."""

    request_id: str
    nodes: tuple[str, ...] = ()
    workers: int = 0


class RoomWanted(Decision, frozen=True, kw_only=True):
    """What a pool lacks; the newest replaces older ones. `shapes` are of single requests, with how many of each."""

    pool: str
    shapes: tuple[tuple[Shape, int], ...] = ()
    gangs: tuple[GangWanted, ...] = ()


class GangGivenBack(Decision, frozen=True, kw_only=True):
    """A gang's workers did not all come in time: those that came for it are free for others, or may go."""

    request_id: str
    pool: str
    nodes: tuple[str, ...]
    why: str


class More(Decision, frozen=True, kw_only=True):
    """The slice was used up: plan again."""
