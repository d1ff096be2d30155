"""The thin shell of the registry: it commits which pools there are, and has their actors started and stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import trio

from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ..committing import Surroundings, decide_commit_send
from .registry import Begin, Finish, PoolRegistry, RegistryPlan
from .settings import PoolSettings

ADDRESS: Final = "pools"


class PoolsActor:
    """The pools that come and go, in one epoch of leadership. `begin` and `finish` start and stop a pool's actor."""

    def __init__(
        self,
        around: Surroundings,
        configured: Iterable[str],
        read: Callable[[str, str, int], PoolSettings],
        begin: Callable[[PoolSettings], Awaitable[None]],
        finish: Callable[[str], Awaitable[None]],
    ) -> None:
        self._around = around
        self._new_registry = partial(PoolRegistry, configured, read)
        self._begin = begin
        self._finish = finish

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin what the store knows, then take letters until cancelled or until a commit fails."""
        registry = self._new_registry()
        specs, workers = await self._around.store.apply(ops.ListPoolSpecs(), ops.LoadWorkers())
        registry.load(rows_of(specs, ops.PoolSpecRow), rows_of(workers, ops.WorkerRow))
        changes = _Changes()

        def perform(plan: RegistryPlan) -> None:
            changes.add(plan.changes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry_out, changes)
            task_status.started()
            await decide_commit_send(registry, mailbox, self._around, ADDRESS, perform)

    async def _carry_out(self, changes: _Changes) -> None:
        """One after the other: a pool that is taken away begins anew as one that retires."""
        while True:
            change = await changes.next()
            if isinstance(change, Begin):
                await self._begin(change.settings)
            else:
                await self._finish(change.name)


class _Changes:
    """What is still to be carried out. Bounded by the number of pools: each has few changes at a time."""

    def __init__(self) -> None:
        self._waiting: list[Begin | Finish] = []
        self._news = trio.Event()

    def add(self, changes: Iterable[Begin | Finish]) -> None:
        self._waiting += changes
        self._news.set()

    async def next(self) -> Begin | Finish:
        while not self._waiting:
            self._news = trio.Event()
            await self._news.wait()
        return self._waiting.pop(0)
