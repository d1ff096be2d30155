"""The actors of pools as children of a reign: those of the file, and those that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..actors.committing import Surroundings
from ..actors.pool import AttachedWorkers, PoolActor, PoolSettings, Processes
from ..model.feasibility import PoolTerms
from ..model.states import TokenKind
from ..supervisor import ChildSpec, StartChild, Supervisor
from ..wire.post import Post
from .pools import Machines

ATTACHED: Final = "attached"  # the kind of a pool whose cluster's agent dials in


class PoolChildren:
    """The pools of one brain, over all its reigns: their actors end with each, what runs their workers does not.

    `terms` is how calls are judged by each pool, and is read while it changes.
    """

    def __init__(
        self,
        machines: Machines,
        post: Post,
        new_id: Callable[[str], str],
        new_token: Callable[[TokenKind], str],
        child: Callable[[str, StartChild], ChildSpec],
    ) -> None:
        self._machines = machines
        self._post = post
        self._new_id = new_id
        self._new_token = new_token
        self._child = child
        self._processes: dict[str, Processes] = {}
        self.terms: dict[str, PoolTerms] = {}

    def spec(self, around: Surroundings, pool: PoolSettings, kind: str) -> ChildSpec:
        """The child that a pool's actor is."""
        if pool.name not in self._processes:
            self._processes[pool.name] = self._run_by(pool, kind)
        actor = PoolActor(around, pool, self._processes[pool.name], self._new_id, self._new_token)
        return self._child(actor.address, actor.run)

    def _run_by(self, pool: PoolSettings, kind: str) -> Processes:
        if pool.attached:
            return AttachedWorkers(self._post, pool.name)
        return self._machines(kind, pool, self._post)

    def agree(self, pool: PoolSettings) -> None:
        """From now on calls are judged by this."""
        self.terms[pool.name] = PoolTerms(
            serves=pool.serves,
            known_as=pool.known_as,
            owner=pool.owner,
            gpu_type=pool.gpu_type,
            reported=pool.attached,
        )

    async def begin(self, tree: Supervisor, around: Surroundings, pool: PoolSettings, kind: str) -> None:
        """Start a pool's actor, in place of one of that name."""
        await tree.stop_child(f"pool/{pool.name}", "it begins anew, with other settings")
        self.agree(pool)
        await tree.start_child(self.spec(around, pool, kind))

    async def finish(self, tree: Supervisor, name: str) -> None:
        """Stop a pool's actor, and forget the pool."""
        await tree.stop_child(f"pool/{name}")
        self._processes.pop(name, None)
        self.terms.pop(name, None)

    async def stop_workers(self) -> None:
        """For a laptop, where nothing is left running."""
        for processes in self._processes.values():
            await processes.stop_all()
