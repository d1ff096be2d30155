"""The worker's policy against a plain model of containers, in any order of messages, repeats, crashes and time."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from levers9_test_worker import a_spec

from levers9.actors.worker import events
from levers9.actors.worker.fence import FENCE_AFTER_S
from levers9.actors.worker.policy import WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.model.figures import HAND_BACK_AFTER_S, INLINE_MAX_BYTES, STARTING_STOP_GRACE_S
from levers9.model.resources import Capacity
from levers9.model.states import End
from levers9.wire.message import Payload
from levers9.wire.scheduling import (
    ContainerEnded,
    ContainerForgotten,
    StartContainer,
    StopContainer,
    StopWorker,
    WorkerLeaving,
)
from levers9.wire.work import (
    AttemptKey,
    AttemptOrder,
    AttemptResult,
    AttemptsConfirmed,
    AttemptsFinished,
    AttemptsHeld,
    CancelAttempts,
    ResultsCommitted,
    RunAttempts,
)

pytestmark = pytest.mark.slow
GRACE_S = 30.0
CONTAINERS = ("c1", "c2")
TASKS = ("t1", "t2", "t3", "t4", "t5", "t6")


@dataclass
class Tree:
    """A container as the machine's own runtime has it: calls that wait, and the one that runs."""

    loaded: bool = False
    queue: list[AttemptKey] = field(default_factory=list)
    running: AttemptKey | None = None
    returning: list[AttemptResult] = field(default_factory=list)  # they have run, and their results are on their way
    terminated_at_s: float | None = None
    grace_s: float = 0.0
    killed: bool = False

    def started(self) -> tuple[AttemptKey, ...]:
        """What has started and has not been told of, in order."""
        returning = [AttemptKey(result.task_id, result.attempt) for result in self.returning]
        return (*returning, *([] if self.running is None else [self.running]))


class WorkerMachine(RuleBasedStateMachine):
    """A task is only ever delivered to one container here, as the control plane does it."""

    def __init__(self) -> None:
        super().__init__()
        capacity = Capacity(cpu_milli=1000, memory_mib=1000)
        identity = Identity(worker_id="w", pool="p", epoch=1, capacity=capacity)
        self.policy = WorkerPolicy(identity, stop_grace_s=GRACE_S)
        self.now_s = 0.0
        self.trees: dict[str, Tree] = {}
        self.launched: set[str] = set()
        self.known: set[str] = set()
        self.started: set[tuple[str, AttemptKey]] = set()
        self.accepted: set[tuple[str, AttemptKey]] = set()
        self.unwanted: set[tuple[str, AttemptKey]] = set()
        self.committed: set[tuple[str, AttemptKey]] = set()
        self.told: dict[tuple[str, AttemptKey], AttemptResult] = {}
        self.ended: dict[str, ContainerEnded] = {}
        self.forgotten: set[str] = set()
        self.fetching: list[events.Fetch] = []
        self.storing: list[events.Store] = []
        self.left = False
        self.quiet_since_s: float | None = None
        self.fenced = False
        self.doubtful: set[tuple[str, AttemptKey]] = set()
        self.asked: list[AttemptsHeld] = []

    # What the machine does with events and decisions

    def happen(self, event: events.Event) -> None:
        for decision in self.policy.handle(event, self.now_s):
            self.perform(decision)

    def perform(self, decision: events.Decision) -> None:
        match decision:
            case events.Send(message):
                self.hear(message)
            case events.Launch(container_id=container_id):
                assert container_id not in self.launched
                self.launched.add(container_id)
                self.trees[container_id] = Tree()
            case events.Give(container_id, orders):
                assert self.trees[container_id].loaded
                self.trees[container_id].queue += [AttemptKey(one.task_id, one.attempt) for one in orders]
            case events.Revoke(container_id, keys):
                self.revoke(container_id, keys)
            case events.Terminate(container_id):
                tree = self.trees[container_id]
                assert tree.terminated_at_s is None
                tree.terminated_at_s = self.now_s
                tree.grace_s = GRACE_S if tree.loaded else STARTING_STOP_GRACE_S
            case events.Kill(container_id):
                tree = self.trees[container_id]
                assert tree.terminated_at_s is not None
                assert self.now_s >= tree.terminated_at_s + tree.grace_s
                tree.killed = True
            case events.Fetch():
                self.fetching.append(decision)
            case events.Store():
                self.storing.append(decision)
            case events.Leave():
                assert not self.left
                self.left = True

    def revoke(self, container_id: str, keys: frozenset[AttemptKey] | None) -> None:
        tree = self.trees[container_id]
        dropped = tuple(key for key in tree.queue if keys is None or key in keys)
        tree.queue = [key for key in tree.queue if key not in dropped]
        self.happen(events.AttemptsRevoked(container_id, dropped, tree.started()))

    def hear(self, message: object) -> None:
        if isinstance(message, AttemptsFinished):
            for result in message.results:
                self.hear_result(message.container_id, result)
            assert 0 <= message.window <= 64
        elif isinstance(message, ContainerEnded) and message.container_id in self.known:
            assert message.container_id not in self.trees or self.trees[message.container_id].running is None
            assert self.ended.setdefault(message.container_id, message) == message
        elif isinstance(message, AttemptsHeld):
            self.asked += [message] if message.question else []
        elif isinstance(message, WorkerLeaving):
            assert not self.trees

    def hear_result(self, container_id: str, result: AttemptResult) -> None:
        key = AttemptKey(result.task_id, result.attempt)
        assert result.started == ((container_id, key) in self.started)
        assert self.told.setdefault((container_id, key), result) == result
        assert (container_id, key) not in self.unwanted

    # What the control plane does

    def expected(self, container_id: str) -> bool:
        """Whether the control plane still has to do with it; the others have tests of their own."""
        return container_id in self.known and container_id not in self.forgotten

    @initialize()
    def open(self) -> None:
        """One container is there from the start, so that most runs get to calls that run."""
        self.happen(events.LinkOpened(False))
        self.start("c1")
        self.trees["c1"].loaded = True
        self.happen(events.ContainerLoaded("c1"))

    @rule(container_id=st.sampled_from(CONTAINERS))
    def start(self, container_id: str) -> None:
        if container_id in self.forgotten:
            return
        self.known.add(container_id)
        message = StartContainer(container_id=container_id, stub_id="s", workspace_id="ws", spec=a_spec())
        self.happen(events.MessageArrived(message))

    @rule(
        container_id=st.sampled_from(CONTAINERS),
        tasks=st.lists(st.sampled_from(TASKS), unique=True, min_size=1),
        large=st.booleans(),
        timeout_s=st.sampled_from((0.0, 5.0, 100.0)),
    )
    def deliver(self, container_id: str, tasks: list[str], large: bool, timeout_s: float) -> None:
        arguments = Payload("msgpack", b"", "blob/x" if large else "")
        keys = [AttemptKey(f"{container_id}-{task}", 1) for task in tasks]
        if not self.expected(container_id) or self.quiet_since_s is not None:
            return
        if self.fenced:
            self.doubtful |= {(container_id, key) for key in keys}
        self.accepted |= {(container_id, key) for key in keys}
        orders = tuple(AttemptOrder(key.task_id, 1, arguments, timeout_s) for key in keys)
        self.happen(events.MessageArrived(RunAttempts(container_id=container_id, attempts=orders)))

    @rule(container_id=st.sampled_from(CONTAINERS), task=st.sampled_from(TASKS), superseded=st.booleans())
    def cancel(self, container_id: str, task: str, superseded: bool) -> None:
        key = AttemptKey(f"{container_id}-{task}", 1)
        if not self.expected(container_id):
            return
        if superseded:
            self.unwanted.add((container_id, key))
        message = CancelAttempts(container_id=container_id, attempts=(key,), superseded=superseded)
        self.happen(events.MessageArrived(message))

    @rule(container_id=st.sampled_from(CONTAINERS))
    def stop(self, container_id: str) -> None:
        if self.expected(container_id):
            self.happen(events.MessageArrived(StopContainer(container_id=container_id, why="enough")))

    @rule(data=st.data())
    @precondition(lambda self: self.told)
    def commit(self, data: st.DataObject) -> None:
        container_id, key = data.draw(st.sampled_from(sorted(self.told, key=str)))
        self.committed.add((container_id, key))
        self.happen(events.MessageArrived(ResultsCommitted(container_id=container_id, attempts=(key,))))

    @rule(data=st.data())
    @precondition(lambda self: self.ended)
    def forget(self, data: st.DataObject) -> None:
        container_id = data.draw(st.sampled_from(sorted(self.ended)))
        self.forgotten.add(container_id)
        self.happen(events.MessageArrived(ContainerForgotten(container_id=container_id)))

    @rule(long=st.booleans())
    @precondition(lambda self: any(tree.queue for tree in self.trees.values()))
    def get_quiet(self, long: bool) -> None:
        """The stream is cut, and a control plane may give us up when a lease has passed."""
        if self.quiet_since_s is None:
            self.quiet_since_s = self.now_s
        self.happen(events.LinkQuiet())
        if long:
            self.pass_time(FENCE_AFTER_S)

    @rule(resumed=st.booleans())
    def hear_again(self, resumed: bool) -> None:
        """Over the same stream, or over another that goes on with the session."""
        if self.fenced and self.quiet_since_s is not None:
            self.asked.clear()
        self.quiet_since_s = None
        self.happen(events.LinkOpened(True) if resumed else events.LinkHeard())

    @rule(data=st.data())
    @precondition(lambda self: self.asked)
    def answer(self, data: st.DataObject) -> None:
        """Some are still the container's; the others are superseded first."""
        asked = self.asked.pop(0)
        kept = tuple(key for key in asked.attempts if data.draw(st.booleans()))
        others = tuple(key for key in asked.attempts if key not in kept)
        self.unwanted |= {(asked.container_id, key) for key in others}
        stop = CancelAttempts(container_id=asked.container_id, attempts=others, superseded=True)
        self.happen(events.MessageArrived(stop))
        self.fenced = self.fenced and asked.question != self.policy._fence.number
        if asked.question == self.policy._fence.number:
            self.doubtful -= {(asked.container_id, key) for key in kept}
        confirmed = AttemptsConfirmed(container_id=asked.container_id, attempts=kept, question=asked.question)
        self.happen(events.MessageArrived(confirmed))

    @rule()
    def reopen(self) -> None:
        """After a new stream all that is not committed is told again, and all that is held."""
        self.quiet_since_s = None
        told, self.told = self.told, {}
        heard: list[object] = []
        for decision in self.policy.handle(events.LinkOpened(False), self.now_s):
            assert isinstance(decision, events.Send | events.Leave)
            if isinstance(decision, events.Send):
                heard.append(decision.message)
            self.perform(decision)
        for place, result in self.told.items():
            assert told.get(place) == result
        gone = set(told) - set(self.told)
        assert gone <= self.committed | self.unwanted
        held = {one.container_id for one in heard if isinstance(one, AttemptsHeld)}
        assert held == {name for name in self.known if name in self.policy.containers and name not in self.ended}
        self.told = told

    @rule()
    def ask_to_leave(self) -> None:
        if len(self.known) == len(CONTAINERS) and len(self.told) > 3:
            self.happen(events.MessageArrived(StopWorker(worker_id="w", why="idle")))

    # What containers do

    @rule(container_id=st.sampled_from(CONTAINERS), timeout_s=st.sampled_from((0.0, 5.0)), ended=st.integers(0, 2))
    def run_several(self, container_id: str, timeout_s: float, ended: int) -> None:
        """Some have run, and no result of them has come yet; one runs, and the rest of them waits for it."""
        self.deliver(container_id, list(TASKS), False, timeout_s)
        tree = self.trees.get(container_id, Tree())
        while tree.running is None and tree.queue:
            self.begin_in(container_id)
            if len(tree.returning) < ended:
                self.finish_in(container_id)

    @rule(data=st.data())
    @precondition(lambda self: any(not tree.loaded for tree in self.trees.values()))
    def load(self, data: st.DataObject) -> None:
        container_id = data.draw(st.sampled_from([name for name, tree in self.trees.items() if not tree.loaded]))
        self.trees[container_id].loaded = True
        self.happen(events.ContainerLoaded(container_id))

    @rule(data=st.data())
    @precondition(lambda self: any(tree.queue and tree.running is None for tree in self.trees.values()))
    def begin(self, data: st.DataObject) -> None:
        free = [name for name, tree in self.trees.items() if tree.queue and tree.running is None]
        self.begin_in(data.draw(st.sampled_from(free)))

    def begin_in(self, container_id: str) -> None:
        tree = self.trees[container_id]
        assert tree.terminated_at_s is None, "nothing starts in a tree that was asked to end"
        tree.running = tree.queue.pop(0)
        assert (container_id, tree.running) not in self.started, "it must never start twice"
        assert (container_id, tree.running) not in self.doubtful, "nobody said that it is still ours"
        told = self.told.get((container_id, tree.running))
        assert told is None, "what was answered must not start"
        self.started.add((container_id, tree.running))

    @rule(data=st.data(), size=st.sampled_from((1, INLINE_MAX_BYTES + 1)), fails=st.booleans())
    @precondition(lambda self: any(tree.running for tree in self.trees.values()))
    def finish(self, data: st.DataObject, size: int, fails: bool) -> None:
        self.finish_in(
            data.draw(st.sampled_from([name for name, tree in self.trees.items() if tree.running])), size, fails
        )

    def finish_in(self, container_id: str, size: int = 1, fails: bool = False) -> None:
        key = self.trees[container_id].running
        assert key is not None
        self.trees[container_id].running = None
        end, payload = (End.ERROR, None) if fails else (End.OK, Payload("msgpack", b"", "", size))
        result = AttemptResult(key.task_id, key.attempt, end, True, payload, None, 0.01)
        self.trees[container_id].returning.append(result)

    @rule(data=st.data())
    @precondition(lambda self: any(tree.returning for tree in self.trees.values()))
    def results_come(self, data: st.DataObject) -> None:
        container_id = data.draw(st.sampled_from([name for name, tree in self.trees.items() if tree.returning]))
        results, self.trees[container_id].returning = tuple(self.trees[container_id].returning), []
        self.happen(events.AttemptsReturned(container_id, results))

    @rule(data=st.data(), end=st.sampled_from((End.OK, End.KILLED, End.OUT_OF_MEMORY, End.ERROR)))
    @precondition(lambda self: self.trees)
    def exit(self, data: st.DataObject, end: End) -> None:
        container_id = data.draw(st.sampled_from(sorted(self.trees)))
        if self.trees[container_id].terminated_at_s is None and data.draw(st.integers(0, 3)):
            return  # by itself a container ends less often than when it was asked to
        tree = self.trees.pop(container_id)
        self.happen(events.ContainerExited(container_id, end, "so it was", tree.started()))

    @rule(works=st.booleans())
    @precondition(lambda self: self.fetching)
    def fetch(self, works: bool) -> None:
        asked = self.fetching.pop(0)
        arguments = Payload("msgpack", b"x", "", 1) if works else None
        self.happen(events.ArgumentsFetched(asked.container_id, asked.key, arguments))

    @rule()
    @precondition(lambda self: self.storing)
    def store(self) -> None:
        asked = self.storing.pop(0)
        self.happen(events.ResultStored(asked.container_id, asked.key, Payload("msgpack", b"", "blob/r", 1)))

    @rule(step_s=st.sampled_from((0.5, 5.0, 31.0, 250.0, 1000.0)))
    def pass_time(self, step_s: float) -> None:
        self.now_s += step_s
        if self.quiet_since_s is not None and self.now_s >= self.quiet_since_s + FENCE_AFTER_S:
            self.fenced = True
            for container_id, tree in self.trees.items():
                held = self.policy.containers[container_id].attempts
                self.doubtful |= {(container_id, key) for key in held if key not in tree.started()}
        due_s = self.policy.next_deadline_s()
        if due_s is not None and due_s <= self.now_s:
            self.happen(events.TimePassed())
            after_s = self.policy.next_deadline_s()
            assert after_s is None or after_s > self.now_s, "the alarm would ring for ever"
        for container_id, tree in self.trees.items():
            held = self.policy.containers[container_id]
            if tree.running and tree.terminated_at_s is None and self.now_s >= held.since_s + HAND_BACK_AFTER_S:
                assert not tree.queue, "they could run elsewhere"

    # What always holds

    @invariant()
    def every_delivered_attempt_is_held_or_answered(self) -> None:
        for container_id, key in self.accepted:
            held = self.policy.containers.get(container_id)
            kept = self.policy.results.of(container_id)
            answered = (container_id, key) in self.told or (container_id, key) in self.unwanted
            assert answered or key in kept or (held is not None and key in held.attempts)

    @invariant()
    def the_policy_gives_what_the_runtime_has(self) -> None:
        for container_id, tree in self.trees.items():
            assert self.policy.containers[container_id].given() == [*tree.started(), *tree.queue]

    @invariant()
    def an_asked_tree_gets_its_kill_in_time(self) -> None:
        for container_id, tree in self.trees.items():
            kill_at_s = self.policy.containers[container_id].kill_at_s
            assert (tree.terminated_at_s is None) == (kill_at_s is None and not tree.killed)

    def teardown(self) -> None:
        """In the end every container can go, and so can the worker."""
        self.now_s += 2000.0
        self.happen(events.MessageArrived(StopWorker(worker_id="w", why="idle")))
        for container_id in sorted(self.trees):
            self.happen(events.MessageArrived(StopContainer(container_id=container_id, why="the end")))
            tree = self.trees.pop(container_id)
            self.happen(events.ContainerExited(container_id, End.OK, "", tree.started()))
        while self.storing:
            self.store()
        self.now_s += 20.0
        self.happen(events.TimePassed())
        assert self.left


TestWorkerMachine = WorkerMachine.TestCase
TestWorkerMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
