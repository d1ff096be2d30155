"""A world of clusters: put together, driven by its plan, watched, and brought to rest."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import trio
import trio.testing
from levers9_world.machines import Attempts, MemoryObjects, Worker
from levers9_world.plane import LOOKS_EVERY_S, RUN_DIR, ControlPlane, counted, deterministic, fewest

from levers9.actors import committing
from levers9.daemons.cluster_tables import AttachedClustersTable
from levers9.daemons.settings import GuardTable, Settings
from levers9.errors import DeadlinePassed, LeversError, Refused
from levers9.model.clusters import ClusterState
from levers9.model.figures import WORKER_LEASE_S
from levers9.model.queue_tables import QueueingTable
from levers9.model.queues import Topology
from levers9.model.states import TokenKind, WorkerState
from levers9.model.tokens import Principal, make_token
from levers9.sdk.ledger import PASSING
from levers9.store import operations as ops
from levers9.wire.client import TaskResult
from levers9.wire.cluster import ClusterJoined, ClustersStand, JoinCluster, LeaveCluster, ReadClusters, ShareCluster
from levers9.wire.message import Message
from levers9.wire.operating import TellWorkers, WorkerWish

from .callers import RACK, RETRIES, Caller
from .fleet import Cluster, Conduct
from .machines import PodWorker
from .mishaps import ASKED_AGAIN_S, Mishaps
from .plan import HORIZON_S, WORKSPACES, ClusterWorldPlan, with_faults
from .rules import Rules

TICK_S: Final = 1.0  # of the control plane's actors: most of a world is waiting, and that costs by the tick
ONLINE_WITHIN_S: Final = 120.0
CANCEL_AFTER_S: Final = 60.0  # what nobody may do any more is cancelled so long after the horizon
ALL_ENDED_WITHIN_S: Final = 3_600.0  # Jobs without a pod are removed after 20 minutes, and then ordered anew
AT_REST_WITHIN_S: Final = 2_400.0
IDLES_AWAY: Final = 0.1  # of worlds, whose workers wind down by themselves
_DRAINABLE: Final = (WorkerState.AVAILABLE, WorkerState.CORDONED)
OUTLIVES_S: Final = 15.0  # what is said to be gone has ended by then


@dataclass(frozen=True)
class Report:
    """What became of a world."""

    journal: bytes
    digest: str
    ends: dict[str, int]
    took_s: float
    workers: int
    retries: int


class ClusterWorld(ControlPlane):
    """One world. `run` is its whole life."""

    def __init__(self, seed: int, plan: ClusterWorldPlan) -> None:
        super().__init__(seed)
        self.plan = plan
        self.objects = MemoryObjects(self.chance("objects"))
        self.behaviour = Conduct(seed, plan.work)
        self.attempts = Attempts(self.violated, self._out_of_reach_s)
        self.truth.runs_now = self.attempts.may_not_be_given_up
        self.rules = Rules(self.truth.tables, self, self.clock, self.violated)
        self.truth.watch = self.rules.hold
        self.clusters = tuple(Cluster(self, number, one) for number, one in enumerate(plan.clusters))
        self.workers: dict[str, Worker] = {}
        self.mishaps = Mishaps(self)
        self.begins_at_s = 0.0
        self._detached: dict[str, None] = {}  # workers of clusters that were left
        self.workspaces: dict[str, str] = {}  # identities by name
        self.callers: dict[str, Caller] = {}

    # Life

    async def run(self) -> Report:
        """From the first process to rest. Raises `Violation`."""
        await self.live(self._live)
        return self._report()

    async def _live(self) -> None:
        await self._open_workspaces()
        for cluster in self.clusters:
            await self._attach(cluster)
        await self._until_online()
        self.begins_at_s = trio.current_time()
        async with trio.open_nursery() as doing:
            for work in self.plan.work:
                doing.start_soon(self.callers[work.workspace].submit, work)
            doing.start_soon(self.mishaps.happen)
        await trio.sleep_until(self.begins_at_s + HORIZON_S)
        self.nursery.start_soon(self._cancel_what_nobody_may_do)
        await self._until_all_ended()
        await self._rest()

    async def _open_workspaces(self) -> None:
        for name in WORKSPACES:
            chance = self.chance("workspace", name)
            workspace_id = self.workspaces[name] = chance.id("workspace")
            token = make_token(TokenKind.WORKSPACE, chance.secret(32))
            now_s = self.clock()
            kind, token_id = TokenKind.WORKSPACE, chance.id("token")
            row = ops.TokenRow.of(token, kind, workspace_id, name, token_id=token_id, now_s=now_s)
            create = ops.CreateWorkspace(workspace_id=workspace_id, name=name, now_s=now_s)
            await self.truth.apply((create, ops.CreateToken(token=row)), None)
            caller = self.callers[name] = Caller(self, name, token)
            self.nursery.start_soon(caller.connection.run)
            await caller.connection.is_open.wait()

    async def _attach(self, cluster: Cluster) -> None:
        cluster.machines.set_up_all()
        await self.join(cluster)
        self.nursery.start_soon(cluster.keep_agent)
        if cluster.plan.shared:
            await self.share(cluster, shared=True)

    async def _until_online(self) -> None:
        with trio.fail_after(ONLINE_WITHIN_S):
            while (online := await self._online()) < len(self.clusters):  # noqa: ASYNC110  # it is asked, and tells nobody
                await trio.sleep(1.0)
        self.journal.note("online", online)

    async def _online(self) -> int:
        stand = await self.ask(ReadClusters(), "north", admin=True)
        assert isinstance(stand, ClustersStand)
        return sum(one.state is ClusterState.ONLINE and bool(one.nodes_total) for one in stand.clusters)

    async def _until_all_ended(self) -> None:
        with trio.move_on_after(ALL_ENDED_WITHIN_S) as scope:
            for caller in self.callers.values():
                await caller.until_all_ended()
        if scope.cancelled_caught:
            said = [await caller.why_missing() for caller in self.callers.values() if caller.missing()]
            self.violated(f"I3: calls never ended: {said}")
            await trio.lowlevel.checkpoint()

    async def _cancel_what_nobody_may_do(self) -> None:
        """Of a workspace whose cluster was taken away calls may wait for ever."""
        await trio.sleep(CANCEL_AFTER_S)
        for caller in self.callers.values():
            if self.mishaps.shut_out(caller.workspace):
                await caller.cancel_these(caller.missing())

    async def _rest(self) -> None:
        if self.chance("rest").uniform(0, 1) >= IDLES_AWAY:
            await self._drain_all()
        await self.until_at_rest(AT_REST_WITHIN_S)

    async def _drain_all(self) -> None:
        """What would wind down by itself after some idle minutes is told to."""
        while live := [row.worker_id for row in self.truth.tables.workers.values() if row.state in _DRAINABLE]:
            with contextlib.suppress(Refused):  # they are gone meanwhile
                await self.ask(TellWorkers(worker_ids=tuple(live), wish=WorkerWish.DRAIN), "north", admin=True)
            await trio.sleep(LOOKS_EVERY_S)

    def _unrest(self) -> list[str]:
        found = [said for caller in self.callers.values() if (said := caller.connection.open_work())]
        for cluster in self.clusters:
            found += cluster.machines.unrest()
        tables = self.truth.tables
        pools = {cluster.pool for cluster in self.clusters if not cluster.left}
        found += [f"there is a pool {pool} of no cluster" for pool, _ in tables.pools if pool not in pools]
        found += [f"the pool {name} is taken away and not gone" for name in tables.pool_specs]
        agents = [row.subject for row in tables.tokens.values() if row.kind is TokenKind.AGENT and row.active]
        attached = [cluster.cluster_id for cluster in self.clusters if not cluster.left]
        if sorted(agents) != sorted(attached):
            found.append(f"there are agents' tokens for {agents}, and the clusters {attached}")
        return super()._unrest() + found

    def _report(self) -> Report:
        return Report(
            journal=self.journal.to_bytes(),
            digest=self.journal.digest(),
            ends=counted(outcome for caller in self.callers.values() for outcome in caller.ends.values()),
            took_s=trio.current_time(),
            workers=len(self.truth.tables.workers),
            retries=sum(attempt > 1 for _, attempt in self.attempts.begun),
        )

    # The control plane

    def _settings(self) -> Settings:
        guard = GuardTable(pending=self.plan.guard_pending, per_minute=self.plan.guard_per_minute)
        queueing = QueueingTable(topologies=(Topology(name="racks", levels=(RACK,)),))
        attached = AttachedClustersTable(isolation="trusted")
        return Settings(run_dir=RUN_DIR, provisioning_guard=guard, queueing=queueing, attached_clusters=attached)

    async def ask(self, message: Message, workspace: str, *, admin: bool = False) -> Message:
        """What the control plane answers over REST, asked until it is there. Raises `Refused`."""
        kind = TokenKind.CLUSTER_ADMIN if admin else TokenKind.WORKSPACE
        principal = Principal(token_id="", workspace_id=self.workspaces[workspace], kind=kind)
        while True:
            assert self.questions is not None
            try:
                return await self.questions.ask(message, principal)
            except DeadlinePassed:
                pass
            except Refused as refused:
                if refused.code not in PASSING:
                    raise
            await trio.sleep(ASKED_AGAIN_S)

    async def join(self, cluster: Cluster) -> None:
        """Attach a cluster, or renew its token; its agent is started anew with that."""
        joined = await self.ask(JoinCluster(spec=cluster.spec), cluster.plan.owner)
        assert isinstance(joined, ClusterJoined)
        cluster.joined(joined)
        cluster.restart_agents()

    async def share(self, cluster: Cluster, *, shared: bool) -> None:
        """As the platform's admin."""
        await self.ask(ShareCluster(name=await self._name_for_admin(cluster), shared=shared), "north", admin=True)

    async def leave(self, cluster: Cluster) -> None:
        """As the platform's admin, who may leave with any."""
        await self.ask(LeaveCluster(name=await self._name_for_admin(cluster)), "north", admin=True)
        cluster.left = True
        cluster.restart_agents()

    async def _name_for_admin(self, cluster: Cluster) -> str:
        """Names are per workspace: an admin tells those that clash apart by their pools."""
        stand = await self.ask(ReadClusters(), "north", admin=True)
        assert isinstance(stand, ClustersStand)
        names = [one.name for one in stand.clusters if one.pool == cluster.pool]
        if not names:
            raise Refused(f"There is no cluster {cluster.pool}.")
        return names[0]

    # What is so

    def nodes_of(self, pool: str) -> int:
        """How many nodes the cluster of a pool has."""
        return next((len(one.plan.nodes) for one in self.clusters if one.pool == pool), 0)

    def given_up(self, worker_id: str) -> None:
        """The store says that a worker is gone: it has ended, or is about to, or its lease ran out unheard."""
        worker = self.workers.get(worker_id)
        if worker is not None and not worker.process.dead and not self._may_be_given_up(worker_id):
            self.nursery.start_soon(self._check_it_ended, worker)

    def detached(self, pool: str) -> None:
        """The workers of this pool are let in no more, and their Jobs are deleted."""
        rows = self.truth.tables.workers.values()
        self._detached |= {row.worker_id: None for row in rows if row.pool == pool}

    def _may_be_given_up(self, worker_id: str) -> bool:
        return self._out_of_reach_s(worker_id) >= WORKER_LEASE_S

    def _out_of_reach_s(self, worker_id: str) -> float:
        """For how long nobody can have heard of a worker."""
        return math.inf if worker_id in self._detached else self.network.isolated_for_s(worker_id)

    async def _check_it_ended(self, worker: Worker) -> None:
        with trio.move_on_after(OUTLIVES_S) as scope:
            await worker.process.ended.wait()
        if scope.cancelled_caught and not self._may_be_given_up(worker.worker_id):
            row = self.truth.tables.workers[worker.worker_id]
            self.violated(f"{worker.worker_id} was declared gone and lives: {row}")

    def draining(self, worker_id: str) -> None:
        """A worker winds down."""
        worker = self.workers.get(worker_id)
        if isinstance(worker, PodWorker):
            worker.leaves()

    def check_refusal(self, workspace: str, what: str, refusal: LeversError) -> None:
        """I9: what some pool can do is accepted, and waits. Without a cluster that was taken away all can be done."""
        if not self.mishaps.shut_out(workspace):
            self.violated(f"I9: {what} of {workspace} was refused: {refusal!r}")

    def check_error(self, task_id: str, outcome: TaskResult) -> None:
        """I9: nothing fails here but for workers that were lost more often than there are retries."""
        row = self.truth.tables.tasks[task_id]
        if row.retries_used < RETRIES:
            self.violated(f"I9: {task_id} failed after {row.retries_used} retries: {outcome.failure}")


def run_cluster_world(seed: int, plan: ClusterWorldPlan) -> Report:
    """Live one world to its end. Raises `Violation`."""

    async def live() -> Report:
        return await ClusterWorld(seed, plan).run()

    with deterministic(seed), _coarse_ticks():
        return trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))


@contextlib.contextmanager
def _coarse_ticks() -> Iterator[None]:
    before = committing.TICK_S
    committing.TICK_S = TICK_S
    try:
        yield
    finally:
        committing.TICK_S = before


def shrink(seed: int, plan: ClusterWorldPlan) -> tuple[int, ...]:
    """The numbers of a few faults that still break the world of this seed."""
    return fewest(len(plan.faults), lambda kept: run_cluster_world(seed, with_faults(plan, kept)))
