"""`tasks` on a stage: its policy and its truth, with a caller, a scheduler and workers that a test plays."""

from __future__ import annotations

from levers9_test_deciding import ARGUMENTS, Sent, Truth, numbered, sends_of, spec_of
from msgspec import structs

from levers9.actors.tasks import TasksPolicy
from levers9.model.states import ContainerState, End
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling, work
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Payload
from levers9.wire.work import AttemptKey, AttemptResult

ME = "client/me"


class Stage:
    def __init__(self, **spec: object) -> None:
        self.truth = Truth()
        self.now_s = 1000.0
        self.new_id = numbered()
        self.policy = TasksPolicy(self.new_id)
        self.stub = self.register(spec_of(**spec))

    # The loop

    def say(self, *letters: Letter) -> Sent:
        """One group: all letters, then plans until there is none."""
        return sends_of(self.policy, self.truth, letters, self.now_s)

    def hear(self, *letters: Letter) -> Sent:
        """One group, and what waited for the next tick."""
        return Sent([*self.say(*letters), *self.tick()])

    def tick(self, seconds: float = 0.0) -> Sent:
        self.now_s += seconds
        self.policy.tick(self.now_s)
        return self.say()

    def restart(self) -> None:
        """A new reign: the policy begins from the store. What it decides first is committed with the next group."""
        self.policy = TasksPolicy(self.new_id)
        stubs = rows_of(self.truth.ask(ops.ReadStubs()), ops.StubRow)
        containers = rows_of(self.truth.ask(ops.LoadContainers()), ops.ContainerRow)
        tasks = rows_of(self.truth.ask(ops.LoadUnfinished()), ops.TaskRow)
        self.policy.load(stubs, containers, (), self.now_s)
        lost = self.truth.ask(ops.ReadContainers(container_ids=self.policy.lost(tasks)))
        self.policy.load((), rows_of(lost, ops.ContainerRow), (), self.now_s)
        self.policy.load((), (), tasks, self.now_s)

    # A caller

    @staticmethod
    def letter(message: Message, source: str = ME, workspace: str = "w") -> Letter:
        return Letter(message, source=source, target="tasks", workspace=workspace, id="question")

    def register(self, spec: StubSpec, workspace: str = "w") -> str:
        sent = self.say(self.letter(client.RegisterStub(spec=spec), workspace=workspace))
        return sent.only(client.StubRegistered).stub_id

    def submission(self, *task_ids: str, source: str = ME, stub: str = "", data: bytes = b"x") -> Letter:
        arguments = Payload("msgpack", data) if data != b"x" else ARGUMENTS
        tasks = tuple(client.NewTask(task_id, arguments) for task_id in task_ids)
        return self.letter(client.SubmitTasks(stub_id=stub or self.stub, tasks=tasks), source)

    def submit(self, *task_ids: str) -> Sent:
        """Somebody waits for the answer; without a deadline it would come with the results, or with the next tick."""
        return self.say(structs.replace(self.submission(*task_ids), deadline_s=self.now_s + 10.0))

    def cancellation(self, *task_ids: str) -> Letter:
        return self.letter(client.CancelTasks(task_ids=task_ids))

    def watch(self, *task_ids: str, source: str = ME) -> Sent:
        return self.say(self.letter(client.WatchTasks(task_ids=task_ids), source))

    def why(self, task_id: str) -> str:
        sent = self.say(self.letter(client.ExplainTask(task_id=task_id)))
        return " ".join(sent.only(client.TaskExplained).reasons)

    # The scheduler

    def requested(self) -> list[str]:
        return [
            container_id
            for container_id, warm in self.policy.ledger.containers.items()
            if not warm.available and not warm.leaving
        ]

    def available(self, container_id: str, window: int = 1, worker: str = "one", address: str = "") -> Letter:
        """A container became warm: the scheduler has committed that before it says so."""
        self.move(container_id, ContainerState.READY, worker)
        message = scheduling.ContainerAvailable(
            container_id=container_id, stub_id=self.stub, worker_id=worker, window=window, address=address
        )
        return Letter(message, source="scheduler", target="tasks")

    def gone(
        self, container_id: str, end: End = End.DISCONNECTED, why: str = "it fell over", *, preempted: bool = False
    ) -> Letter:
        self.move(container_id, ContainerState.ENDED)
        message = scheduling.ContainerGone(
            container_id=container_id, stub_id=self.stub, end=end, why=why, preempted=preempted
        )
        return Letter(message, source="scheduler", target="tasks")

    def move(self, container_id: str, state: ContainerState, worker: str | None = None) -> None:
        move = ops.ContainerMove(
            container_id=container_id, sources=tuple(ContainerState), state=state, worker_id=worker
        )
        self.truth.ask(ops.MoveContainers(moves=(move,), now_s=self.now_s))

    def held(self, why: str, machines_only: bool = True) -> Letter:
        message = scheduling.ContainerHeld(stub_id=self.stub, why=why, machines_only=machines_only)
        return Letter(message, source="scheduler", target="tasks")

    def warm(self, window: int = 1, worker: str = "one") -> tuple[str, Sent]:
        """One of the requested containers becomes warm."""
        container_id = self.requested()[0]
        return container_id, self.say(self.available(container_id, window, worker))

    # A worker

    def finished(
        self,
        container_id: str,
        task_id: str,
        end: End = End.OK,
        *,
        attempt: int = 1,
        window: int = 1,
        worker: str = "one",
        **result: object,
    ) -> Letter:
        given: dict[str, object] = {"result": Payload("msgpack", b"r") if end is End.OK else None, "duration_s": 0.01}
        given |= result
        results = (AttemptResult(task_id, attempt, end, **given),)  # type: ignore[arg-type]
        message = work.AttemptsFinished(container_id=container_id, results=results, window=window)
        return Letter(message, source=f"worker/{worker}", target="tasks")

    @staticmethod
    def holds(container_id: str, *keys: tuple[str, int], window: int = 1, worker: str = "one") -> Letter:
        attempts = tuple(AttemptKey(*key) for key in keys)
        message = work.AttemptsHeld(container_id=container_id, attempts=attempts, window=window)
        return Letter(message, source=f"worker/{worker}", target="tasks")


def delivered(sent: Sent) -> list[tuple[str, int]]:
    return [(order.task_id, order.attempt) for run in sent.of(work.RunAttempts) for order in run.attempts]


def told(sent: Sent, source: str = ME) -> dict[str, str]:
    """The states that a caller hears of."""
    return {
        result.task_id: str(result.state)
        for message in sent.to(source, client.TasksFinished)
        for result in message.results
    }
