"""What a pool promises."""

import pytest
from levers9_test_deciding import SHAPE, SIZE
from levers9_test_pool import Stage, node, reasons

from levers9.actors.pool import GuardSettings, PoolSettings
from levers9.actors.pool.backing_off import STEADY_AFTER_S
from levers9.errors import OutcomeUnknown, StoreUnavailable
from levers9.model.figures import WORKER_START_LIMIT_S
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.resources import Shape
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.operating import TermsChanged

HALF = SHAPE  # two of them fill a worker


def test_an_order_is_a_row_before_it_is_a_process() -> None:
    stage = Stage()
    sent = stage.say(stage.wanted(HALF))
    (order,) = stage.starts
    assert stage.truth.worker_states() == {order.worker_id: WorkerState.ORDERED}
    assert sent.only(scheduling.WorkerOrdered) == scheduling.WorkerOrdered(
        worker_id=order.worker_id, pool="p", capacity=SIZE
    )
    (token,) = rows_of(stage.truth.ask(ops.ListTokens()), ops.TokenRow)
    assert (token.subject, token.active) == (order.worker_id, True)


def test_a_pool_says_what_it_offers_as_it_begins() -> None:
    stage = Stage()
    stage.say()
    (record,) = rows_of(stage.truth.ask(ops.ListPools()), ops.PoolRecord)
    assert (record.pool, record.largest, record.offers) == ("p", SIZE, (NodeOffer(capacity=SIZE, traits=Traits()),))


def test_it_declares_itself_before_it_says_anything_else() -> None:
    settings = PoolSettings(name="p", worker=None, nodes=(node("a"),), serves="w", rank=2)
    first, terms, second, *_ = Stage(settings=settings).say()
    assert (first.target, first.message) == (
        "scheduler",
        scheduling.PoolDeclared(pool="p", serves="w", rank=2, max_workers=1),
    )
    assert (terms.target, terms.message) == ("tasks", TermsChanged())
    assert (second.target, second.message) == ("scheduler", scheduling.PoolNodes(pool="p", offers=(node("a"),)))


def test_as_many_are_ordered_as_the_shapes_fill_and_none_for_what_never_fits() -> None:
    stage = Stage()
    stage.say(stage.wanted(HALF, HALF, HALF, Shape(cpu_milli=99_000, memory_mib=1)))
    assert len(stage.starts) == 2


def test_a_wish_that_does_not_know_of_the_last_order_is_not_heard() -> None:
    stage = Stage()
    stage.say(stage.wanted(HALF))
    assert stage.say(stage.wanted(HALF, seen=0)).of(scheduling.WorkerOrdered) == []
    assert len(stage.say(stage.wanted(HALF, seen=1)).of(scheduling.WorkerOrdered)) == 1


def test_two_wishes_in_one_group_are_one() -> None:
    stage = Stage()
    stage.say(stage.wanted(HALF), stage.wanted(HALF, HALF))
    assert len(stage.starts) == 1


def test_never_more_than_the_maximum_and_it_says_so() -> None:
    stage = Stage(max_workers=1)
    sent = stage.say(stage.wanted(HALF, HALF, HALF))
    assert len(stage.starts) == 1
    assert reasons(sent) == ["it is at its maximum of 1 worker."]
    assert reasons(stage.say(stage.wanted(HALF))) == []


def test_it_says_so_until_a_worker_has_gone_though_others_are_asked_meanwhile() -> None:
    stage = Stage(max_workers=1)
    stage.say(stage.wanted(HALF, HALF, HALF))
    assert reasons(stage.say(stage.wanted())) == []
    assert reasons(stage.say(stage.exited(stage.ordered()[0], expected=True))) == [""]


def test_it_says_so_once_what_it_may_have_is_ordered_and_not_while_that_is_asked_for() -> None:
    stage = Stage(max_workers=1, guard=GuardSettings(pending=0))
    assert "it is at its maximum of 1 worker." not in reasons(stage.say(stage.wanted(HALF, HALF, HALF)))


def test_a_wish_that_was_held_is_met_when_a_worker_has_gone() -> None:
    stage = Stage(max_workers=1)
    stage.say(stage.wanted(HALF))
    stage.say(stage.wanted(HALF))
    (first,) = stage.ordered()
    sent = stage.say(stage.exited(first))
    assert [message.worker_id for message in sent.of(scheduling.WorkerGone)] == [first]
    assert len(stage.starts) == 2


def test_its_minimum_is_kept_without_anybody_wanting_it() -> None:
    stage = Stage(min_workers=2)
    stage.say()
    assert len(stage.starts) == 2
    stage.now_s += 60.0
    stage.say(stage.exited(stage.ordered()[0]))
    assert len(stage.starts) == 3


class TestCrashLoop:
    def test_workers_that_end_early_are_started_again_ever_later(self) -> None:
        stage = Stage(min_workers=1, max_workers=1)
        stage.say()
        waits = []
        for starts in range(2, 11):
            stage.say(stage.exited(stage.starts[-1].worker_id))
            began_s = stage.now_s
            while len(stage.starts) < starts:
                stage.tick(0.5)
            waits.append(stage.now_s - began_s)
        assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]

    def test_it_says_that_it_waits_for_as_long_as_it_does_though_others_are_asked_meanwhile(self) -> None:
        stage = Stage(max_workers=1)
        for _ in range(4):
            stage.say(stage.wanted(HALF))
            stage.tick(2.0)
            stage.say(stage.exited(stage.starts[-1].worker_id))
        (said,) = reasons(stage.say(stage.wanted(HALF))) or ["nothing"]
        assert said == "nothing"
        assert reasons(stage.say(stage.wanted())) == []
        assert reasons(stage.tick(60.0)) == [""]

    def test_the_reason_says_how_many_ended_early(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        stage.say(stage.exited(stage.ordered()[0]))
        sent = stage.say(stage.exited(stage.ordered()[1]))
        assert reasons(sent) == ["its last 2 workers ended early; the next one starts in a moment."]
        assert sent.only(scheduling.PoolHeld).backs_off

    def test_one_that_was_asked_to_go_says_nothing_of_the_next(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(5):
            stage.say(stage.exited(stage.ordered()[-1], expected=True))
        assert len(stage.starts) == 6

    def test_one_that_ends_well_before_it_has_come_never_was_a_worker(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(3):
            stage.say(stage.exited(stage.ordered()[-1], left=True))
        assert len(stage.starts) == 2

    def test_one_that_came_and_left_at_once_has_started(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(3):
            stage.say(*stage.arrived(stage.ordered()[-1]))
            stage.say(stage.exited(stage.ordered()[-1], left=True))
        assert len(stage.starts) == 4

    def test_what_was_counted_before_one_was_asked_to_go_counts_on(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for expected in (False, True, False):
            stage.say(stage.exited(stage.ordered()[-1], expected=expected))
        assert len(stage.starts) == 3
        stage.tick(1.0)
        assert len(stage.starts) == 4

    @pytest.mark.parametrize("expected", [False, True])
    def test_one_that_came_has_started_however_it_ended(self, expected: bool) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(5):
            stage.say(*stage.arrived(stage.ordered()[-1]))
            stage.now_s += STEADY_AFTER_S
            stage.say(stage.exited(stage.ordered()[-1], expected=expected))
        assert len(stage.starts) == 6

    def test_one_of_an_earlier_leader_that_had_come_has_started_too(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(3):
            stage.say(*stage.arrived(stage.ordered()[-1]))
            stage.begin_pool()
            stage.gone(stage.ordered()[-1], expected=False)
            stage.say()
        assert len(stage.starts) == 4

    def test_one_that_falls_over_as_soon_as_it_has_come_has_not_really_started(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(2):
            stage.say(*stage.arrived(stage.ordered()[-1]))
            stage.say(stage.exited(stage.ordered()[-1]))
        assert len(stage.starts) == 2
        stage.tick(1.0)
        assert len(stage.starts) == 3

    def test_one_that_never_came_has_failed_however_long_that_took(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(2):
            stage.tick(60.0)
            stage.say(stage.exited(stage.ordered()[-1]))
        assert len(stage.starts) == 2

    def test_one_that_is_told_to_end_since_it_never_came_has_failed(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        for _ in range(2):
            stage.tick(WORKER_START_LIMIT_S)
            stage.say(stage.exited(stage.ordered()[-1], expected=True))
        assert len(stage.starts) == 2

    def test_a_start_that_went_well_ends_the_waiting(self) -> None:
        stage = Stage(min_workers=2)
        stage.say()
        first, _ = stage.ordered()
        stage.say(*stage.arrived(first))
        stage.tick(STEADY_AFTER_S)
        for _ in range(4):
            stage.tick(8.0)
            stage.say(stage.exited(stage.ordered()[-1]))
        waiting = len(stage.starts)
        sent = stage.say(stage.exited(first, expected=True))
        assert len(stage.starts) == waiting + 2
        assert reasons(sent) == [""]


class TestOnesThatNeverReport:
    def test_it_is_ended_after_its_time_and_another_is_ordered(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        (first,) = stage.ordered()
        stage.say(stage.started(first))
        stage.tick(WORKER_START_LIMIT_S - 1.0)
        assert stage.ends == []
        for _ in range(3):
            stage.tick(1.0)
        assert [end.worker_id for end in stage.ends] == [first]
        assert len(stage.starts) == 1, "its process may still run"
        stage.gone(first)
        stage.say()
        assert len(stage.starts) == 2

    def test_a_new_leader_counts_from_its_order(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        stage.tick(WORKER_START_LIMIT_S - 1.0)
        stage.restart()
        stage.tick(1.0)
        assert [end.worker_id for end in stage.ends] == stage.ordered()

    def test_one_that_has_reported_stays(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        stage.say(*stage.arrived(*stage.ordered()))
        stage.tick(2 * WORKER_START_LIMIT_S)
        assert stage.ends == []


class TestHandles:
    def test_the_handle_of_a_started_process_is_kept(self) -> None:
        stage = Stage()
        stage.say(stage.wanted(HALF))
        (worker_id,) = stage.ordered()
        stage.say(stage.started(worker_id))
        row = stage.truth.tables.workers[worker_id]
        assert (row.state, row.handle) == (WorkerState.PENDING, "host:boot:1:2")

    @pytest.mark.parametrize(
        "state", [WorkerState.AVAILABLE, WorkerState.CORDONED, WorkerState.DRAINING, WorkerState.UNKNOWN]
    )
    def test_a_worker_that_was_quicker_than_its_handle_stays_what_it_is(self, state: WorkerState) -> None:
        stage = Stage()
        stage.say(stage.wanted(HALF))
        (worker_id,) = stage.ordered()
        stage.move(worker_id, state)
        stage.say(stage.started(worker_id))
        row = stage.truth.tables.workers[worker_id]
        assert (row.state, row.handle) == (state, "host:boot:1:2")

    def test_a_worker_that_is_gone_needs_none(self) -> None:
        stage = Stage()
        stage.say(stage.wanted(HALF))
        (worker_id,) = stage.ordered()
        stage.move(worker_id, WorkerState.GONE)
        stage.say(stage.started(worker_id))
        assert stage.truth.worker_states() == {worker_id: WorkerState.GONE}
        stage.say(stage.exited(worker_id))
        assert stage.say(stage.started(worker_id), stage.exited(worker_id)) == []


class TestRecovery:
    def test_workers_of_earlier_reigns_are_watched_and_not_ordered_again(self) -> None:
        stage = Stage(min_workers=1)
        stage.say()
        (worker_id,) = stage.ordered()
        stage.say(stage.started(worker_id))
        stage.restart()
        stage.say()
        assert len(stage.starts) == 1
        assert [(adopt.worker_id, adopt.handle, adopt.state) for adopt in stage.adopts] == [
            (worker_id, "host:boot:1:2", WorkerState.PENDING)
        ]

    def test_an_order_whose_commit_was_unheard_of_is_watched_too(self) -> None:
        stage = Stage(min_workers=1)
        admitted = stage.guarded(stage.decide_once([]))
        with pytest.raises(OutcomeUnknown):
            stage.decide_once(admitted, "after")
        assert stage.starts == []
        stage.restart()
        stage.say()
        assert [adopt.state for adopt in stage.adopts] == [WorkerState.ORDERED]
        assert stage.starts == []

    def test_a_commit_that_did_not_happen_is_no_order(self) -> None:
        stage = Stage(min_workers=1)
        admitted = stage.guarded(stage.decide_once([]))
        with pytest.raises(StoreUnavailable):
            stage.decide_once(admitted, "before")
        stage.restart()
        stage.say()
        assert len(stage.starts) == len(stage.ordered()) == 1

    def test_workers_of_other_pools_and_those_that_are_gone_are_nobody(self) -> None:
        stage = Stage()
        rows = tuple(
            ops.WorkerRow(worker_id=name, pool=pool, state=state, capacity=SIZE)
            for name, pool, state in [("a", "q", WorkerState.AVAILABLE), ("b", "p", WorkerState.GONE)]
        )
        stage.policy.load(rows)
        stage.say()
        assert stage.adopts == []


def test_nobody_brings_a_pool_down_by_what_they_say() -> None:
    stage = Stage()
    stage.say()
    for source in ("worker/one", "client/me"):
        for letter in (stage.wanted(HALF), stage.exited("one"), stage.started("one")):
            assert stage.say(Letter(letter.message, source=source)) == []
    assert stage.starts == []


def test_an_order_that_was_not_new_ends_the_reign() -> None:
    stage = Stage()
    row = ops.WorkerRow(worker_id="worker-1", pool="q", state=WorkerState.GONE, capacity=SIZE)
    stage.truth.ask(ops.PutWorkers(workers=(row,)))
    with pytest.raises(OutcomeUnknown):
        stage.say(stage.wanted(HALF))
