"""What a backlog is made of: workspaces, their queues, lanes and lines, and the gates that these stand behind."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ...model.gangs import Together
from ...model.resources import Shape
from .events import Request
from .fairness import Account
from .ordered import Key, Ordered, Placed, Turns
from .quotas import Option, Purse, QuotaState
from .ranked import Entry, Ranked


class Parked(enum.StrEnum):
    """Why requests are not looked at."""

    QUOTA = "quota"  # or the workspace's limit, or a held quota
    ROOM = "room"
    OTHER = "other"


Kind = tuple[Shape, int, Together, float]  # shape, members, nearness, time limit


def kind_of(request: Request) -> Kind:
    """What decides whether a request fits, but for whose it is."""
    return request.shape, len(request.members), request.together, request.limit_s


class Space(Placed):
    """A workspace: what it uses, and its queues that are in play."""

    __slots__ = ("account", "front", "name", "rows")

    def __init__(self, name: str, account: Account, turns: Turns) -> None:
        super().__init__()
        self.name = name
        self.account = account
        self.front: Ordered[Row] = Ordered(turns)
        self.rows: dict[str, Row] = {}


class Row(Placed):
    """A queue: what it uses, its quota, and its lanes that are in play."""

    __slots__ = ("account", "admitted", "front", "lanes", "name", "quota", "ranked", "space")

    def __init__(self, name: str, space: Space, quota: QuotaState | None, account: Account, turns: Turns) -> None:
        super().__init__()
        self.name = name
        self.space = space
        self.quota = quota  # None: the queue is not configured any more
        self.account = account
        self.front: Ordered[Lane] = Ordered(turns)
        self.lanes: dict[Kind, Lane] = {}
        self.ranked: dict[int, Ranked] = {}  # who waits, by priority without ageing: of a few the longest are first
        self.admitted = 0

    def enter(self, value: int, entry: Entry) -> None:
        """One more waits."""
        ranked = self.ranked.get(value)
        if ranked is None:
            ranked = self.ranked[value] = Ranked()
        ranked.add(entry)

    def leave(self, value: int, entry: Entry) -> None:
        """One waits no more."""
        ranked = self.ranked[value]
        ranked.remove(entry)
        if not ranked:
            del self.ranked[value]

    def ahead(self, value: int, entry: Entry, level: Callable[[int, float], int]) -> int:
        """How many go before this one; `level(value, requested_at_s)` is a priority with ageing."""
        own = -level(value, entry[0]), entry

        def goes_after(other: int) -> Callable[[Entry], bool]:
            return lambda each: (-level(other, each[0]), each) >= own

        return sum(
            ranked.before(entry) if other == value else ranked.first_that_is(goes_after(other))
            for other, ranked in self.ranked.items()
        )

    @property
    def pending(self) -> int:
        """How many wait."""
        return sum(len(ranked) for ranked in self.ranked.values())


class Line(Placed):
    """Equal requests of one lane: of one group, with one priority, the longest waiting first."""

    __slots__ = ("ageing_at_ms", "count", "group", "head", "lane", "level", "other", "priority", "value", "waiting")

    def __init__(self, lane: Lane, group: str, priority: str, value: int) -> None:
        super().__init__()
        self.lane = lane
        self.group = group
        self.priority = priority
        self.value = value
        self.waiting: list[tuple[float, str]] = []
        self.count = 0
        self.head = ""
        self.level = value  # with ageing, of the first
        self.other = False  # parked by itself
        self.ageing_at_ms = 0

    @property
    def parked(self) -> Parked | None:
        """Why it is not looked at; None where it is its turn some time."""
        if self.other:
            return Parked.OTHER
        if self.lane.roomless:
            return Parked.ROOM
        return Parked.QUOTA if self.lane.where is Where.BLOCKED else self.lane.gate.shut


class Where(enum.Enum):
    """Where a lane is."""

    NOWHERE = 0  # none of its lines is in play
    FRONT = 1
    STORE = 2  # of its gate
    BLOCKED = 3  # by a limit of its own


class Lane(Placed):
    """Requests of one queue and one kind. A limit in the way of one of them is in the way of all."""

    __slots__ = ("below", "by_name", "gate", "kind", "lines", "options", "roomless", "row", "size", "where")

    def __init__(self, row: Row, kind: Kind, options: tuple[Option, ...], gate: Gate, turns: Turns) -> None:
        super().__init__()
        self.row = row
        self.kind = kind
        self.size = kind[1]
        self.options = options
        self.gate = gate
        self.by_name: dict[tuple[str, str], Line] = {}
        self.lines: Ordered[Line] = Ordered(turns)
        self.where = Where.NOWHERE
        self.roomless = False
        self.below: int | None = None  # where it is roomless: as for a gate


GateKey = tuple[str, tuple[tuple[str, tuple[tuple[str, int], ...]], ...], Kind, bool]
Bounds = tuple[tuple[tuple[Purse, int], ...], ...]  # option by option, what is asked of the outermost purses


class Cell(Placed):
    """The lanes of one workspace that stand behind one gate."""

    __slots__ = ("lanes", "space")

    def __init__(self, space: Space, turns: Turns) -> None:
        super().__init__()
        self.space = space
        self.lanes: Ordered[Lane] = Ordered(turns)


class Gate:
    """All lanes of a kind that draw on one tree of quotas in the same way, and may use the same nodes."""

    __slots__ = ("below", "bounds", "cells", "key", "lanes", "probing", "shut", "since", "store", "tree", "wakers")

    def __init__(self, key: GateKey, tree: str, bounds: Bounds, turns: Turns) -> None:
        self.key = key
        self.tree = tree
        self.bounds = bounds  # empty: the tree as a whole never says
        self.lanes: dict[Lane, None] = {}
        self.store: Ordered[Cell] = Ordered(turns)
        self.cells: dict[Space, Cell] = {}
        self.shut: Parked | None = None
        self.below: int | None = None  # shut as nodes are reserved: up to this level; None: whoever asks has no room
        self.probing = False
        self.wakers: tuple[Callable[[Shape], bool], ...] = ()  # while ajar for room they know of; none: always
        self.since = 0  # up to which change of shares the store is in order

    @property
    def kind(self) -> Kind:
        """What those behind it ask for."""
        return self.key[2]

    @property
    def shape(self) -> Shape:
        """What each member behind it asks for."""
        return self.key[2][0]

    @property
    def full(self) -> bool:
        """Whether the tree as a whole lacks quota for those behind it, whoever they are."""
        for bound in self.bounds:
            for purse, amount in bound:
                if purse.total - purse.used - purse.saved < amount:
                    break
            else:
                return False
        return bool(self.bounds)

    @property
    def apart(self) -> bool:
        """Whether those behind it may each have room where others have none."""
        return self.key[3]


def order_of(line: Line) -> Key:
    """What goes first has the smallest: priority with ageing, shares of workspace and queue, then who asked first."""
    row = line.lane.row
    return -line.level, row.space.account.share, row.account.share, line.waiting[0][0], line.head
