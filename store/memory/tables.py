"""What an in-memory store holds, and the register of how each operation is carried out on it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar, cast

from ..operations import (
    Answer,
    AttemptRow,
    ClusterRow,
    ContainerRow,
    Leadership,
    Operation,
    OutboxRow,
    PoolRecord,
    PoolSpecRow,
    QueueingRow,
    StubRow,
    TaskRow,
    TokenRow,
    WorkerRow,
    WorkspaceRow,
)

Op = TypeVar("Op", bound=Operation)
R = TypeVar("R")


class Tables:
    """The rows, each by its key."""

    def __init__(self) -> None:
        self.leadership: Leadership | None = None
        self.workspaces: dict[str, WorkspaceRow] = {}
        self.tokens: dict[str, TokenRow] = {}
        self.stubs: dict[str, StubRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.attempts: dict[str, list[AttemptRow]] = {}
        self.containers: dict[str, ContainerRow] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.pools: dict[tuple[str, str], PoolRecord] = {}
        self.pool_specs: dict[str, PoolSpecRow] = {}
        self.clusters: dict[str, ClusterRow] = {}
        self.queueing = QueueingRow()
        self.outbox: dict[str, OutboxRow] = {}

    def leads(self, epoch: int) -> bool:
        """Whether this epoch leads."""
        return self.leadership is not None and self.leadership.epoch == epoch and self.leadership.holder != ""


_HANDLERS: Final[dict[type[Operation], Callable[[Tables, Operation], Answer]]] = {}


def carries_out(kind: type[Op]) -> Callable[[Callable[[Tables, Op], Answer]], Callable[[Tables, Op], Answer]]:
    """Register the decorated function as what an operation of this kind does. It never raises."""

    def register(function: Callable[[Tables, Op], Answer]) -> Callable[[Tables, Op], Answer]:
        _HANDLERS[kind] = cast("Callable[[Tables, Operation], Answer]", function)
        return function

    return register


def carry_out(tables: Tables, operation: Operation) -> Answer:
    """Do one operation."""
    return _HANDLERS[type(operation)](tables, operation)


def insert_new(table: dict[str, R], rows: Iterable[tuple[str, R]]) -> tuple[str, ...]:
    """Keep the rows whose key is not known yet; answer those keys in order."""
    new: list[str] = []
    for key, row in rows:
        if key not in table:
            table[key] = row
            new.append(key)
    return tuple(new)


def in_given_order(given: Iterable[str], applied: Container[str]) -> tuple[str, ...]:
    """Those of `given` to which something applied, each once, where it was named first."""
    return tuple([key for key in dict.fromkeys(given) if key in applied])
