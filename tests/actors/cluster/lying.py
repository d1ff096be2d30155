"""A control plane of real policies, to which agents and workers may say anything: clusters, pools, scheduler, tasks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

import msgspec
from levers9_test_cluster import ANN, BEN, ROOM, SETTINGS, SPEC, a_node
from levers9_test_deciding import numbered, numbered_tokens, spec_of

from levers9.actors.cluster.policy import ClustersPolicy
from levers9.actors.pool import PoolPolicy
from levers9.actors.scheduler import SchedulerPolicy
from levers9.actors.tasks import TasksPolicy
from levers9.daemons.clusters import settings_of
from levers9.model.hearsay import INT4_MAX
from levers9.model.resources import Shape
from levers9.model.states import TokenKind
from levers9.store import operations as ops
from levers9.store.text import unstorable
from levers9.wire import client, scheduling
from levers9.wire import cluster as said
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Payload

Steps = Generator[tuple[ops.Operation, ...], tuple[ops.Answer, ...], None]
_WIDE = ("epoch", "agent_epoch")  # columns of eight bytes
_PACKED = ("arguments", "result", "failure", "spec")  # kept as bytes
_INT8_MAX = 2**63 - 1


class Plane:
    """Ann's cluster and Ben's, a call of Ann's, and her worker on n1. Its steps yield what is to be committed."""

    def __init__(self) -> None:
        self.now_s = 10_000.0
        new_id, new_token = numbered(), numbered_tokens()
        self.clusters = ClustersPolicy(SETTINGS, (), 1, new_id, new_token)
        self.scheduler = SchedulerPolicy(new_id, new_token)
        self.tasks = TasksPolicy(new_id)
        self.pools: dict[str, PoolPolicy] = {}
        self._new_id, self._new_token = new_id, new_token
        self.told: list[Message] = []  # people
        self.ids: list[str] = []  # of Ann's cluster, and of Ben's
        self.workers: list[str] = []
        self.containers: dict[str, str] = {}  # their workers

    def begin(self) -> Steps:
        yield tuple(ops.CreateWorkspace(workspace_id=name, name=name, now_s=1.0) for name in ("ann", "ben", "default"))
        for who in (ANN, BEN):
            yield from self.say(self.asks(who, said.JoinCluster(spec=SPEC)))
            self.ids.append(self.told[-1].cluster.cluster_id)  # type: ignore[attr-defined]
        for cluster_id in self.ids:
            yield from self.say(self.of_agent(cluster_id, self.report(cluster_id, 1)))
        stub = client.RegisterStub(spec=spec_of(shape=Shape(cpu_milli=100, memory_mib=64, gpu_count=1)))
        yield from self.say(self.asks(ANN, stub, "tasks"))
        stub_id = self.told[-1].stub_id  # type: ignore[attr-defined]
        calls = tuple(client.NewTask(task_id=f"task-{n}", arguments=Payload("msgpack", b"x")) for n in range(3))
        yield from self.say(self.asks(ANN, client.SubmitTasks(stub_id=stub_id, tasks=calls), "tasks"))
        yield from self.pass_time()
        for worker_id in self.workers:
            reported = scheduling.WorkerReported(worker_id=worker_id, pool="", epoch=1, capacity=ROOM, containers=())
            yield from self.say(self.of_worker(worker_id, reported))
        yield from self.pass_time()
        for container_id, worker_id in tuple(self.containers.items()):
            ready = scheduling.ContainerReady(container_id=container_id, window=1)
            yield from self.say(self.of_worker(worker_id, ready))

    def report(self, cluster_id: str, sequence: int, **changes: Any) -> said.ClusterReported:
        report = said.ClusterReported(
            cluster_id=cluster_id, epoch=1, sequence=sequence, nodes=(a_node("n1"), a_node("n2")), leader_epoch=1
        )
        return msgspec.structs.replace(report, **changes)

    @staticmethod
    def asks(who: tuple[str, TokenKind], message: Message, target: str = "clusters") -> Letter:
        return Letter(message, "client/me", target, workspace=who[0], kind=who[1], id="asked")

    @staticmethod
    def of_agent(cluster_id: str, message: Message) -> Letter:
        return Letter(message, f"agent/{cluster_id}", "clusters")

    @staticmethod
    def of_worker(worker_id: str, message: Message) -> Letter:
        return Letter(message, f"worker/{worker_id}", type(message).receiver)

    def pass_time(self, seconds: float = 1.5) -> Steps:
        self.now_s += seconds
        for policy in (self.clusters, *self.pools.values(), self.scheduler, self.tasks):
            policy.tick(self.now_s)
        yield from self.say()

    def say(self, *letters: Letter) -> Steps:
        """These, and all that follows from them."""
        queue = deque(letters)
        while True:
            while queue:
                self._deliver(queue.popleft())
            for address, policy in self._policies():
                while (plan := policy.plan(self.now_s)) is not None:
                    answers = (yield tuple(plan.operations)) if plan.operations else ()
                    sends = policy.settle(plan, answers)
                    queue += [Letter(one.message, address, one.target, correlation=one.correlation) for one in sends]
                    queue += self._effects(address, plan)
            if not queue:
                return

    def _policies(self) -> list[tuple[str, Any]]:
        pools = [(f"pool/{name}", policy) for name, policy in self.pools.items()]
        return [("clusters", self.clusters), *pools, ("scheduler", self.scheduler), ("tasks", self.tasks)]

    def _deliver(self, letter: Letter) -> None:
        policy = dict(self._policies()).get(letter.target)
        if policy is not None:
            policy.handle(letter, self.now_s)
        elif isinstance(letter.message, scheduling.AskGuard):
            admits = Letter(scheduling.GuardAdmits(key=letter.message.key), "guard", letter.source)
            self._deliver(admits)
        elif letter.target.startswith("client/"):
            self.told.append(letter.message)
        elif isinstance(letter.message, scheduling.StartContainer):
            self.containers[letter.message.container_id] = letter.target.removeprefix("worker/")

    def _effects(self, address: str, plan: Any) -> Iterable[Letter]:
        for change in getattr(plan, "changes", ()):
            if hasattr(change, "pool") and change.pool.name not in self.pools:
                settings = settings_of(change.pool, 1)
                pool = self.pools[settings.name] = PoolPolicy(settings, self._new_id, self._new_token)
                pool.load(())
        for start in plan.starts if address.startswith("pool/") else ():
            self.workers.append(start.worker_id)
            run = said.RunWorkerJob(
                pool=address.removeprefix("pool/"),
                worker_id=start.worker_id,
                token=start.token,
                capacity=start.capacity,
                traits=start.traits,
            )
            yield Letter(run, address, "clusters")


def misfits(operation: msgspec.Struct) -> list[str]:
    """What of an operation a row could not hold, whichever store keeps it."""
    found = [] if unstorable(operation) is None else [f"text {unstorable(operation)!r}"]
    return found + list(_numbers(operation, ""))


def _numbers(value: object, name: str) -> Iterable[str]:
    if isinstance(value, int | float) and not _fits(value, name):
        yield f"{name} {value}"
    elif isinstance(value, tuple):
        for one in value:
            yield from _numbers(one, name)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if field not in _PACKED:
                yield from _numbers(getattr(value, field), field)


def _fits(value: float, name: str) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return -INT4_MAX <= value <= (_INT8_MAX if name in _WIDE else INT4_MAX)
