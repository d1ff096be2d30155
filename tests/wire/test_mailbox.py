from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.errors import BrokenByPeer, Busy, MailboxOverflowed, Refused, WouldBlock
from levers9.model.figures import CRASHES_TO_QUARANTINE
from levers9.wire.client import ExplainTask
from levers9.wire.control import Down, StopAsked
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox, serve
from levers9.wire.message import Message, WhenFull
from levers9.wire.quarantine import QUARANTINE_SLOTS, Quarantine
from levers9.wire.scheduling import ContainerHeld


class Rejectable(Message, frozen=True, kw_only=True):
    when_full: ClassVar[WhenFull] = WhenFull.REJECT
    number: int = 0


def said(number: int, source: str = "a", correlation: str = "") -> Letter:
    return Letter(ExplainTask(task_id=str(number)), source, "tasks", correlation=correlation)


def held(stub: str, why: str, source: str = "scheduler") -> Letter:
    return Letter(ContainerHeld(stub_id=stub, why=why), source, "tasks")


async def test_letters_come_out_in_the_order_in_which_they_went_in() -> None:
    mailbox = Mailbox("tasks")
    for number in range(3):
        mailbox.post_nowait(said(number))
    assert [await mailbox.take() for _ in range(3)] == [said(0), said(1), said(2)]


async def test_a_taker_waits_for_the_first_letter() -> None:
    mailbox = Mailbox("tasks")
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def post_later() -> None:
            await wait_all_tasks_blocked()
            await mailbox.post(said(1))

        with trio.fail_after(1):
            assert await mailbox.take() == said(1)


async def test_a_batch_holds_all_that_is_ready_and_no_more_than_asked() -> None:
    mailbox = Mailbox("tasks")
    for number in range(5):
        mailbox.post_nowait(said(number))
    assert await mailbox.take_batch(3) == (said(0), said(1), said(2))
    assert await mailbox.take_batch() == (said(3), said(4))


async def test_what_is_ready_can_be_taken_without_waiting() -> None:
    mailbox = Mailbox("tasks")
    assert mailbox.take_ready() == ()
    mailbox.post_nowait(said(1))
    mailbox.post_nowait(said(2))
    assert await mailbox.take() == said(1)
    assert mailbox.take_ready() == (said(2),)


async def test_a_cancelled_take_loses_nothing(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    mailbox = Mailbox("tasks")
    with trio.move_on_after(1):
        await mailbox.take()
    mailbox.post_nowait(said(1))
    assert await mailbox.take() == said(1)


async def test_two_takers_are_one_too_many() -> None:
    mailbox = Mailbox("tasks")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.take)
        await wait_all_tasks_blocked()
        with pytest.raises(Busy, match="two tasks take from the mailbox of tasks"):
            await mailbox.take()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("take", [Mailbox.take, Mailbox.take_batch], ids=["take", "take_batch"])
async def test_an_actor_that_never_waits_lets_others_run(take: Callable[[Mailbox], Awaitable[object]]) -> None:
    mailbox, others_ran = Mailbox("tasks"), trio.Event()

    async def other() -> None:
        others_ran.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for number in range(200):
            mailbox.post_nowait(said(number))
            await take(mailbox)
        assert others_ran.is_set()


# --- Bounds ----------------------------------------------------------------------------------------------------------


async def test_an_edge_waits_for_room_and_goes_in_when_there_is_some() -> None:
    mailbox = Mailbox("tasks", slots=2)
    await mailbox.post(said(0))
    await mailbox.post(said(1))
    async with trio.open_nursery() as nursery:
        for number in (2, 3):
            nursery.start_soon(mailbox.post, said(number))
            await wait_all_tasks_blocked()
        assert mailbox.statistics().waiting_senders == 2
        taken = [await mailbox.take() for _ in range(4)]
    assert taken == [said(0), said(1), said(2), said(3)]
    assert mailbox.statistics().peak_depth == 2


async def test_an_edge_that_stops_waiting_has_said_nothing(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    with trio.move_on_after(1) as scope:
        await mailbox.post(said(1))
    assert scope.cancelled_caught
    assert await mailbox.take() == said(0)
    assert mailbox.take_ready() == ()


async def test_nobody_passes_an_edge_that_waits() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.post, said(1))
        await wait_all_tasks_blocked()
        assert await mailbox.take() == said(0)
        nursery.start_soon(mailbox.post, said(2))
        await wait_all_tasks_blocked()
        assert [await mailbox.take(), await mailbox.take()] == [said(1), said(2)]


async def test_a_class_that_is_rejected_does_not_wait() -> None:
    mailbox = Mailbox("tasks", slots=1, local_slots=1)
    letter = Letter(Rejectable(number=1), "a", "tasks")
    await mailbox.post(letter)
    mailbox.post_nowait(letter)
    with pytest.raises(WouldBlock, match="the mailbox of tasks is full: 1 letters"):
        await mailbox.post(letter)
    with pytest.raises(WouldBlock, match="the mailbox of tasks is full: 1 letters"):
        mailbox.post_nowait(letter)
    assert await mailbox.take_batch() == (letter, letter)


async def test_actors_have_room_of_their_own_while_edges_wait() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    mailbox.post_nowait(said(1))
    assert await mailbox.take_batch() == (said(0), said(1))


async def test_a_newer_letter_takes_the_place_of_an_older_of_its_key_and_source() -> None:
    mailbox = Mailbox("tasks", slots=3)
    for letter in (held("s1", "old"), said(1), held("s1", "other", "pool"), held("s1", "new"), held("s2", "two")):
        mailbox.post_nowait(letter)
    expected = (held("s1", "new"), said(1), held("s1", "other", "pool"), held("s2", "two"))
    assert await mailbox.take_batch() == expected
    assert mailbox.statistics().coalesced == 1


async def test_a_key_that_was_taken_coalesces_no_more() -> None:
    mailbox = Mailbox("tasks")
    mailbox.post_nowait(held("s1", "old"))
    assert await mailbox.take() == held("s1", "old")
    mailbox.post_nowait(held("s1", "new"))
    assert await mailbox.take() == held("s1", "new")


async def test_coalescing_letters_that_waited_outside_still_replace_each_other() -> None:
    mailbox = Mailbox("tasks", slots=2)
    await mailbox.post(said(0))
    await mailbox.post(said(1))
    async with trio.open_nursery() as nursery:
        for why in ("old", "new"):
            nursery.start_soon(mailbox.post, held("s1", why))
            await wait_all_tasks_blocked()
        assert await mailbox.take_batch() == (said(0), said(1))
        assert await mailbox.take_batch() == (held("s1", "new"),)


async def test_an_answer_uses_the_slot_that_its_request_reserved() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    mailbox.reserve("q-1")
    await mailbox.post(said(1, correlation="q-1"))
    assert await mailbox.take_batch() == (said(0), said(1, correlation="q-1"))


async def test_an_answer_to_nothing_has_no_slot_of_its_own() -> None:
    mailbox = Mailbox("tasks", slots=1, local_slots=0)
    mailbox.reserve("q-1")
    mailbox.release("q-1")
    with pytest.raises(MailboxOverflowed):
        mailbox.post_nowait(said(1, correlation="q-1"))


async def test_no_more_requests_are_open_than_there_are_slots() -> None:
    mailbox = Mailbox("tasks", slots=1)
    mailbox.reserve("q-1")
    with pytest.raises(WouldBlock, match="tasks has 1 open requests already"):
        mailbox.reserve("q-2")
    mailbox.post_nowait(said(1, correlation="q-1"))
    with pytest.raises(WouldBlock):
        mailbox.reserve("q-2")
    await mailbox.take()
    mailbox.reserve("q-2")
    assert mailbox.statistics().reserved == 1


async def test_an_actor_that_is_told_too_much_fails_at_its_next_take() -> None:
    mailbox = Mailbox("tasks", local_slots=2)
    for number in range(2):
        mailbox.post_nowait(said(number))
    with pytest.raises(MailboxOverflowed, match="2 letters waited in it"):
        mailbox.post_nowait(said(2))
    with pytest.raises(MailboxOverflowed):
        await mailbox.take()
    in_hand, discarded = mailbox.end_life("overflowed", suspicious=False, keep=False)
    assert (in_hand, discarded) == ((), (said(0), said(1)))
    mailbox.post_nowait(said(3))
    assert await mailbox.take() == said(3)


async def test_an_overflow_wakes_an_actor_that_has_no_room_at_all() -> None:
    mailbox = Mailbox("tasks", local_slots=0)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def overflow() -> None:
            await wait_all_tasks_blocked()
            with pytest.raises(MailboxOverflowed):
                mailbox.post_nowait(said(1))

        with pytest.raises(MailboxOverflowed):
            await mailbox.take()


# --- Control ---------------------------------------------------------------------------------------------------------


async def test_control_goes_ahead_of_a_full_mailbox_and_is_told_once() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    for reason in ("first", "second"):
        mailbox.post_control(Letter(Down(name="pool", reason=reason), "brain"))
    mailbox.post_control(Letter(Down(name="scheduler", reason="x"), "brain"))
    taken = await mailbox.take_batch()
    assert [type(letter.message) for letter in taken] == [Down, Down, ExplainTask]
    assert taken[0].message == Down(name="pool", reason="second")


async def test_control_wakes_a_taker() -> None:
    mailbox = Mailbox("tasks")
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def tell() -> None:
            await wait_all_tasks_blocked()
            mailbox.post_control(Letter(StopAsked(reason="x")))

        await serve(mailbox, refuse_everything)
    assert mailbox.statistics().depth == 0


async def refuse_everything(letter: Letter) -> None:
    raise AssertionError(letter)


async def test_serving_hands_over_each_letter_until_a_stop_is_asked_for() -> None:
    mailbox, handled = Mailbox("tasks"), list[Letter]()

    async def handle(letter: Letter) -> None:
        handled.append(letter)
        if letter == said(1):
            mailbox.post_control(Letter(StopAsked(reason="enough")))

    for number in range(3):
        mailbox.post_nowait(said(number))
    await serve(mailbox, handle)
    assert handled == [said(0), said(1)]


# --- Lives -----------------------------------------------------------------------------------------------------------


async def test_a_life_that_ends_gives_back_what_was_in_hand_and_what_waited() -> None:
    mailbox = Mailbox("tasks")
    for number in range(3):
        mailbox.post_nowait(said(number))
    mailbox.post_nowait(held("s1", "why"))
    await mailbox.take()
    assert mailbox.end_life("x", suspicious=False, keep=False) == ((said(0),), (said(1), said(2), held("s1", "why")))
    assert mailbox.statistics().depth == 0
    mailbox.post_nowait(held("s1", "new"))
    assert await mailbox.take() == held("s1", "new")


async def test_a_kept_mailbox_loses_only_what_was_in_hand() -> None:
    mailbox = Mailbox("tasks")
    for number in range(2):
        mailbox.post_nowait(said(number))
    await mailbox.take()
    assert mailbox.end_life("x", suspicious=False, keep=True) == ((said(0),), ())
    assert await mailbox.take() == said(1)


async def test_edges_that_wait_get_in_when_a_life_ends() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.post, said(1))
        await wait_all_tasks_blocked()
        mailbox.end_life("x", suspicious=False, keep=False)
    assert await mailbox.take() == said(1)


async def test_a_new_life_hears_who_is_down_but_not_that_the_old_one_was_to_stop() -> None:
    mailbox = Mailbox("tasks")
    mailbox.post_control(Letter(StopAsked(reason="x"), "brain"))
    mailbox.post_control(Letter(Down(name="pool", reason="x"), "brain"))
    mailbox.end_life("x", suspicious=False, keep=False)
    assert [letter.message for letter in await mailbox.take_batch()] == [Down(name="pool", reason="x")]


async def test_a_closed_mailbox_takes_nothing_and_wakes_who_waits() -> None:
    mailbox = Mailbox("tasks", slots=1)
    await mailbox.post(said(0))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def wait_in_vain() -> None:
            with pytest.raises(BrokenByPeer, match="tasks has stopped"):
                await mailbox.post(said(1))

        await wait_all_tasks_blocked()
        assert mailbox.close("tasks has stopped") == (said(0),)
    with pytest.raises(BrokenByPeer, match="tasks has stopped"):
        mailbox.post_nowait(said(2))


# --- Poison ----------------------------------------------------------------------------------------------------------


async def crash_with(mailbox: Mailbox, *letters: Letter, suspect: Letter | None = None) -> None:
    for letter in letters:
        mailbox.post_nowait(letter)
    await mailbox.take_batch()
    mailbox.handling(suspect)
    mailbox.end_life("ValueError: poison", suspicious=True, keep=False)


async def test_a_letter_that_crashes_its_handler_three_times_is_refused_with_the_reason() -> None:
    mailbox = Mailbox("tasks")
    for source in ("a", "b", "c"):
        mailbox.post_nowait(said(1, source))
        await mailbox.take()
        mailbox.end_life("ValueError: poison", suspicious=True, keep=False)
    with pytest.raises(Refused, match="crashed its handler 3 times, the last time with ValueError: poison") as caught:
        mailbox.post_nowait(said(1, "d"))
    assert caught.value.code == "quarantined"
    mailbox.post_nowait(said(2, "d"))
    assert mailbox.statistics().quarantined == (
        "ExplainTask from c to tasks crashed its handler 3 times, the last time with ValueError: poison",
    )


async def test_a_letter_with_a_key_is_known_by_its_key() -> None:
    mailbox = Mailbox("tasks")
    for number in range(CRASHES_TO_QUARANTINE):
        await crash_with(mailbox, held("s1", f"different {number}"))
    with pytest.raises(Refused):
        mailbox.post_nowait(held("s1", "again different"))
    mailbox.post_nowait(held("s2", "another"))
    assert await mailbox.take() == held("s2", "another")


async def test_a_crash_that_the_surroundings_explain_counts_against_no_letter() -> None:
    mailbox = Mailbox("tasks")
    for _ in range(CRASHES_TO_QUARANTINE):
        mailbox.post_nowait(said(1))
        await mailbox.take()
        mailbox.end_life("StoreUnavailable", suspicious=False, keep=False)
    mailbox.post_nowait(said(1))
    assert await mailbox.take() == said(1)


async def test_of_a_batch_only_the_letter_that_was_worked_on_is_suspected() -> None:
    mailbox = Mailbox("tasks")
    await crash_with(mailbox, said(1), said(2), suspect=said(2))
    for _ in range(2):
        await crash_with(mailbox, said(2))
    mailbox.post_nowait(said(1))
    with pytest.raises(Refused):
        mailbox.post_nowait(said(2))


async def test_after_a_crash_nobody_knows_the_cause_of_letters_are_handed_out_singly_for_a_while() -> None:
    mailbox = Mailbox("tasks", slots=4)
    await crash_with(mailbox, said(1), said(2))
    for number in range(8):
        mailbox.post_nowait(said(number))
    assert await mailbox.take_batch() == (said(0),)
    assert mailbox.take_ready() == ()
    for number in (1, 2, 3):
        assert await mailbox.take_batch() == (said(number),)
    assert len(await mailbox.take_batch()) == 4


def test_the_memory_of_crashes_is_bounded() -> None:
    quarantine = Quarantine()
    for number in range(QUARANTINE_SLOTS + 5):
        for _ in range(CRASHES_TO_QUARANTINE):
            quarantine.count((said(number),), "x")
    assert len(quarantine.reasons) == QUARANTINE_SLOTS
    quarantine.refuse(said(0))
    with pytest.raises(Refused):
        quarantine.refuse(said(QUARANTINE_SLOTS))


# --- Numbers ---------------------------------------------------------------------------------------------------------


async def test_statistics_count_what_came_what_waits_and_what_was_handled() -> None:
    mailbox = Mailbox("tasks", slots=7)
    for number in range(4):
        mailbox.post_nowait(said(number))
    await mailbox.take_batch(2)
    await mailbox.take()
    numbers = mailbox.statistics()
    assert (numbers.received, numbers.handled, numbers.depth, numbers.peak_depth, numbers.slots) == (4, 2, 1, 4, 7)
    mailbox.finished()
    mailbox.end_life("x", suspicious=False, keep=False)
    assert (mailbox.statistics().handled, mailbox.statistics().failed) == (3, 0)


async def test_rates_are_since_the_last_look_and_need_a_second() -> None:
    now_s = 10.0
    mailbox = Mailbox("tasks", clock=lambda: now_s)
    assert mailbox.statistics().received_per_s == 0.0
    for number in range(6):
        mailbox.post_nowait(said(number))
    await mailbox.take_batch()
    await mailbox.take_batch() if mailbox.statistics().depth else mailbox.finished()
    now_s = 10.5
    assert mailbox.statistics().received_per_s == 0.0
    now_s = 12.0
    assert (mailbox.statistics().received_per_s, mailbox.statistics().handled_per_s) == (3.0, 3.0)
    now_s = 14.0
    assert mailbox.statistics().received_per_s == 0.0
