"""Agents of clusters of the configuration: in our own process, over our own post, with the right to call their API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio

from .. import __version__
from ..actors.agent.actor import AgentActor
from ..actors.agent.jobs import Place
from ..actors.cluster import Configured
from ..errors import ConfigError
from ..kube.face import Kube
from ..model.clusters import Origin
from ..model.ids import Chance
from ..supervisor import ChildSpec, Supervisor
from ..wire.cluster import ClusterReported
from ..wire.letter import Letter
from ..wire.mailbox import Mailbox
from ..wire.message import Message
from ..wire.post import Post
from .settings import PoolTable, spec_of

AGAIN_S: Final = 30.0
ORIGINS: Final = {"local": Origin.LOCAL, "kubernetes": Origin.CREDENTIAL}
OpenCluster = Callable[[PoolTable, Chance], AbstractAsyncContextManager[Kube]]
_log: Final = structlog.get_logger("levers9.agents")


def configured(table: PoolTable, serves: str) -> Configured:
    """What the actor of clusters knows of one of the configuration."""
    return Configured(pool=table.name, spec=spec_of(table), origin=ORIGINS[table.kind], serves=serves)


@asynccontextmanager
async def open_cluster(table: PoolTable, chance: Chance) -> AsyncIterator[Kube]:
    """The API server of a pool: as its keys say, else our own pod's, else that of the usual kubeconfig.

    Raises `ConfigError` that says what is missing.
    """
    from ..kube.client import open_kube  # few brains have such pools
    from ..kube.config import load_config

    endpoint = await load_config(Path(table.kubeconfig) if table.kubeconfig else None, table.context or None)
    async with open_kube(endpoint, chance) as kube:
        yield kube


class InnerAgents:
    """One agent a cluster, for one reign. A cluster that cannot be reached is no trouble for the others, or for us."""

    def __init__(
        self,
        tables: Iterable[PoolTable],
        post: Post,
        chance: Chance,
        clock: Callable[[], float],
        opening: OpenCluster = open_cluster,
    ) -> None:
        self._post = post
        self._chance = chance
        self._clock = clock
        self._opening = opening
        self._lives = 0
        children = [ChildSpec(f"agent/{table.name}", partial(self._keep, table)) for table in tables]
        self._tree = Supervisor("agents", children, post=post, chance=chance)

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run them until cancelled. Raises `SupervisorGaveUp` when they fail too often."""
        await self._tree.run(task_status=task_status)

    async def _keep(self, table: PoolTable, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Its cluster's credentials may come later, or be wrong for a while: that is told, and tried again."""
        task_status.started()
        while True:
            self._lives += 1
            try:
                async with self._opening(table, self._chance) as kube:
                    await self._serve(table, kube, mailbox)
            except ConfigError as error:  # it was never reached: an agent's own troubles come in groups
                _log.warning("a cluster cannot be reached", pool=table.name, why=str(error))
                await self._tell(table, self._blind(table, str(error)))
                await trio.sleep(AGAIN_S)

    async def _serve(self, table: PoolTable, kube: Kube, mailbox: Mailbox) -> None:
        agent = AgentActor(
            kube=kube,
            place=Place(cluster_id=table.name, namespace=table.namespace),
            say=partial(self._tell, table),
            epoch=self._lives,
            version=__version__,
            chance=self._chance,
            unix=self._clock,
        )
        await agent.serve(mailbox)

    def _blind(self, table: PoolTable, problem: str) -> ClusterReported:
        return ClusterReported(cluster_id=table.name, epoch=self._lives, sequence=1, blind=True, problem=problem)

    async def _tell(self, table: PoolTable, message: Message) -> None:
        await self._post.send(Letter(message, source=f"agent/{table.name}", target="clusters"))
