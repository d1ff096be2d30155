"""The thin shell of the provisioning guard: it counts from the store's rows, then answers pools."""

from __future__ import annotations

from typing import Final

import trio

from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ..committing import Surroundings, decide_commit_send
from .guard import GuardPolicy, GuardSettings

ADDRESS: Final = "guard"
GONE_COUNTED: Final = 2_000  # of the newest that are gone: those ordered within the last minute count as added


class GuardActor:
    """The guard of all pools, in one epoch of leadership."""

    def __init__(self, around: Surroundings, settings: GuardSettings) -> None:
        self._around = around
        self._settings = settings

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Count, then answer until cancelled."""
        policy = GuardPolicy(self._settings)
        (workers,) = await self._around.store.apply(ops.LoadWorkers(gone=GONE_COUNTED))
        policy.load(rows_of(workers, ops.WorkerRow), self._around.clock())
        task_status.started()
        await decide_commit_send(policy, mailbox, self._around, ADDRESS)
