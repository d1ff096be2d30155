"""Orders and reports under every fault: lost, doubled, late and reordered words, agents and leaders that begin anew.

The agent here carries out whatever it is told; what holds must hold by what the control plane says.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_cluster import ROOM, Stage, a_node
from levers9_test_deciding import Sent

from levers9.actors.cluster.jobs import SETTLED_S
from levers9.model.clusters import pool_of
from levers9.model.nodes import NodeState, Traits
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.wire import cluster as said
from levers9.wire import scheduling
from levers9.wire.message import Message

LAB = pool_of("ann", "lab")
NODES = ("a", "b", "c")
IN_FLIGHT_S = SETTLED_S / 2  # what a stream keeps for so long and longer is lost
JP = said.JobPhase


class Pod(msgspec.Struct):
    """A worker's Job and its pod, as they really are."""

    node: str
    uid: str
    phase: JP = JP.PENDING
    deleting: bool = False
    shown: bool = True  # its objects are there; without them its container runs on where no kubelet hears of it

    @property
    def alive(self) -> bool:
        return self.phase is not JP.ENDED


class ClusterMachine(RuleBasedStateMachine):
    @initialize(every=st.booleans(), standing=st.lists(st.sampled_from(NODES), unique=True))
    def begin(self, every: bool, standing: list[str]) -> None:
        """Some workers run already, so that what happens to those is tried often."""
        self.every = every  # the selector names all nodes
        self.stage = Stage()
        self.cluster_id = self.stage.joins().cluster.cluster_id
        self.nodes = {name: a_node(name) for name in NODES}
        self.left_out: dict[str, None] = {}  # nodes that the selector does not name any more
        self.pods: dict[str, Pod] = {}
        self.orders: dict[str, str] = {}  # what the pool counts on: workers that are not gone, and their nodes
        self.unwanted: dict[str, None] = {}
        self.exited: dict[str, None] = {}
        self.fenced: dict[str, None] = {}  # whose lease ended: they may run, and their tokens are good for nothing
        self.given_up: dict[str, None] = {}  # by any leader
        self.refused: dict[str, None] = {}
        self.ever_refused: dict[str, None] = {}
        self.known: dict[str, NodeState] = {}
        self.down: list[tuple[float, Message]] = []
        self.up: list[tuple[float, said.ClusterReported]] = []
        self.agent_epoch, self.leader_heard, self.sequence = 1, 0, 0
        self.count = 0
        self.heard(self.stage.agent(self.cluster_id, said.AgentReady(cluster_id=self.cluster_id, epoch=1)))
        if standing:
            self.a_report_arrives_at_once()
        for node in standing:
            self.the_pool_orders(node)
        self.words_reach_the_agent(len(self.down), twice=False)
        for pod in self.pods.values():
            pod.phase = JP.RUNNING
        if standing:
            self.a_report_arrives_at_once()

    # The control plane's words

    def heard(self, sent: Sent) -> None:
        for send in sent:
            match send.message:
                case said.NodesKnown(offers=offers):
                    self.known = {offer.traits.node: offer.state for offer in offers}
                case scheduling.WorkerStarted(worker_id=worker_id, handle=handle):
                    self.move(worker_id, WorkerState.PENDING, handle)
                case scheduling.WorkerExited(worker_id=worker_id, evidence=evidence):
                    self.exit(worker_id, evidence)
                case message if send.target.startswith("agent/"):
                    self.down.append((self.stage.now_s, message))

    def exit(self, worker_id: str, evidence: str) -> None:
        pod = self.pods.get(worker_id)
        if pod is not None and pod.alive:
            assert "has been there for 300 s" in evidence, "there is evidence of each end"
            assert not pod.shown, "what is reported does not end"
            assert pod.node in self.left_out, "and a node that is told of stays taken"
            self.fenced[worker_id] = None
        assert worker_id in self.orders, "an end is told once"
        del self.orders[worker_id]
        self.exited[worker_id] = None
        self.unwanted.pop(worker_id, None)
        self.move(worker_id, WorkerState.GONE)

    def move(self, worker_id: str, state: WorkerState, handle: str | None = None) -> None:
        move = ops.WorkerMove(worker_id=worker_id, sources=(), state=state, handle=handle)
        self.stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=self.stage.now_s))

    # The pool

    @rule(node=st.sampled_from(NODES))
    def the_pool_orders(self, node: str) -> None:
        if self.known.get(node) is NodeState.READY and node not in self.orders.values():
            self.count += 1
            worker_id = f"w{self.count}"
            self.orders[worker_id] = node
            row = ops.WorkerRow(
                worker_id=worker_id,
                pool=LAB,
                state=WorkerState.ORDERED,
                capacity=ROOM,
                traits=Traits(node=node),
            )
            self.stage.truth.ask(ops.PutWorkers(workers=(row,)))
            run = said.RunWorkerJob(pool=LAB, worker_id=worker_id, token="t", capacity=ROOM, traits=row.traits)
            self.heard(self.stage.pool(run))

    @rule(data=st.data())
    def the_pool_gives_one_up(self, data: st.DataObject) -> None:
        if self.orders:
            self.give_up(data.draw(st.sampled_from(sorted(self.orders))))

    def give_up(self, worker_id: str) -> None:
        self.unwanted[worker_id] = self.given_up[worker_id] = None
        self.heard(self.stage.pool(said.EndWorkerJob(pool=LAB, worker_id=worker_id, why="too late")))

    @rule()
    def a_new_leader_begins(self) -> None:
        self.heard(self.stage.begin())
        self.unwanted.clear()  # it counts anew, and gives them up later
        self.heard(self.stage.pool(scheduling.PoolDeclared(pool=LAB)))
        for worker_id, node in tuple(self.orders.items()):
            row = self.stage.truth.tables.workers[worker_id]
            adopt = said.AdoptWorkerJob(
                pool=LAB, worker_id=worker_id, handle=row.handle, state=WorkerState.PENDING, node=node
            )
            self.heard(self.stage.pool(adopt))

    # The agent

    @rule(count=st.integers(1, 4), twice=st.booleans())
    def words_reach_the_agent(self, count: int, twice: bool) -> None:
        for _ in range(min(count, len(self.down))):
            _, message = self.down.pop(0)
            for _ in range(1 + twice):
                self.obey(message)

    def obey(self, message: Message) -> None:
        assert isinstance(message, said.CreateWorkerJob | said.DeleteWorkerJob | said.AgentSettings)
        if message.leader_epoch < self.leader_heard:
            return
        self.leader_heard = message.leader_epoch
        match message:
            case said.CreateWorkerJob(job=job) if job.worker_id not in self.pods:
                assert job.worker_id not in self.exited, "what has ended never begins"
                if self.nodes[job.node].uid == job.node_uid if job.node in self.told() else False:
                    self.pods[job.worker_id] = Pod(node=job.node, uid=f"uid-{job.worker_id}")
                    self.refused.pop(job.worker_id, None)
                else:
                    self.refused[job.worker_id] = self.ever_refused[job.worker_id] = None
            case said.DeleteWorkerJob(worker_id=worker_id):
                may_go = worker_id in self.given_up or worker_id in self.ever_refused
                assert worker_id not in self.orders or may_go, "what is wanted is never deleted"
                self.delete(worker_id)

    def delete(self, worker_id: str) -> None:
        self.refused.pop(worker_id, None)
        pod = self.pods.get(worker_id)
        if pod is not None and pod.alive:
            pod.deleting = pod.shown
        elif pod is not None:
            del self.pods[worker_id]

    def told(self) -> dict[str, said.NodeReport]:
        return {name: node for name, node in self.nodes.items() if name not in self.left_out}

    @rule()
    def the_agent_reports(self) -> None:
        self.sequence += 1
        jobs = tuple(
            said.JobReport(worker_id=key, phase=pod.phase, job_uid=pod.uid, node=pod.node)
            for key, pod in self.pods.items()
            if pod.shown
        ) + tuple(said.JobReport(worker_id=key, phase=JP.REFUSED) for key in self.refused)
        report = said.ClusterReported(
            cluster_id=self.cluster_id,
            epoch=self.agent_epoch,
            sequence=self.sequence,
            nodes=tuple(self.told().values()),
            jobs=jobs,
            matched=len(self.told()),
            leader_epoch=self.leader_heard,
            every=self.every,
        )
        self.up.append((self.stage.now_s, report))

    @rule(data=st.data(), again=st.booleans())
    def a_report_arrives(self, data: st.DataObject, again: bool) -> None:
        """Any of those on their way, and perhaps again later."""
        if self.up:
            place = data.draw(st.integers(0, len(self.up) - 1))
            _, report = self.up[place] if again else self.up.pop(place)
            self.heard(self.stage.agent(self.cluster_id, report))

    @rule()
    def a_report_arrives_at_once(self) -> None:
        self.the_agent_reports()
        _, report = self.up.pop()
        self.heard(self.stage.agent(self.cluster_id, report))

    @rule(down=st.booleans(), told=st.booleans())
    def the_stream_is_cut(self, down: bool, told: bool) -> None:
        if down:
            self.down.clear()
        self.up.clear()
        if told:
            self.heard(self.stage.hushes(self.cluster_id))

    @rule()
    def the_agent_begins_anew(self) -> None:
        """It finds the Jobs that are there, and knows no leader; those that ended went meanwhile."""
        self.agent_epoch += 1
        self.leader_heard, self.sequence = 0, 0
        self.down.clear()
        self.pods = {key: pod for key, pod in self.pods.items() if pod.alive}
        self.refused.clear()
        ready = said.AgentReady(cluster_id=self.cluster_id, epoch=self.agent_epoch)
        self.heard(self.stage.agent(self.cluster_id, ready))

    # The cluster

    @rule(data=st.data())
    def a_pod_goes_on(self, data: st.DataObject) -> None:
        """It starts, and then it ends; one that is being deleted ends at once. Nobody hears of a node that is away."""
        able = [key for key, pod in sorted(self.pods.items()) if self.is_heard(pod)]
        if able:
            pod = self.pods[data.draw(st.sampled_from(able))]
            pod.phase = JP.RUNNING if pod.phase is JP.PENDING and not pod.deleting else JP.ENDED

    def is_heard(self, pod: Pod) -> bool:
        return pod.shown and pod.node in self.nodes and self.nodes[pod.node].state is NodeState.READY

    @rule(node=st.sampled_from(NODES), ready=st.booleans())
    def a_node_is_ready_or_is_not(self, node: str, ready: bool) -> None:
        """Its kubelet ends what has no pod any more before it is ready."""
        if node in self.nodes:
            state = NodeState.READY if ready else NodeState.NOT_READY
            self.nodes[node] = msgspec.structs.replace(self.nodes[node], state=state)
            for key, pod in tuple(self.pods.items()):
                if ready and pod.node == node and not pod.shown:
                    del self.pods[key]

    @rule(node=st.sampled_from(NODES))
    def a_node_is_replaced(self, node: str) -> None:
        """With all that ran there."""
        self.a_node_goes(node)
        self.count += 1
        self.nodes[node] = a_node(node, uid=f"uid-{node}-{self.count}")

    @rule(node=st.sampled_from(NODES))
    def a_node_goes(self, node: str) -> None:
        """With all that ran there."""
        self.nodes.pop(node, None)
        for key, pod in tuple(self.pods.items()):
            if pod.node == node and pod.shown:
                pod.phase = JP.ENDED
            elif pod.node == node:
                del self.pods[key]

    @rule(node=st.sampled_from(NODES))
    def the_selector_names_a_node_or_leaves_it_out(self, node: str) -> None:
        if node in self.left_out:
            del self.left_out[node]
        elif not self.every:
            self.left_out[node] = None

    @rule(node=st.sampled_from(NODES))
    def the_objects_on_a_node_that_is_away_are_deleted_by_force(self, node: str) -> None:
        if node in self.nodes and self.nodes[node].state is not NodeState.READY:
            for pod in self.pods.values():
                pod.shown = pod.shown and not (pod.node == node and pod.alive)

    @rule(node=st.sampled_from(NODES))
    def a_node_is_away_and_nobody_counts_on_it_any_more(self, node: str) -> None:
        self.a_node_is_ready_or_is_not(node, ready=False)
        self.the_objects_on_a_node_that_is_away_are_deleted_by_force(node)
        if node not in self.left_out:
            self.the_selector_names_a_node_or_leaves_it_out(node)

    @rule(seconds=st.sampled_from([100, 400]))
    def reports_come_for_a_while(self, seconds: int) -> None:
        for _ in range(seconds // 10):
            self.time_passes(10.0)
            self.a_report_arrives_at_once()

    @rule(seconds=st.sampled_from([0.5, 10.0, 40.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.heard(self.stage.tick(seconds))
        oldest_s = self.stage.now_s - IN_FLIGHT_S
        self.down = [one for one in self.down if one[0] > oldest_s]
        self.up = [one for one in self.up if one[0] > oldest_s]

    # What holds

    @invariant()
    def no_node_has_two_workers(self) -> None:
        alive = [pod.node for pod in self.pods.values() if pod.alive] if hasattr(self, "pods") else []
        assert len(alive) == len(set(alive))

    @invariant()
    def the_pool_counts_each_that_lives(self) -> None:
        for worker_id, pod in self.pods.items() if hasattr(self, "pods") else ():
            assert not pod.alive or worker_id in self.orders or worker_id in self.fenced

    def teardown(self) -> None:
        """Once all words arrive again, what is wanted is there, and nothing else is; nodes that went stay away."""
        if not hasattr(self, "pods"):
            return
        self.left_out.clear()
        for node in NODES:
            self.a_node_is_ready_or_is_not(node, ready=True)
        for worker_id, node in tuple(self.orders.items()):
            if node not in self.nodes and worker_id not in self.pods:
                self.give_up(worker_id)
        for _ in range(40):
            self.time_passes(10.0)
            self.a_report_arrives_at_once()
            self.words_reach_the_agent(len(self.down), twice=False)
            for pod in self.pods.values():
                pod.phase = JP.ENDED if pod.deleting else JP.RUNNING if pod.alive else pod.phase
        self.a_report_arrives_at_once()
        assert sorted(self.pods) == sorted(self.orders)
        assert sorted(job.worker_id for job in self.jobs()) == sorted(self.orders)
        assert not self.unwanted

    def jobs(self) -> list[said.JobReport]:
        cluster = self.stage.policy.book.get(self.cluster_id)
        assert cluster is not None
        return list(cluster.jobs)


TestClusters = pytest.mark.slow(ClusterMachine.TestCase)
TestClusters.settings = settings(settings.get_profile("property"), stateful_step_count=40)
