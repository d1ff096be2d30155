"""A whole brain over a store in memory: what one caller's poison does to the others, and what it shows of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from levers9.actors.pool import PoolSettings, Processes
from levers9.actors.tasks.policy import TasksPolicy
from levers9.daemons.brain import Brain
from levers9.daemons.orders import BrainOrders
from levers9.daemons.settings import Settings
from levers9.model.ids import Chance
from levers9.model.states import TokenKind
from levers9.model.tokens import SECRET_BYTES, make_token
from levers9.store.memory import MemoryStore
from levers9.wire.carrier import Carrier
from levers9.wire.client import ExplainTask, RequestRefused
from levers9.wire.control import ChildStanding
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.post import Post

NEXT_REIGN_WITHIN_S = 20.0
REASON = "crashed its handler 3 times, the last time with ValueError: poison"


async def nobody_comes(
    url: str, handler: Callable[[Carrier], Awaitable[None]], *, task_status: trio.TaskStatus[None]
) -> None:
    task_status.started()
    await trio.sleep_forever()


def no_machines(kind: str, pool: PoolSettings, post: Post) -> Processes:
    raise AssertionError(f"nobody has a pool {pool.name}")


def make_brain(root_tree: tuple[ChildStanding, ...] = ()) -> Brain:
    chance = Chance(3)
    orders = BrainOrders(
        settings=Settings(gateways=1, run_dir="/run/nowhere"),
        root_pid=1,
        worker_urls=(),
        worker_http_url="",
        replica_id="replica-0",
        replica_token=make_token(TokenKind.REPLICA, chance.secret(SECRET_BYTES)),
        admin_token=make_token(TokenKind.CLUSTER_ADMIN, chance.secret(SECRET_BYTES)),
    )
    return Brain(
        orders=orders,
        store=MemoryStore(),
        chance=chance,
        clock=trio.current_time,
        machines=no_machines,
        listen=nobody_comes,
        root_tree=lambda: root_tree,
    )


@asynccontextmanager
async def reigning(brain: Brain) -> AsyncIterator[None]:
    """The brain runs, and its first reign has begun."""
    async with trio.open_nursery() as nursery:
        await nursery.start(brain.run)
        await trio.sleep(1)
        yield
        nursery.cancel_scope.cancel()


class Caller:
    """Somebody with a mailbox, who asks and waits for the answer."""

    def __init__(self, brain: Brain, name: str) -> None:
        self._brain = brain
        self._mailbox = Mailbox(name)
        brain.post.register(name, self._mailbox)
        self._asked = 0

    async def ask(self, task_id: str) -> Message:
        self._asked += 1
        name = self._mailbox.name
        letter = Letter(ExplainTask(task_id=task_id), name, "tasks", workspace="w", id=f"{name}-{self._asked}")
        await self._brain.post.send(letter)
        with trio.fail_after(NEXT_REIGN_WITHIN_S):
            return (await self._mailbox.take()).message

    async def code(self, task_id: str) -> str:
        """The code of the refusal that asking brings."""
        answer = await self.ask(task_id)
        assert isinstance(answer, RequestRefused)
        return answer.failure.code


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in the policy: it fails at one thing that a caller may say."""
    sound = TasksPolicy.handle

    def handle(policy: TasksPolicy, letter: Letter, now_s: float) -> None:
        if isinstance(letter.message, ExplainTask) and letter.message.task_id == "bad":
            raise ValueError("poison")
        sound(policy, letter, now_s)

    monkeypatch.setattr(TasksPolicy, "handle", handle)


def standing(brain: Brain, path: str) -> ChildStanding:
    (found,) = [child for child in brain.standing().children if child.path == path]
    return found


@pytest.mark.usefixtures("poison")
async def test_what_ends_three_reigns_ends_no_fourth_and_the_others_go_on(autojump_clock: MockClock) -> None:
    brain = make_brain()
    async with reigning(brain):
        poisoner, other = Caller(brain, "client/poisoner"), Caller(brain, "client/other")
        for _ in range(3):
            assert await poisoner.code("bad") == "crashed"
            await trio.sleep(NEXT_REIGN_WITHIN_S)
            assert await other.code("good") == "not_found"
        ended = standing(brain, "brain/leader/reign").restarts
        refused = await poisoner.ask("bad")
        assert isinstance(refused, RequestRefused)
        assert refused.failure.code == "quarantined"
        assert REASON in refused.failure.why
        await trio.sleep(NEXT_REIGN_WITHIN_S)
        assert await other.code("good") == "not_found"
        assert (ended, standing(brain, "brain/leader/reign").restarts) == (3, 3)


@pytest.mark.usefixtures("poison")
async def test_the_tree_says_in_each_later_reign_what_is_refused_and_why(autojump_clock: MockClock) -> None:
    brain = make_brain()
    async with reigning(brain):
        poisoner = Caller(brain, "client/poisoner")
        for _ in range(3):
            await poisoner.ask("bad")
            await trio.sleep(NEXT_REIGN_WITHIN_S)
        tasks = standing(brain, "brain/leader/reign/tasks")
        assert tasks.state == "quarantined"
        assert REASON in tasks.last_failure
        assert standing(brain, "brain/leader/reign/scheduler").state == "running"


async def test_the_tree_of_the_root_comes_first_and_the_reign_stands_below_its_leader(
    autojump_clock: MockClock,
) -> None:
    root = ChildStanding(path="root", kind="supervisor", state="running", restarts=0, process_id=7)
    postgres = ChildStanding(path="root/postgres", kind="process", state="running", restarts=1, process_id=8)
    brain = make_brain((root, postgres))
    async with reigning(brain):
        children = brain.standing().children
    assert children[:2] == (root, postgres)
    assert [child.path for child in children[-7:]] == [
        "brain/leader",
        "brain/leader/reign",
        "brain/leader/reign/scheduler",
        "brain/leader/reign/tasks",
        "brain/leader/reign/guard",
        "brain/leader/reign/pools",
        "brain/leader/reign/clusters",
    ]
    reign = children[-6]
    assert (reign.kind, reign.state, reign.restarts) == ("supervisor", "running", 0)


async def test_the_tree_comes_with_what_was_committed(autojump_clock: MockClock) -> None:
    brain = make_brain()
    async with reigning(brain):
        totals = brain.standing().totals
    assert totals.store_commits > 0
    assert totals.tasks_accepted == 0
