"""How many workers a pool orders, pure: wishes for room and ends of workers in, orders out.

An order is a row before it is a process; its key is the worker's identity, so ordering twice is ordering once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...model.resources import Capacity, Shape
from ...model.states import TokenKind, WorkerState
from ...model.tokens import hash_of, hint_of
from ...store import operations as ops
from ...wire import scheduling
from ...wire.letter import Letter
from ...wire.message import Send
from ..applied import require_all

FIRST_BACK_OFF_S: Final = 1.0
BACK_OFF_MAX_S: Final = 60.0
HEALTHY_AFTER_S: Final = 30.0  # a worker that lived this long does not count as a failed start
_REPORTED: Final = (WorkerState.AVAILABLE, WorkerState.CORDONED, WorkerState.DRAINING, WorkerState.UNKNOWN)


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of kind `process`: workers of one size as child processes, between `min_workers` and `max_workers`."""

    name: str
    worker: Capacity
    min_workers: int = 0
    max_workers: int = 1


class StartWorker(msgspec.Struct, frozen=True, kw_only=True):
    """Start the process of a committed order, unless it runs already; `token` is for this worker alone."""

    worker_id: str
    token: str


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Watch a worker of an earlier leader: `handle` finds its process again, or it never had one."""

    worker_id: str
    handle: str
    state: WorkerState


class PoolPlan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, the messages that follow from it, and the processes to start or to watch."""

    operations: list[ops.Operation]
    sends: list[Send]
    starts: list[StartWorker]
    adopts: list[Adopt]


class PoolPolicy:
    """Owns the orders of one pool. `new_id(kind)` makes identities, `new_token(kind)` token values."""

    def __init__(
        self, settings: PoolSettings, new_id: Callable[[str], str], new_token: Callable[[TokenKind], str]
    ) -> None:
        self._settings = settings
        self._new_id = new_id
        self._new_token = new_token
        self._live: dict[str, float] = {}
        self._orders = 0
        self._wanted: tuple[Shape, ...] = ()
        self._failures = 0
        self._waits_until_s = 0.0
        self._told = ""
        self._operations: list[ops.Operation] = []
        self._sends: list[Send] = []
        self._starts: list[StartWorker] = []
        self._adopts: list[Adopt] = []

    @property
    def live(self) -> tuple[str, ...]:
        """The workers that are ordered or run, as far as is known."""
        return tuple(self._live)

    def load(self, workers: Iterable[ops.WorkerRow]) -> None:
        """Begin from the store: workers of earlier leaders are watched, not ordered again."""
        self._operations.append(ops.PutPool(pool=self._settings.name, largest=self._settings.worker))
        for row in workers:
            if row.pool == self._settings.name and row.state is not WorkerState.GONE:
                self._live[row.worker_id] = row.ordered_at_s
                self._orders += 1
                self._adopts.append(Adopt(worker_id=row.worker_id, handle=row.handle, state=row.state))

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in: wishes of the scheduler, starts and ends of processes. Nobody else is listened to."""
        match letter.message:
            case scheduling.RoomWanted() as message if letter.source == "scheduler":
                if message.orders_seen >= self._orders:
                    self._wanted = message.shapes
            case scheduling.WorkerStarted() as message if letter.source == "spawner":
                self._started(message)
            case scheduling.WorkerExited() as message if letter.source == "spawner":
                self._exited(message, now_s)

    def _started(self, message: scheduling.WorkerStarted) -> None:
        """Keep the handle; a worker that was quick has reported already, and stays in the state it has now."""
        if message.worker_id not in self._live:
            return
        keep = [((state,), state) for state in _REPORTED]
        begin = ((WorkerState.ORDERED, WorkerState.PENDING), WorkerState.PENDING)
        moves = tuple(
            ops.WorkerMove(worker_id=message.worker_id, sources=sources, state=state, handle=message.handle)
            for sources, state in (begin, *keep)
        )
        self._operations.append(ops.MoveWorkers(moves=moves, now_s=message.at_s))

    def _exited(self, message: scheduling.WorkerExited, now_s: float) -> None:
        ordered_at_s = self._live.pop(message.worker_id, None)
        if ordered_at_s is None:
            return
        if now_s - ordered_at_s < HEALTHY_AFTER_S and not message.expected:
            self._failures += 1
            if self._failures > 1:
                self._waits_until_s = now_s + min(FIRST_BACK_OFF_S * 2 ** (self._failures - 2), BACK_OFF_MAX_S)
        else:
            self._failures = 0
        gone = scheduling.WorkerGone(worker_id=message.worker_id, evidence=message.evidence)
        self._sends.append(Send("scheduler", gone))

    def tick(self, now_s: float) -> None:
        """Nothing is owed to time alone: `plan` looks at the clock."""

    def plan(self, now_s: float) -> PoolPlan | None:
        """Order what is wanted and allowed; None when there is nothing to do."""
        missing = max(self._for_shapes(), self._settings.min_workers - len(self._live))
        allowed = self._settings.max_workers - len(self._live)
        held = ""
        backs_off = missing > 0 and now_s < self._waits_until_s
        if backs_off:
            held = f"its last {self._failures} workers ended early; the next one starts in a moment."
        elif missing > 0:
            for _ in range(min(missing, allowed)):
                self._order(now_s)
            if missing > allowed:
                held = f"it is at its maximum of {self._settings.max_workers} workers."
        self._tell_held(held, backs_off)
        return self._take_plan()

    def _for_shapes(self) -> int:
        """How many workers the wanted shapes fill, first fit; shapes larger than a worker are left out."""
        bins: list[Capacity] = []
        for shape in self._wanted:
            if not self._settings.worker.fits(shape):
                continue
            place = next((i for i, free in enumerate(bins) if free.fits(shape)), None)
            if place is None:
                bins.append(self._settings.worker.less(shape))
            else:
                bins[place] = bins[place].less(shape)
        return len(bins)

    def _order(self, now_s: float) -> None:
        worker_id = self._new_id("worker")
        token = self._new_token(TokenKind.WORKER)
        settings = self._settings
        self._live[worker_id] = now_s
        self._orders += 1
        self._wanted = ()
        row = ops.WorkerRow(
            worker_id=worker_id,
            pool=settings.name,
            state=WorkerState.ORDERED,
            capacity=settings.worker,
            ordered_at_s=now_s,
        )
        token_row = self._token_row(worker_id, token, now_s)
        self._operations += [ops.PutWorkers(workers=(row,)), ops.CreateToken(token=token_row)]
        ordered = scheduling.WorkerOrdered(worker_id=worker_id, pool=settings.name, capacity=settings.worker)
        self._sends.append(Send("scheduler", ordered))
        self._starts.append(StartWorker(worker_id=worker_id, token=token))

    def _token_row(self, worker_id: str, token: str, now_s: float) -> ops.TokenRow:
        return ops.TokenRow(
            token_id=self._new_id("token"),
            workspace_id="",
            kind=TokenKind.WORKER,
            name=f"worker {worker_id}",
            hash=hash_of(token),
            hint=hint_of(token),
            active=True,
            created_at_s=now_s,
            subject=worker_id,
        )

    def _tell_held(self, why: str, backs_off: bool) -> None:
        if why != self._told:
            self._told = why
            held = scheduling.PoolHeld(pool=self._settings.name, why=why, backs_off=backs_off)
            self._sends.append(Send("scheduler", held))

    def _take_plan(self) -> PoolPlan | None:
        plan = PoolPlan(operations=self._operations, sends=self._sends, starts=self._starts, adopts=self._adopts)
        self._operations, self._sends, self._starts, self._adopts = [], [], [], []
        return plan if plan.operations or plan.sends or plan.starts or plan.adopts else None

    @staticmethod
    def settle(plan: PoolPlan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed. Raises `OutcomeUnknown` when an order was not new.

        A handle may find its worker gone: then nobody needs it.
        """
        for operation, answer in zip(plan.operations, answers):
            if isinstance(operation, ops.PutWorkers):
                require_all(operation, {row.worker_id for row in operation.workers}, answer)
        return plan.sends
