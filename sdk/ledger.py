"""What a caller and the control plane owe each other: submissions, awaited results, open requests. No clock, no I/O.

Everything here may be said twice. A task's identity is made by the caller, so a submission that was lost is simply sent
again, after a new connection, after a new leader, and when an answer is overdue; results are told apart by their task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..errors import LeversError
from ..wire.client import (
    CancelTasks,
    NewTask,
    RequestRefused,
    ResultsTaken,
    SubmitTasks,
    TaskResult,
    TasksAccepted,
    TasksFinished,
    WatchTasks,
)
from ..wire.message import Message
from .failures import refusal_of

OVERDUE_FIRST_S: Final = 10.0  # an answer takes milliseconds; a restart of the other side takes seconds
OVERDUE_MAX_S: Final = 60.0
REFUSED_AGAIN_S: Final = 0.2  # after a refusal that passes, such as a store that is just coming back
WATCH_AGAIN_S: Final = 60.0
ACKS_KEPT: Final = 256
PAGE: Final = 2000  # task ids in one message: well below the largest frame
PASSING: Final = frozenset(
    {
        "store_unavailable",
        "outcome_unknown",
        "epoch_superseded",
        "not_leader",
        "busy",
        "would_block",
        "broken",
        "closed",
        "deadline",
        "gave_up",
        "crashed",
    }
)

Arrival = tuple[str, TaskResult | LeversError]


class Receiver(Protocol):
    """Whoever waits for results. Called in the connection's thread, and must not block."""

    def deliver(self, arrivals: list[Arrival]) -> None:
        """Results of tasks, or why there will be none, each task once."""


@dataclass(frozen=True, slots=True)
class Request:
    """A message to send, under an id that its answer will name."""

    id: str
    message: Message


@dataclass(slots=True)
class _Open:
    """A request without an answer."""

    request: Request
    due_s: float
    wait_s: float = OVERDUE_FIRST_S
    unaccepted: int = 0
    said_again: bool = False
    answer: Callable[[Message | LeversError], None] | None = None


@dataclass(slots=True)
class _Call:
    receiver: Receiver
    batch: _Open | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How much is open."""

    awaited: int
    requests: int
    acks: int


@dataclass
class Ledger:
    """All that one connection is owed and owes. Each method returns what is to be sent now."""

    new_id: Callable[[], str]
    _calls: dict[str, _Call] = field(default_factory=dict)
    _open: dict[str, _Open] = field(default_factory=dict)
    _acks: list[str] = field(default_factory=list)
    _watched_s: float = 0.0

    def submit(self, stub_id: str, tasks: tuple[NewTask, ...], receiver: Receiver, now_s: float) -> list[Request]:
        """Calls of a stub, whose results go to `receiver`."""
        opened = self._opened(SubmitTasks(stub_id=stub_id, tasks=tasks), now_s)
        opened.unaccepted = len(tasks)
        for task in tasks:
            self._calls[task.task_id] = _Call(receiver, opened)
        return [*self.acks(), opened.request]

    def watch(self, task_ids: tuple[str, ...], receiver: Receiver) -> list[Request]:
        """Results of tasks that are known already."""
        for task_id in task_ids:
            self._calls[task_id] = _Call(receiver, None)
        return self._watch(task_ids)

    def ask(self, message: Message, answer: Callable[[Message | LeversError], None], now_s: float) -> list[Request]:
        """A request whose answer goes to `answer`, once."""
        opened = self._opened(message, now_s)
        opened.answer = answer
        return [opened.request]

    def cancel(
        self, task_ids: tuple[str, ...], answer: Callable[[Message | LeversError], None], now_s: float
    ) -> list[Request]:
        """Cancel calls. Submissions of nothing but cancelled calls are never sent again."""
        for task_id in task_ids:
            call = self._calls.get(task_id)
            if call is not None:
                self._accepted(call)
        return self.ask(CancelTasks(task_ids=task_ids), answer, now_s)

    def abandon(self, task_ids: tuple[str, ...]) -> None:
        """Nobody waits for these any more."""
        for task_id in task_ids:
            call = self._calls.pop(task_id, None)
            if call is not None:
                self._accepted(call)

    def handle(self, message: Message, correlation: str, now_s: float) -> list[Request]:
        """One message of the control plane."""
        if isinstance(message, TasksFinished):
            return self._finished(message)
        if isinstance(message, TasksAccepted):
            return self._all_accepted(message)
        opened = self._open.get(correlation)
        if opened is None:
            return []  # an answer that came twice, or too late
        if isinstance(message, RequestRefused) and message.failure.code in PASSING:
            opened.due_s = now_s + REFUSED_AGAIN_S
            return []
        del self._open[correlation]
        outcome = refusal_of(message.failure) if isinstance(message, RequestRefused) else message
        self._answer(opened, outcome)
        return []

    def resync(self, now_s: float) -> list[Request]:
        """Everything that may have been lost, after a connection without memory of us: submissions first."""
        again = [self._again(opened, now_s) for opened in self._open.values()]
        again.sort(key=lambda request: not isinstance(request.message, SubmitTasks))
        self._watched_s = now_s
        return again + self._watch(self._awaited())

    def overdue(self, now_s: float) -> list[Request]:
        """What is to be said again because nobody answered."""
        late = [self._again(opened, now_s) for opened in self._open.values() if opened.due_s <= now_s]
        if now_s - self._watched_s >= WATCH_AGAIN_S:
            self._watched_s = now_s
            late += self._watch(self._awaited())
        return late

    def taken(self, task_ids: list[str]) -> None:
        """Results that were fetched from the object store."""
        self._acks += task_ids

    def acks(self, at_least: int = 1) -> list[Request]:
        """The acknowledgements that are due, if there are so many."""
        if len(self._acks) < at_least:
            return []
        taken, self._acks = self._acks, []
        pages = [tuple(taken[start : start + PAGE]) for start in range(0, len(taken), PAGE)]
        return [Request(self.new_id(), ResultsTaken(task_ids=page)) for page in pages]

    def fail(self, error: LeversError) -> None:
        """The connection is gone for good: everybody who waits hears why."""
        calls, self._calls = self._calls, {}
        opened, self._open = self._open, {}
        for task_id, call in calls.items():
            call.receiver.deliver([(task_id, error)])
        for request in opened.values():
            if request.answer is not None:
                request.answer(error)

    def standing(self) -> Standing:
        """How much is open now."""
        return Standing(len(self._calls), len(self._open), len(self._acks))

    def _opened(self, message: Message, now_s: float) -> _Open:
        request = Request(self.new_id(), message)
        opened = self._open[request.id] = _Open(request, now_s + OVERDUE_FIRST_S)
        return opened

    def _again(self, opened: _Open, now_s: float) -> Request:
        opened.wait_s = min(OVERDUE_MAX_S, opened.wait_s * 2)
        opened.due_s = now_s + opened.wait_s
        opened.said_again = True
        return opened.request

    def _awaited(self) -> tuple[str, ...]:
        return tuple(task_id for task_id, call in self._calls.items() if call.batch is None)

    def _watch(self, task_ids: tuple[str, ...]) -> list[Request]:
        pages = [task_ids[start : start + PAGE] for start in range(0, len(task_ids), PAGE)]
        return [Request(self.new_id(), WatchTasks(task_ids=page)) for page in pages]

    def _accepted(self, call: _Call) -> None:
        batch, call.batch = call.batch, None
        if batch is not None:
            batch.unaccepted -= 1
            if not batch.unaccepted:
                self._open.pop(batch.request.id, None)

    def _all_accepted(self, message: TasksAccepted) -> list[Request]:
        said_again: list[str] = []
        for task_id in message.task_ids:
            call = self._calls.get(task_id)
            if call is not None:
                if call.batch is not None and call.batch.said_again:
                    said_again.append(task_id)  # it may have ended while we were away, when nobody could tell us
                self._accepted(call)
        return self._watch(tuple(said_again))

    def _finished(self, message: TasksFinished) -> list[Request]:
        for receiver, arrivals in self._by_receiver(message.results):
            receiver.deliver(arrivals)
        return self.acks(ACKS_KEPT)

    def _by_receiver(self, results: tuple[TaskResult, ...]) -> list[tuple[Receiver, list[Arrival]]]:
        found: dict[int, tuple[Receiver, list[Arrival]]] = {}
        for result in results:
            call = self._calls.pop(result.task_id, None)
            if call is None or result.result is None or not result.result.object_key:
                self._acks.append(result.task_id)  # one in the object store is acknowledged once it was fetched
            if call is not None:
                self._accepted(call)
                found.setdefault(id(call.receiver), (call.receiver, []))[1].append((result.task_id, result))
        return list(found.values())

    def _answer(self, opened: _Open, outcome: Message | LeversError) -> None:
        if opened.answer is not None:
            opened.answer(outcome)
        message = opened.request.message
        if isinstance(outcome, LeversError) and isinstance(message, SubmitTasks):
            self._refuse(message, outcome)

    def _refuse(self, submission: SubmitTasks, error: LeversError) -> None:
        for task in submission.tasks:
            call = self._calls.get(task.task_id)
            if call is not None and call.batch is not None:
                del self._calls[task.task_id]
                call.receiver.deliver([(task.task_id, error)])
