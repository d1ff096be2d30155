"""A pool on a stage: its policy and its truth, with a scheduler and processes that a test plays."""

from __future__ import annotations

from levers9_test_deciding import SIZE, Sent, Truth, decide, numbered, numbered_tokens

from levers9.actors.pool import GuardSettings, PoolPolicy, PoolSettings
from levers9.actors.pool.guard import GuardPolicy
from levers9.actors.pool.policy import GONE_LOOKED_AT, Adopt, EndWorker, StartWorker
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.resources import Capacity, Shape
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message

OFF = GuardSettings(pending=-1, per_minute=-1)


def node(name: str, gpu_count: int = 0, gpu_type: str = "", **changes: object) -> NodeOffer:
    """A named node of two CPUs, with cards or without."""
    labels = tuple((key, str(value)) for key, value in sorted(changes.items()) if key != "state")
    state = NodeState(str(changes.get("state", NodeState.READY)))
    size = Capacity(cpu_milli=2000, memory_mib=1000, gpu_count=gpu_count, gpu_type=gpu_type)
    return NodeOffer(capacity=size, traits=Traits(node=name, labels=labels), state=state)


class Stage:
    """With `settings` the other two count for nothing. `guard`: the limits of a real guard, which answers at once."""

    def __init__(
        self,
        min_workers: int = 0,
        max_workers: int = 3,
        *,
        settings: PoolSettings | None = None,
        guard: GuardSettings = OFF,
    ) -> None:
        self.truth = Truth()
        self.now_s = 1000.0
        if settings is None:
            settings = PoolSettings(name="p", worker=SIZE, min_workers=min_workers, max_workers=max_workers)
        self.settings = settings
        self._limits = guard
        self.slow = False  # the scheduler is: no worker that has ended is known to be gone
        self._new_id, self._new_token = numbered(), numbered_tokens()
        self.starts: list[StartWorker] = []
        self.adopts: list[Adopt] = []
        self.ends: list[EndWorker] = []
        self.restart()

    def restart(self) -> None:
        """All actors of a reign begin anew."""
        self.guard = GuardPolicy(self._limits)
        self.guard.load(rows_of(self.truth.ask(ops.LoadWorkers(gone=1000)), ops.WorkerRow), self.now_s)
        self.begin_pool()

    def begin_pool(self) -> None:
        """The pool's actor alone begins anew."""
        self.policy = PoolPolicy(self.settings, self._new_id, self._new_token)
        self.policy.load(rows_of(self.truth.ask(ops.LoadWorkers(gone=GONE_LOOKED_AT)), ops.WorkerRow))

    def say(self, *letters: Letter, how: str = "well") -> Sent:
        """The pool takes letters in and plans; the guard and the scheduler answer until nobody has more to say."""
        sent = Sent()
        given = list(letters)
        while True:
            news = self.decide_once(given, how)
            sent += news
            given = self.guarded(news) + self.kept(news)
            if not given:
                return sent

    def decide_once(self, letters: list[Letter], how: str = "well") -> Sent:
        sent = Sent()
        for plan, sends in decide(self.policy, self.truth, letters, self.now_s, how):
            sent += sends
            self.starts += plan.starts
            self.adopts += plan.adopts
            self.ends += plan.ends
        return sent

    def guarded(self, sent: Sent) -> list[Letter]:
        """What the guard answers."""
        for send in sent:
            if send.target == "guard":
                self.guard.handle(Letter(send.message, source="pool/p", target="guard"), self.now_s)
        plan = self.guard.plan(self.now_s)
        return [] if plan is None else [Letter(one.message, source="guard", target=one.target) for one in plan.sends]

    def kept(self, sent: Sent) -> list[Letter]:
        """What the scheduler answers, unless it is slow: it commits that workers are gone."""
        return [] if self.slow else [self.forgotten(gone.worker_id) for gone in sent.of(scheduling.WorkerGone)]

    def tick(self, seconds: float) -> Sent:
        self.now_s += seconds
        self.policy.tick(self.now_s)
        return self.say(*self.guarded(Sent()))

    def wanted(self, *shapes: Shape, seen: int | None = None, gangs: tuple[scheduling.GangWanted, ...] = ()) -> Letter:
        """The scheduler's wish; it has heard of each order so far unless told otherwise."""
        seen = len(self.truth.tables.workers) if seen is None else seen
        message = scheduling.RoomWanted(pool="p", shapes=shapes, orders_seen=seen, gangs=gangs)
        return Letter(message, source="scheduler", target="pool/p")

    def arrived(self, *worker_ids: str, lacks: str = "") -> list[Letter]:
        """They report for the first time, and the scheduler commits that; `lacks`: why they have no cards."""
        letters = []
        for worker_id in worker_ids:
            self.move(worker_id, WorkerState.AVAILABLE)
            message = scheduling.WorkerArrived(worker_id=worker_id, lacks=lacks)
            letters.append(Letter(message, source="scheduler", target="pool/p"))
        return letters

    @staticmethod
    def spawner(message: Message) -> Letter:
        return Letter(message, source="spawner", target="pool/p")

    def started(self, worker_id: str, handle: str = "host:boot:1:2") -> Letter:
        return self.spawner(scheduling.WorkerStarted(worker_id=worker_id, handle=handle, at_s=self.now_s))

    def exited(self, worker_id: str, *, expected: bool = False, left: bool = False) -> Letter:
        exited = scheduling.WorkerExited(worker_id=worker_id, evidence="it exited", expected=expected, left=left)
        return self.spawner(exited)

    def move(self, worker_id: str, state: WorkerState) -> None:
        """What the scheduler commits."""
        self.truth.ask(
            ops.MoveWorkers(moves=(ops.WorkerMove(worker_id=worker_id, sources=(), state=state),), now_s=0.0)
        )

    def ordered(self) -> list[str]:
        return list(self.truth.tables.workers)

    def gone(self, worker_id: str, *, expected: bool = True) -> Sent:
        """A worker's process ends, and the scheduler commits that."""
        return self.say(self.exited(worker_id, expected=expected))

    def forgotten(self, worker_id: str) -> Letter:
        """The scheduler commits that a worker is gone, and says so."""
        self.move(worker_id, WorkerState.GONE)
        message = scheduling.WorkerForgotten(worker_id=worker_id)
        return Letter(message, source="scheduler", target="pool/p")


def reasons(sent: Sent) -> list[str]:
    return [message.why for message in sent.of(scheduling.PoolHeld)]
