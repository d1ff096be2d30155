"""The thin shell of one pool of kind `process`: decide, commit, send, and start what was ordered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from ...model.states import TokenKind
from ...store import operations as ops
from ...store.operations import rows_of
from ...wire.letter import Letter
from ...wire.mailbox import Mailbox
from ...wire.message import Message
from ..committing import Surroundings, decide_commit_send
from .policy import GONE_LOOKED_AT, Adopt, EndWorker, PoolPlan, PoolPolicy, StartWorker
from .settings import PoolSettings


class Processes(Protocol):
    """What runs a pool's workers. `start` and `adopt` stay until the worker has ended, or their reign has."""

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Start the worker of a committed order; `tell` hears of its start and its end."""
        ...

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Watch a worker that an earlier leader started."""
        ...

    async def end(self, order: EndWorker) -> None:
        """End one worker, if it runs here; whoever watches it tells of that."""
        ...

    async def stop_all(self) -> None:
        """End all workers that run."""
        ...


class PoolActor:
    """One pool, in one epoch of leadership."""

    def __init__(
        self,
        around: Surroundings,
        settings: PoolSettings,
        processes: Processes,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
    ) -> None:
        self._around = around
        self._processes = processes
        self.address = f"pool/{settings.name}"
        self._new_policy = partial(PoolPolicy, settings, new_id, new_token)

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the orders of earlier leaders, then take letters until cancelled or until a commit fails."""
        policy = self._new_policy()
        (workers,) = await self._around.store.apply(ops.LoadWorkers(gone=GONE_LOOKED_AT))
        policy.load(rows_of(workers, ops.WorkerRow))

        def tell(message: Message) -> None:
            mailbox.post_nowait(Letter(message, source="spawner", target=self.address))

        async with trio.open_nursery() as nursery:

            def perform(plan: PoolPlan) -> None:
                for start in plan.starts:
                    nursery.start_soon(self._processes.start, start, tell)
                for adopt in plan.adopts:
                    nursery.start_soon(self._processes.adopt, adopt, tell)
                for end in plan.ends:
                    nursery.start_soon(self._processes.end, end)

            task_status.started()
            await decide_commit_send(policy, mailbox, self._around, self.address, perform)
