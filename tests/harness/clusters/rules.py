"""The invariants of a world of clusters, held against each commit. Only what it touched is looked at.

The store says what the control plane believes; the fleet (`Fleet`) knows what is so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from levers9.model.clusters import pool_of
from levers9.model.states import ContainerState, TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.memory.tables import Tables

SERVES_AT_ONCE_S: Final = 1.0  # placements that were decided when a cluster was taken back are committed within this
_PENDING: Final = (WorkerState.ORDERED, WorkerState.PENDING)


class Fleet(Protocol):
    """What is really so."""

    def nodes_of(self, pool: str) -> int:
        """How many nodes the cluster of a pool has."""
        ...

    def given_up(self, worker_id: str) -> None:
        """The store says from now on that this worker is gone."""
        ...

    def detached(self, pool: str) -> None:
        """The cluster of a pool was left."""
        ...

    def draining(self, worker_id: str) -> None:
        """A worker winds down."""
        ...


class Rules:
    """`violated` hears of each rule that is broken; `clock` is Unix seconds."""

    def __init__(
        self, tables: Tables, fleet: Fleet, clock: Callable[[], float], violated: Callable[[str], None]
    ) -> None:
        self._tables = tables
        self._fleet = fleet
        self._clock = clock
        self._violated = violated
        self._nodes: dict[tuple[str, str], str] = {}  # of a pool: who stands there
        self._pending: dict[str, dict[str, None]] = {}  # by pool
        self._cards: dict[str, dict[str, tuple[int, ...]]] = {}  # of a worker, by container
        self._serves: dict[str, tuple[str, float]] = {}  # by pool: the one workspace or "", and since when

    def hold(self, operations: tuple[ops.Operation, ...]) -> None:
        """One transaction was committed."""
        for operation in operations:
            match operation:
                case ops.PutWorkers(workers=rows):
                    for row in rows:
                        self._ordered(row)
                    self._check_tokens(operations)
                case ops.MoveWorkers(moves=moves):
                    for worker in moves:
                        self._moved(worker.worker_id)
                case ops.MoveContainers(moves=containers):
                    for container in containers:
                        self._container(container.container_id)
                case ops.PutCluster(cluster=cluster):
                    self._attached(cluster)

    def _attached(self, row: ops.ClusterRow) -> None:
        serves = "" if row.shared else row.workspace_id
        pool = pool_of(row.workspace_id, row.spec.name)
        if row.leaving:
            self._fleet.detached(pool)
        if self._serves.get(pool, ("none", 0.0))[0] != serves:
            self._serves[pool] = (serves, self._clock())

    # Workers

    def _ordered(self, row: ops.WorkerRow) -> None:
        """I1: at most one a node, and no more on their way than there are nodes."""
        if self._tables.workers.get(row.worker_id) != row:
            return
        owner = self._nodes.setdefault((row.pool, row.traits.node), row.worker_id)
        if owner != row.worker_id:
            self._violated(f"I1: node {row.traits.node} of {row.pool} has the workers {owner} and {row.worker_id}")
        pending = self._pending.setdefault(row.pool, {})
        pending[row.worker_id] = None
        if len(pending) > self._fleet.nodes_of(row.pool):
            self._violated(f"I1: {len(pending)} workers of {row.pool} are pending, and it has fewer nodes")

    def _moved(self, worker_id: str) -> None:
        row = self._tables.workers.get(worker_id)
        if row is None:
            return
        if row.state not in _PENDING:
            self._pending.get(row.pool, {}).pop(worker_id, None)
        if row.state is WorkerState.DRAINING:
            self._fleet.draining(worker_id)
        if row.state is WorkerState.GONE and self._nodes.get((row.pool, row.traits.node)) == worker_id:
            del self._nodes[row.pool, row.traits.node]
            self._fleet.given_up(worker_id)

    def _check_tokens(self, operations: tuple[ops.Operation, ...]) -> None:
        """A worker's token is good for the one workspace that it serves, and for no other."""
        for operation in operations:
            if not isinstance(operation, ops.CreateToken):
                continue
            token = operation.token
            row = self._tables.workers.get(token.subject)
            if row is None:
                continue
            kind = TokenKind.WORKER_PRIVATE if row.traits.serves else TokenKind.WORKER
            if (token.kind, token.workspace_id) != (kind, row.traits.serves):
                self._violated(
                    f"worker {row.worker_id} serves {row.traits.serves or 'any'} and has a {token.kind} token"
                )

    # Containers

    def _container(self, container_id: str) -> None:
        row = self._tables.containers.get(container_id)
        if row is None:
            return
        held = self._cards.setdefault(row.worker_id, {})
        if row.state is ContainerState.ENDED:
            for cards in self._cards.values():
                cards.pop(container_id, None)
        elif row.worker_id and container_id not in held:
            self._check_workspace(row)
            self._check_cards(row, held)
            held[container_id] = row.cards

    def _check_cards(self, row: ops.ContainerRow, held: dict[str, tuple[int, ...]]) -> None:
        """I2: a card of a worker has one owner, and a worker gives no card that it has not."""
        worker = self._tables.workers.get(row.worker_id)
        for other, cards in held.items():
            if any(card in cards for card in row.cards):
                self._violated(f"I2: {row.container_id} and {other} have cards {row.cards} and {cards} of one worker")
        if worker is not None and any(card >= worker.capacity.gpu_count for card in row.cards):
            self._violated(f"I2: {row.container_id} has cards {row.cards} of {worker.capacity.gpu_count}")

    def _check_workspace(self, row: ops.ContainerRow) -> None:
        """No work of others on a private cluster's worker, nor on one whose token serves one workspace."""
        worker = self._tables.workers.get(row.worker_id)
        if worker is None:
            return
        if worker.traits.serves not in ("", row.workspace_id):
            self._violated(f"{row.container_id} of {row.workspace_id} is on a worker for {worker.traits.serves}")
        serves, since_s = self._serves.get(worker.pool, ("", 0.0))
        if serves not in ("", row.workspace_id) and self._clock() > since_s + SERVES_AT_ONCE_S:
            self._violated(f"{row.container_id} of {row.workspace_id} is placed on the cluster of {serves}")
