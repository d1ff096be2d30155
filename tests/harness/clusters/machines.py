"""The machines of a cluster: nodes, others' pods, and what becomes of the pods of our workers' Jobs.

They stand where kubelets are: what they say of nodes and pods is so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import trio
from levers9_world.machines import Worker

from levers9.actors.pool.policy import StartWorker
from levers9.kube.face import Change, Kind
from levers9.kube.history import Event, Stored
from levers9.kube.kinds import JOBS, PODS
from levers9.kube.memory import MemoryCluster
from levers9.kube.memory_objects import Table, table_of
from levers9.kube.objects import Meta
from levers9.model.clusters import NAMESPACE
from levers9.model.figures import JOB_KEPT_S
from levers9.model.ids import Chance
from levers9.model.resources import Capacity
from levers9.wire.carrier import Carrier

from .callers import RACK
from .plan import HORIZON_S, Fate, NodePlan, chosen

if TYPE_CHECKING:
    from .fleet import Cluster

T = TypeVar("T", bound=msgspec.Struct)

OTHERS: Final = "others"
SLICES: Final = 4  # of each card where they are sliced
STARTS_S: Final = (0.1, 2.0)  # pulling and creating a container
LATE_S: Final = (40.0, 150.0)
TAKEN_S: Final = (30.0, 200.0)  # something keeps a pod from starting
MENDED: Final = 0.8  # of what would keep a pod from starting for ever
LAG_S: Final = 5.0  # of each change that a watch brings
ENDS_S: Final = (0.0, 15.0)  # a worker that was told to end
DIES_WITHIN_S: Final = 60.0
_BAD: Final = tuple(fate for fate in Fate if fate is not Fate.FINE)


# A worker's pod, as it was ordered


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Container(msgspec.Struct, frozen=True):
    command: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...]
    node_name: str = ""


class _WholePod(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _PodSpec


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod says of its worker."""

    worker_id: str
    pod: str  # namespace/name
    uid: str
    pool: str
    node: str
    token: str
    capacity: Capacity


def ordered(stored: Stored) -> Ordered | None:
    """Read a worker's pod, as the worker's own program would; None for what is no worker's."""
    pod = msgspec.convert(stored.body, _WholePod)
    container = pod.spec.containers[0]
    token = next((one.value for one in container.env if one.name == "LEVERS9_WORKER_TOKEN"), "")
    if not token:
        return None
    flags = dict(zip(container.command[2::2], container.command[3::2]))
    return Ordered(
        worker_id=flags["--id"],
        pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
        uid=pod.metadata.uid,
        pool=flags["--pool"],
        node=flags["--node"],
        token=token,
        capacity=Capacity(
            cpu_milli=int(flags["--cpu-milli"]),
            memory_mib=int(flags["--memory-mib"]),
            gpu_count=int(flags.get("--gpu-count", "0")),
            gpu_type=flags.get("--gpu-type", ""),
        ),
    )


class Api(MemoryCluster):
    """The API server, which tells its machines of Jobs that came and of pods."""

    machines: Machines

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lags_until_s = 0.0
        super().__init__(name, namespaces=("default", NAMESPACE, OTHERS))
        self.terminate_gracefully()

    def now_text(self, ago_s: float = 0.0) -> str:
        """Our time as Kubernetes writes it: agents hold it against their own."""
        return f"{datetime.fromtimestamp(self._clock() - ago_s, UTC):%Y-%m-%dT%H:%M:%SZ}"

    @asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        """As the API server's own, or later."""
        async with (
            super().watch(kind, namespace, since=since, labels=labels, fields=fields) as changes,
            aclosing(self._late(changes)) as late,
        ):
            yield late

    async def _late(self, changes: AsyncIterator[Change[T]]) -> AsyncGenerator[Change[T], None]:
        async for change in changes:
            if trio.current_time() < self.lags_until_s:
                await trio.sleep(LAG_S)
            yield change

    def _told(self, table: Table, event: Event) -> None:
        if table == table_of(JOBS) and event.before is None and event.after is not None:
            self.machines.job_came(event.after)
        super()._told(table, event)
        if table == table_of(PODS):
            self.machines.pod_changed(event)


@dataclass(eq=False)
class Machine:
    """A node. `there` while its Node object is, `on` while it has power and is heard."""

    plan: NodePlan
    there: bool = False
    on: bool = True

    @property
    def has(self) -> int:
        """Cards that it says it has."""
        return self.plan.cards * (SLICES if self.plan.sliced else 1)


class PodWorker(Worker):
    """A worker in a pod, which may die at any moment of its life."""

    def __init__(self, cluster: Cluster, order: Ordered, fate: Fate, chance: Chance) -> None:
        start = StartWorker(worker_id=order.worker_id, token=order.token, capacity=order.capacity)
        super().__init__(cluster.world, order.pool, start, chance)  # type: ignore[arg-type]
        self.order = order
        self._fate = fate

    async def run(self) -> int:
        """Work until it has left, or as long as it may live."""
        if self._fate is Fate.DIES_STARTING:
            self.dies_after(0.0)
        elif self._fate is Fate.DIES_RUNNING:
            self.dies_after(self._chance.uniform(0.5, DIES_WITHIN_S))
        return await super().run()

    def leaves(self) -> None:
        """It was told to wind down."""
        if self._fate is Fate.DIES_LEAVING:
            self.dies_after(self._chance.uniform(0.0, 0.05))

    def dies_after(self, for_s: float) -> None:
        """It is killed in so many seconds."""
        self._world.nursery.start_soon(self._die_after, for_s)

    async def _die_after(self, for_s: float) -> None:
        await trio.sleep(for_s)
        self.process.kill()

    def _dial(self) -> Callable[[], Awaitable[Carrier]]:
        return self._dial_and_perhaps_die

    async def _dial_and_perhaps_die(self) -> Carrier:
        carrier = await self._world.dial_gateway("worker", self.worker_id, self._order.token)
        if self._fate is Fate.DIES_REPORTING:
            self.dies_after(self._chance.uniform(0.0, 0.004))
        return carrier


class Machines:
    """All machines of one cluster, and the workers that stand on them."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._api = api
        api.machines = self
        self.by_name = {plan.name: Machine(plan) for plan in cluster.plan.nodes}
        self.workers: dict[str, PodWorker] = {}  # that have, or had, a process
        self._pods: dict[str, Ordered] = {}  # of workers, that have not ended, by UID
        self._live: dict[str, None] = {}  # UIDs of pods that a kubelet looks after
        self._fates: dict[str, Fate] = {}
        self._others = 0

    def set_up_all(self) -> None:
        """Make all nodes, and what others have of them from the beginning."""
        for machine in self.by_name.values():
            self.set_up(machine)
            if machine.plan.tenants:
                self.let(machine, machine.plan.tenants)

    # Nodes

    def set_up(self, machine: Machine) -> None:
        """Make its Node, under a new identity."""
        plan = machine.plan
        labels = {RACK: plan.rack} | ({"nvidia.com/gpu.replicas": str(SLICES)} if plan.sliced else {})
        self._api.add_node(plan.name, cards=machine.has, labels=labels)
        machine.there = machine.on = True
        if plan.cordoned:
            self._api.cordon(plan.name)
        if plan.tainted:
            self._api.taint(plan.name, "team", OTHERS)

    def cordon(self, machine: Machine, on: bool) -> None:
        """Cordon it, or as it was planned."""
        if machine.there:
            self._api.cordon(machine.plan.name, on or machine.plan.cordoned)

    def taint(self, machine: Machine, on: bool) -> None:
        """Taint it, or as it was planned."""
        if machine.there and (on or machine.plan.tainted):
            self._api.taint(machine.plan.name, "team", OTHERS)
        elif machine.there:
            self._api.untaint(machine.plan.name, "team")

    async def lose(self, machine: Machine, after_s: float) -> None:
        """Its power fails, and its processes are gone; its Node object goes a while later, and its pods with it."""
        machine.on = False
        for worker in self.alive_on(machine.plan.name):
            worker.process.kill()
        self._api.set_ready(machine.plan.name, None)
        await trio.sleep(after_s)
        machine.there = False
        self._api.remove_node(machine.plan.name)

    async def hide(self, machine: Machine, for_s: float) -> None:
        """Nobody hears of it, nor of what runs there, for a while."""
        machine.on = False
        self._api.set_ready(machine.plan.name, None)
        for worker in self.alive_on(machine.plan.name):
            self._world.network.isolate(worker.worker_id, for_s)
        await trio.sleep(for_s)
        machine.on = True
        self._api.set_ready(machine.plan.name, True)

    def alive_on(self, node: str) -> list[PodWorker]:
        """The workers whose processes live there."""
        return [one for one in self.workers.values() if one.order.node == node and not one.process.dead]

    # Others

    def let(self, machine: Machine, cards: int) -> str:
        """A pod of somebody else takes so many cards, if they are free; its name, or ""."""
        free = machine.has - self._taken(machine)
        if not machine.there or not 0 < cards <= free:
            return ""
        self._others += 1
        name = f"{OTHERS}/pod-{self._others}"
        self._api.add_pod(name, machine.plan.name, cards=cards)
        return name

    def let_some(self, machine: Machine, luck: float) -> str:
        """Some of the cards that are free."""
        free = machine.has - self._taken(machine)
        return self.let(machine, min(free, 1 + int(luck * free)))

    def unlet(self, name: str) -> None:
        """It has ended."""
        namespace, _, pod = name.partition("/")
        if pod and self._api.find(PODS, pod, namespace) is not None:
            self._api.remove_pod(name)

    def _taken(self, machine: Machine) -> int:
        """Cards that pods have, of all tenants (I2)."""
        found = 0
        for pod in self._api.all_of(PODS):
            if pod.spec.node_name == machine.plan.name and pod.status.phase not in ("Succeeded", "Failed"):
                resources = [one.resources for one in pod.spec.containers if one.resources is not None]
                found += sum(int((one.limits or {}).get("nvidia.com/gpu", 0)) for one in resources)
        return found

    # Workers' Jobs

    def job_came(self, job: Stored) -> None:
        """Decide what becomes of a Job, before the Job controller looks at it."""
        chance = self._world.chance("fate", self._cluster.number, job.name)
        luck, which = chance.uniform(0, 1), chance.uniform(0, 1)
        fails = luck < self._world.plan.bad_pods and trio.current_time() < self._world.begins_at_s + HORIZON_S
        fate = self._fates[job.name] = chosen(_BAD, which) if fails else Fate.FINE
        self._api.control.makes_pods = fate is not Fate.NO_POD
        if fate is Fate.NO_POD:
            self._mend(chance, self._admit)
        node = str(job.body["metadata"]["annotations"]["levers9.dev/node"])  # type: ignore[index,call-overload]
        self._world.journal.note("job", self._cluster.number, job.name, node, fate)
        self._check_job(job.name, node)
        if fate is Fate.UNSCHEDULABLE:
            machine = self.by_name[node]
            name = self.let(machine, machine.has - self._taken(machine))
            self._world.nursery.start_soon(_later, chance.uniform(*TAKEN_S), partial(self.unlet, name))

    def _mend(self, chance: Chance, mends: Callable[[], None]) -> None:
        """What keeps a pod from starting is mended after a while, or never."""
        if chance.uniform(0, 1) < MENDED:
            self._world.nursery.start_soon(_later, chance.uniform(*TAKEN_S), mends)

    def _admit(self) -> None:
        """Jobs that have no pod get one."""
        self._api.hold_pods(on=False)

    def _check_job(self, worker_id: str, node: str) -> None:
        """I1, on the cluster's side: one worker a node, and no more pending than there are nodes."""
        there = [job for job in self._api.all_of(JOBS) if not job.status.conditions]
        jobs = [job.metadata.name for job in there if job.metadata.name != worker_id]
        standing = [one.worker_id for one in self._pods.values() if one.node == node and one.worker_id != worker_id]
        standing += [one.worker_id for one in self.alive_on(node) if one.worker_id not in standing]
        if standing:
            self._world.violated(f"I1: {worker_id} is created on {node}, where {standing} stand")
        pending = [name for name in jobs if name not in self.workers]
        if len(pending) >= len(self.by_name):
            self._world.violated(f"I1: {len(pending) + 1} Jobs are pending on {len(self.by_name)} nodes")

    def pod_changed(self, event: Event) -> None:
        """A pod came, was bound, is to go, or went."""
        if event.after is None:
            self._pod_went(event.before)
            return
        order = ordered(event.after)
        if order is None:
            return
        if event.before is None:
            self._pods[order.uid] = order
        bound = bool(msgspec.convert(event.after.body, _WholePod).spec.node_name)
        if bound and order.uid not in self._live:
            self._live[order.uid] = None
            self._check_cards(order)
            self._world.nursery.start_soon(self._look_after, order)
        worker = self.workers.get(order.worker_id)
        leaving = msgspec.convert(event.after.body, _WholePod).metadata.deletion_timestamp
        if leaving and (event.before is None or not _is_leaving(event.before)):
            if worker is not None:
                worker.dies_after(self._world.chance("end", order.uid).uniform(*ENDS_S))
            else:
                self._world.nursery.start_soon(self._end_unstarted, order)

    async def _end_unstarted(self, order: Ordered) -> None:
        """A pod that is deleted before it ran."""
        await trio.sleep(0.5)
        if order.uid in self._pods and order.worker_id not in self.workers:
            self._api.remove_pod(order.pod)

    def _pod_went(self, pod: Stored | None) -> None:
        """A pod that is gone from the API runs no more: its kubelet ended it, or its machine is no more."""
        order = self._pods.pop(pod.uid, None) if pod is not None else None
        worker = self.workers.get(order.worker_id) if order is not None else None
        if worker is not None:
            worker.process.kill()

    def _check_cards(self, order: Ordered) -> None:
        """I2: what pods have of a node, and what a worker is given of it."""
        machine = self.by_name[order.node]
        taken = self._taken(machine)
        if taken > machine.has:
            self._world.violated(f"I2: pods have {taken} of the {machine.has} cards of {order.node}")
        if order.capacity.gpu_count and (machine.plan.sliced or order.capacity.gpu_count > machine.plan.cards):
            self._world.violated(f"I2: {order.worker_id} is given {order.capacity.gpu_count} cards of {machine.plan}")

    async def _look_after(self, order: Ordered) -> None:
        """What a kubelet does for a pod of its node."""
        fate, chance = self._fates[order.worker_id], self._world.chance("pod", order.uid)
        if fate is Fate.PULL_FAILS:
            self._api.fail_pull(order.pod)
            if chance.uniform(0, 1) >= MENDED:
                return
            await trio.sleep(chance.uniform(*TAKEN_S))
        await trio.sleep(chance.uniform(*(LATE_S if fate is Fate.LATE else STARTS_S)))
        await self._until_heard(order)
        if order.uid not in self._pods or self._is_leaving(order):
            return
        code = 1
        if fate is not Fate.DIES_UNSTARTED:
            self._api.start_pod(order.pod)
            code = await self._run_worker(order, fate, chance)
        await self._end(order, code)

    async def _run_worker(self, order: Ordered, fate: Fate, chance: Chance) -> int:
        worker = PodWorker(self._cluster, order, fate, chance)
        self.workers[order.worker_id] = worker
        self._world.nursery.start_soon(worker.process.run, worker.run)
        await worker.process.ended.wait()
        return worker.process.code

    async def _end(self, order: Ordered, code: int) -> None:
        """Its kubelet tells that it has ended, once anybody hears its kubelet."""
        await trio.sleep(0.05)
        await self._until_heard(order)
        if order.uid in self._pods:
            del self._pods[order.uid]
            self._api.end_pod(order.pod, abs(code))
        await trio.sleep(JOB_KEPT_S + 2.0)
        self._api.remove_finished_jobs()

    async def _until_heard(self, order: Ordered) -> None:
        """Until its machine is heard, or the pod has gone with it."""
        while order.uid in self._pods and not self.by_name[order.node].on:  # noqa: ASYNC110
            await trio.sleep(1.0)

    def _is_leaving(self, order: Ordered) -> bool:
        namespace, _, name = order.pod.partition("/")
        pod = self._api.find(PODS, name, namespace)
        return pod is None or bool(pod.metadata.deletion_timestamp)

    # What happens to workers

    def evict(self, worker: PodWorker) -> None:
        """Its pod is evicted."""
        worker.process.kill()

    def delete_job(self, worker: PodWorker) -> None:
        """Somebody deletes its Job."""
        stored = self._api._objects.at(JOBS, worker.worker_id, self._cluster.namespace)
        if stored is not None:
            self._api.control.end(JOBS, stored)
            self._api.control.settle()

    def unrest(self) -> list[str]:
        """What of our workers is there."""
        found = [f"the process of {one.worker_id} lives" for one in self.workers.values() if not one.process.dead]
        found += [f"there is a Job {job.metadata.name}" for job in self._api.all_of(JOBS)]
        return found + [f"there is a pod of {one.worker_id}" for one in self._pods.values()]


async def _later(for_s: float, step: Callable[[], None]) -> None:
    await trio.sleep(for_s)
    step()


def _is_leaving(stored: Stored) -> bool:
    return bool(msgspec.convert(stored.body, _WholePod).metadata.deletion_timestamp)
