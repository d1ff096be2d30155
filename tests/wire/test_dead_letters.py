from __future__ import annotations

from levers9.wire.client import ExplainTask
from levers9.wire.dead_letters import Cause, DeadLetters
from levers9.wire.letter import Letter


def letter(number: int) -> Letter:
    return Letter(ExplainTask(task_id=f"task-{number}"), f"client/{number}", "tasks")


def test_only_the_newest_are_kept_and_all_are_counted() -> None:
    dead = DeadLetters(slots=3)
    for number in range(5):
        dead.add(letter(number), Cause.LATE)
    assert dead.latest() == tuple(
        f"ExplainTask from client/{number} to tasks: its asker had stopped waiting" for number in (2, 3, 4)
    )
    assert dead.statistics().total == 5


def test_the_newest_comes_last_and_none_can_be_asked_for() -> None:
    dead = DeadLetters()
    dead.add(letter(1), Cause.CRASHED, "ValueError: no")
    dead.add(letter(2), Cause.BROKEN)
    assert dead.latest(1) == ("ExplainTask from client/2 to tasks: the link to its receiver is gone",)
    assert dead.latest(0) == ()
    assert dead.latest(9)[0].endswith("ValueError: no")


def test_each_cause_has_its_count() -> None:
    dead = DeadLetters()
    for cause in (Cause.LATE, Cause.UNDELIVERABLE, Cause.LATE):
        dead.add(letter(1), cause)
    assert dead.statistics().by_cause == ((Cause.UNDELIVERABLE, 1), (Cause.LATE, 2))


def test_a_thousand_are_kept_by_default() -> None:
    dead = DeadLetters()
    for number in range(1_001):
        dead.add(letter(number), Cause.LATE)
    assert len(dead.latest(2_000)) == 1_000
