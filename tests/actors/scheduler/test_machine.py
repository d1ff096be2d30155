"""Room under every order of events, with commits that fail and reigns that end at any step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_deciding import SIZE, spec_of
from levers9_test_scheduler import Stage

from levers9.errors import StoreUnavailable
from levers9.model.resources import Shape
from levers9.model.states import ContainerState, End, WorkerState
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Send
from levers9.wire.scheduling import ContainerReport

pytestmark = pytest.mark.slow
STUBS = {"f": spec_of("f").shape, "g": Shape(cpu_milli=500, memory_mib=700)}
OPEN = (ContainerState.REQUESTED, ContainerState.PLACED, ContainerState.READY, ContainerState.STOPPING)


class Worker:
    """A worker that lives: its containers, its ends that nobody has acknowledged, and what it hears and says."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.epoch = 1
        self.states: dict[str, ContainerState] = {}
        self.ended: dict[str, End] = {}
        self.inbox: list[Message] = []
        self.outbox: list[Message] = []
        self.leaving = False

    def take_all(self) -> None:
        inbox, self.inbox = self.inbox, []
        for message in inbox:
            match message:
                case scheduling.StartContainer(container_id=container_id):
                    if container_id not in self.states and container_id not in self.ended:
                        self.states[container_id] = ContainerState.PLACED
                case scheduling.StopContainer(container_id=container_id):
                    self.end(container_id, End.OK)
                case scheduling.WorkerAccepted(stop=stop):
                    for container_id in stop:
                        self.end(container_id, End.OK)
                case scheduling.ContainerForgotten(container_id=container_id):
                    self.ended.pop(container_id, None)
                case scheduling.StopWorker():
                    self.leaving = True

    def end(self, container_id: str, end: End) -> None:
        if self.states.pop(container_id, None) is not None:
            self.ended[container_id] = end
        end = self.ended.get(container_id, End.DISCONNECTED)
        self.outbox.append(scheduling.ContainerEnded(container_id=container_id, end=end))

    def get_ready(self, container_id: str) -> None:
        self.states[container_id] = ContainerState.READY
        self.outbox.append(scheduling.ContainerReady(container_id=container_id, window=1))

    def tell_everything(self) -> None:
        self.inbox.clear()
        self.outbox = [
            scheduling.ContainerEnded(container_id=container_id, end=end) for container_id, end in self.ended.items()
        ]
        reports = tuple(ContainerReport(container_id, "f", state, 1) for container_id, state in self.states.items())
        self.outbox.append(
            scheduling.WorkerReported(
                worker_id=self.worker_id, pool="default", epoch=self.epoch, capacity=SIZE, containers=reports
            )
        )


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(eager=st.sampled_from([1, 2, 3, 5]))
    def begin(self, eager: int) -> None:
        self.stage = Stage()
        self.eager, self.events, self.made = eager, 0, 0
        self.inbox: list[Letter] = []
        self.workers: dict[str, Worker] = {}
        self.placed_on: dict[str, set[str]] = {}
        self.told_gone: dict[str, None] = {}
        self.truth = self.stage.truth
        self.a_worker_is_ordered(True)
        self.ask_for(3, "f")

    def happened(self) -> None:
        self.events += 1
        if self.events % self.eager == 0:
            self.messages_travel("well")

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    # tasks

    @rule(count=st.integers(1, 4), stub=st.sampled_from(list(STUBS)))
    def ask_for(self, count: int, stub: str) -> None:
        names = [self.name("container") for _ in range(count)]
        self.inbox.append(self.stage.request(*names, stub=stub, shape=STUBS[stub]))
        self.happened()

    def rows(self, *states: ContainerState) -> list[str]:
        return [key for key, row in self.truth.tables.containers.items() if row.state in states]

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if known := list(self.truth.tables.containers):
            self.inbox.append(self.stage.release(data.draw(st.sampled_from(known))))
        self.happened()

    # the pool and its processes

    @rule(lives=st.booleans())
    def a_worker_is_ordered(self, lives: bool) -> None:
        if len(self.workers) < 4:
            worker_id = self.name("worker")
            self.inbox.append(self.stage.order(worker_id))
            if lives:
                self.workers[worker_id] = Worker(worker_id)
                self.workers[worker_id].tell_everything()
        self.happened()

    @rule(data=st.data())
    def a_worker_dies(self, data: st.DataObject) -> None:
        if self.workers:
            worker_id = data.draw(st.sampled_from(list(self.workers)))
            del self.workers[worker_id]
            self.inbox.append(self.stage.evidence(worker_id))
        self.happened()

    # workers

    @rule(data=st.data(), what=st.sampled_from(["stream", "life", "quiet", "ready", "ready", "end"]))
    def something_happens_at_a_worker(self, data: st.DataObject, what: str) -> None:
        if self.workers:
            worker = self.workers[data.draw(st.sampled_from(list(self.workers)))]
            if what == "stream":
                worker.tell_everything()
            elif what == "life":
                worker.epoch += 1
                worker.states.clear()
                worker.ended.clear()
                worker.tell_everything()
            elif what == "quiet":
                self.inbox.append(self.stage.quiet(worker.worker_id))
            elif worker.states:
                container_id = data.draw(st.sampled_from(list(worker.states)))
                worker.get_ready(container_id) if what == "ready" else worker.end(container_id, End.ERROR)
        self.happened()

    # the loop

    @rule(how=st.sampled_from(["well", "well", "well", "before", "after"]))
    def messages_travel(self, how: str) -> None:
        for worker in self.workers.values():
            worker.take_all()
            self.inbox += [Letter(message, source=f"worker/{worker.worker_id}") for message in worker.outbox]
            worker.outbox.clear()
        self.decide(how)

    @rule(how=st.sampled_from(["well", "before", "after"]))
    def decide(self, how: str) -> None:
        policy, now_s = self.stage.policy, self.stage.now_s
        letters, self.inbox = self.inbox, []
        for letter in letters:
            policy.handle(letter, now_s)
        try:
            while (plan := policy.plan(now_s)) is not None:
                for send in policy.settle(plan, self.truth.commit(plan.operations, how)):
                    self.route(send)
        except StoreUnavailable:
            assert how != "well"
            self.begin_reign()
        else:
            self.memory_is_the_truth()

    @rule()
    def begin_reign(self) -> None:
        """All actors of a reign end together. Pools watch their processes anew and tell of those that are gone."""
        self.inbox.clear()
        self.stage.restart()
        for worker_id, state in self.truth.worker_states().items():
            if state is not WorkerState.GONE and worker_id not in self.workers:
                self.inbox.append(self.stage.evidence(worker_id))
        for worker in self.workers.values():
            worker.tell_everything()

    @rule(seconds=st.sampled_from([0.5, 1.0, 20.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.now_s += seconds
        self.stage.policy.tick(self.stage.now_s)
        self.happened()

    def route(self, send: Send) -> None:
        if isinstance(send.message, scheduling.ContainerGone):
            self.told_gone[send.message.container_id] = None
        worker = self.workers.get(send.target.removeprefix("worker/"))
        if isinstance(send.message, scheduling.StartContainer):
            self.placed_on.setdefault(send.message.container_id, set()).add(send.target)
        if worker is not None:
            worker.inbox.append(send.message)

    # what always holds

    @invariant()
    def free_and_used_are_the_capacity(self) -> None:
        for host in self.stage.policy.ledger.hosts.values():
            node = self.stage.policy.core.fleet.nodes[host.worker_id]
            assert node.uses.keys() == host.rooms.keys()
            used = [room.spec.shape for room in host.rooms.values()]
            assert node.cpu_milli + sum(shape.cpu_milli for shape in used) == host.capacity.cpu_milli
            assert node.memory_mib + sum(shape.memory_mib for shape in used) == host.capacity.memory_mib
            assert node.cpu_milli >= 0
            assert node.memory_mib >= 0

    @invariant()
    def a_container_is_only_ever_started_on_one_worker(self) -> None:
        assert all(len(workers) == 1 for workers in self.placed_on.values())

    @invariant()
    def each_container_is_where_its_worker_knows_it(self) -> None:
        ledger = self.stage.policy.ledger
        for room in ledger.rooms.values():
            if room.state is ContainerState.REQUESTED:
                assert room.container_id in self.stage.policy.core.waiting
            else:
                assert ledger.hosts[room.worker_id].rooms[room.container_id] is room

    @invariant()
    def work_is_only_lost_with_evidence(self) -> None:
        """A worker that lives keeps what it runs, unless its lease ran out (I10)."""
        for worker_id in self.workers:
            row = self.truth.tables.workers.get(worker_id)
            if row is not None and row.state is WorkerState.GONE:
                assert "lease" in row.why

    def memory_is_the_truth(self) -> None:
        ledger = self.stage.policy.ledger
        known = {key: (room.state, room.worker_id) for key, room in ledger.rooms.items()}
        waiting = {container_id for letter in self.inbox for container_id in _asked(letter)}
        tables = self.truth.tables
        rows = {key: (tables.containers[key].state, tables.containers[key].worker_id) for key in self.rows(*OPEN)}
        assert {key: row for key, row in rows.items() if key not in waiting} == known
        coming = (WorkerState.ORDERED, WorkerState.PENDING)
        for worker_id, host in ledger.hosts.items():
            row = tables.workers[worker_id]
            assert host.state is row.state or (host.state in coming and row.state in coming)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        for worker in self.workers.values():
            worker.tell_everything()
        for _ in range(6):
            self.stage.now_s += 0.5
            self.stage.policy.tick(self.stage.now_s)
            self.messages_travel("well")
            for worker in self.workers.values():
                worker.take_all()
                for container_id in worker.states:
                    worker.get_ready(container_id)
        self.messages_travel("well")
        self.at_rest()

    def at_rest(self) -> None:
        """No record without a live owner, and no live thing without a record (I7)."""
        alive = {(key, worker.worker_id) for worker in self.workers.values() for key in worker.states}
        rows = self.truth.tables.containers
        for container_id in self.rows(ContainerState.READY):
            assert (container_id, rows[container_id].worker_id) in alive
        for container_id, worker_id in alive:
            if self.truth.worker_states()[worker_id] is not WorkerState.GONE:
                assert rows[container_id].state is ContainerState.READY
        assert self.rows(ContainerState.PLACED, ContainerState.STOPPING) == []


def _asked(letter: Letter) -> tuple[str, ...]:
    return letter.message.container_ids if isinstance(letter.message, scheduling.RequestContainers) else ()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=200, stateful_step_count=60)
