from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.errors import BrokenByPeer, ClosedByUs, DeadlinePassed, LeversError, PeerProtocolError, Refused, WouldBlock
from levers9.model.ids import Chance
from levers9.wire import post as post_module
from levers9.wire.client import ExplainTask, RequestRefused, TasksAccepted
from levers9.wire.codec import Envelope
from levers9.wire.dead_letters import Cause
from levers9.wire.letter import Letter, open_envelope, seal
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.post import Post
from levers9.wire.work import ResultsCommitted


class Wire:
    """A link that keeps what it is given: it holds so many envelopes, takes none that is too large, and may be gone."""

    def __init__(self, slots: int = 100, too_large: str = "", gone: LeversError | None = None) -> None:
        self.batches: list[list[Letter]] = []
        self.gone = gone
        self._slots = slots
        self._too_large = too_large

    @property
    def sent(self) -> list[Letter]:
        return [letter for batch in self.batches for letter in batch]

    async def send(self, *envelopes: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        while len(self.sent) + len(envelopes) > self._slots:
            await trio.sleep_forever()
        self.send_nowait(*envelopes)

    def send_nowait(self, *envelopes: Envelope) -> None:
        if self.gone is not None:
            raise self.gone
        if len(self.sent) + len(envelopes) > self._slots:
            raise WouldBlock("the window is full")
        if any(envelope.target == self._too_large for envelope in envelopes):
            raise Refused("It is too large.", code="too_large")
        self.batches.append([open_envelope(envelope) for envelope in envelopes])


def make_post() -> Post:
    return Post(chance=Chance(1), clock=lambda: 1_000.0)


def said(
    number: int = 0, target: str = "tasks", source: str = "client/c", *, id: str = "", correlation: str = ""
) -> Letter:
    return Letter(ExplainTask(task_id=str(number)), source, target, id=id, correlation=correlation)


def causes(post: Post) -> dict[Cause, int]:
    return dict(post.dead_letters.statistics().by_cause)


def messages(wire: Wire) -> list[Message]:
    return [letter.message for letter in wire.sent]


# --- Where a letter goes ---------------------------------------------------------------------------------------------


async def test_a_letter_reaches_the_mailbox_at_its_address() -> None:
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    await post.send(said(1))
    post.send_nowait(said(2))
    await post.deliver(said(3))
    assert await mailbox.take_batch() == (said(1), said(2), said(3))
    assert post.mailbox_of("tasks") is mailbox


async def test_letters_for_one_link_leave_as_one_batch() -> None:
    post, near, far = make_post(), Wire(), Wire()
    post.learn("worker/1", near)
    post.learn("worker/2", near)
    post.learn("client/c", far)
    await post.send_many([said(1, "worker/1"), said(2, "client/c"), said(3, "worker/2")])
    assert [[letter.target for letter in batch] for batch in near.batches] == [["worker/1", "worker/2"]]
    assert [letter.target for letter in far.sent] == ["client/c"]


async def test_a_mailbox_goes_before_a_link_and_leaves_only_its_own_address() -> None:
    post, wire, old, new = make_post(), Wire(), Mailbox("tasks"), Mailbox("tasks")
    post.learn("tasks", wire)
    post.register("tasks", old)
    post.register("tasks", new)
    post.unregister("tasks", old)
    await post.send(said(1))
    assert new.take_ready() == (said(1),)
    post.unregister("tasks", new)
    await post.send(said(2))
    assert messages(wire) == [said(2).message]


async def test_the_newest_link_of_a_peer_counts_until_it_is_forgotten() -> None:
    post, old, new = make_post(), Wire(), Wire()
    post.learn("client/c", old)
    post.learn("client/d", old)
    post.learn("client/c", new)
    assert post.forget(old) == ("client/d",)
    assert post.link_to("client/c") is new
    post.forget_address("client/c")
    assert post.link_to("client/c") is None


async def test_the_address_that_was_learned_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_module, "ROUTES_MAX", 2)
    post, wire = make_post(), Wire()
    for address in ("a", "b", "a", "c"):
        post.learn(address, wire)
    assert [post.link_to(address) is wire for address in ("a", "b", "c")] == [True, False, True]


async def test_what_a_link_brings_is_delivered_and_its_senders_are_learned() -> None:
    post, wire, mailbox = make_post(), Wire(), Mailbox("tasks")
    post.register("tasks", mailbox)
    await post.receive(wire, [seal(said(1, id="m-1"), Chance(1)), seal(said(2, id="m-2"), Chance(1))])
    first, second = await mailbox.take_batch()
    assert (first, second) == (said(1, id="m-1"), said(2, id="m-2"))
    await post.reply(second, TasksAccepted(task_ids=()))
    assert [letter.correlation for letter in wire.sent] == ["m-2"]


async def test_a_link_that_brings_no_message_is_told_so() -> None:
    post = make_post()
    broken = Envelope(id="x", source="a", target="tasks", payload=seal(said(), Chance(1)).payload.__class__(b"\xc1"))
    with pytest.raises(PeerProtocolError):
        await post.receive(Wire(), [broken])


async def test_an_edge_passes_letters_on_by_link() -> None:
    post, wire = make_post(), Wire()
    post.learn("tasks", wire)
    await post.deliver(said(1))
    assert messages(wire) == [said(1).message]


# --- Who waits -------------------------------------------------------------------------------------------------------


async def test_an_edge_waits_for_a_full_mailbox(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    post = make_post()
    post.register("tasks", Mailbox("tasks", slots=1))
    await post.deliver(said(1))
    with trio.move_on_after(1) as waiting:
        await post.deliver(said(2))
    assert waiting.cancelled_caught


async def test_an_actor_never_waits_for_a_full_mailbox() -> None:
    post, mailbox = make_post(), Mailbox("tasks", slots=1, local_slots=1)
    post.register("tasks", mailbox)
    with trio.fail_after(1):
        await post.send(said(1, source="scheduler"))
        await post.send(said(2, source="scheduler"))
    assert causes(post) == {Cause.OVERFLOWED: 1}


async def test_an_actor_may_wait_for_the_window_of_a_link(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    post, wire = make_post(), Wire(slots=1)
    post.learn("worker/1", wire)
    await post.send(said(1, "worker/1"))
    with trio.move_on_after(1) as waiting:
        await post.send(said(2, "worker/1"))
    assert waiting.cancelled_caught
    with pytest.raises(WouldBlock):
        post.send_nowait(said(3, "worker/1"))


# --- What can't be delivered -----------------------------------------------------------------------------------------


async def test_who_asked_nobody_hears_at_once() -> None:
    post, wire = make_post(), Wire()
    post.learn("client/c", wire)
    await post.deliver(said(1, "tusks", id="m-1"))
    (refusal,) = wire.sent
    assert isinstance(refusal.message, RequestRefused)
    assert (refusal.correlation, refusal.message.failure.code) == ("m-1", "broken")
    assert refusal.message.failure.why == "Nobody has that address."
    assert post.dead_letters.latest() == ("ExplainTask from client/c to tusks: nobody has that address",)


async def test_who_asked_nothing_hears_nothing() -> None:
    post, wire = make_post(), Wire()
    post.learn("tasks", wire)
    await post.send(Letter(ResultsCommitted(container_id="c", attempts=()), "tasks", "worker/1"))
    assert wire.sent == []
    assert causes(post) == {Cause.UNDELIVERABLE: 1}


async def test_a_refusal_that_nobody_can_be_given_is_dead_too() -> None:
    post = make_post()
    post.learn("client/c", Wire(slots=0))
    post.bounce(said(1, id="m-1"), Cause.CRASHED, "ValueError: no")
    assert causes(post) == {Cause.CRASHED: 1, Cause.BROKEN: 1}


@pytest.mark.parametrize("gone", [BrokenByPeer("it is gone"), ClosedByUs("it is closed")])
async def test_letters_for_a_link_that_is_gone_are_dead(gone: LeversError) -> None:
    post, wire = make_post(), Wire(gone=gone)
    post.learn("worker/1", wire)
    await post.send_many([said(1, "worker/1"), said(2, "worker/1")])
    post.send_nowait(said(3, "worker/1"))
    assert causes(post) == {Cause.BROKEN: 3}


async def test_a_letter_that_is_too_large_takes_no_other_with_it() -> None:
    post, wire = make_post(), Wire(too_large="worker/2")
    for address in ("worker/1", "worker/2", "worker/3"):
        post.learn(address, wire)
    await post.send_many([said(n, f"worker/{n}") for n in (1, 2, 3)])
    assert [letter.target for letter in wire.sent] == ["worker/1", "worker/3"]
    assert post.dead_letters.latest() == ("ExplainTask from client/c to worker/2: It is too large.",)


async def test_quarantine_is_told_with_its_reason() -> None:
    post, mailbox, wire = make_post(), Mailbox("tasks"), Wire()
    post.register("tasks", mailbox)
    post.learn("client/c", wire)
    for _ in range(3):
        post.send_nowait(said(1))
        await mailbox.take()
        mailbox.end_life("KeyError: 'x'", suspicious=True, keep=False)
    await post.deliver(said(1, id="m-4"))
    (refusal,) = messages(wire)
    assert isinstance(refusal, RequestRefused)
    assert (refusal.failure.code, "KeyError: 'x'" in refusal.failure.why) == ("quarantined", True)
    assert causes(post) == {Cause.QUARANTINED: 1}


async def test_a_mailbox_that_was_closed_gives_dead_letters() -> None:
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    mailbox.close("tasks has stopped")
    await post.send(said(1))
    assert post.dead_letters.latest() == ("ExplainTask from client/c to tasks: tasks has stopped",)


async def test_an_error_without_a_cause_of_its_own_makes_a_letter_undeliverable() -> None:
    post = make_post()
    post.learn("worker/1", Wire(gone=LeversError("odd")))
    await post.send(said(1, "worker/1"))
    assert causes(post) == {Cause.UNDELIVERABLE: 1}


# --- Asking ----------------------------------------------------------------------------------------------------------


async def test_who_asks_gets_the_answer() -> None:
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer_it() -> None:
            asked = await mailbox.take()
            assert asked.deadline_s == 1_005.0
            await post.reply(asked, TasksAccepted(task_ids=("task-1",)))

        reply = await post.ask(said(1, source="gateway/1"), 5)
    assert reply.message == TasksAccepted(task_ids=("task-1",))


async def test_an_answer_may_come_by_a_link() -> None:
    post, wire = make_post(), Wire()
    post.learn("tasks", wire)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def answer_it() -> None:
            await wait_all_tasks_blocked()
            (asked,) = wire.sent
            reply = Letter(TasksAccepted(task_ids=()), "tasks", "gateway/1", correlation=asked.id)
            await post.receive(wire, [seal(reply, Chance(2))])

        assert (await post.ask(said(1, source="gateway/1"), 5)).source == "tasks"


async def test_an_answer_after_the_deadline_is_a_dead_letter(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    with pytest.raises(DeadlinePassed, match="tasks did not answer ExplainTask within 5 s"):
        await post.ask(said(1), 5)
    await post.reply(await mailbox.take(), TasksAccepted(task_ids=()))
    assert causes(post) == {Cause.LATE: 1}


async def test_a_question_that_was_cancelled_leaves_nothing_but_a_late_answer() -> None:
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(post.ask, said(1), 5)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await post.reply(await mailbox.take(), TasksAccepted(task_ids=()))
    assert causes(post) == {Cause.LATE: 1}


async def test_a_stray_answer_goes_where_it_is_addressed() -> None:
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    await post.deliver(said(1, correlation="never asked"))
    assert await mailbox.take() == said(1, correlation="never asked")


async def test_late_questions_are_remembered_within_bounds(
    mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock_clock.autojump_threshold = 0
    monkeypatch.setattr(post_module, "LATE_REMEMBERED", 1)
    post, mailbox = make_post(), Mailbox("tasks")
    post.register("tasks", mailbox)
    for number in range(2):
        with pytest.raises(DeadlinePassed):
            await post.ask(said(number), 5)
    for asked in await mailbox.take_batch():
        await post.reply(asked, TasksAccepted(task_ids=()))
    assert causes(post) == {Cause.LATE: 1, Cause.UNDELIVERABLE: 1}


async def test_asking_nobody_is_answered_at_once() -> None:
    post = make_post()
    with trio.fail_after(1):
        reply = await post.ask(said(1, "nobody"), 60)
    assert isinstance(reply.message, RequestRefused)


# --- Requests of actors ----------------------------------------------------------------------------------------------


async def test_the_answer_to_a_request_has_a_slot_even_when_the_mailbox_is_full() -> None:
    post, mine, theirs = make_post(), Mailbox("scheduler", slots=1, local_slots=0), Mailbox("tasks")
    post.register("scheduler", mine)
    post.register("tasks", theirs)
    request_id = post.request(said(1, source="scheduler"))
    await post.reply(await theirs.take(), TasksAccepted(task_ids=()))
    assert (await mine.take()).correlation == request_id
    assert causes(post) == {}


async def test_a_request_that_could_not_leave_keeps_no_slot() -> None:
    post, mine = make_post(), Mailbox("scheduler")
    post.register("scheduler", mine)
    post.learn("worker/1", Wire(slots=0))
    with pytest.raises(WouldBlock):
        post.request(said(1, "worker/1", source="scheduler"))
    assert mine.statistics().reserved == 0
