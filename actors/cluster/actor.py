"""The thin shell of attached clusters: it commits which there are, and has the actors of their pools come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import trio

from ...model.states import TokenKind
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ..committing import Surroundings, decide_commit_send
from ..in_turn import InTurn
from .decisions import BeginPool, ClusterPlan, ClusterPool, FinishPool
from .policy import ClustersPolicy
from .settings import ClusterSettings, Configured

ADDRESS: Final = "clusters"


class ClustersActor:
    """Attached clusters, in one epoch of leadership.

    `begin` and `finish` start and stop a pool's actor; `terms` has calls judged by what a pool is now.
    """

    def __init__(
        self,
        around: Surroundings,
        settings: ClusterSettings,
        configured: Iterable[Configured],
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        *,
        begin: Callable[[ClusterPool], Awaitable[None]],
        finish: Callable[[str], Awaitable[None]],
        terms: Callable[[ClusterPool], None],
    ) -> None:
        self._around = around
        self._new_policy = partial(ClustersPolicy, settings, configured, around.epoch, new_id, new_token)
        self._begin = begin
        self._finish = finish
        self._terms = terms

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin what the store knows, then take letters until cancelled or until a commit fails."""
        policy = self._new_policy()
        clusters, workers, workspaces = await self._around.store.apply(
            ops.ListClusters(), ops.LoadWorkers(), ops.ListWorkspaces()
        )
        policy.load(
            rows_of(clusters, ops.ClusterRow), rows_of(workers, ops.WorkerRow), rows_of(workspaces, ops.WorkspaceRow)
        )
        changes: InTurn[BeginPool | FinishPool] = InTurn()

        def perform(plan: ClusterPlan) -> None:
            for change in plan.changes:
                if isinstance(change, BeginPool | FinishPool):
                    changes.add(change)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.carry_out, self._carry_out)
            task_status.started()
            await decide_commit_send(policy, mailbox, self._around, ADDRESS, perform, self._agree)

    def _agree(self, plan: ClusterPlan) -> None:
        for change in plan.changes:
            if not isinstance(change, FinishPool):
                self._terms(change.pool)

    async def _carry_out(self, change: BeginPool | FinishPool) -> None:
        if isinstance(change, BeginPool):
            await self._begin(change.pool)
        else:
            await self._finish(change.name)
