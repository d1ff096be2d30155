"""A pool on a stage: its policy and its truth, with a scheduler and processes that a test plays."""

from __future__ import annotations

from levers9_test_deciding import SIZE, Sent, Truth, decide, numbered, numbered_tokens

from levers9.actors.pool import PoolPolicy, PoolSettings
from levers9.actors.pool.policy import Adopt, StartWorker
from levers9.model.resources import Shape
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message


class Stage:
    def __init__(self, min_workers: int = 0, max_workers: int = 3) -> None:
        self.truth = Truth()
        self.now_s = 1000.0
        settings = PoolSettings(name="p", worker=SIZE, min_workers=min_workers, max_workers=max_workers)
        self.arguments = (settings, numbered(), numbered_tokens())
        self.starts: list[StartWorker] = []
        self.adopts: list[Adopt] = []
        self.restart()

    def restart(self) -> None:
        self.policy = PoolPolicy(*self.arguments)
        self.policy.load(rows_of(self.truth.ask(ops.LoadWorkers()), ops.WorkerRow))

    def say(self, *letters: Letter, how: str = "well") -> Sent:
        sent = Sent()
        for plan, sends in decide(self.policy, self.truth, letters, self.now_s, how):
            sent += sends
            self.starts += plan.starts
            self.adopts += plan.adopts
        return sent

    def tick(self, seconds: float) -> Sent:
        self.now_s += seconds
        self.policy.tick(self.now_s)
        return self.say()

    def wanted(self, *shapes: Shape, seen: int | None = None) -> Letter:
        """The scheduler's wish; it has heard of each order so far unless told otherwise."""
        seen = len(self.truth.tables.workers) if seen is None else seen
        message = scheduling.RoomWanted(pool="p", shapes=shapes, orders_seen=seen)
        return Letter(message, source="scheduler", target="pool/p")

    @staticmethod
    def spawner(message: Message) -> Letter:
        return Letter(message, source="spawner", target="pool/p")

    def started(self, worker_id: str, handle: str = "host:boot:1:2") -> Letter:
        return self.spawner(scheduling.WorkerStarted(worker_id=worker_id, handle=handle, at_s=self.now_s))

    def exited(self, worker_id: str, *, expected: bool = False) -> Letter:
        return self.spawner(scheduling.WorkerExited(worker_id=worker_id, evidence="it exited", expected=expected))

    def move(self, worker_id: str, state: WorkerState) -> None:
        """What the scheduler commits."""
        self.truth.ask(
            ops.MoveWorkers(moves=(ops.WorkerMove(worker_id=worker_id, sources=(), state=state),), now_s=0.0)
        )

    def ordered(self) -> list[str]:
        return list(self.truth.tables.workers)


def reasons(sent: Sent) -> list[str]:
    return [message.why for message in sent.of(scheduling.PoolHeld)]
