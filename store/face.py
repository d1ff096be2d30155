"""The store's face: what every store does, whether it is Postgres or memory."""

from __future__ import annotations

from typing import Protocol

import msgspec

from .operations import Answer, Operation


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a store did so far."""

    operations: int
    commits: int
    failures: int
    largest_group: int
    waiting: int


class Store(Protocol):
    """Operations on the truth. Writes of several callers share a commit; each caller's own operations stay together."""

    async def apply(self, *operations: Operation, epoch: int | None = None) -> tuple[Answer, ...]:
        """Carry out the operations in one transaction, in order, and answer each, once it is committed.

        With `epoch`, only while that epoch leads. Raises `EpochSuperseded` (nothing done), `StoreUnavailable` (nothing
        done) or `OutcomeUnknown` (read the truth again), and `Refused` for text that no row can hold, as NUL in an id
        (nothing done). Cancelling the caller does not undo a commit under way.
        """
        ...

    def statistics(self) -> StoreStatistics:
        """What it did so far."""
        ...
