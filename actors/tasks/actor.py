"""The thin shell of `tasks`: load, then decide, commit, send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from ...model.feasibility import PoolOffer, PoolTerms, unknown_offer
from ...model.figures import KEPT_AFTER_READ_S, KEPT_UNREAD_S
from ...model.queueing_checks import fitting
from ...model.queueing_parts import merged
from ...model.queues import Queueing
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.mailbox import Mailbox
from ..committing import Surroundings, decide_commit_send
from .policy import TasksPolicy

ADDRESS: Final = "tasks"
LOAD_PAGE: Final = 5_000
OFFERS_EVERY_S: Final = 2.0
PRUNE_EVERY_S: Final = 60.0
ANYBODY: Final = PoolTerms()
_NO_QUEUEING: Final = Queueing()


class TasksActor:
    """Calls of the whole control plane, in one epoch of leadership.

    `terms` say of pools, by name, whom they serve and what they are called, and may change meanwhile: one that is not
    there serves anybody. `queueing` is what files say of queues: it comes before what was said over REST.
    """

    def __init__(
        self,
        around: Surroundings,
        new_id: Callable[[str], str],
        terms: Mapping[str, PoolTerms] | None = None,
        queueing: Queueing = _NO_QUEUEING,
    ) -> None:
        self._around = around
        self._new_id = new_id
        self._terms = {} if terms is None else terms
        self._queueing = queueing
        self._bell = trio.Event()
        self._pools: ops.Answer = ()
        self._kept: ops.Answer = None

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what has not ended, then take letters until cancelled or until a commit fails."""

        def changed() -> None:
            """Whom pools serve is known here at once; what else has changed is read."""
            self._offer(policy)
            self._bell.set()

        policy = TasksPolicy(self._new_id, self._around.counts, changed)
        await self._load(policy)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_offers, policy)
            nursery.start_soon(self._prune)
            task_status.started()
            await decide_commit_send(policy, mailbox, self._around, ADDRESS)

    async def _load(self, policy: TasksPolicy) -> None:
        store = self._around.store
        stubs, containers, self._pools, self._kept = await store.apply(
            ops.ReadStubs(), ops.LoadContainers(), ops.ListPools(), ops.ReadQueueing()
        )
        self._offer(policy)
        now_s = self._around.clock()
        policy.load(rows_of(stubs, ops.StubRow), rows_of(containers, ops.ContainerRow), (), now_s)
        after = (0.0, "")
        while True:
            (page,) = await store.apply(ops.LoadUnfinished(after=after, limit=LOAD_PAGE))
            tasks = rows_of(page, ops.TaskRow)
            await self._load_lost(policy, policy.lost(tasks), now_s)
            policy.load((), (), tasks, now_s)
            if len(tasks) < LOAD_PAGE:
                return
            after = (tasks[-1].accepted_at_s, tasks[-1].task_id)

    async def _load_lost(self, policy: TasksPolicy, container_ids: tuple[str, ...], now_s: float) -> None:
        if container_ids:
            (rows,) = await self._around.store.apply(ops.ReadContainers(container_ids=container_ids))
            policy.load((), rows_of(rows, ops.ContainerRow), (), now_s)

    def _offer(self, policy: TasksPolicy) -> None:
        policy.offer(offers_of(self._pools, self._terms), self._merged(self._kept))

    async def _keep_offers(self, policy: TasksPolicy) -> None:
        """Read them when they have changed, as far as somebody says so, and every now and then."""
        while True:
            self._bell = trio.Event()
            self._pools, self._kept = await self._around.store.apply(ops.ListPools(), ops.ReadQueueing())
            self._offer(policy)
            with trio.move_on_after(OFFERS_EVERY_S):
                await self._bell.wait()

    def _merged(self, kept: ops.Answer) -> Queueing:
        if not isinstance(kept, ops.QueueingRow):
            return self._queueing
        return merged(fitting(kept.queueing, self._queueing), self._queueing)

    async def _prune(self) -> None:
        while True:
            await trio.sleep(PRUNE_EVERY_S)
            now_s = self._around.clock()
            await self._around.store.apply(
                ops.PruneTasks(taken_before_s=now_s - KEPT_AFTER_READ_S, ended_before_s=now_s - KEPT_UNREAD_S),
                epoch=self._around.epoch,
            )


def offers_of(answer: ops.Answer, terms: Mapping[str, PoolTerms]) -> tuple[PoolOffer, ...]:
    """What pools offer or have ever had, or are said to have, and whom they serve."""
    known = tuple(_offer(row, terms.get(row.pool, ANYBODY)) for row in rows_of(answer, ops.PoolRecord))
    seen = {(offer.pool, offer.largest.gpu_type) for offer in known if offer.largest.gpu_count}
    unseen = ((pool, each) for pool, each in sorted(terms.items()) if each.gpu_type)
    return (*known, *(unknown_offer(pool, each) for pool, each in unseen if (pool, each.gpu_type) not in seen))


def _offer(row: ops.PoolRecord, terms: PoolTerms) -> PoolOffer:
    return PoolOffer(
        pool=row.pool,
        largest=row.largest,
        serves=terms.serves,
        offers=row.offers,
        max_workers=row.max_workers,
        owner=terms.owner,
        known_as=terms.known_as,
        reported=terms.reported,
    )
