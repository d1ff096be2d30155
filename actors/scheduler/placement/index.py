"""What the policies share: nodes interned by their room, and for each shape a ranking of these rooms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Literal

from ....model.resources import Shape
from ..capacity import Node
from .chance import Chance
from .drawing import AtRandom
from .face import Spot
from .ranking import ByIdentity, Pick, Ranking
from .rooms import Mark, Member, Room, Rooms

SHAPES_MAX: Final = 512  # rankings kept; the one that was not asked for the longest goes

Ties = Literal["first", "random"]


class Indexed(ABC):
    """A policy that scores a room for a shape, in whole numbers. The highest score wins.

    Of equals the first node by identity is taken, or with `ties="random"` any, by a generator that starts at `seed`.
    """

    def __init__(self, ties: Ties = "first", seed: int = 0) -> None:
        self.chance = Chance(seed)
        self.rooms = Rooms(self.mark, tells_all=ties == "random")
        self._random = ties == "random"
        self._rankings: dict[Shape, Ranking] = {}

    @abstractmethod
    def score(self, shape: Shape, room: Room) -> int:
        """How well a room suits a shape for which it has room."""

    def level(self, shape: Shape, room: Room) -> int:
        """What is free on the card that a share should come from: the fullest that has room for it."""
        return next(free for free in room.cards if free >= shape.gpu_milli)

    def mark(self, node: Node) -> Mark:
        """What nodes with the same free room differ in, for this policy."""
        return ()

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        self.rooms.put(node)

    def drop(self, node_id: str) -> None:
        """A node is open no more; unknown ones are ignored."""
        self.rooms.drop(node_id)

    def saw(self, shape: Shape) -> None:  # noqa: B027 (the face has it, few policies want it)
        """One container of this shape was asked for: of no matter to most policies."""

    def choose(self, shape: Shape, without: frozenset[str] = frozenset()) -> Spot | None:
        """The spot for a container of this shape on a node not in `without`, or None where there is none."""
        pick = self.pick(self.ranking(shape), without)
        if pick is None:
            return None
        return Spot(pick.node_id, self.cards(shape, pick.room, self.rooms.members[pick.node_id]))

    def remember(self) -> bytes:
        """What it has seen of demand: nothing, for most policies."""
        return b""

    def recall(self, memory: bytes) -> None:  # noqa: B027 (the face has it, few policies want it)
        """Go on from what another one remembered."""

    def pick(self, ranking: Ranking, without: frozenset[str]) -> Pick | None:
        """A node of the best rooms."""
        return ranking.best(without)

    def ranking(self, shape: Shape) -> Ranking:
        """The rooms in order for this shape."""
        ranking = self._rankings.pop(shape, None)
        if ranking is None:
            ranking = self._new_ranking(shape)
            if len(self._rankings) >= SHAPES_MAX:
                del self._rankings[next(iter(self._rankings))]
        self._rankings[shape] = ranking
        return ranking

    def _new_ranking(self, shape: Shape) -> Ranking:
        if self._random:
            return AtRandom(shape, self.rooms, self.score, self.chance)
        return ByIdentity(shape, self.rooms, self.score)

    def forget_scores(self) -> None:
        """Score everything anew: what the scores rest on has changed."""
        for ranking in self._rankings.values():
            ranking.forget()

    def cards(self, shape: Shape, room: Room, member: Member) -> tuple[int, ...]:
        """The numbers of the cards: for one share the first of the right level, else the fullest with enough free."""
        if shape.gpu_count == 1 and shape.shared:
            return (member.cards.index(self.level(shape, room)),)
        enough = [number for number, free in enumerate(member.cards) if free >= shape.gpu_milli]
        return tuple(sorted(enough, key=member.cards.__getitem__)[: shape.gpu_count])
