"""What goes wrong in a world of clusters, and what people do there, at its time. It is all mended again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio
from levers9_world.plane import silence
from levers9_world.truth import StoreFault

from levers9.cli.kube_context import remove_agent
from levers9.errors import KubeRefused, KubeUnavailable, Refused
from levers9.store import operations as ops

from .machines import Machine, PodWorker
from .plan import Fault, FaultKind, chosen

if TYPE_CHECKING:
    from .fleet import Cluster
    from .world import ClusterWorld

DEAF_S: Final = 110.0  # longer than it takes a report to be stale
ISOLATED_S: Final = 60.0
LOST_S: Final = 400.0  # longer than a lease and what comes before it
STORE_AWAY_S: Final = 3.0
API_AWAY_S: Final = 30.0
HALF: Final = 0.5
LAGS_FOR_S: Final = 40.0
FORBIDDEN_S: Final = 40.0
HIDDEN_S: Final = 100.0
MARKED_S: Final = 40.0
LET_S: Final = 60.0
NODE_GOES_WITHIN_S: Final = 40.0
NODE_BACK_S: Final = 30.0
AWAY_S: Final = 20.0  # between leaving and joining again
ASKED_AGAIN_S: Final = 2.0
_ACTORS: Final = (
    (ops.AcceptTasks, ops.StartAttempts, ops.EndAttempts),
    (ops.MoveContainers,),
    (ops.PutWorkers,),
    (ops.PutCluster,),
    (ops.MoveWorkers,),
)
Step = Callable[[float], Awaitable[None]]


class Mishaps:
    """Has the faults of a world's plan happen."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._took_away: dict[str, None] = {}  # workspaces that lost a cluster, for a while at least
        self._steps: dict[FaultKind, Step] = {
            FaultKind.CUT: self._cut,
            FaultKind.SILENCE: self._silence,
            FaultKind.REPORT_LATE: self._report_late,
            FaultKind.REPORT_TWICE: self._report_twice,
            FaultKind.AGENT_DEAF: self._deafen_agent,
            FaultKind.KILL_AGENT: self._kill_agent,
            FaultKind.TWO_AGENTS: self._second_agent,
            FaultKind.KILL_BRAIN: self._kill_brain,
            FaultKind.KILL_GATEWAY: self._kill_gateway,
            FaultKind.FAIL_COMMIT: self._fail_commit,
            FaultKind.LOSE_ANSWER: self._lose_answer,
            FaultKind.STORE_AWAY: self._take_store_away,
            FaultKind.API_AWAY: self._take_api_away,
            FaultKind.CUT_WATCH: self._cut_watches,
            FaultKind.COMPACT: self._compact,
            FaultKind.LAG: self._lag,
            FaultKind.LOSE_REPLY: self._lose_reply,
            FaultKind.FORBID: self._forbid,
            FaultKind.LOSE_NODE: self._lose_node,
            FaultKind.HIDE_NODE: self._hide_node,
            FaultKind.CORDON: self._cordon,
            FaultKind.TAINT: self._taint,
            FaultKind.TENANTS: self._let,
            FaultKind.KILL_WORKER: self._kill_worker,
            FaultKind.EVICT: self._evict,
            FaultKind.DELETE_JOB: self._delete_job,
            FaultKind.ISOLATE_WORKER: self._isolate_worker,
            FaultKind.LOSE_WORKER: self._lose_worker,
            FaultKind.SHARE: self._share,
            FaultKind.UNSHARE: self._take_back,
            FaultKind.LEAVE: self._leave,
            FaultKind.JOIN_AGAIN: self._join_again,
            FaultKind.CANCEL: self._cancel,
        }

    async def happen(self) -> None:
        """All of them, each at its time."""
        for fault in self._world.plan.faults:
            await trio.sleep_until(self._world.begins_at_s + fault.at_s)
            self.begin(fault)

    def begin(self, fault: Fault) -> None:
        """Have one happen now; what mends it comes by itself."""
        self._world.journal.note("fault", fault.kind)
        self._world.nursery.start_soon(self._steps[fault.kind], fault.luck)

    def shut_out(self, workspace: str) -> bool:
        """Whether calls of a workspace may have been refused, or wait for what was taken from it."""
        return workspace in self._took_away

    # Whom it meets

    def _cluster(self, luck: float) -> Cluster:
        return chosen(self._world.clusters, luck)

    def _machine(self, luck: float) -> tuple[Cluster, Machine]:
        """Some node of some cluster: rather one that a worker of ours is on."""
        all_ = [(one, machine) for one in self._world.clusters for machine in one.machines.by_name.values()]
        ours = [(one, machine) for one, machine in all_ if one.machines.alive_on(machine.plan.name)]
        return chosen(ours or all_, luck)

    def _workers(self) -> list[tuple[Cluster, PodWorker]]:
        return [
            (one, worker)
            for one in self._world.clusters
            for worker in one.machines.workers.values()
            if not worker.process.dead
        ]

    # Streams and processes

    async def _cut(self, luck: float) -> None:
        cables = self._world.network.cables()
        if cables:
            chosen(cables, luck).cable.cut("bad luck")
        await trio.lowlevel.checkpoint()

    async def _silence(self, luck: float) -> None:
        cables = self._world.network.cables()
        if cables:
            await silence(chosen(cables, luck).cable)

    async def _report_late(self, luck: float) -> None:
        self._cluster(luck).meddler.hold_back(1.0 + 30.0 * luck)
        await trio.lowlevel.checkpoint()

    async def _report_twice(self, luck: float) -> None:
        await self._cluster(luck).meddler.say_again(luck)

    async def _deafen_agent(self, luck: float) -> None:
        for process in self._cluster(luck).agents:
            self._world.network.isolate(process.name, DEAF_S)
        await trio.lowlevel.checkpoint()

    async def _kill_agent(self, luck: float) -> None:
        self._cluster(luck).restart_agents()
        await trio.lowlevel.checkpoint()

    async def _second_agent(self, luck: float) -> None:
        await self._cluster(luck).have_two_agents(luck)

    async def _kill_brain(self, luck: float) -> None:
        if self._world.brain is not None:
            self._world.brain.kill()
        await trio.lowlevel.checkpoint()

    async def _kill_gateway(self, luck: float) -> None:
        if self._world.gateway is not None:
            self._world.gateway.kill()
        await trio.lowlevel.checkpoint()

    # The store

    async def _fail_commit(self, luck: float) -> None:
        self._world.truth.fail_next(StoreFault.BEFORE, *chosen(_ACTORS, luck))
        await trio.lowlevel.checkpoint()

    async def _lose_answer(self, luck: float) -> None:
        self._world.truth.fail_next(StoreFault.AFTER, *chosen(_ACTORS, luck))
        await trio.lowlevel.checkpoint()

    async def _take_store_away(self, luck: float) -> None:
        self._world.truth.away_until = trio.current_time() + STORE_AWAY_S
        await trio.lowlevel.checkpoint()

    # API servers

    async def _take_api_away(self, luck: float) -> None:
        api = self._cluster(luck).api
        api.go_away()
        await trio.sleep(API_AWAY_S)
        api.come_back()

    async def _cut_watches(self, luck: float) -> None:
        self._cluster(luck).api.cut_watches(cleanly=luck < HALF)
        await trio.lowlevel.checkpoint()

    async def _compact(self, luck: float) -> None:
        api = self._cluster(luck).api
        api.compact()
        api.cut_watches()
        await trio.lowlevel.checkpoint()

    async def _lag(self, luck: float) -> None:
        self._cluster(luck).api.lags_until_s = trio.current_time() + LAGS_FOR_S
        await trio.lowlevel.checkpoint()

    async def _lose_reply(self, luck: float) -> None:
        self._cluster(luck).api.lose_next_answer()
        await trio.lowlevel.checkpoint()

    async def _forbid(self, luck: float) -> None:
        cluster = self._cluster(luck)
        for verb in ("create", "delete"):
            cluster.api.forbid(verb, "jobs", cluster.namespace)
        await trio.sleep(FORBIDDEN_S)
        for verb in ("create", "delete"):
            cluster.api.permit(verb, "jobs", cluster.namespace)

    # Nodes

    async def _lose_node(self, luck: float) -> None:
        cluster, machine = self._machine(luck)
        if machine.there and machine.on:
            await cluster.machines.lose(machine, luck * NODE_GOES_WITHIN_S)
            await trio.sleep(NODE_BACK_S)
            cluster.machines.set_up(machine)

    async def _hide_node(self, luck: float) -> None:
        cluster, machine = self._machine(luck)
        if machine.there and machine.on:
            await cluster.machines.hide(machine, HIDDEN_S)

    async def _cordon(self, luck: float) -> None:
        cluster, machine = self._machine(luck)
        cluster.machines.cordon(machine, on=True)
        await trio.sleep(MARKED_S)
        cluster.machines.cordon(machine, on=False)

    async def _taint(self, luck: float) -> None:
        cluster, machine = self._machine(luck)
        cluster.machines.taint(machine, on=True)
        await trio.sleep(MARKED_S)
        cluster.machines.taint(machine, on=False)

    async def _let(self, luck: float) -> None:
        cluster, machine = self._machine(luck)
        name = cluster.machines.let_some(machine, luck)
        await trio.sleep(LET_S)
        cluster.machines.unlet(name)

    # Workers

    async def _to_a_worker(self, luck: float, does: Callable[[Cluster, PodWorker], None]) -> None:
        workers = self._workers()
        if workers:
            does(*chosen(workers, luck))
        await trio.lowlevel.checkpoint()

    async def _kill_worker(self, luck: float) -> None:
        await self._to_a_worker(luck, lambda cluster, worker: worker.process.kill())

    async def _evict(self, luck: float) -> None:
        await self._to_a_worker(luck, lambda cluster, worker: cluster.machines.evict(worker))

    async def _delete_job(self, luck: float) -> None:
        await self._to_a_worker(luck, lambda cluster, worker: cluster.machines.delete_job(worker))

    async def _isolate_worker(self, luck: float) -> None:
        await self._to_a_worker(luck, lambda _, worker: self._isolate(worker, ISOLATED_S))

    async def _lose_worker(self, luck: float) -> None:
        await self._to_a_worker(luck, lambda _, worker: self._isolate(worker, LOST_S))

    def _isolate(self, worker: PodWorker, for_s: float) -> None:
        self._world.network.isolate(worker.worker_id, for_s)

    # People

    async def _share(self, luck: float) -> None:
        cluster = self._cluster(luck)
        await self._by_people(lambda: self._world.share(cluster, shared=True))

    async def _take_back(self, luck: float) -> None:
        cluster = self._cluster(luck)
        self._shut_out(cluster)
        await self._by_people(lambda: self._world.share(cluster, shared=False))

    async def _leave(self, luck: float) -> None:
        cluster = self._cluster(luck)
        cluster_id = cluster.cluster_id
        self._shut_out(cluster)
        await self._by_people(lambda: self._world.leave(cluster))
        await trio.sleep(AWAY_S)
        await self._delete_what_is_left(cluster, cluster_id)
        await self._by_people(lambda: self._world.join(cluster))

    async def _delete_what_is_left(self, cluster: Cluster, cluster_id: str) -> None:
        """As `levers9 cluster leave` does with a context of that cluster: its agent may not have heard that it left."""
        while cluster.left:
            try:
                await remove_agent(cluster.api, cluster_id, cluster.namespace)
            except (KubeUnavailable, KubeRefused):
                await trio.sleep(ASKED_AGAIN_S)
            else:
                return

    async def _join_again(self, luck: float) -> None:
        cluster = self._cluster(luck)
        await self._by_people(lambda: self._world.join(cluster))

    def _shut_out(self, cluster: Cluster) -> None:
        """Its owner, too: what it may do comes back, and what was refused meanwhile does not."""
        self._took_away |= dict.fromkeys(self._world.workspaces)

    async def _by_people(self, does: Callable[[], Awaitable[None]]) -> None:
        """What cannot be done now, of a cluster that somebody left meanwhile, is not done."""
        try:
            await does()
        except Refused as refused:
            self._world.journal.note("people were refused", refused.what)

    async def _cancel(self, luck: float) -> None:
        await chosen(tuple(self._world.callers.values()), luck).cancel_some(luck)
