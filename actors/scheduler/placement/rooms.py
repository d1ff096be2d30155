"""Nodes that are alike, kept as one: what a policy thinks of a room holds for every node that has it.

A cluster of thousands of nodes has few kinds of them, and most placements change one node only. So rooms are interned,
and each new one is written to a log, from which every ranking learns what it has not seen yet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from ....model.resources import Shape
from ..capacity import Node, NodeKind

LOG_LEAST: Final = 1024  # entries kept, however few rooms there are

Mark = tuple[int, ...]


class Kind(msgspec.Struct, eq=False):
    """What nodes of one make have in common, and how many of them are here. Numbers are never used again."""

    number: int
    kind: NodeKind
    nodes: int = 0


class Room(msgspec.Struct, eq=False):
    """What some nodes of one kind have free. `cards` are in thousandths and sorted, the fullest first.

    `mark` is what else a policy tells nodes apart by.
    """

    number: int
    kind: Kind
    cpu_milli: int
    memory_mib: int
    cards: tuple[int, ...]
    mark: Mark
    free_milli: int  # of all cards together
    members: int = 0
    ids: list[str] = msgspec.field(default_factory=list)  # a heap of nodes, of which some are here no more

    def fits(self, shape: Shape) -> bool:
        """Whether there is room for this shape, if the kind of node allows it."""
        count = shape.gpu_count
        return (
            shape.cpu_milli <= self.cpu_milli
            and shape.memory_mib <= self.memory_mib
            and (not count or (count <= len(self.cards) and self.cards[-count] >= shape.gpu_milli))
        )


class Member(msgspec.Struct, eq=False):
    """A node, and the room it has now."""

    node_id: str
    kind: Kind
    as_put: NodeKind  # the same object again is the same kind again, without comparing
    room: Room
    cards: tuple[int, ...]  # by card number
    moved: int = 0  # when it came to its room, as the number of moves of all nodes until then


def no_mark(_: Node) -> Mark:
    """Nodes with the same free room are alike."""
    return ()


class Rooms:
    """All open nodes by their room, and what has changed since when.

    The log tells of rooms that are new or have a new first node; with `tells_all`, of every node that comes to a room.
    """

    def __init__(self, mark: Callable[[Node], Mark] = no_mark, tells_all: bool = False) -> None:
        self.members: dict[str, Member] = {}
        self.live: dict[tuple[int, int, int, tuple[int, ...], Mark], Room] = {}
        self.log: list[tuple[Room, str]] = []
        self.log_began = 0  # how many entries were cut off its beginning
        self._mark = mark
        self._tells_all = tells_all
        self._moves = 0
        self._kinds: dict[NodeKind, Kind] = {}
        self._numbers = 0

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        member = self.members.get(node.node_id)
        cards = tuple(node.free_cards)
        kind = self._kind(node.kind) if member is None or member.as_put is not node.kind else member.kind
        key = (kind.number, node.cpu_milli, node.memory_mib, tuple(sorted(cards)), self._mark(node))
        room = self.live.get(key) or self._new(kind, key)
        if member is None:
            kind.nodes += 1
            member = self.members[node.node_id] = Member(node.node_id, kind, node.kind, room, cards)
        elif member.room is room:
            member.as_put, member.cards = node.kind, cards
            return
        else:
            self._leave(member)
            self._move_kind(member, kind)
            member.as_put, member.room, member.cards = node.kind, room, cards
        self._moves += 1
        member.moved = self._moves
        self._enter(room, node.node_id)

    def drop(self, node_id: str) -> None:
        """A node is here no more; unknown ones are ignored."""
        if (member := self.members.pop(node_id, None)) is not None:
            self._leave(member)
            self._less(member.kind)

    def first(self, room: Room, without: frozenset[str] = frozenset()) -> str:
        """The first node by identity that has this room and is not in `without`, "" if there is none."""
        ids, members, aside = room.ids, self.members, []
        found = ""
        while ids:
            node_id = ids[0]
            member = members.get(node_id)
            if member is None or member.room is not room:
                heapq.heappop(ids)
            elif node_id in without:
                aside.append(heapq.heappop(ids))
            else:
                found = node_id
                break
        for node_id in dict.fromkeys(aside):
            heapq.heappush(ids, node_id)
        return found

    def all_in(self, room: Room) -> list[str]:
        """The nodes that have this room, by identity."""
        return sorted({node_id for node_id in room.ids if self._is_in(node_id, room)})

    def since(self, cursor: int) -> list[tuple[Room, str]] | None:
        """What the log has told since `cursor`: a room, and the node that came to it. None if it is too long ago."""
        return self.log[cursor - self.log_began :] if cursor >= self.log_began else None

    @property
    def cursor(self) -> int:
        """Where the log ends."""
        return self.log_began + len(self.log)

    def _is_in(self, node_id: str, room: Room) -> bool:
        member = self.members.get(node_id)
        return member is not None and member.room is room

    def _kind(self, kind: NodeKind) -> Kind:
        known = self._kinds.get(kind)
        if known is None:
            self._numbers += 1
            known = self._kinds[kind] = Kind(self._numbers, kind)
        return known

    def _move_kind(self, member: Member, kind: Kind) -> None:
        if member.kind is not kind:
            self._less(member.kind)
            kind.nodes += 1
            member.kind = kind

    def _less(self, kind: Kind) -> None:
        kind.nodes -= 1
        if not kind.nodes:
            del self._kinds[kind.kind]

    def _new(self, kind: Kind, key: tuple[int, int, int, tuple[int, ...], Mark]) -> Room:
        self._numbers += 1
        room = Room(self._numbers, kind, *key[1:], sum(key[3]))
        self.live[key] = room
        return room

    def _leave(self, member: Member) -> None:
        room = member.room
        room.members -= 1
        if not room.members:
            del self.live[room.kind.number, room.cpu_milli, room.memory_mib, room.cards, room.mark]

    def _enter(self, room: Room, node_id: str) -> None:
        room.members += 1
        if self._tells_all or not room.ids or node_id <= room.ids[0]:
            self._tell(room, node_id)
        if len(room.ids) > 2 * room.members + 16:
            room.ids[:] = self.all_in(room)  # sorted is a heap
        heapq.heappush(room.ids, node_id)

    def _tell(self, room: Room, node_id: str) -> None:
        self.log.append((room, node_id))
        kept = LOG_LEAST + (len(self.members) if self._tells_all else len(self.live))
        if len(self.log) > 2 * kept:
            self.log_began += len(self.log) - kept
            del self.log[: len(self.log) - kept]
