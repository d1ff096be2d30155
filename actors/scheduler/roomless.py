"""What nodes lack for those who find no room: each node is looked at once for all who may use the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ...model.reasons import HoldKind, Lack, Reason
from ...model.resources import Shape
from .board import Board
from .capacity import Node, Standing
from .events import Request
from .fleet import Pool
from .shortage import excluded_for

NODES_LOOKED_AT: Final = 512  # for what is lacking: of more nodes these say enough
NODES_TOLD: Final = 5

_Asked = tuple[str, str, tuple[tuple[str, str], ...], str, bool]  # workspace, pool, labels, runtime, shared


class Able:
    """The nodes that could take what somebody asks for if they were empty and open, and what the freest have."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = tuple(nodes)
        self.any = bool(self._nodes)
        self.closed = [node for node in self._nodes if node.standing is Standing.CLOSED]
        self._opened = _Free(node for node in self._nodes if node.standing is Standing.OPEN)
        self._offered = _Free(node for node in self._nodes if node.standing is Standing.OFFERED)

    def lacks(self, shape: Shape) -> tuple[Lack, ...]:
        """What the fullest of these nodes lack for one container: cards first, since they are what is scarce.

        Nodes that could get a worker count as well, unless one of them would do: then it is workers that lack it.
        """
        most = self._opened.most(shape)
        offered = self._offered.most(shape)
        if not _covers(offered, shape):
            most = [max(pair) for pair in zip(most, offered)]
        cards, cpu_milli, memory_mib = most
        lacks = []
        if cards < shape.gpu_count:
            wanted = shape.accelerator or " or ".join(shape.gpu_types) or "gpu"
            lacks.append(Lack(wanted, (shape.gpu_count - cards) * shape.gpu_milli))
        if cpu_milli < shape.cpu_milli:
            lacks.append(Lack("cpu", shape.cpu_milli - cpu_milli))
        if memory_mib < shape.memory_mib:
            lacks.append(Lack("memory", shape.memory_mib - memory_mib))
        return tuple(lacks)

    def spread(self, shape: Shape) -> tuple[int, int]:
        """How many cards are free on several nodes, and the most on one, in thousandths, where no one has enough."""
        if not shape.gpu_count or len(self._nodes) >= NODES_LOOKED_AT:
            return 0, 0
        opened, offered = self._opened.cards(shape), self._offered.cards(shape)
        most, free = max(opened[0], offered[0]), opened[1] + offered[1]
        if not most < min(free, shape.gpu_count):
            return 0, 0
        return free * shape.gpu_milli, most * shape.gpu_milli

    def ever(self, shape: Shape) -> bool:
        """Whether any of them is large enough, whatever is free."""
        return any(node.kind.capacity.fits(shape) for node in self._nodes)


class _Free:
    """What is free on some nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = tuple(nodes)
        self._cpu_milli = max((node.cpu_milli for node in self._nodes), default=0)
        self._memory_mib = max((node.memory_mib for node in self._nodes), default=0)
        self._cards: dict[tuple[tuple[str, ...], int], tuple[int, int]] = {}

    def most(self, shape: Shape) -> list[int]:
        """The most on any one of them: cards for such a shape, CPU, memory."""
        return [self.cards(shape)[0], self._cpu_milli, self._memory_mib]

    def cards(self, shape: Shape) -> tuple[int, int]:
        """The most cards on one node that a container of this shape could have, and all of them."""
        if not shape.gpu_count:
            return 0, 0
        types = (*shape.gpu_types, "or", shape.accelerator)
        counted = self._cards.get((types, shape.gpu_milli))
        if counted is None:
            right = [node for node in self._nodes if shape.takes_type(node.kind.capacity.gpu_type)]
            free = [sum(free >= shape.gpu_milli for free in node.free_cards) for node in right]
            counted = self._cards[types, shape.gpu_milli] = max(free, default=0), sum(free)
        return counted


def _covers(most: Sequence[int], shape: Shape) -> bool:
    return all(has >= wants for has, wants in zip(most, (shape.gpu_count, shape.cpu_milli, shape.memory_mib)))


class Roomless:
    """Why there is no room; what was seen of nodes counts until it is forgotten."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._seen: dict[_Asked, Able] = {}

    def forget(self) -> None:
        """Nodes are looked at anew."""
        self._seen.clear()

    def why(self, request: Request, shape: Shape, starting: bool) -> Reason:
        """What is lacking, and where there would be room if it were open."""
        able = self._able(request.workspace, shape)
        kind = HoldKind.STARTING if starting else HoldKind.ROOM
        if not able.any and not starting and not any(self._board.fleet.eligible(request.workspace, shape.pool)):
            return Reason(kind=HoldKind.NO_POOL)
        if self._is_reserved(request, shape):
            return Reason(kind=HoldKind.RESERVED)
        unknown = next(self._unknown(request.workspace, shape), None)
        if unknown is not None and not starting and not able.ever(shape):
            return Reason(kind=HoldKind.UNREPORTED, pool=unknown.name)
        pools, workspace = self._board.fleet.pools, request.workspace
        closed = (node for node in able.closed if node.fits(pools[node.kind.pool].asked(shape, workspace)))
        excluded = excluded_for(closed)
        free, most = able.spread(shape)
        lacks = able.lacks(shape)
        return Reason(kind=kind, lacks=lacks, excluded=excluded[:NODES_TOLD], free=free, most=most)

    def _able(self, workspace: str, shape: Shape) -> Able:
        asked = workspace, shape.pool, shape.labels, shape.runtime, shape.shared
        able = self._seen.get(asked)
        if able is None:
            nodes = islice(self._board.fleet.serving(workspace, shape), NODES_LOOKED_AT)
            able = self._seen[asked] = Able(node for node, theirs in nodes if node.kind.admits(theirs))
        return able

    def _unknown(self, workspace: str, shape: Shape) -> Iterator[Pool]:
        """The pools of which nothing is known but that they have such cards."""
        for pool in self._board.fleet.eligible(workspace, shape.pool):
            if pool.unknown and (not shape.gpu_count or not pool.gpu_type or shape.takes_type(pool.gpu_type)):
                yield pool

    def _is_reserved(self, request: Request, shape: Shape) -> bool:
        """Whether there is room that is kept for somebody else."""
        board = self._board
        reserved = board.reservations.without(request, board.now_s)
        if not reserved:
            return False
        pools = {pool.name: pool for pool in board.fleet.eligible(request.workspace, shape.pool)}
        nodes = (board.fleet.nodes.get(node_id) for node_id in sorted(reserved))
        return any(
            node.standing is Standing.OPEN and node.fits(pools[node.kind.pool].asked(shape, request.workspace))
            for node in nodes
            if node is not None and node.kind.pool in pools
        )
