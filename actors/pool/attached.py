"""Workers of a cluster's pool: their Jobs are the business of `clusters`, which tells the pool what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

from ...wire.cluster import AdoptWorkerJob, EndWorkerJob, RunWorkerJob
from ...wire.letter import Letter
from ...wire.message import Message
from ...wire.post import Post
from .policy import Adopt, EndWorker, StartWorker


class AttachedWorkers:
    """The workers of one pool, as letters to `clusters`: what it answers goes to the pool's actor itself."""

    def __init__(self, post: Post, pool: str) -> None:
        self._post = post
        self._pool = pool

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Have a Job created."""
        await self._say(
            RunWorkerJob(
                pool=self._pool,
                worker_id=order.worker_id,
                token=order.token,
                capacity=order.capacity,
                traits=order.traits,
            )
        )

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Have an earlier leader's Job looked for."""
        await self._say(
            AdoptWorkerJob(
                pool=self._pool,
                worker_id=order.worker_id,
                handle=order.handle,
                state=order.state,
                node=order.node,
                ordered_at_s=order.ordered_at_s,
            )
        )

    async def end(self, order: EndWorker) -> None:
        """Have a Job deleted."""
        await self._say(EndWorkerJob(pool=self._pool, worker_id=order.worker_id, why=order.why))

    async def stop_all(self) -> None:
        """They run in somebody's cluster, and outlive us."""

    async def _say(self, message: Message) -> None:
        await self._post.send(Letter(message, source=f"pool/{self._pool}", target="clusters"))
