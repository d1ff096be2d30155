"""Why a request waits, as data: what is lacking, where, and what would change it. Sentences are made of it."""

from __future__ import annotations

import enum

import msgspec


class HoldKind(enum.StrEnum):
    """What holds a request."""

    ROOM = "room"  # no worker has room
    STARTING = "starting"  # a worker with room for it is on its way
    QUOTA = "quota"
    CONCURRENCY = "concurrency"  # the workspace's limit
    TOPOLOGY = "topology"  # a gang does not fit into one domain
    GANG = "gang"  # its workers are starting, or were not all to be had in time
    RESERVED = "reserved"  # room is kept for a gang that waits longer
    GUARD = "guard"
    MAXIMUM = "maximum"  # of the pool's workers
    BACK_OFF = "back off"  # the pool's last workers ended early
    PREEMPTING = "preempting"  # others are stopping to make room
    QUEUE_HELD = "queue held"  # the quota admits nothing new
    LEADER = "leader"  # a new leader waits for workers to report
    NO_POOL = "no pool"
    CLUSTER = "cluster"  # the pool's cluster: it is away, or workers that were ordered do not start there
    UNREPORTED = "unreported"  # a cluster that would have such nodes has never said what they are


class Lack(msgspec.Struct, frozen=True, array_like=True):
    """So much more of something is needed: cards of a type, thousandths of CPUs, MiB of memory, nodes."""

    resource: str  # "cpu", "memory", "nodes", "gpu", or a card type such as "GB200"
    amount: int  # thousandths of CPUs or of cards, MiB, or nodes


class Excluded(msgspec.Struct, frozen=True, array_like=True):
    """A node that does not count, and why: "cordoned", "silent", "reserved", or as its pool sees it.

    Without a name it stands for `count` nodes of a pool whose nodes the asker may not know.
    """

    node: str
    why: str
    count: int = 1
    pool: str = ""
    since_s: float = 0.0  # Unix seconds from which that is so: of a stale node its last report; 0: nobody knows


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """Who holds what is lacking. `who` is a function's name for the asker's own work, "" for other workspaces'."""

    who: str
    containers: int
    gpu_milli: int = 0
    frees_by_s: float = 0.0  # Unix seconds at which its time limit ends, at the latest; 0: unknown


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One hold. Only what its asker may see is in it: no name, node or card of another workspace's private things."""

    kind: HoldKind
    lacks: tuple[Lack, ...] = ()
    pool: str = ""
    quota: str = ""
    flavor: str = ""
    topology: str = ""
    level: str = ""
    fits: int = 0  # members of the gang that would fit
    wanted: int = 0  # members of the gang; or the limit that is reached
    free: int = 0  # thousandths of cards on several nodes, none of which has enough
    most: int = 0  # of them on one node
    ahead: int = 0  # requests of the same queue that go before
    excluded: tuple[Excluded, ...] = ()
    holders: tuple[Holder, ...] = ()
    detail: str = ""  # a whole sentence of whoever holds, such as the guard
    machines_only: bool = (
        False  # nothing but missing machines holds it: counts towards `wait_s`; in the first of several
    )
