"""What is owed: said again until answered, handed out once, whatever the other side forgets."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levers9.errors import LeversError, Refused
from levers9.model.resources import Shape
from levers9.model.states import TaskState
from levers9.sdk.ledger import ACKS_KEPT, OVERDUE_FIRST_S, WATCH_AGAIN_S, Arrival, Ledger, Request
from levers9.wire.client import (
    CancelAccepted,
    CancelTasks,
    NewTask,
    RegisterStub,
    RequestRefused,
    ResultsTaken,
    StubRegistered,
    StubSpec,
    SubmitTasks,
    TaskResult,
    TasksAccepted,
    TasksFinished,
    WatchTasks,
)
from levers9.wire.message import Failure, Message, Payload

SPEC = StubSpec(
    app="a", name="n", kind="job", handler="m:f", code_key="", python="3.11",
    shape=Shape(cpu_milli=1, memory_mib=1), timeout_s=1, retries=0,
)  # fmt: skip


class Basket:
    """Collects what arrives."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []

    def deliver(self, arrivals: list[Arrival]) -> None:
        self.arrivals += arrivals


def ledger() -> Ledger:
    numbers = iter(range(10**9))
    return Ledger(lambda: f"m-{next(numbers)}")


def new(*task_ids: str) -> tuple[NewTask, ...]:
    return tuple(NewTask(task_id, Payload("msgpack", b"\x90")) for task_id in task_ids)


def done(task_id: str, object_key: str = "") -> TaskResult:
    return TaskResult(task_id, TaskState.COMPLETE, 1, Payload("msgpack", b"\xc0", object_key))


def messages(requests: list[Request]) -> list[Message]:
    return [request.message for request in requests]


def test_a_submission_is_sent_again_when_nobody_answers() -> None:
    book = ledger()
    first = book.submit("s", new("t1"), Basket(), 0.0)
    assert book.overdue(OVERDUE_FIRST_S - 1) == []
    assert book.overdue(OVERDUE_FIRST_S) == first
    assert book.overdue(OVERDUE_FIRST_S + 1) == []  # the next wait is longer


def test_an_accepted_submission_is_watched_and_not_sent_again() -> None:
    book = ledger()
    book.submit("s", new("t1", "t2"), Basket(), 0.0)
    book.handle(TasksAccepted(task_ids=("t1",)), "", 0.0)
    book.handle(TasksAccepted(task_ids=("t2",)), "", 0.0)
    assert messages(book.resync(1.0)) == [WatchTasks(task_ids=("t1", "t2"))]


def test_a_submission_that_was_said_again_is_watched_too() -> None:
    book = ledger()
    book.submit("s", new("t1"), Basket(), 0.0)
    book.resync(1.0)
    assert messages(book.handle(TasksAccepted(task_ids=("t1",)), "", 1.0)) == [WatchTasks(task_ids=("t1",))]


def test_after_a_new_connection_submissions_go_before_watches() -> None:
    book = ledger()
    book.ask(RegisterStub(spec=SPEC), lambda _: None, 0.0)
    book.submit("s", new("t1"), Basket(), 0.0)
    book.handle(TasksAccepted(task_ids=("t1",)), "", 0.0)
    book.submit("s", new("t2"), Basket(), 0.0)
    kinds = [type(message) for message in messages(book.resync(1.0))]
    assert kinds == [SubmitTasks, RegisterStub, WatchTasks]


def test_a_result_is_handed_out_once() -> None:
    book, basket = ledger(), Basket()
    book.submit("s", new("t1"), basket, 0.0)
    for _ in range(2):
        book.handle(TasksFinished(results=(done("t1"),)), "", 0.0)
    assert basket.arrivals == [("t1", done("t1"))]
    assert book.standing().awaited == 0
    assert book.standing().requests == 0


def test_acknowledgements_ride_with_the_next_submission() -> None:
    book = ledger()
    book.submit("s", new("t1"), Basket(), 0.0)
    assert book.handle(TasksFinished(results=(done("t1"),)), "", 0.0) == []
    sent = messages(book.submit("s", new("t2"), Basket(), 0.0))
    assert sent[0] == ResultsTaken(task_ids=("t1",))


def test_many_acknowledgements_do_not_wait() -> None:
    book = ledger()
    ids = tuple(f"t{number}" for number in range(ACKS_KEPT))
    book.submit("s", new(*ids), Basket(), 0.0)
    assert messages(book.handle(TasksFinished(results=tuple(map(done, ids))), "", 0.0)) == [ResultsTaken(task_ids=ids)]


def test_a_result_in_the_object_store_is_acknowledged_once_it_was_fetched() -> None:
    book = ledger()
    book.submit("s", new("t1"), Basket(), 0.0)
    book.handle(TasksFinished(results=(done("t1", "blob/1"),)), "", 0.0)
    assert book.acks() == []
    book.taken(["t1"])
    assert messages(book.acks()) == [ResultsTaken(task_ids=("t1",))]


def test_a_refusal_fails_every_call_of_the_submission() -> None:
    book, basket = ledger(), Basket()
    (request,) = book.submit("s", new("t1", "t2"), basket, 0.0)
    book.handle(RequestRefused(failure=Failure("never_fits", "No.")), request.id, 0.0)
    assert [(task_id, type(error)) for task_id, error in basket.arrivals] == [("t1", Refused), ("t2", Refused)]
    assert book.standing().requests == 0


def test_a_refusal_that_passes_is_sent_again_soon() -> None:
    book, basket = ledger(), Basket()
    (request,) = book.submit("s", new("t1"), basket, 0.0)
    book.handle(RequestRefused(failure=Failure("store_unavailable", "No.")), request.id, 5.0)
    assert basket.arrivals == []
    assert book.overdue(5.5) == [request]


def test_an_answer_goes_to_who_asked() -> None:
    book = ledger()
    answers: list[Message | LeversError] = []
    (request,) = book.ask(RegisterStub(spec=SPEC), answers.append, 0.0)
    for _ in range(2):
        book.handle(StubRegistered(stub_id="s"), request.id, 0.0)
    assert answers == [StubRegistered(stub_id="s")]


def test_cancelled_submissions_are_never_sent_again() -> None:
    book = ledger()
    book.submit("s", new("t1"), Basket(), 0.0)
    (cancel,) = book.cancel(("t1",), lambda _: None, 0.0)
    again = messages(book.resync(1.0))
    assert again == [CancelTasks(task_ids=("t1",)), WatchTasks(task_ids=("t1",))]
    book.handle(CancelAccepted(standings=()), cancel.id, 1.0)
    book.abandon(("t1",))
    assert book.resync(2.0) == []


def test_results_are_asked_for_again_from_time_to_time() -> None:
    book = ledger()
    book.watch(("t1",), Basket())
    assert messages(book.overdue(WATCH_AGAIN_S)) == [WatchTasks(task_ids=("t1",))]
    assert book.overdue(WATCH_AGAIN_S + 1) == []


def test_when_the_connection_is_gone_everybody_hears_why() -> None:
    book, basket = ledger(), Basket()
    answers: list[Message | LeversError] = []
    error = Refused("gone")
    book.submit("s", new("t1"), basket, 0.0)
    book.ask(RegisterStub(spec=SPEC), answers.append, 0.0)
    book.fail(error)
    assert basket.arrivals == [("t1", error)]
    assert answers == [error]


class ForgetfulPeer(RuleBasedStateMachine):
    """A control plane that loses messages and repeats itself, and a caller that still gets every result."""

    def __init__(self) -> None:
        super().__init__()
        self.book = ledger()
        self.basket = Basket()
        self.now = 0.0
        self.made = 0
        self.cancelled: set[str] = set()
        self.under_way: list[Request] = []
        self.committed: dict[str, TaskState] = {}
        self.watched: set[str] = set()

    @rule(count=st.integers(1, 3))
    def submit(self, count: int) -> None:
        ids = [f"t{self.made + number}" for number in range(count)]
        self.made += count
        self.under_way += self.book.submit("s", new(*ids), self.basket, self.now)

    @precondition(lambda self: self.under_way)
    @rule(answered=st.booleans())
    def arrive(self, answered: bool) -> None:
        request = self.under_way.pop(0)
        message = request.message
        if isinstance(message, SubmitTasks):
            ids = tuple(task.task_id for task in message.tasks)
            for task_id in ids:
                self.committed.setdefault(task_id, TaskState.PENDING)
            self.watched.update(ids)
            if answered:
                self.hear(TasksAccepted(task_ids=ids), request.id)
        elif isinstance(message, WatchTasks):
            self.watched.update(message.task_ids)
            self.tell(message.task_ids)

    @precondition(lambda self: self.under_way)
    @rule()
    def lose_a_request(self) -> None:
        self.under_way.pop(0)

    @rule()
    def finish_one(self) -> None:
        pending = [task_id for task_id, state in self.committed.items() if state is TaskState.PENDING]
        if pending:
            self.committed[pending[0]] = TaskState.COMPLETE
            if pending[0] in self.watched:
                self.tell((pending[0],))

    @rule()
    def reconnect(self) -> None:
        self.under_way = self.book.resync(self.now)
        self.watched.clear()

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.under_way += self.book.acks() + self.book.overdue(self.now)

    def tell(self, task_ids: tuple[str, ...]) -> None:
        ended = [task_id for task_id in task_ids if self.committed.get(task_id) is TaskState.COMPLETE]
        if ended:
            self.hear(TasksFinished(results=tuple(map(done, ended))), "")

    def hear(self, message: Message, correlation: str) -> None:
        self.under_way += self.book.handle(message, correlation, self.now)

    @invariant()
    def no_result_comes_twice(self) -> None:
        ids = [task_id for task_id, _ in self.basket.arrivals]
        assert len(ids) == len(set(ids))
        assert self.book.standing().awaited == self.made - len(ids)

    def teardown(self) -> None:
        self.reconnect()
        while self.under_way or TaskState.PENDING in self.committed.values():
            self.arrive(True) if self.under_way else self.finish_one()
        assert len(self.basket.arrivals) == self.made
        assert self.book.standing().awaited == 0


TestForgetfulPeer = ForgetfulPeer.TestCase
TestForgetfulPeer.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
