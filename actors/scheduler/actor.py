"""The thin shell of `scheduler`: load, then decide, commit, send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from ...model.resources import Capacity
from ...model.states import TokenKind
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ..committing import Surroundings, decide_commit_send
from .policy import SchedulerPolicy

ADDRESS: Final = "scheduler"


class SchedulerActor:
    """Containers and workers of the whole control plane, in one epoch of leadership."""

    def __init__(
        self,
        around: Surroundings,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        pools: tuple[str, ...],
        keep: dict[str, int],
        sizes: dict[str, Capacity] | None = None,
        serves: Mapping[str, str] | None = None,
    ) -> None:
        self._around = around
        self._new_id = new_id
        self._new_token = new_token
        self._pools = pools
        self._keep = keep
        self._sizes = sizes
        self._serves = serves

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what has not ended, then take letters until cancelled or until a commit fails."""
        policy = SchedulerPolicy(self._new_id, self._new_token, self._pools, self._keep, self._sizes, self._serves)
        stubs, containers, workers = await self._around.store.apply(
            ops.ReadStubs(), ops.LoadContainers(), ops.LoadWorkers()
        )
        specs = {row.stub_id: row.spec for row in rows_of(stubs, ops.StubRow)}
        now_s = self._around.clock()
        policy.load(rows_of(workers, ops.WorkerRow), rows_of(containers, ops.ContainerRow), specs, now_s)
        task_status.started()
        await decide_commit_send(policy, mailbox, self._around, ADDRESS)
