"""Calls under every order of events, with commits that fail and reigns that end at any step.

The other parts are played: a caller, a scheduler that keeps container rows, and workers that follow `wire/work.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from levers9_test_deciding import ARGUMENTS, Truth, numbered, spec_of

from levers9.actors.tasks import TasksPolicy
from levers9.actors.tasks.group import Plan
from levers9.errors import StoreUnavailable
from levers9.model.states import ContainerState, End, TaskState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Payload, Send
from levers9.wire.work import AttemptResult

from .played import Container, Worker, pair_of

pytestmark = pytest.mark.slow
RETRIES = 2
WORKERS = ("one", "two")


class TasksMachine(RuleBasedStateMachine):
    @initialize(
        wait_s=st.sampled_from([0.0, 0.0, 3.0]),
        retries=st.integers(0, RETRIES),
        eager=st.sampled_from([1, 2, 3, 5]),
        window=st.integers(1, 4),
    )
    def begin(self, wait_s: float, retries: int, eager: int, window: int) -> None:
        self.eager, self.events = eager, 0
        self.truth = Truth()
        self.now_s = 1000.0
        self.new_id = numbered()
        self.new_task = numbered()
        self.retries = retries
        self.policy = TasksPolicy(self.new_id)
        self.workers = {name: Worker(name) for name in WORKERS}
        self.inbox: list[Letter] = []
        self.owner: dict[str, str] = {}  # container -> its worker, once placed
        self.submitted: list[str] = []
        self.accepted: dict[str, None] = {}
        self.told: dict[str, client.TaskResult] = {}
        self.terminal: dict[str, ops.TaskRow] = {}
        self.cancelled: dict[str, int] = {}  # task -> starts seen when CANCELLED was acknowledged
        self.stub = ""
        self.say(client.RegisterStub(spec=self.spec(retries=retries, wait_s=wait_s, keep_warm_s=2.0)))
        self.decide("well")
        self.submit(4)
        self.all_that_is_wanted_comes(window, "one")
        self.messages_travel("well", True)
        self.messages_travel("well", True)

    def spec(self, **changes: object) -> client.StubSpec:
        return spec_of(**changes)

    def happened(self) -> None:
        """After every so many events all that was said is heard."""
        self.events += 1
        if self.events % self.eager == 0:
            self.messages_travel("well", True)

    # The caller

    def say(self, message: Message, source: str = "client/me") -> None:
        self.inbox.append(Letter(message, source=source, target="tasks", workspace="w", id="q"))

    @rule(count=st.integers(1, 5))
    def submit(self, count: int) -> None:
        task_ids = [self.new_task("task") for _ in range(count)]
        self.submitted += task_ids
        self.submit_again(task_ids)
        self.happened()

    def submit_again(self, task_ids: list[str]) -> None:
        tasks = tuple(client.NewTask(task_id, ARGUMENTS) for task_id in task_ids)
        self.say(client.SubmitTasks(stub_id=self.stub, tasks=tasks))

    @rule(data=st.data())
    def submit_something_twice(self, data: st.DataObject) -> None:
        if self.submitted:
            self.submit_again(data.draw(st.lists(st.sampled_from(self.submitted), min_size=1, max_size=3, unique=True)))
        self.happened()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.submitted:
            task_ids = data.draw(st.lists(st.sampled_from(self.submitted), min_size=1, max_size=3))
            self.say(client.CancelTasks(task_ids=tuple(task_ids)))
        self.happened()

    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        if self.accepted:
            self.say(client.WatchTasks(task_ids=(data.draw(st.sampled_from(list(self.accepted))),)))
        self.happened()

    @rule()
    def take_results(self) -> None:
        if self.told:
            self.say(client.ResultsTaken(task_ids=tuple(self.told)))

    # The scheduler: its rows are committed before it says anything

    def rows(self, *states: ContainerState) -> list[str]:
        return [key for key, row in self.truth.tables.containers.items() if row.state in states]

    def move(self, container_id: str, state: ContainerState, worker: str | None = None) -> None:
        any_state = tuple(ContainerState)
        move = ops.ContainerMove(container_id=container_id, sources=any_state, state=state, worker_id=worker)
        self.truth.ask(ops.MoveContainers(moves=(move,), now_s=self.now_s))

    @rule(data=st.data(), window=st.integers(1, 4))
    def a_container_gets_warm(self, data: st.DataObject, window: int) -> None:
        requested = self.rows(ContainerState.REQUESTED)
        if requested:
            self.warm(data.draw(st.sampled_from(requested)), data.draw(st.sampled_from(WORKERS)), window)
        self.happened()

    def warm(self, container_id: str, worker: str, window: int) -> None:
        self.move(container_id, ContainerState.READY, worker)
        self.owner[container_id] = worker
        self.workers[worker].containers[container_id] = Container(container_id, window)
        self.tell_available(container_id, window)

    def tell_available(self, container_id: str, window: int) -> None:
        message = scheduling.ContainerAvailable(
            container_id=container_id,
            stub_id=self.stub,
            worker_id=self.owner[container_id],
            window=window,
            address=f"{container_id}:7000",
        )
        self.say(message, "scheduler")

    @rule(why=st.sampled_from(["", "no room."]))
    def it_is_held(self, why: str) -> None:
        self.say(scheduling.ContainerHeld(stub_id=self.stub, why=why), "scheduler")
        self.happened()

    @rule(data=st.data(), end=st.sampled_from(End))
    def a_container_ends(self, data: st.DataObject, end: End) -> None:
        alive = self.rows(ContainerState.REQUESTED, ContainerState.READY)
        if alive:
            self.end_container(data.draw(st.sampled_from(alive)), end)
        self.happened()

    def end_container(self, container_id: str, end: End) -> None:
        """Its worker tells what became of the attempts first, then the scheduler commits the end."""
        worker = self.workers.get(self.owner.get(container_id, ""))
        container = worker.containers.get(container_id) if worker is not None else None
        if worker is not None and container is not None:
            if container.running is not None:
                worker.finish(container, End.KILLED)
            for key in tuple(container.waiting):
                del container.waiting[key]
                worker.keep(container, AttemptResult(*pair_of(key), End.DISCONNECTED, False))
            self.hear(worker, len(worker.outbox))
            del worker.containers[container_id]
        self.gone(container_id, end)

    def gone(self, container_id: str, end: End) -> None:
        self.move(container_id, ContainerState.ENDED)
        message = scheduling.ContainerGone(container_id=container_id, stub_id=self.stub, end=end, why="it ended")
        self.say(message, "scheduler")

    @rule(name=st.sampled_from(WORKERS))
    def a_worker_dies(self, name: str) -> None:
        """There is evidence: nothing that it was about to say will ever be heard."""
        worker = self.workers[name]
        self.workers[name] = Worker(name)
        self.workers[name].started = worker.started
        for container_id in worker.containers:
            self.gone(container_id, End.DISCONNECTED)
        self.happened()

    @rule(name=st.sampled_from(WORKERS))
    def a_worker_falls_silent(self, name: str) -> None:
        for container_id in self.workers[name].containers:
            self.tell_available(container_id, 0)
        self.happened()

    # Workers

    def hear(self, worker: Worker, count: int) -> None:
        for message in worker.outbox[:count]:
            self.say(message, f"worker/{worker.name}")
        del worker.outbox[:count]

    @rule(name=st.sampled_from(WORKERS), count=st.integers(1, 3))
    def a_worker_is_heard(self, name: str, count: int) -> None:
        self.hear(self.workers[name], count)

    @rule(name=st.sampled_from(WORKERS))
    def a_worker_hears(self, name: str) -> None:
        self.workers[name].take_all()

    @rule(name=st.sampled_from(WORKERS))
    def a_worker_gets_a_new_stream(self, name: str) -> None:
        self.workers[name].tell_everything()
        self.happened()

    @rule(name=st.sampled_from(WORKERS), data=st.data())
    def an_attempt_starts(self, name: str, data: st.DataObject) -> None:
        worker = self.workers[name]
        if worker.containers:
            self.start(worker, worker.containers[data.draw(st.sampled_from(list(worker.containers)))])
        self.happened()

    def start(self, worker: Worker, container: Container) -> None:
        key = worker.start(container)
        if key is not None:
            assert key.task_id not in self.cancelled, "code started after its cancel was acknowledged (I5)"

    @rule(name=st.sampled_from(WORKERS), end=st.sampled_from([End.OK, End.OK, End.KILLED, *End]), data=st.data())
    def an_attempt_ends(self, name: str, end: End, data: st.DataObject) -> None:
        worker = self.workers[name]
        busy = [container for container in worker.containers.values() if container.running is not None]
        if busy:
            worker.finish(busy[data.draw(st.integers(0, len(busy) - 1))], end)
        self.happened()

    # The loop

    @rule(how=st.sampled_from(["well", "well", "well", "before", "after"]))
    def decide(self, how: str) -> None:
        """One group: all that came in. A commit that fails ends the reign."""
        letters, self.inbox = self.inbox, []
        for letter in letters:
            self.policy.handle(letter, self.now_s)
        try:
            while (plan := self.policy.plan(self.now_s)) is not None:
                self.credits_hold(plan)
                answers = self.truth.commit(plan.operations, how)
                for send in self.policy.settle(plan, answers):
                    self.route(send)
        except StoreUnavailable:
            assert how != "well"
            self.begin_reign()

    @rule(how=st.sampled_from(["well", "well", "well", "well", "before", "after"]), run=st.booleans())
    def messages_travel(self, how: str, run: bool) -> None:
        """All that was said is heard, and perhaps each container starts what it can."""
        for worker in self.workers.values():
            worker.take_all()
            for container in worker.containers.values() if run else ():
                self.start(worker, container)
            self.hear(worker, len(worker.outbox))
        self.decide(how)

    @rule(window=st.integers(1, 4), name=st.sampled_from(WORKERS))
    def all_that_is_wanted_comes(self, window: int, name: str) -> None:
        for container_id in self.rows(ContainerState.REQUESTED):
            self.warm(container_id, name, window)

    @rule()
    def the_brain_dies(self) -> None:
        self.begin_reign()
        self.happened()

    @rule(data=st.data(), how=st.sampled_from(["a container ends", "a worker dies", "a task is cancelled"]))
    def the_brain_dies_just_before_it_hears_that(self, how: str, data: st.DataObject) -> None:
        self.eager, eager = 1000, self.eager
        if how == "a container ends":
            self.a_container_ends(data, End.DISCONNECTED)
        elif how == "a worker dies":
            self.a_worker_dies("one")
        else:
            self.cancel(data)
        self.eager = eager
        self.begin_reign()
        self.happened()

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.policy.tick(self.now_s)
        self.happened()

    def begin_reign(self) -> None:
        """All actors of a reign end together; workers and callers are asked to say everything again."""
        self.inbox.clear()
        self.policy = TasksPolicy(self.new_id)
        stubs, containers = self.truth.ask(ops.ReadStubs()), self.truth.ask(ops.LoadContainers())
        self.policy.load(rows_of(stubs, ops.StubRow), rows_of(containers, ops.ContainerRow), (), self.now_s)
        after = (0.0, "")
        while page := rows_of(self.truth.ask(ops.LoadUnfinished(after=after, limit=2)), ops.TaskRow):
            lost = self.truth.ask(ops.ReadContainers(container_ids=self.policy.lost(page)))
            self.policy.load((), rows_of(lost, ops.ContainerRow), (), self.now_s)
            self.policy.load((), (), page, self.now_s)
            after = (page[-1].accepted_at_s, page[-1].task_id)
        for worker in self.workers.values():
            worker.tell_everything()
            for container in worker.containers.values():
                self.tell_available(container.container_id, container.window)
        unanswered = [task_id for task_id in self.submitted if task_id not in self.told]
        if unanswered and self.stub:
            self.submit_again(unanswered)

    def route(self, send: Send) -> None:
        kind, _, name = send.target.partition("/")
        if kind == "worker":
            self.workers[name].inbox.append(send.message)
        elif kind == "scheduler":
            self.scheduler_hears(send.message)
        else:
            self.caller_hears(send.message)

    def credits_hold(self, plan: Plan) -> None:
        for container_id in plan.deliveries:
            warm = self.policy.ledger.containers[container_id]
            assert warm.available
            assert not warm.leaving
            assert len(warm.holding) <= warm.window

    def scheduler_hears(self, message: Message) -> None:
        if isinstance(message, scheduling.ReleaseContainers):
            for container_id in message.container_ids:
                if container_id in self.rows(ContainerState.REQUESTED, ContainerState.READY):
                    self.end_container(container_id, End.CANCELLED)

    def caller_hears(self, message: Message) -> None:
        match message:
            case client.StubRegistered(stub_id=stub_id):
                self.stub = stub_id
            case client.TasksAccepted(task_ids=task_ids):
                self.accepted.update(dict.fromkeys(task_ids))
                assert all(task_id in self.truth.tables.tasks for task_id in task_ids)
            case client.TasksFinished(results=results):
                for result in results:
                    self.hear_result(result)
            case client.CancelAccepted(standings=standings):
                for standing in standings:
                    if standing.state is TaskState.CANCELLED:
                        self.cancelled[standing.task_id] = 1

    def hear_result(self, result: client.TaskResult) -> None:
        row = self.truth.task(result.task_id)
        assert result.state is row.state, "a caller was told what is not committed"
        assert (result.result, result.failure) == (row.result, row.failure) or row.state is TaskState.CANCELLED
        assert self.told.setdefault(result.task_id, result).state is result.state
        if result.state is TaskState.COMPLETE:
            assert row.result == Payload("msgpack", f"{row.task_id}/{row.attempt}".encode())

    # What always holds

    @invariant()
    def a_terminal_task_stays_as_it_is(self) -> None:
        for task_id, row in self.truth.tables.tasks.items():
            if row.state.terminal:
                before = self.terminal.setdefault(task_id, row)
                assert (before.state, before.attempt, before.result) == (row.state, row.attempt, row.result)
            assert row.retries_used <= self.retries

    @invariant()
    def no_attempt_starts_twice(self) -> None:
        started = [key for worker in self.workers.values() for key, _ in worker.started]
        assert len(started) == len(set(started))

    @invariant()
    def counts_agree_with_what_they_count(self) -> None:
        ledger = self.policy.ledger
        for stub in ledger.stubs.values():
            held = [task_id for warm in stub.containers.values() for task_id in warm.holding]
            assert sorted([*stub.waiting, *held]) == sorted(ledger.calls)
            assert stub.unfinished == len(ledger.calls)
            watching: dict[str, int] = {}
            for call in ledger.calls.values():
                for watcher in call.watchers:
                    watching[watcher] = watching.get(watcher, 0) + 1
            assert stub.watching == watching

    def memory_is_the_truth(self) -> None:
        """After a commit without letters waiting (I7)."""
        calls = self.policy.ledger.calls
        rows = {key: row for key, row in self.truth.tables.tasks.items() if not row.state.terminal}
        assert sorted(calls) == sorted(rows)
        for task_id, call in calls.items():
            row = rows[task_id]
            assert (call.state, call.attempt, call.retries_used) == (row.state, row.attempt, row.retries_used)
            assert call.waits or call.container_id == row.container_id
        alive = self.rows(ContainerState.REQUESTED, ContainerState.READY)
        assert sorted(self.policy.ledger.containers) == sorted(alive)

    @rule()
    def rest(self) -> None:
        self.decide("well")
        self.decide("well")  # what the scheduler answered to the first
        self.memory_is_the_truth()

    def teardown(self) -> None:
        if not hasattr(self, "truth"):
            return
        for _ in range(60):
            self.go_on()
            if not self.policy.ledger.calls and not self.inbox:
                break
        assert self.policy.ledger.calls == {}
        for task_id in self.accepted:
            assert self.truth.state(task_id).terminal
        self.say(client.WatchTasks(task_ids=tuple(self.accepted)))
        self.decide("well")
        assert set(self.told) >= set(self.accepted), "a caller that asks hears of each of its tasks"

    def go_on(self) -> None:
        """A world without faults: whatever waits is done."""
        self.now_s += 5.0
        self.policy.tick(self.now_s)
        self.rest()
        for container_id in self.rows(ContainerState.REQUESTED):
            self.warm(container_id, "one", 4)
        for worker in self.workers.values():
            worker.take_all()
            for container in worker.containers.values():
                while container.running is not None or container.waiting:
                    if container.running is None:
                        self.start(worker, container)
                    worker.finish(container, End.OK)
                self.tell_available(container.container_id, container.window)
            self.hear(worker, len(worker.outbox))


TestTasksMachine = TasksMachine.TestCase
TestTasksMachine.settings = settings(max_examples=200, stateful_step_count=60)
