"""What nodes lack for those who find no room: each node is looked at once for all who may use the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        self._opened = [node for node in self._nodes if node.standing is Standing.OPEN]
        self._cpu_milli = max((node.cpu_milli for node in self._opened), default=0)
        self._memory_mib = max((node.memory_mib for node in self._opened), default=0)
        self._cards: dict[tuple[tuple[str, ...], int], int] = {}

    def lacks(self, shape: Shape) -> tuple[Lack, ...]:
        """What the fullest of these nodes lack for one container: cards first, since they are what is scarce."""
        lacks = []
        if shape.gpu_count:
            most = self._most_cards(shape)
            if most < shape.gpu_count:
                wanted = shape.accelerator or " or ".join(shape.gpu_types) or "gpu"
                lacks.append(Lack(wanted, (shape.gpu_count - most) * shape.gpu_milli))
        if self._cpu_milli < shape.cpu_milli:
            lacks.append(Lack("cpu", shape.cpu_milli - self._cpu_milli))
        if self._memory_mib < shape.memory_mib:
            lacks.append(Lack("memory", shape.memory_mib - self._memory_mib))
        return tuple(lacks)

    def ever(self, shape: Shape) -> bool:
        """Whether any of them is large enough, whatever is free."""
        return any(node.kind.capacity.fits(shape) for node in self._nodes)

    def _most_cards(self, shape: Shape) -> int:
        types = (*shape.gpu_types, "or", shape.accelerator)
        most = self._cards.get((types, shape.gpu_milli))
        if most is None:
            right = (node for node in self._opened if shape.takes_type(node.kind.capacity.gpu_type))
            most = max((sum(free >= shape.gpu_milli for free in node.free_cards) for node in right), default=0)
            self._cards[types, shape.gpu_milli] = most
        return most


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
        return Reason(kind=kind, lacks=able.lacks(shape), excluded=excluded[:NODES_TOLD])

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
