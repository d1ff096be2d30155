"""A worker cut off for almost a lease starts nothing that it was given before it has asked."""

from levers9_test_worker import a_spec, an_order

from levers9.actors.worker import events
from levers9.actors.worker.events import Send
from levers9.actors.worker.fence import FENCE_AFTER_S, FENCE_MARGIN_S, Fence
from levers9.actors.worker.policy import WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.model.figures import CARRIER_DEAD_AFTER_S, PEER_SILENT_AFTER_S, WORKER_LEASE_S
from levers9.model.resources import Capacity
from levers9.model.states import End
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import StartContainer, StopWorker
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

FIRST, SECOND, THIRD = (AttemptKey(f"task-{number}", 1) for number in (1, 2, 3))


def said(policy: WorkerPolicy, message: Message, now_s: float) -> list[events.Decision]:
    return policy.handle(events.MessageArrived(message), now_s)


def cut_off(*keys: AttemptKey, resumed: bool = True) -> tuple[WorkerPolicy, list[events.Decision]]:
    """A worker in whose container task-1 runs and these wait, quiet from second 0, heard again long after.

    Task-0 ran before it until shortly before the fence, so nothing has waited for long.
    """
    capacity = Capacity(cpu_milli=1000, memory_mib=1000)
    policy = WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=capacity))
    said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec()), 0.0)
    policy.handle(events.ContainerLoaded("c1"), 0.0)
    before, runs = an_order(0, timeout_s=0.0), an_order(1, timeout_s=0.0)
    orders = (before, runs, *(AttemptOrder(key.task_id, 1, Payload("msgpack"), 0.0) for key in keys))
    said(policy, RunAttempts(container_id="c1", attempts=orders), 0.0)
    policy.handle(events.LinkQuiet(), 0.0)
    policy.handle(events.AttemptsReturned("c1", (AttemptResult("task-0", 1, End.OK),)), FENCE_AFTER_S - 0.5)
    said(policy, ResultsCommitted(container_id="c1", attempts=(AttemptKey("task-0", 1),)), FENCE_AFTER_S - 0.5)
    assert policy.next_deadline_s() == FENCE_AFTER_S
    assert policy.handle(events.TimePassed(), FENCE_AFTER_S) == [events.Revoke("c1", None)]
    assert policy.handle(events.AttemptsRevoked("c1", keys, (FIRST,)), FENCE_AFTER_S) == []
    return policy, policy.handle(events.LinkOpened(resumed), 500.0)


def messages(decisions: list[events.Decision]) -> list[Message]:
    return [one.message for one in decisions if isinstance(one, Send)]


def confirmed(*keys: AttemptKey, question: int = 1) -> AttemptsConfirmed:
    return AttemptsConfirmed(container_id="c1", attempts=keys, question=question)


def given(decisions: list[events.Decision]) -> list[AttemptKey]:
    return [
        AttemptKey(order.task_id, order.attempt)
        for one in decisions
        if isinstance(one, events.Give)
        for order in one.orders
    ]


def test_it_asks_first_and_starts_what_is_confirmed_and_nothing_of_the_rest() -> None:
    policy, asked = cut_off(SECOND, THIRD)
    (held,) = (one for one in messages(asked) if isinstance(one, AttemptsHeld))
    assert (held.attempts, held.question) == ((FIRST, SECOND, THIRD), 1)
    assert said(policy, CancelAttempts(container_id="c1", attempts=(SECOND,), superseded=True), 500.0) == []
    assert given(said(policy, confirmed(FIRST, THIRD), 500.0)) == [THIRD]
    assert policy.containers["c1"].given() == [FIRST, THIRD]


def test_what_runs_goes_on_and_its_result_is_told() -> None:
    policy, _ = cut_off(SECOND)
    result = AttemptResult("task-1", 1, End.OK)
    (told,) = messages(policy.handle(events.AttemptsReturned("c1", (result,)), 501.0))
    assert isinstance(told, AttemptsFinished)
    assert told.results == (result,)
    assert policy.containers["c1"].running is None


def test_a_stream_that_is_heard_again_in_time_changes_nothing() -> None:
    policy = WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=Capacity(cpu_milli=1, memory_mib=1)))
    policy.handle(events.LinkQuiet(), 0.0)
    assert policy.handle(events.LinkHeard(), FENCE_AFTER_S - 1) == []
    assert policy.next_deadline_s() is None
    assert policy.handle(events.LinkOpened(True), FENCE_AFTER_S + 1) == []


def test_silence_counts_from_its_beginning() -> None:
    fence = Fence()
    fence.quiet(0.0)
    fence.quiet(100.0)
    assert fence.due_s == FENCE_AFTER_S
    assert (fence.holds(FENCE_AFTER_S - 1), fence.holds(FENCE_AFTER_S)) == (False, True)


def test_ours_runs_out_before_theirs_however_the_stream_died() -> None:
    they_still_spoke_s, they_took_us_for_silent_s = CARRIER_DEAD_AFTER_S, PEER_SILENT_AFTER_S
    one_way = they_still_spoke_s + PEER_SILENT_AFTER_S + FENCE_AFTER_S
    assert one_way <= they_took_us_for_silent_s + WORKER_LEASE_S - 15
    they_knew_at_once = PEER_SILENT_AFTER_S + FENCE_AFTER_S
    assert they_knew_at_once <= WORKER_LEASE_S - 15
    assert FENCE_AFTER_S + FENCE_MARGIN_S == WORKER_LEASE_S


def test_an_alarm_that_comes_late_lets_nothing_through() -> None:
    policy = WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=Capacity(cpu_milli=1, memory_mib=1)))
    said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec()), 0.0)
    said(policy, RunAttempts(container_id="c1", attempts=(an_order(1),)), 0.0)
    policy.handle(events.LinkQuiet(), 0.0)
    assert given(policy.handle(events.ContainerLoaded("c1"), 400.0)) == []
    asked = [one for one in messages(policy.handle(events.LinkOpened(True), 401.0)) if isinstance(one, AttemptsHeld)]
    assert [one.question for one in asked] == [1]
    assert given(said(policy, confirmed(FIRST), 402.0)) == [FIRST]


def test_arguments_that_arrive_meanwhile_start_nothing() -> None:
    policy = WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=Capacity(cpu_milli=1, memory_mib=1)))
    said(policy, StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec()), 0.0)
    policy.handle(events.ContainerLoaded("c1"), 0.0)
    large = AttemptOrder("task-1", 1, Payload("msgpack", b"", "blob/x", 9), 0.0)
    said(policy, RunAttempts(container_id="c1", attempts=(large,)), 0.0)
    policy.handle(events.LinkQuiet(), 0.0)
    policy.handle(events.TimePassed(), FENCE_AFTER_S)
    fetched = events.ArgumentsFetched("c1", FIRST, Payload("msgpack", b"x", "", 1))
    assert policy.handle(fetched, 300.0) == []
    policy.handle(events.LinkOpened(False), 301.0)
    assert given(said(policy, confirmed(FIRST), 302.0)) == [FIRST]


def test_what_comes_before_the_answer_is_asked_about_as_well() -> None:
    policy, _ = cut_off()
    (asked,) = messages(said(policy, RunAttempts(container_id="c1", attempts=(an_order(2),)), 501.0))
    assert isinstance(asked, AttemptsHeld)
    assert (asked.attempts, asked.question) == ((FIRST, SECOND), 1)
    assert given(said(policy, confirmed(FIRST), 502.0)) == []
    assert given(said(policy, confirmed(FIRST, SECOND), 503.0)) == [SECOND]
    assert given(said(policy, RunAttempts(container_id="c1", attempts=(an_order(3),)), 504.0)) == [THIRD]


def test_an_answer_to_an_earlier_question_is_none() -> None:
    policy, _ = cut_off(SECOND)
    policy.handle(events.LinkQuiet(), 501.0)
    policy.handle(events.LinkOpened(True), 900.0)
    assert given(said(policy, confirmed(FIRST, SECOND, question=1), 901.0)) == []
    assert given(said(policy, confirmed(FIRST, SECOND, question=2), 902.0)) == [SECOND]


def test_a_worker_that_is_to_leave_waits_for_no_answer() -> None:
    policy, _ = cut_off(SECOND)
    (told,) = messages(said(policy, StopWorker(worker_id="w", why="idle"), 501.0))
    assert isinstance(told, AttemptsFinished)
    assert [(one.task_id, one.end, one.started) for one in told.results] == [("task-2", End.DISCONNECTED, False)]
    returned = policy.handle(events.AttemptsReturned("c1", (AttemptResult("task-1", 1, End.OK),)), 502.0)
    assert events.Terminate("c1") in returned


def test_an_answer_for_a_container_that_is_gone_lowers_the_fence_all_the_same() -> None:
    policy, _ = cut_off()
    gone = AttemptsConfirmed(container_id="c9", attempts=(), question=1)
    assert said(policy, gone, 501.0) == []
    assert given(said(policy, RunAttempts(container_id="c1", attempts=(an_order(2),)), 502.0)) == [SECOND]


def test_a_word_of_a_newer_control_plane_is_passed_over() -> None:
    policy, _ = cut_off(SECOND)
    assert said(policy, AttemptsHeld(container_id="c1", attempts=(), window=1), 501.0) == []
