"""Five policies that the FGD paper (USENIX ATC 2023) compares its own with, with its scores: coarse on purpose."""

from __future__ import annotations

from typing import Final

from ....model.resources import CARD_MILLI, Shape
from ..capacity import Node
from .index import Indexed, Ties
from .ranking import Pick, Ranking
from .rooms import Mark, Member, Room

LARGEST_CPU_MILLI: Final = 128_000  # what the paper's scores are normalised by
LARGEST_GPU_MILLI: Final = 8_000
CPU_PER_GPU: Final = LARGEST_CPU_MILLI // LARGEST_GPU_MILLI
SHARE: Final = 0  # the kind of a container with a share of a card; the kind of others is their number of cards
TRIES: Final = 32  # at nodes by chance, before those that fit are gathered
_BITS: Final = 64  # of a quantity


class BestFit(Indexed):
    """The node that is left with least: cards weigh most, then CPU, then memory. It keeps cards for who wants cards."""

    def score(self, shape: Shape, room: Room) -> int:
        """Minus what would be left over."""
        left = (room.free_milli - shape.gpu_total_milli) << 2 * _BITS
        return -(left + ((room.cpu_milli - shape.cpu_milli) << _BITS) + room.memory_mib - shape.memory_mib)


class PublishedBestFit(Indexed):
    """Best fit as the paper has it: CPU and GPU count alike, memory doesn't, and a point is 2.56 CPUs."""

    def score(self, shape: Shape, room: Room) -> int:
        """100 where nothing would be left of the largest node, 0 where all of it would."""
        left = room.cpu_milli - shape.cpu_milli + CPU_PER_GPU * (room.free_milli - shape.gpu_total_milli)
        return (100 * LARGEST_CPU_MILLI - 50 * left) // LARGEST_CPU_MILLI


class DotProduct(Indexed):
    """The smaller the product of what is asked and what is free, the better."""

    def score(self, shape: Shape, room: Room) -> int:
        """100 less the product."""
        product = room.cpu_milli * shape.cpu_milli + CPU_PER_GPU**2 * room.free_milli * shape.gpu_total_milli
        return (100 * LARGEST_CPU_MILLI**2 - 50 * product) // LARGEST_CPU_MILLI**2


class Packing(Indexed):
    """Cards in use before free cards, and the free cards of a busy node before those of an idle one."""

    def score(self, shape: Shape, room: Room) -> int:
        """Up to 100 for shares of cards in use, up to 50 on busy nodes, up to 33 on idle ones."""
        if not shape.gpu_count:
            return 0
        cards = room.kind.kind.capacity.gpu_count
        idle = room.cards.count(CARD_MILLI)
        if idle == cards:
            return max(33 - idle, idle)
        fullest = next(free for free in room.cards if free >= shape.gpu_milli)
        return 100 - fullest // 100 if fullest < CARD_MILLI else max(50 - shape.gpu_count, 33)


class Clustering(Indexed):
    """Containers that ask for the same number of cards keep together: best alone on a node, last among others."""

    def mark(self, node: Node) -> Mark:
        """The kinds of containers that are on a node."""
        return tuple(sorted({kind_of(len(use.cards), use.card_milli) for use in node.uses.values() if use.cards}))

    def score(self, shape: Shape, room: Room) -> int:
        """By the company on the node in steps of 25, then by how full it is."""
        if not shape.gpu_count:
            return 0
        used = 25 * (LARGEST_GPU_MILLI - room.free_milli) // LARGEST_GPU_MILLI
        if kind_of(shape.gpu_count, shape.gpu_milli) in room.mark:
            return used + (75 if len(room.mark) == 1 else 50)
        return used if room.mark else used + 25


def kind_of(cards: int, card_milli: int) -> int:
    """The number of cards, or `SHARE`."""
    return SHARE if card_milli < CARD_MILLI else cards


class Random(Indexed):
    """Any node and any card with room."""

    def __init__(self, ties: Ties = "random", seed: int = 0) -> None:
        super().__init__("random", seed)
        self._ids: list[str] = []
        self._places: dict[str, int] = {}

    def put(self, node: Node) -> None:
        """A node appeared, or changed."""
        super().put(node)
        if node.node_id not in self._places:
            self._places[node.node_id] = len(self._ids)
            self._ids.append(node.node_id)

    def drop(self, node_id: str) -> None:
        """A node is open no more; the last of the list takes its place."""
        super().drop(node_id)
        place = self._places.pop(node_id, None)
        if place is not None:
            last = self._ids.pop()
            if last != node_id:
                self._ids[place] = last
                self._places[last] = place

    def score(self, shape: Shape, room: Room) -> int:
        """All are as good as each other."""
        return 0

    def pick(self, ranking: Ranking, without: frozenset[str]) -> Pick | None:
        """A node by chance; where preference lists decide or few nodes fit, one of those that do."""
        shape = ranking.shape
        for _ in range(TRIES if self._ids and (len(shape.gpu_types) < 2 or shape.gpu_any_order) else 0):
            node_id = self._ids[self.chance.below(len(self._ids))]
            room = self.rooms.members[node_id].room
            if room.fits(shape) and node_id not in without and ranking.allows(room.kind):
                return Pick(node_id, room)
        return super().pick(ranking, without)

    def cards(self, shape: Shape, room: Room, member: Member) -> tuple[int, ...]:
        """A share comes from any card with room; whole cards are all alike."""
        enough = [number for number, free in enumerate(member.cards) if free >= shape.gpu_milli]
        if shape.shared and shape.gpu_count == 1:
            return (enough[self.chance.below(len(enough))],)
        return tuple(enough[: shape.gpu_count])
