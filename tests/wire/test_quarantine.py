"""What is remembered of crashes when the mailbox itself does not live on."""

from __future__ import annotations

import pytest

from levers9.errors import Refused
from levers9.wire.client import ExplainTask
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.quarantine import Quarantine


def said(number: int) -> Letter:
    return Letter(ExplainTask(task_id=f"t{number}"), "client/c", "tasks", id=f"m-{number}")


async def crash_over(quarantine: Quarantine, *letters: Letter) -> None:
    """A mailbox whose owner crashes over the first letters it is handed."""
    mailbox = Mailbox("tasks", quarantine=quarantine)
    for letter in letters:
        mailbox.post_nowait(letter)
    await mailbox.take_batch()
    mailbox.end_life("ValueError: poison", suspicious=True, keep=False)


async def test_three_crashes_of_three_mailboxes_are_refused_by_the_fourth() -> None:
    quarantine = Quarantine()
    for _ in range(3):
        await crash_over(quarantine, said(1))
    mailbox = Mailbox("tasks", quarantine=quarantine)
    with pytest.raises(Refused, match="crashed its handler 3 times"):
        mailbox.post_nowait(said(1))
    mailbox.post_nowait(said(2))
    assert await mailbox.take() == said(2)


async def test_after_a_crash_with_several_suspects_the_next_mailbox_hands_out_one_at_a_time() -> None:
    quarantine = Quarantine()
    for _ in range(4):
        await crash_over(quarantine, said(1), said(2))
    assert list(quarantine.reasons.values()) == [
        "ExplainTask from client/c to tasks crashed its handler 3 times, the last time with ValueError: poison"
    ]


async def test_a_mailbox_that_is_given_none_forgets_with_its_end() -> None:
    mailbox = Mailbox("tasks")
    mailbox.post_nowait(said(1))
    await mailbox.take_batch()
    mailbox.end_life("ValueError: poison", suspicious=True, keep=False)
    later = Mailbox("tasks")
    later.post_nowait(said(1))
    later.post_nowait(said(2))
    assert await later.take_batch() == (said(1), said(2))
