from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.errors import ChildFailed, StoreUnavailable, SupervisorGaveUp
from levers9.model.ids import Chance
from levers9.supervisor import (
    Backoff,
    ChildSpec,
    Intensity,
    Lifetime,
    StartChild,
    Strategy,
    Supervisor,
    subtree,
)
from levers9.wire.client import ExplainTask, RequestRefused
from levers9.wire.control import ChildStanding, Down, StopAsked
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox, serve
from levers9.wire.post import Post

QUICK = Backoff(min_s=0.1, max_s=0.1, jitter=0.0)


class Diary:
    """Children that write down when they start and end; each can be told to crash or to return."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._orders: dict[str, trio.Event] = {}
        self._crash: dict[str, Exception | None] = {}

    def child(self, name: str, start_s: float = 0.0, stop_s: float = 0.0) -> StartChild:
        async def start(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
            order = self._orders[name] = trio.Event()
            await trio.sleep(start_s)
            self.lines.append(f"+{name}")
            task_status.started()
            try:
                await order.wait()
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1_000):
                    await trio.sleep(stop_s)
                self.lines.append(f"-{name}")
            if (error := self._crash[name]) is not None:
                raise error

        return start

    def specs(self, *names: str) -> list[ChildSpec]:
        return [ChildSpec(name, self.child(name), backoff=QUICK) for name in names]

    async def end(self, name: str, error: Exception | None = None, settle_s: float = 1.0) -> None:
        self._crash[name] = error
        self._orders[name].set()
        await trio.sleep(settle_s)

    async def crash(self, name: str, settle_s: float = 1.0) -> None:
        await self.end(name, ValueError(f"{name} crashed"), settle_s)

    def since(self, number: int = 0) -> str:
        return " ".join(self.lines[number:])


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[Supervisor]:
    """Run it until the block ends, then stop it in order."""

    async def run(task_status: trio.TaskStatus[None]) -> None:
        await supervisor.run(task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield supervisor
        supervisor.stop()


def states(supervisor: Supervisor) -> dict[str, str]:
    return {each.path: each.state for each in supervisor.inspect()}


def standing(supervisor: Supervisor, path: str) -> ChildStanding:
    return next(each for each in supervisor.inspect() if each.path == path)


# --- Order -----------------------------------------------------------------------------------------------------------


async def test_children_start_in_order_each_once_the_one_before_is_ready(autojump_clock: MockClock) -> None:
    diary = Diary()
    slow = ChildSpec("a", diary.child("a", start_s=3))
    async with running(Supervisor("brain", [slow, *diary.specs("b", "c")])):
        assert diary.since() == "+a +b +c"
        assert trio.current_time() >= 3


async def test_children_stop_in_reverse_order(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a", "b", "c"))):
        pass
    assert diary.since(3) == "-c -b -a"


async def test_children_stop_in_reverse_order_when_the_supervisor_is_cancelled(autojump_clock: MockClock) -> None:
    diary = Diary()
    specs = [ChildSpec(name, diary.child(name, stop_s=1)) for name in ("a", "b", "c")]
    with trio.CancelScope() as scope:
        async with running(Supervisor("brain", specs)):
            scope.cancel()
            await trio.sleep_forever()
    assert diary.since(3) == "-c -b -a"


async def test_children_may_stop_together(autojump_clock: MockClock) -> None:
    diary = Diary()
    specs = [ChildSpec(name, diary.child(name, stop_s=4)) for name in ("a", "b", "c")]
    async with running(Supervisor("brain", specs, stop_together=True)):
        began_s = trio.current_time()
    assert trio.current_time() - began_s == 4


async def test_a_child_that_does_not_end_in_time_does_not_hold_up_those_before_it(autojump_clock: MockClock) -> None:
    diary = Diary()
    stuck = ChildSpec("b", diary.child("b", stop_s=50), shutdown_s=5)
    supervisor = Supervisor("brain", [*diary.specs("a"), stuck])
    async with running(supervisor):
        pass
    assert diary.since(2) == "-a -b"
    assert standing(supervisor, "brain/b").last_failure == "it did not end within 5 s of being cancelled"


async def test_a_child_that_wants_to_be_asked_first_has_its_time_to_finish(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def finishing(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        letter = await mailbox.take()
        assert isinstance(letter.message, StopAsked)
        await trio.sleep(3)
        seen.append(letter.message.reason)

    async with running(Supervisor("brain", [ChildSpec("a", finishing, finish_s=10)])):
        began_s = trio.current_time()
    assert seen == ["brain stops"]
    assert trio.current_time() - began_s == 3


async def test_a_child_that_does_not_finish_when_asked_is_cancelled(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", [ChildSpec("a", diary.child("a"), finish_s=10)])):
        began_s = trio.current_time()
    assert diary.since() == "+a -a"
    assert trio.current_time() - began_s == 10


async def test_a_supervisor_that_is_stopped_while_it_starts_stops_what_it_started(autojump_clock: MockClock) -> None:
    diary = Diary()
    supervisor = Supervisor("brain", [*diary.specs("a"), ChildSpec("b", diary.child("b", start_s=10))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await trio.sleep(1)
        assert states(supervisor) == {"brain": "starting", "brain/a": "running", "brain/b": "starting"}
        supervisor.stop()
    assert diary.since() == "+a -a"
    assert states(supervisor) == {"brain": "stopped", "brain/a": "stopped", "brain/b": "stopped"}
    assert standing(supervisor, "brain/b").last_failure == ""


# --- Restarts --------------------------------------------------------------------------------------------------------


async def test_one_for_one_restarts_only_the_one_that_crashed(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a", "b", "c"))) as supervisor:
        await diary.crash("b")
        assert diary.since(3) == "-b +b"
        assert standing(supervisor, "brain/b").restarts == 1
        assert standing(supervisor, "brain/b").last_failure == "ValueError: b crashed"


async def test_one_for_all_restarts_everybody_in_order(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a", "b", "c"), strategy=Strategy.ONE_FOR_ALL)):
        await diary.crash("b")
        assert diary.since(3) == "-b -c -a +a +b +c"


async def test_rest_for_one_restarts_those_that_were_started_after(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a", "b", "c", "d"), strategy=Strategy.REST_FOR_ONE)):
        await diary.crash("b")
        assert diary.since(4) == "-b -d -c +b +c +d"


async def test_a_sibling_that_crashes_while_the_group_stops_is_not_counted_again(autojump_clock: MockClock) -> None:
    diary = Diary()
    supervisor = Supervisor("brain", diary.specs("a", "b"), strategy=Strategy.ONE_FOR_ALL, intensity=Intensity(1, 60))
    async with running(supervisor):
        await diary.crash("a", settle_s=0)
        await diary.crash("b")
        assert states(supervisor) == {"brain": "running", "brain/a": "running", "brain/b": "running"}


async def test_a_temporary_sibling_is_not_restarted_with_the_group(autojump_clock: MockClock) -> None:
    diary = Diary()
    once = ChildSpec("b", diary.child("b"), Lifetime.TEMPORARY)
    supervisor = Supervisor("brain", [*diary.specs("a"), once], strategy=Strategy.ONE_FOR_ALL)
    async with running(supervisor):
        await diary.crash("a")
        assert diary.since(2) == "-a -b +a"
        assert "brain/b" not in states(supervisor)


async def test_a_transient_child_that_returns_stays_stopped_and_one_that_crashes_comes_back(
    autojump_clock: MockClock,
) -> None:
    diary = Diary()
    async with running(Supervisor("brain", [ChildSpec("a", diary.child("a"), Lifetime.TRANSIENT)])) as supervisor:
        await diary.crash("a")
        await diary.end("a")
        assert diary.since() == "+a -a +a -a"
        assert states(supervisor)["brain/a"] == "stopped"


async def test_a_temporary_child_is_forgotten_when_it_ends(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", [ChildSpec("a", diary.child("a"), Lifetime.TEMPORARY)])) as supervisor:
        await diary.crash("a")
        assert states(supervisor) == {"brain": "running"}


async def test_when_a_significant_child_has_done_its_work_its_supervisor_stops(autojump_clock: MockClock) -> None:
    diary = Diary()
    job = ChildSpec("b", diary.child("b"), Lifetime.TRANSIENT, significant=True)
    async with running(Supervisor("brain", [*diary.specs("a"), job])) as supervisor:
        await diary.end("b")
        assert diary.since(2) == "-b -a"
        assert states(supervisor)["brain"] == "stopped"


async def test_a_child_that_crashes_at_once_is_restarted_a_few_times_not_a_hundred_thousand(
    autojump_clock: MockClock,
) -> None:
    starts: list[float] = []

    async def crash(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        starts.append(trio.current_time())
        task_status.started()
        raise ValueError("again")

    patient = Intensity(restarts=10_000, within_s=60)
    supervisor = Supervisor("brain", [ChildSpec("a", crash)], intensity=patient, chance=Chance(1))
    with trio.move_on_after(60):
        await supervisor.run()
    assert 8 <= len(starts) <= 20
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(0.05 * 2**number <= wait <= 0.1 * 2**number for number, wait in enumerate(waits[:8]))


async def test_a_healthy_life_makes_the_wait_short_again(autojump_clock: MockClock) -> None:
    diary = Diary()
    backoff = Backoff(min_s=1, max_s=64, jitter=0, reset_after_s=60)
    async with running(Supervisor("brain", [ChildSpec("a", diary.child("a"), backoff=backoff)])) as supervisor:
        for wait_s in (1, 2, 4):
            await diary.crash("a", settle_s=wait_s + 0.5)
        await trio.sleep(60)
        await diary.crash("a", settle_s=0.5)
        assert states(supervisor)["brain/a"] == "waiting"
        await trio.sleep(1)
        assert states(supervisor)["brain/a"] == "running"


async def test_while_one_child_waits_for_its_next_life_another_is_brought_back(autojump_clock: MockClock) -> None:
    diary = Diary()
    patient = ChildSpec("a", diary.child("a"), backoff=Backoff(min_s=20, jitter=0))
    async with running(Supervisor("brain", [patient, *diary.specs("b")])) as supervisor:
        await diary.crash("a", settle_s=0.1)
        await diary.crash("b")
        assert (states(supervisor)["brain/a"], states(supervisor)["brain/b"]) == ("waiting", "running")


# --- Giving up -------------------------------------------------------------------------------------------------------


async def test_after_too_many_failures_the_supervisor_stops_its_children_and_says_what_happened(
    autojump_clock: MockClock,
) -> None:
    diary = Diary()
    supervisor = Supervisor("brain", diary.specs("a", "b"), intensity=Intensity(restarts=1, within_s=60))

    async def crash_twice() -> None:
        await trio.sleep(1)
        await diary.crash("b")
        await diary.crash("b")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crash_twice)
        with pytest.raises(SupervisorGaveUp) as caught:
            await supervisor.run()
    assert caught.value.history == (
        "b crashed after 1.0 s: ValueError: b crashed",
        "b crashed after 0.9 s: ValueError: b crashed",
    )
    assert diary.since(2) == "-b +b -b -a"
    assert states(supervisor)["brain"] == "gave up"


async def test_the_supervisor_above_restarts_the_one_that_gave_up_with_all_below(autojump_clock: MockClock) -> None:
    diary = Diary()
    inner = subtree("pools", lambda: Supervisor("pools", diary.specs("x", "y"), intensity=Intensity(0, 60)))
    async with running(Supervisor("brain", [*diary.specs("a"), inner])) as supervisor:
        await diary.crash("x")
        assert diary.since(3) == "-x -y +x +y"
        assert standing(supervisor, "brain/pools").restarts == 1
        assert "pools gave up" in standing(supervisor, "brain/pools").last_failure


async def test_a_child_that_is_not_ready_in_time_has_failed(autojump_clock: MockClock) -> None:
    diary = Diary()
    late = ChildSpec("a", diary.child("a", start_s=100), start_within_s=5, backoff=QUICK)
    with pytest.raises(SupervisorGaveUp, match=r"a crashed after 0\.0 s: it was not ready within 5 s"):
        await Supervisor("brain", [late], intensity=Intensity(2, 60)).run()


async def test_a_child_that_fails_to_start_is_tried_again_before_the_next_one_starts(autojump_clock: MockClock) -> None:
    diary, tries, began_s = Diary(), list[int](), trio.current_time()

    async def third_time(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("the port is in use")
        await diary.child("a")(mailbox, task_status=task_status)

    async with running(Supervisor("brain", [ChildSpec("a", third_time, backoff=QUICK), *diary.specs("b")])):
        assert (len(tries), diary.since()) == (3, "+a +b")
        assert trio.current_time() - began_s == pytest.approx(0.2)


async def test_a_temporary_child_that_fails_to_start_is_left_out(autojump_clock: MockClock) -> None:
    async def fail(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("no")

    diary = Diary()
    async with running(
        Supervisor("brain", [ChildSpec("x", fail, Lifetime.TEMPORARY), *diary.specs("a")])
    ) as supervisor:
        assert states(supervisor) == {"brain": "running", "brain/a": "running"}


async def test_crashes_in_groups_are_crashes_and_all_that_is_in_them_is_told(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a"))) as supervisor:
        await diary.end("a", ExceptionGroup("both", [ValueError("one"), KeyError()]))
        assert standing(supervisor, "brain/a").last_failure == "ValueError: one; KeyError"
        assert states(supervisor)["brain/a"] == "running"


async def test_an_error_while_a_cancelled_child_cleans_up_is_told_and_stops_nothing(autojump_clock: MockClock) -> None:
    async def messy(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                raise RuntimeError("untidy")

    diary = Diary()
    supervisor = Supervisor("brain", [*diary.specs("a"), ChildSpec("b", messy)])
    async with running(supervisor):
        pass
    assert diary.since() == "+a -a"
    assert standing(supervisor, "brain/b").last_failure == "RuntimeError: untidy"


async def test_what_is_no_exception_is_never_swallowed(autojump_clock: MockClock) -> None:
    async def interrupted(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise KeyboardInterrupt

    with pytest.raises(BaseExceptionGroup) as caught:
        await Supervisor("brain", [ChildSpec("a", interrupted)]).run()
    assert caught.group_contains(KeyboardInterrupt)


# --- Children at run time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_child_can_be_added_and_taken_away(strategy: Strategy, autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain", diary.specs("a"), strategy=strategy)) as supervisor:
        await supervisor.start_child(diary.specs("b")[0])
        await supervisor.stop_child("a")
        await supervisor.stop_child("never there")
        assert states(supervisor) == {"brain": "running", "brain/b": "running"}
    assert diary.since() == "+a +b -a -b"


async def test_a_child_that_can_not_be_started_is_not_added(autojump_clock: MockClock) -> None:
    async def fail(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("no such file")

    async with running(Supervisor("brain")) as supervisor:
        with pytest.raises(ChildFailed, match="x: OSError: no such file"):
            await supervisor.start_child(ChildSpec("x", fail))
        assert states(supervisor) == {"brain": "running"}


async def test_a_start_that_is_cancelled_leaves_no_child(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with running(Supervisor("brain")) as supervisor:
        with trio.move_on_after(1):
            await supervisor.start_child(ChildSpec("x", diary.child("x", start_s=10)))
        await trio.sleep(20)
        assert states(supervisor) == {"brain": "running"}
        assert diary.since() == ""


async def test_a_child_can_be_taken_away_while_it_waits_for_its_next_life(autojump_clock: MockClock) -> None:
    diary = Diary()
    patient = ChildSpec("a", diary.child("a"), backoff=Backoff(min_s=20, jitter=0))
    async with running(Supervisor("brain", [patient])) as supervisor:
        await diary.crash("a")
        await supervisor.stop_child("a")
        await trio.sleep(60)
        assert diary.since() == "+a -a"


async def test_children_of_the_store_follow_after_the_others_in_each_life(autojump_clock: MockClock) -> None:
    diary, stored = Diary(), ["x"]

    async def rebuild() -> list[ChildSpec]:
        return diary.specs(*stored)

    inner = subtree("pools", lambda: Supervisor("pools", diary.specs("p"), rebuild=rebuild, intensity=Intensity(0, 60)))
    async with running(Supervisor("brain", [inner])):
        assert diary.since() == "+p +x"
        stored.append("y")
        await diary.crash("p")
        assert diary.since(2) == "-p -x +p +x +y"


# --- Letters ---------------------------------------------------------------------------------------------------------


def question(task_id: str, letter_id: str = "m-1") -> Letter:
    return Letter(ExplainTask(task_id=task_id), "client/c", "tasks", id=letter_id)


def actor(handle: Callable[[Letter], Awaitable[None]]) -> StartChild:
    async def start(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await serve(mailbox, handle)

    return start


class Asker:
    """A post with a caller's mailbox in it."""

    def __init__(self) -> None:
        self.post = Post(chance=Chance(1), clock=lambda: 0.0)
        self.mailbox = Mailbox("client/c")
        self.post.register("client/c", self.mailbox)

    def refusals(self) -> list[tuple[str, str]]:
        letters = self.mailbox.take_ready()
        return [
            (each.correlation, each.message.failure.code)
            for each in letters
            if isinstance(each.message, RequestRefused)
        ]


async def crash_on_bad(letter: Letter) -> None:
    assert isinstance(letter.message, ExplainTask)
    if letter.message.task_id == "bad":
        raise ValueError("bad input")
    if letter.message.task_id == "no store":
        raise StoreUnavailable("the store is away")


async def test_who_asked_the_letter_that_crashed_hears_at_once_and_so_do_those_behind_it(
    autojump_clock: MockClock,
) -> None:
    asker = Asker()
    async with running(Supervisor("brain", [ChildSpec("tasks", actor(crash_on_bad))], post=asker.post)):
        for number, task_id in enumerate(("good", "bad", "behind")):
            asker.post.send_nowait(question(task_id, f"m-{number}"))
        await wait_all_tasks_blocked()
        assert asker.refusals() == [("m-1", "crashed"), ("m-2", "crashed")]
    assert "its receiver tasks ended: ValueError: bad input" in asker.post.dead_letters.latest()[0]


async def test_an_actor_without_a_store_keeps_what_waits_but_not_what_crashed_it(autojump_clock: MockClock) -> None:
    asker, handled = Asker(), list[str]()

    async def handle(letter: Letter) -> None:
        await crash_on_bad(letter)
        assert isinstance(letter.message, ExplainTask)
        handled.append(letter.message.task_id)

    keeping = ChildSpec("tasks", actor(handle), keep_mailbox=True, backoff=QUICK)
    async with running(Supervisor("brain", [keeping], post=asker.post)):
        for task_id in ("bad", "behind"):
            asker.post.send_nowait(question(task_id))
        await trio.sleep(1)
        assert handled == ["behind"]


async def test_a_letter_that_crashes_three_lives_is_refused_and_the_tree_says_so(autojump_clock: MockClock) -> None:
    asker = Asker()
    spec = ChildSpec("tasks", actor(crash_on_bad), backoff=QUICK)
    async with running(Supervisor("brain", [spec], post=asker.post)) as supervisor:
        for number in range(4):
            asker.post.send_nowait(question("bad", f"m-{number}"))
            await trio.sleep(1)
        assert asker.refusals()[-1] == ("m-3", "quarantined")
        shown = standing(supervisor, "brain/tasks")
        assert (shown.state, shown.restarts) == ("quarantined", 3)
        assert "crashed its handler 3 times, the last time with ValueError: bad input" in shown.last_failure


async def test_a_store_that_is_away_puts_no_letter_in_quarantine(autojump_clock: MockClock) -> None:
    asker = Asker()
    spec = ChildSpec("tasks", actor(crash_on_bad), backoff=QUICK)
    async with running(Supervisor("brain", [spec], post=asker.post)) as supervisor:
        for number in range(4):
            asker.post.send_nowait(question("no store", f"m-{number}"))
            await trio.sleep(1)
        assert [code for _, code in asker.refusals()] == ["crashed"] * 4
        assert standing(supervisor, "brain/tasks").state == "running"


async def test_what_waits_for_a_child_that_stops_is_dead_and_its_address_is_free(autojump_clock: MockClock) -> None:
    asker, diary = Asker(), Diary()
    async with running(Supervisor("brain", [ChildSpec("tasks", diary.child("tasks"))], post=asker.post)) as supervisor:
        assert asker.post.mailbox_of("tasks") is supervisor.mailbox("tasks")
        asker.post.send_nowait(question("waits"))
    assert asker.refusals() == [("m-1", "crashed")]
    assert asker.post.mailbox_of("tasks") is None


async def test_what_an_actor_had_in_hand_when_it_returned_is_handled(autojump_clock: MockClock) -> None:
    asker = Asker()

    async def take_one(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await mailbox.take()

    spec = ChildSpec("tasks", take_one, Lifetime.TRANSIENT)
    async with running(Supervisor("brain", [spec], post=asker.post)) as supervisor:
        asker.post.send_nowait(question("good"))
        await trio.sleep(1)
        shown = standing(supervisor, "brain/tasks")
        assert (shown.handled, shown.failed, asker.refusals()) == (1, 0, [])


async def test_what_came_for_a_child_that_never_lives_again_is_dead(autojump_clock: MockClock) -> None:
    asker = Asker()
    spec = ChildSpec("tasks", actor(crash_on_bad), backoff=Backoff(min_s=20, jitter=0))
    async with running(Supervisor("brain", [spec], post=asker.post)) as supervisor:
        asker.post.send_nowait(question("bad"))
        await trio.sleep(1)
        asker.post.send_nowait(question("good", "m-2"))
        await supervisor.stop_child("tasks")
        assert asker.refusals() == [("m-1", "crashed"), ("m-2", "crashed")]


async def test_a_letter_that_came_while_nobody_lived_waits_for_the_next_life(autojump_clock: MockClock) -> None:
    asker, handled = Asker(), list[str]()

    async def handle(letter: Letter) -> None:
        await crash_on_bad(letter)
        handled.append(letter.id)

    async with running(Supervisor("brain", [ChildSpec("tasks", actor(handle), backoff=QUICK)], post=asker.post)):
        asker.post.send_nowait(question("bad"))
        await wait_all_tasks_blocked()
        asker.post.send_nowait(question("good", "m-2"))
        await trio.sleep(1)
        assert handled == ["m-2"]


@pytest.mark.slow
async def test_an_actor_that_was_told_too_much_starts_anew(autojump_clock: MockClock) -> None:
    asker, lives = Asker(), list[int]()

    async def start(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        lives.append(1)
        task_status.started()
        while True:
            await trio.sleep(10)
            await mailbox.take()

    spec = ChildSpec("tasks", start, backoff=QUICK)
    async with running(Supervisor("brain", [spec], post=asker.post)) as supervisor:
        for _ in range(65_537):
            asker.post.send_nowait(question("x", letter_id=""))
        await trio.sleep(15)
        assert len(lives) == 2
        assert "overflowed" in standing(supervisor, "brain/tasks").last_failure


async def test_a_child_without_an_address_is_not_in_the_post(autojump_clock: MockClock) -> None:
    asker, diary = Asker(), Diary()
    async with running(Supervisor("brain", [ChildSpec("a", diary.child("a"), address="")], post=asker.post)):
        assert asker.post.mailbox_of("a") is None
        assert asker.post.mailbox_of("") is None


# --- Watching and looking --------------------------------------------------------------------------------------------


async def test_watchers_are_told_of_each_end_of_a_life(autojump_clock: MockClock) -> None:
    diary, mailbox = Diary(), Mailbox("watcher")
    async with running(Supervisor("brain", diary.specs("a", "b"))) as supervisor:
        supervisor.watch("a", mailbox)
        await diary.crash("a")
        await diary.crash("b")
        assert [each.message for each in mailbox.take_ready()] == [Down(name="a", reason="ValueError: a crashed")]
        await supervisor.stop_child("a")
        assert [each.message for each in mailbox.take_ready()] == [Down(name="a", reason="it is no longer needed")]


async def test_who_no_longer_watches_is_not_told(autojump_clock: MockClock) -> None:
    diary, mailbox = Diary(), Mailbox("watcher")
    async with running(Supervisor("brain", diary.specs("a"))) as supervisor:
        supervisor.watch("a", mailbox)
        supervisor.unwatch("a", mailbox)
        await diary.end("a")
        assert mailbox.take_ready() == ()


async def test_the_tree_is_shown_depth_first_with_the_numbers_of_each_mailbox(autojump_clock: MockClock) -> None:
    diary = Diary()
    inner = subtree("pools", lambda: Supervisor("pools", diary.specs("x")))
    async with running(Supervisor("brain", [*diary.specs("a"), inner, *diary.specs("b")])) as supervisor:
        supervisor.mailbox("a").post_nowait(question("x"))
        shown = supervisor.inspect()
        assert [(each.path, each.kind) for each in shown] == [
            ("brain", "supervisor"),
            ("brain/a", "actor"),
            ("brain/pools", "supervisor"),
            ("brain/pools/x", "actor"),
            ("brain/b", "actor"),
        ]
        assert (shown[1].mailbox_depth, shown[1].mailbox_slots, shown[1].received) == (1, 1_024, 1)


async def test_a_nested_supervisor_that_never_lived_shows_nothing_below(autojump_clock: MockClock) -> None:
    diary = Diary()
    slow = ChildSpec("a", diary.child("a", start_s=5))
    supervisor = Supervisor("brain", [slow, subtree("pools", lambda: Supervisor("pools"))])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await wait_all_tasks_blocked()
        assert states(supervisor) == {"brain": "starting", "brain/a": "starting", "brain/pools": "waiting"}
        supervisor.stop()


async def test_a_subtree_has_all_the_time_that_its_children_take(autojump_clock: MockClock) -> None:
    spec = subtree("pools", lambda: Supervisor("pools"))
    assert (spec.shutdown_s, spec.start_within_s, spec.post_address) == (math.inf, math.inf, "")


async def test_a_child_that_ends_while_a_later_one_is_not_ready_yet_is_brought_back(autojump_clock: MockClock) -> None:
    diary = Diary()
    specs = [*diary.specs("store"), ChildSpec("gateway", diary.child("gateway", start_s=30.0), backoff=QUICK)]
    supervisor = Supervisor("s", specs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await trio.sleep(1.0)
        await diary.crash("store")
        assert diary.since() == "+store -store +store"
        await trio.sleep(30.0)
        assert diary.since() == "+store -store +store +gateway"
        supervisor.stop()


async def test_a_child_that_waits_for_an_earlier_one_to_come_back_is_ready_once_that_is(
    autojump_clock: MockClock,
) -> None:
    lives: list[str] = []

    async def store(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        lives.append("store")
        task_status.started()
        if lives.count("store") < 3:
            raise StoreUnavailable("its port is taken")
        await trio.sleep_forever()

    async def gateway(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        if lives.count("store") < 3:
            raise StoreUnavailable("it does not answer")
        task_status.started()
        await trio.sleep_forever()

    supervisor = Supervisor("s", [ChildSpec("store", store), ChildSpec("gateway", gateway)])
    with trio.fail_after(10):
        async with running(supervisor):
            assert lives == ["store"] * 3


async def test_a_child_that_ends_too_often_while_a_later_one_starts_ends_the_supervisor(
    autojump_clock: MockClock,
) -> None:
    async def store(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise StoreUnavailable("its port is taken")

    async def gateway(mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep_forever()

    children = [ChildSpec("store", store), ChildSpec("gateway", gateway)]
    with pytest.RaisesGroup(SupervisorGaveUp, allow_unwrapped=True):
        await Supervisor("s", children, intensity=Intensity(restarts=3)).run()
