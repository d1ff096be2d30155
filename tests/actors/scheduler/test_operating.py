"""What people who run the platform ask of the scheduler, and what is committed of it."""

from __future__ import annotations

import pytest
from levers9_test_deciding import SIZE
from levers9_test_scheduler import Stage, placed

from levers9.actors.scheduler import SchedulerPolicy
from levers9.model.queues import Cohort, FlavorLimits, Queue, Queueing, Quota
from levers9.model.resources import Amount
from levers9.model.states import TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.wire import scheduling
from levers9.wire.client import RequestRefused
from levers9.wire.letter import Letter
from levers9.wire.message import Message
from levers9.wire.operating import (
    ChangeQueueing,
    QueueingPart,
    QueueingStands,
    ReadQueueing,
    TellWorkers,
    WorkersTold,
    WorkerWish,
)

FILED = Queueing(quotas=(Quota(name="filed"),))


def stage_with(given: Queueing = FILED) -> Stage:
    stage = Stage()
    stage.policy = SchedulerPolicy(*stage.arguments, given)
    stage.policy.load((), (), {}, stage.now_s)
    return stage


def asked(message: Message) -> Letter:
    return Letter(
        message, id="question", source="gateway/g", target="scheduler", kind=TokenKind.CLUSTER_ADMIN, workspace="w"
    )


def test_what_is_put_is_committed_and_stands_beside_what_files_say() -> None:
    stage = stage_with()
    put = Queueing(quotas=(Quota(name="mine"),), queues=(Queue(name="q", workspace="w", quota="mine"),))
    told = stage.say(asked(ChangeQueueing(put=put))).only(QueueingStands)
    assert [quota.name for quota in told.queueing.quotas] == ["mine", "filed"]
    assert stage.truth.ask(ops.ReadQueueing()) == ops.QueueingRow(queueing=put)
    assert [(each.name, each.quota, each.pending) for each in told.queues] == [("q", "mine", 0)]


def test_what_was_put_is_dropped_by_its_name() -> None:
    stage = stage_with()
    stage.say(asked(ChangeQueueing(put=Queueing(cohorts=(Cohort(name="c"),)))))
    stage.say(asked(ChangeQueueing(drop=((QueueingPart.COHORTS, "c"),))))
    assert stage.say(asked(ReadQueueing())).only(QueueingStands).queueing == FILED
    assert stage.truth.ask(ops.ReadQueueing()) == ops.QueueingRow()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            ChangeQueueing(put=Queueing(quotas=(Quota(name="filed", held=True),))),
            "Quota filed stands in",
        ),
        (ChangeQueueing(drop=((QueueingPart.QUOTAS, "filed"),)), "stands in the configuration file"),
        (ChangeQueueing(drop=((QueueingPart.SHARES, "w"),)), "There is no share of workspace w."),
        (ChangeQueueing(put=Queueing(cohorts=(Cohort(name="c", parent="c"),))), "is inside itself"),
        (ChangeQueueing(put=Queueing(queues=(Queue(name="q", workspace="w", quota="x"),))), "which is not there"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(message: ChangeQueueing, told: str) -> None:
    stage = stage_with()
    assert told in stage.say(asked(message)).only(RequestRefused).failure.what
    assert stage.truth.ask(ops.ReadQueueing()) == ops.QueueingRow()
    assert stage.say(asked(ReadQueueing())).only(QueueingStands).queueing == FILED


def test_a_quota_whose_flavor_left_the_file_does_not_keep_the_scheduler_from_leading() -> None:
    stage = Stage()
    stage.policy = SchedulerPolicy(*stage.arguments, FILED)
    lost = Quota(name="lost", flavors=(FlavorLimits(flavor="gone"),))
    stage.policy.load((), (), {}, stage.now_s, Queueing(quotas=(lost, Quota(name="mine"))))
    told = stage.say(asked(ReadQueueing())).only(QueueingStands)
    assert [quota.name for quota in told.queueing.quotas] == ["mine", "filed"]


def wished(stage: Stage, wish: WorkerWish) -> list[tuple[str, str]]:
    return list(stage.say(asked(TellWorkers(worker_ids=("one",), wish=wish))).only(WorkersTold).states)


class TestCordons:
    """A person's cordon stands from when it is said until it is lifted, whatever the worker does meanwhile."""

    def test_one_that_is_only_ordered_gets_nothing_when_it_comes(self) -> None:
        stage = Stage()
        stage.say(stage.order())
        assert wished(stage, WorkerWish.CORDON) == [("one", "ordered")]
        assert placed(stage.say(stage.request("a"), stage.report())) == []
        assert stage.truth.worker_states() == {"one": WorkerState.CORDONED}
        assert wished(stage, WorkerWish.UNCORDON) == [("one", "available")]

    def test_nobody_waits_for_one_that_comes_cordoned(self) -> None:
        stage = Stage()
        stage.say(stage.order())
        wished(stage, WorkerWish.CORDON)
        (wanted,) = stage.say(stage.request("a")).of(scheduling.RoomWanted)
        assert len(wanted.shapes) == 1

    def test_one_that_is_silent_is_cordoned_when_it_is_back(self) -> None:
        stage = Stage()
        stage.worker()
        stage.say(stage.quiet())
        assert wished(stage, WorkerWish.CORDON) == [("one", "unknown")]
        assert placed(stage.say(stage.report(), stage.request("a"))) == []
        assert stage.truth.worker_states() == {"one": WorkerState.CORDONED}

    def test_one_that_fell_silent_while_it_was_cordoned_can_be_uncordoned(self) -> None:
        stage = Stage()
        stage.worker()
        wished(stage, WorkerWish.CORDON)
        stage.say(stage.quiet())
        wished(stage, WorkerWish.UNCORDON)
        assert placed(stage.say(stage.report(), stage.request("a"))) == [("a", "one")]

    @pytest.mark.parametrize("silent_first", [True, False])
    def test_it_stands_through_a_silence_and_a_new_leader(self, silent_first: bool) -> None:
        stage = Stage()
        stage.worker()
        wished(stage, WorkerWish.CORDON)
        stage.say(*[stage.quiet()] * silent_first)
        stage.restart()
        stage.say(stage.quiet())
        assert placed(stage.say(stage.report(), stage.request("a"))) == []
        assert stage.truth.worker_states() == {"one": WorkerState.CORDONED}


def test_a_pool_that_takes_the_name_of_one_that_is_no_more_counts_its_orders_from_the_beginning() -> None:
    stage = Stage()
    stage.say(stage.order("old"), stage.evidence("old"))
    declared = scheduling.PoolDeclared(pool="default", size=SIZE)
    for message in (scheduling.PoolRetired(pool="default"), declared):
        stage.say(Letter(message, source="pool/default", target="scheduler"))
    assert stage.say(stage.request("a")).only(scheduling.RoomWanted).orders_seen == 0


def test_it_hears_what_is_free_though_the_one_before_heard_the_same() -> None:
    stage = Stage()
    declared = scheduling.PoolDeclared(pool="default", size=SIZE, min_free=Amount(cpu_milli=1))
    for _ in range(2):
        stage.say(Letter(declared, source="pool/default", target="scheduler"))
        stage.say(stage.order("one"))
        assert stage.tick(1.0).only(scheduling.RoomFree).orders_seen == 1
        stage.say(stage.evidence("one"))
        stage.say(Letter(scheduling.PoolRetired(pool="default"), source="pool/default", target="scheduler"))
        stage.truth.tables.workers.clear()
