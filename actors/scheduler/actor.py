"""The thin shell of `scheduler`: load, then decide, commit, send, and keep a journal of what was decided."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from ...model.queues import Queueing
from ...model.states import TokenKind
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ...wire.scheduling import PoolDeclared
from ..committing import Surroundings, decide_commit_send
from .group import Plan
from .journal_files import JournalWriter
from .policy import SchedulerPolicy

ADDRESS: Final = "scheduler"
_NO_QUEUEING: Final = Queueing()


class SchedulerActor:
    """Containers and workers of the whole control plane, in one epoch of leadership.

    `declared` are pools known beforehand, `queueing` is what files say of queues and quotas.
    """

    def __init__(
        self,
        around: Surroundings,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        declared: tuple[PoolDeclared, ...] = (),
        queueing: Queueing = _NO_QUEUEING,
        journal: JournalWriter | None = None,
    ) -> None:
        self._around = around
        self._new_policy = partial(SchedulerPolicy, new_id, new_token, declared, queueing)
        self._journal = journal

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what has not ended, then take letters until cancelled or until a commit fails."""
        policy = self._new_policy()
        stubs, containers, workers, kept = await self._around.store.apply(
            ops.ReadStubs(), ops.LoadContainers(), ops.LoadWorkers(), ops.ReadQueueing()
        )
        specs = {row.stub_id: row.spec for row in rows_of(stubs, ops.StubRow)}
        policy.load(
            rows_of(workers, ops.WorkerRow),
            rows_of(containers, ops.ContainerRow),
            specs,
            self._around.clock(),
            kept.queueing if isinstance(kept, ops.QueueingRow) else _NO_QUEUEING,
        )
        async with trio.open_nursery() as nursery:
            if self._journal is not None:
                await nursery.start(self._journal.run)
            task_status.started()
            await decide_commit_send(policy, mailbox, self._around, ADDRESS, self._keep(policy))
            nursery.cancel_scope.cancel(reason="the scheduler has ended")

    def _keep(self, policy: SchedulerPolicy) -> Callable[[Plan], None]:
        """What is committed goes into the journal."""
        journal = self._journal

        def keep(_: Plan) -> None:
            records = policy.take_records()
            if journal is not None:
                journal.append(records, policy.core.now_s, policy.core.snapshot)

        return keep
