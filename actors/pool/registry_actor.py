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
from ..in_turn import InTurn
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
        specs, workers, clusters = await self._around.store.apply(
            ops.ListPoolSpecs(), ops.LoadWorkers(), ops.ListClusters()
        )
        registry.load(
            rows_of(specs, ops.PoolSpecRow), rows_of(workers, ops.WorkerRow), rows_of(clusters, ops.ClusterRow)
        )
        changes: InTurn[Begin | Finish] = InTurn()

        def perform(plan: RegistryPlan) -> None:
            changes.add(*plan.changes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.carry_out, self._carry_out)
            task_status.started()
            await decide_commit_send(registry, mailbox, self._around, ADDRESS, perform)

    async def _carry_out(self, change: Begin | Finish) -> None:
        """A pool that is taken away begins anew as one that retires."""
        if isinstance(change, Begin):
            await self._begin(change.settings)
        else:
            await self._finish(change.name)
