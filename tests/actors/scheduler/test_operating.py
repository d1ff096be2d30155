"""What people who run the platform ask of the scheduler, and what is committed of it."""

from __future__ import annotations

import pytest
from levers9_test_scheduler import Stage

from levers9.actors.scheduler import SchedulerPolicy
from levers9.model.queues import Cohort, Queue, Queueing, Quota
from levers9.model.states import TokenKind
from levers9.store import operations as ops
from levers9.wire.client import RequestRefused
from levers9.wire.letter import Letter
from levers9.wire.message import Message
from levers9.wire.operating import ChangeQueueing, QueueingPart, QueueingStands, ReadQueueing

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
        (ChangeQueueing(put=Queueing(quotas=(Quota(name="filed", held=True),))), "stands in the configuration file"),
        (ChangeQueueing(drop=((QueueingPart.QUOTAS, "filed"),)), "stands in the configuration file"),
        (ChangeQueueing(put=Queueing(cohorts=(Cohort(name="c", parent="c"),))), "is inside itself"),
        (ChangeQueueing(put=Queueing(queues=(Queue(name="q", workspace="w", quota="x"),))), "which is not there"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(message: ChangeQueueing, told: str) -> None:
    stage = stage_with()
    assert told in stage.say(asked(message)).only(RequestRefused).failure.what
    assert stage.truth.ask(ops.ReadQueueing()) == ops.QueueingRow()
    assert stage.say(asked(ReadQueueing())).only(QueueingStands).queueing == FILED
