"""The brain: tasks, scheduler and pools of one replica, and the links to the gateways beside it."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog
import trio

from .. import __version__
from ..actors.cluster import ClusterPool, ClustersActor, ClusterSettings, Configured
from ..actors.committing import Surroundings
from ..actors.counts import Counts
from ..actors.leader import Campaign, LeaderActor
from ..actors.pool import GuardActor, PoolsActor, PoolSettings
from ..actors.pool.settings import declarations, declared
from ..actors.scheduler import DEFAULT_PLACEMENT, Header, JournalWriter, SchedulerActor
from ..actors.tasks import TasksActor
from ..errors import BrokenByPeer, ClosedByUs
from ..model.ids import Chance
from ..model.states import TokenKind
from ..model.tokens import SECRET_BYTES, make_token
from ..store import operations as ops
from ..store.face import Store
from ..store.operations import rows_of
from ..store.revocations import RevocationsTold
from ..store.wakeups import MemoryWakeups, Wakeups
from ..supervisor import ChildSpec, Intensity, StartChild, Supervisor
from ..wire.carrier import Carrier
from ..wire.carriers import nng
from ..wire.control import ChildStanding, Inspect, Inspected, Totals
from ..wire.letter import answer
from ..wire.link import Acceptor, Link, Received
from ..wire.mailbox import Mailbox
from ..wire.post import Post
from ..wire.quarantine import Quarantine
from .accounts import ensure_accounts, ensure_replica_token
from .clusters import cluster_settings, settings_of
from .collector import settle
from .inner_agents import InnerAgents, OpenCluster, configured, open_cluster
from .logs import set_up_logs
from .orders import BrainOrders, gateway_ipc, journal_dir
from .pool_children import ATTACHED, PoolChildren
from .pools import Machines, guard_settings, machines_of, pool_settings, read_table
from .queueing import queueing_of_files
from .root_tree import read_root_tree
from .settings import PoolTable
from .signals import until_signal

CLUSTERS_RANK: Final = 1_000_000  # their pools are asked after those of the file, and those that people create
START_PATIENCE_S: Final = 60.0  # an embedded Postgres may have to recover first

_log: Final = structlog.get_logger("levers9.brain")


class Listen(Protocol):
    """Takes the carriers that arrive at a url, until cancelled: `nng.serve`, or a world without sockets."""

    async def __call__(
        self, url: str, handler: Callable[[Carrier], Awaitable[None]], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Started once the url can be dialled."""
        ...


class Brain:
    """One replica's brain. All from outside is given: store, clock, chance, how workers start and gateways come in."""

    def __init__(
        self,
        *,
        orders: BrainOrders,
        store: Store,
        chance: Chance,
        clock: Callable[[], float],
        machines: Machines,
        listen: Listen = nng.serve,
        wakeups: Wakeups | None = None,
        root_tree: Callable[[], tuple[ChildStanding, ...]] = tuple,
        journals: Path | None = None,
        open_cluster: OpenCluster = open_cluster,
    ) -> None:
        self._orders = orders
        self._store = RevocationsTold(store, wakeups or MemoryWakeups())
        self._chance = chance
        self._clock = clock
        self._listen = listen
        self._root_tree = root_tree
        self._journals = journals
        self._open_cluster = open_cluster
        self.post = Post(chance=chance, clock=clock)
        self._pools = PoolChildren(machines, self.post, chance.id, self.new_token, self._deciding)
        self._acceptor = Acceptor(chance=chance)
        self._counts = Counts()
        self._reign_tree: Supervisor | None = None
        self._reigns = 0
        # One crash ends a reign with all its mailboxes: what crashed an address is remembered here, over all reigns.
        self._quarantines: defaultdict[str, Quarantine] = defaultdict(Quarantine)
        self._tree = Supervisor("brain", self._children(), post=self.post, chance=chance)

    def _children(self) -> tuple[ChildSpec, ...]:
        leader = LeaderActor(
            campaign=Campaign(self._orders.replica_id, self._chance.id("life"), self._orders.settings.advertise_url),
            store=self._store,
            post=self.post,
            clock=self._clock,
            reign=self._reign,
        )
        return (
            ChildSpec("inspector", self._inspect, address="supervisor"),
            ChildSpec("links", self._serve_gateways, address=""),
            ChildSpec("revocations", self._tell_revocations, address=""),
            ChildSpec("leader", leader.run),
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Raises `SupervisorGaveUp` when children fail too often."""
        await self._tree.run(task_status=task_status)

    # The links

    async def _serve_gateways(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._acceptor.run)
            for number in range(self._orders.settings.gateways):
                url = gateway_ipc(Path(self._orders.settings.run_dir), number)
                handler = partial(self._acceptor.serve, name=f"gateway-{number}", on_link=self.own_link)
                await nursery.start(partial(self._listen, url, handler))
            task_status.started()

    async def own_link(self, link: Link) -> None:
        """Deliver what a link brings, until it is over; what was reached by it is reached no more."""
        try:
            while True:
                event = await link.next_event()
                if isinstance(event, Received):
                    await self.post.receive(link, event.envelopes)
        except (BrokenByPeer, ClosedByUs) as error:
            _log.info("a gateway's link is over", link=link.name, why=str(error))
        finally:
            self.post.forget(link)

    async def _tell_revocations(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await self._store.run()

    # The reign

    async def _reign(self, epoch: int, task_status: trio.TaskStatus[None]) -> None:
        """The actors that decide; the first that fails ends the reign, and the next one reads the truth."""
        around = Surroundings(post=self.post, store=self._store, epoch=epoch, clock=self._clock, counts=self._counts)
        workspace_id = await ensure_accounts(around, self._orders, self._chance)
        tables = self._orders.settings.pools
        pools = [pool_settings(table, rank, workspace_id) for rank, table in enumerate(tables)]
        await self._declare(around, pools)
        queueing = await queueing_of_files(around, self._orders.settings.queueing, self._chance)
        given = cluster_settings(self._orders, workspace_id)
        attached = await self._attached_pools(around, given)
        near = tuple(configured(table, pool.serves) for table, pool in zip(tables, pools) if pool.attached)
        self._pools.terms.clear()
        for pool in (*pools, *attached):
            self._pools.agree(pool)
        known = tuple(map(declared, (*pools, *attached)))
        journal = self._journal(epoch)
        scheduler = SchedulerActor(around, self._chance.id, self.new_token, known, queueing, journal)
        children = [
            self._deciding("scheduler", scheduler.run),
            self._deciding("tasks", TasksActor(around, self._chance.id, self._pools.terms, queueing).run),
            self._deciding("guard", GuardActor(around, guard_settings(self._orders.settings)).run),
            self._deciding("pools", self._created_pools(around, workspace_id).run),
            self._deciding("clusters", self._clusters(around, given, near).run),
            *[self._pools.spec(around, pool, table.kind) for pool, table in zip(pools, tables)],
        ]
        inner = [table for table, pool in zip(tables, pools) if pool.attached]
        if inner:
            agents = InnerAgents(inner, self.post, self._chance, self._clock, self._open_cluster)
            children.append(ChildSpec("agents", agents.run, address=""))
        self._reigns += 1
        self._reign_tree = Supervisor(
            "reign",
            children,
            intensity=Intensity(restarts=0),
            post=self.post,
            chance=self._chance,
        )
        try:
            await self._reign_tree.run(task_status=task_status)
        finally:
            self._reign_tree = None

    def _journal(self, epoch: int) -> JournalWriter | None:
        """Where it is kept of this reign what the scheduler decided, and why."""
        if self._journals is None:
            return None
        header = Header(number=0, epoch=epoch, core=__version__, placement=DEFAULT_PLACEMENT)
        return JournalWriter(self._journals, header)

    def _deciding(self, address: str, start: StartChild) -> ChildSpec:
        return ChildSpec(address, start, quarantine=self._quarantines[address])

    @staticmethod
    async def _declare(around: Surroundings, pools: list[PoolSettings]) -> None:
        """Before anybody judges by them what can never fit: a call that was accepted would wait for ever."""
        records = [record for pool in pools for record in declarations(pool)]
        if records:
            await around.store.apply(*records, epoch=around.epoch)

    def _created_pools(self, around: Surroundings, workspace_id: str) -> PoolsActor:
        """The pools that people create and delete: children of the reign that come and go."""
        created: dict[str, PoolTable] = {}

        def read(name: str, text: str, rank: int) -> PoolSettings:
            others = (table for table in created.values() if table.name != name)
            table = read_table(name, text, (*self._orders.settings.pools, *others))
            created[name] = table
            return pool_settings(table, rank, workspace_id)

        async def begin(pool: PoolSettings) -> None:
            kind = created[pool.name].kind if pool.name in created else "process"
            await self._pools.begin(self._children_of_reign, around, pool, kind)

        async def finish(name: str) -> None:
            await self._pools.finish(self._children_of_reign, name)
            created.pop(name, None)

        return PoolsActor(around, [table.name for table in self._orders.settings.pools], read, begin, finish)

    async def _attached_pools(self, around: Surroundings, given: ClusterSettings) -> list[PoolSettings]:
        """The pools of attached clusters, as the scheduler knows them before any of their agents has reported."""
        (rows,) = await around.store.apply(ops.ListClusters())
        clusters = [ClusterPool.of(row, trusted=given.trusted) for row in rows_of(rows, ops.ClusterRow)]
        return [settings_of(pool, CLUSTERS_RANK) for pool in clusters if not pool.retiring]

    def _clusters(self, around: Surroundings, given: ClusterSettings, near: tuple[Configured, ...]) -> ClustersActor:
        """Attached clusters: their pools' actors are children of the reign that come and go."""

        async def begin(pool: ClusterPool) -> None:
            await self._pools.begin(self._children_of_reign, around, settings_of(pool, CLUSTERS_RANK), ATTACHED)

        async def finish(name: str) -> None:
            await self._pools.finish(self._children_of_reign, name)

        def terms(pool: ClusterPool) -> None:
            self._pools.agree(settings_of(pool, CLUSTERS_RANK))

        return ClustersActor(
            around, given, near, self._chance.id, self.new_token, begin=begin, finish=finish, terms=terms
        )

    @property
    def _children_of_reign(self) -> Supervisor:
        assert self._reign_tree is not None
        return self._reign_tree

    def new_token(self, kind: TokenKind) -> str:
        """The value of a new token."""
        return make_token(kind, self._chance.secret(SECRET_BYTES))

    async def stop_workers(self) -> None:
        """For a laptop, where nothing is left running."""
        await self._pools.stop_workers()

    # Inspection

    async def _inspect(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            letter = await mailbox.take()
            if isinstance(letter.message, Inspect):
                await self.post.send(answer(letter, self.standing()))

    def standing(self) -> Inspected:
        """The live trees of the root and of this process, and the dead letters."""
        children = (*self._root_tree(), *self._tree.inspect())
        if self._reign_tree is not None:  # a child of the leader, which is the last of the tree
            children += self._reign_tree.inspect("brain/leader/reign", restarts=self._reigns - 1)
        dead = self.post.dead_letters.statistics()
        latest = self.post.dead_letters.latest(20)
        return Inspected(children=children, dead_letters=dead.total, latest_dead=latest, totals=self._totals())

    def _totals(self) -> Totals:
        store = self._store.statistics()
        return Totals(
            **msgspec.structs.asdict(self._counts),
            store_operations=store.operations,
            store_commits=store.commits,
            store_failures=store.failures,
            store_largest_group=store.largest_group,
            store_waiting=store.waiting,
        )


@asynccontextmanager
async def _open_wakeups(redis_url: str) -> AsyncIterator[Wakeups]:
    """Without Redis, wake-ups reach nobody, and gateways look by themselves."""
    from ..store.redis import open_redis

    if not redis_url:
        yield MemoryWakeups()
        return
    async with open_redis(redis_url) as wakeups:
        yield wakeups


async def run_brain(orders: BrainOrders) -> None:
    """A brain on a real store, until SIGTERM; its workers are stopped with it where it owns them."""
    from ..store.postgres import open_postgres

    settle()
    chance = Chance()
    async with (
        open_postgres(orders.settings.database_url, patience_s=START_PATIENCE_S) as store,
        _open_wakeups(orders.settings.redis_url) as wakeups,
    ):
        await ensure_replica_token(store, orders, chance, time.time())
        brain = Brain(
            orders=orders,
            store=store,
            chance=chance,
            clock=time.time,
            machines=machines_of(orders, time.time),
            wakeups=wakeups,
            root_tree=partial(read_root_tree, Path(orders.settings.run_dir)),
            journals=journal_dir(orders.settings),
        )
        try:
            await brain.run()
        finally:
            if orders.owns_workers:
                with trio.CancelScope(shield=True):
                    await brain.stop_workers()


def main() -> int:
    """The entry of the brain's process."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread for each core, for nothing here
    set_up_logs()
    orders = msgspec.json.decode(os.environ.pop("LEVERS9_BRAIN"), type=BrainOrders)
    structlog.contextvars.bind_contextvars(replica=orders.replica_id, host=socket.gethostname())
    trio.run(_until_signal, orders)
    return 0


async def _until_signal(orders: BrainOrders) -> None:
    async with until_signal():
        await run_brain(orders)


if __name__ == "__main__":
    sys.exit(main())
