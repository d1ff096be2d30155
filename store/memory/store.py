"""The in-memory store: each group at once, with faults on demand."""

from __future__ import annotations

from collections import deque

import trio

from ...errors import INVALID, EpochSuperseded, OutcomeUnknown, Refused, StoreUnavailable
from ..face import StoreStatistics
from ..operations import Answer, Operation
from ..text import unstorable
from . import accounts, fleet, pools, tasks
from .tables import Tables, carry_out

__all__ = ["MemoryStore"]

_REGISTERED = (accounts, fleet, pools, tasks)  # importing them registers what their operations do


class MemoryStore:
    """A `Store` in dicts: no thread, no clock, no chance; deterministic in virtual time.

    `apply` decides at the moment it is called and yields once, so callers are served in the order they come.
    """

    def __init__(self) -> None:
        self._tables = Tables()
        self._faults: deque[bool] = deque()
        self._operations = self._commits = self._failures = self._largest = 0

    def fail_next(self, *, before: bool = True) -> None:
        """Make the next `apply` fail: before its commit (`StoreUnavailable`), or after it (`OutcomeUnknown`).

        Called again, it is the one after that which fails.
        """
        self._faults.append(before)

    async def apply(self, *operations: Operation, epoch: int | None = None) -> tuple[Answer, ...]:
        """See `Store.apply`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        answers = self._commit(operations, epoch)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return answers

    def _commit(self, operations: tuple[Operation, ...], epoch: int | None) -> tuple[Answer, ...]:
        fault = self._faults.popleft() if self._faults else None
        if fault is True:
            self._failures += 1
            raise StoreUnavailable("the store was told to fail before the commit")
        for operation in operations:
            if (text := unstorable(operation)) is not None:
                raise Refused("The store cannot hold this.", f"{text[:80]!r} is no text for a row.", code=INVALID)
        if epoch is not None and not self._tables.leads(epoch):
            raise EpochSuperseded("leader", epoch)
        answers = tuple([carry_out(self._tables, operation) for operation in operations])
        self._operations += len(operations)
        self._commits += 1
        self._largest = max(self._largest, len(operations))
        if fault is False:
            self._failures += 1
            raise OutcomeUnknown("the store was told to fail after the commit")
        return answers

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`; nobody ever waits here."""
        return StoreStatistics(
            operations=self._operations,
            commits=self._commits,
            failures=self._failures,
            largest_group=self._largest,
            waiting=0,
        )
