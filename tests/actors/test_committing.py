"""The loop that decides, commits, then sends; and the shells of the actors around it, under a mock clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from levers9_test_deciding import ARGUMENTS, SIZE, numbered, numbered_tokens, spec_of
from trio.testing import MockClock

from levers9.actors.committing import Surroundings, decide_commit_send
from levers9.actors.pool import GuardActor, GuardSettings, PoolActor, PoolSettings
from levers9.actors.pool.policy import Adopt, EndWorker, StartWorker
from levers9.actors.scheduler import SchedulerActor
from levers9.actors.scheduler.group import Plan as GroupPlan
from levers9.actors.tasks import TasksActor
from levers9.actors.tasks import actor as tasks_actor
from levers9.errors import EpochSuperseded, OutcomeUnknown, StoreUnavailable
from levers9.model.figures import WORKER_START_LIMIT_S
from levers9.model.ids import Chance
from levers9.model.resources import Shape
from levers9.model.states import ContainerState, End, TaskState, WorkerState
from levers9.store import operations as ops
from levers9.store.memory import MemoryStore
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling, work
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message, Send
from levers9.wire.operating import TermsChanged
from levers9.wire.post import Post

Run = Callable[..., Awaitable[None]]


class House:
    """A store that an epoch leads, a post, and mailboxes for everybody who is not tried."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.post = Post(chance=Chance(1))
        self.mailboxes: dict[str, Mailbox] = {}
        self.around = Surroundings(post=self.post, store=self.store, epoch=1, clock=trio.current_time)
        self.new_id = numbered()
        for address in ("tasks", "scheduler", "guard", "pool/p", "client/me", "worker/one"):
            self.mailboxes[address] = Mailbox(address)
            self.post.register(address, self.mailboxes[address])

    async def lead(self) -> None:
        await self.store.apply(ops.TakeLeadership(holder="h", url="", now_s=trio.current_time()))

    def say(self, target: str, message: Message, source: str) -> None:
        letter = Letter(message, source=source, target=target, workspace="w", id="q")
        self.mailboxes[target].post_nowait(letter)

    def heard(self, address: str) -> list[Message]:
        return [letter.message for letter in self.mailboxes[address].take_ready()]

    @asynccontextmanager
    async def running(self, run: Run, address: str) -> AsyncIterator[None]:
        await self.lead()
        async with trio.open_nursery() as nursery:
            await nursery.start(run, self.mailboxes[address])
            yield
            nursery.cancel_scope.cancel()

    def tasks(self) -> TasksActor:
        return TasksActor(self.around, self.new_id)

    async def submit(self, *task_ids: str, nodes: int = 1) -> None:
        self.say("tasks", client.RegisterStub(spec=spec_of(nodes=nodes)), "client/me")
        await trio.sleep(0.1)
        (registered,) = (message for message in self.heard("client/me") if isinstance(message, client.StubRegistered))
        tasks = tuple(client.NewTask(task_id, ARGUMENTS) for task_id in task_ids)
        self.say("tasks", client.SubmitTasks(stub_id=registered.stub_id, tasks=tasks), "client/me")

    async def move(self, container_id: str, state: ContainerState, worker_id: str) -> None:
        every = tuple(ContainerState)
        move = ops.ContainerMove(container_id=container_id, sources=every, state=state, worker_id=worker_id)
        await self.store.apply(ops.MoveContainers(moves=(move,), now_s=trio.current_time()), epoch=1)

    async def keep_ends(self) -> list[str]:
        """As the scheduler does: commit that workers are gone, and say so; their identities."""
        gone = [m.worker_id for m in self.heard("scheduler") if isinstance(m, scheduling.WorkerGone)]
        moves = tuple(ops.WorkerMove(worker_id=one, sources=(), state=WorkerState.GONE) for one in gone)
        await self.store.apply(ops.MoveWorkers(moves=moves, now_s=trio.current_time()), epoch=1)
        for worker_id in gone:
            self.say("pool/p", scheduling.WorkerForgotten(worker_id=worker_id), "scheduler")
        await trio.sleep(1.0)
        return gone

    async def state(self, task_id: str) -> TaskState:
        (rows,) = await self.store.apply(ops.ReadTasks(task_ids=(task_id,)))
        (row,) = rows_of(rows, ops.TaskRow)
        return row.state


async def test_what_came_in_is_committed_then_answered(autojump_clock: MockClock) -> None:
    house = House()
    async with house.running(house.tasks().run, "tasks"):
        await house.submit("a")
        await trio.sleep(1.0)
        assert await house.state("a") is TaskState.PENDING
        assert client.TasksAccepted(task_ids=("a",)) in house.heard("client/me")
        (request,) = (m for m in house.heard("scheduler") if isinstance(m, scheduling.RequestContainers))
        assert len(request.container_ids) == 1


@pytest.mark.parametrize(("before", "error"), [(True, StoreUnavailable), (False, OutcomeUnknown)])
async def test_a_commit_that_fails_ends_the_actor_and_nothing_is_sent(
    autojump_clock: MockClock, before: bool, error: type[Exception]
) -> None:
    house = House()
    with pytest.RaisesGroup(error, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await house.lead()
            await nursery.start(house.tasks().run, house.mailboxes["tasks"])
            await house.submit("a")
            house.store.fail_next(before=before)
            await trio.sleep(5.0)
    assert house.heard("client/me") == []
    assert house.heard("scheduler") == []


async def test_the_next_life_reads_the_truth(autojump_clock: MockClock) -> None:
    house = House()
    with pytest.RaisesGroup(OutcomeUnknown, flatten_subgroups=True, allow_unwrapped=True):
        async with house.running(house.tasks().run, "tasks"):
            await house.submit("a")
            house.store.fail_next(before=False)
            await trio.sleep(5.0)
    async with house.running(house.tasks().run, "tasks"):
        (rows,) = await house.store.apply(ops.LoadContainers())
        (row,) = rows_of(rows, ops.ContainerRow)
        available = scheduling.ContainerAvailable(
            container_id=row.container_id, stub_id=row.stub_id, worker_id="one", window=1
        )
        house.say("tasks", available, "scheduler")
        await trio.sleep(1.0)
        assert await house.state("a") is TaskState.RUNNING
        (run,) = house.heard("worker/one")
        assert isinstance(run, work.RunAttempts)


async def test_the_next_life_finds_a_gang_whose_rank_0_ended_meanwhile(autojump_clock: MockClock) -> None:
    house = House()
    async with house.running(house.tasks().run, "tasks"):
        await house.submit("a", nodes=2)
        await trio.sleep(1.0)
        (request,) = (m for m in house.heard("scheduler") if isinstance(m, scheduling.RequestContainers))
        first, second = request.container_ids
        for container_id in request.container_ids:
            await house.move(container_id, ContainerState.READY, "one")
            available = scheduling.ContainerAvailable(
                container_id=container_id, stub_id=request.stub_id, worker_id="one", window=1, address="host:1"
            )
            house.say("tasks", available, "scheduler")
        await trio.sleep(1.0)
        assert await house.state("a") is TaskState.RUNNING
    await house.move(first, ContainerState.ENDED, "one")
    house.heard("scheduler")
    async with house.running(house.tasks().run, "tasks"):
        await trio.sleep(1.0)
        assert await house.state("a") is TaskState.RUNNING, "its other rank still runs"
        (release,) = (m for m in house.heard("scheduler") if isinstance(m, scheduling.ReleaseContainers))
        assert release.container_ids == (second,)
        gone = scheduling.ContainerGone(container_id=second, stub_id=request.stub_id, end=End.CANCELLED)
        house.say("tasks", gone, "scheduler")
        await trio.sleep(1.0)
        assert await house.state("a") is TaskState.RETRY


async def test_an_actor_of_an_older_epoch_changes_nothing(autojump_clock: MockClock) -> None:
    house = House()
    with pytest.RaisesGroup(EpochSuperseded, flatten_subgroups=True, allow_unwrapped=True):
        async with house.running(house.tasks().run, "tasks"):
            await house.submit("a")
            await house.store.apply(ops.ResignLeadership(epoch=1))
            await trio.sleep(5.0)
    (rows,) = await house.store.apply(ops.ReadTasks(task_ids=("a",)))
    assert rows == ()


async def test_many_unfinished_calls_are_loaded_in_pages(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_actor, "LOAD_PAGE", 2)
    house = House()
    async with house.running(house.tasks().run, "tasks"):
        await house.submit(*"abcde")
        await trio.sleep(1.0)
    house.heard("client/me")
    async with house.running(house.tasks().run, "tasks"):
        house.say("tasks", client.CancelTasks(task_ids=tuple("abcde")), "client/me")
        await trio.sleep(1.0)
        (accepted,) = (m for m in house.heard("client/me") if isinstance(m, client.CancelAccepted))
        assert {standing.state for standing in accepted.standings} == {TaskState.CANCELLED}


async def test_old_results_are_pruned_and_pools_are_looked_at(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_actor, "KEPT_UNREAD_S", 10.0)
    house = House()
    async with house.running(house.tasks().run, "tasks"):
        await house.submit("a")
        await trio.sleep(1.0)
        house.say("tasks", client.CancelTasks(task_ids=("a",)), "client/me")
        await house.store.apply(ops.PutPool(pool="p", largest=SIZE))
        await trio.sleep(130.0)
        (rows,) = await house.store.apply(ops.ReadTasks(task_ids=("a",)))
        assert rows == ()
        house.heard("client/me")
        house.say("tasks", client.RegisterStub(spec=spec_of("large", shape=_large())), "client/me")
        await trio.sleep(1.0)
        (refused,) = house.heard("client/me")
        assert isinstance(refused, client.RequestRefused)


def _large() -> client.Shape:
    return client.Shape(cpu_milli=10**6, memory_mib=1)


async def test_tasks_judges_by_a_pool_that_came_a_moment_ago(autojump_clock: MockClock) -> None:
    house = House()
    async with house.running(house.tasks().run, "tasks"):
        await trio.sleep(0.1)
        await house.store.apply(ops.PutPool(pool="p", largest=SIZE), epoch=1)
        house.say("tasks", TermsChanged(), "pool/p")
        await trio.sleep(0.1)
        house.say(
            "tasks", client.RegisterStub(spec=spec_of(shape=Shape(cpu_milli=1, memory_mib=1, pool="q"))), "client/me"
        )
        await trio.sleep(0.1)
        (refused,) = house.heard("client/me")
        assert isinstance(refused, client.RequestRefused)
        assert "Pools you may use: p." in refused.failure.why + refused.failure.fix


async def test_the_scheduler_places_what_it_loads(autojump_clock: MockClock) -> None:
    house = House()
    pool = scheduling.PoolDeclared(pool="p", size=SIZE)
    scheduler = SchedulerActor(house.around, house.new_id, numbered_tokens(), (pool,))
    async with house.running(house.tasks().run, "tasks"):
        await house.submit("a")
        await trio.sleep(0.5)
    house.heard("scheduler")
    async with house.running(scheduler.run, "scheduler"):
        await trio.sleep(0.5)
        wanted = [m for m in house.heard("pool/p") if isinstance(m, scheduling.RoomWanted)]
        assert len(wanted[-1].shapes) == 1


class Processes:
    """Workers that run until they are told to end."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.adopted: list[str] = []
        self.dies = trio.Event()

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        self.started.append(order.worker_id)
        tell(scheduling.WorkerStarted(worker_id=order.worker_id, handle="h", at_s=0.0))
        await self.dies.wait()
        self.dies = trio.Event()
        tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence="it exited with 1"))

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        self.adopted.append(order.worker_id)

    async def end(self, order: EndWorker) -> None:
        self.dies.set()

    async def stop_all(self) -> None:
        self.dies.set()


async def test_a_pool_starts_what_it_ordered_and_adopts_it_in_the_next_reign(autojump_clock: MockClock) -> None:
    house = House()
    processes = Processes()
    settings = PoolSettings(name="p", worker=SIZE, min_workers=1)
    pool = PoolActor(house.around, settings, processes, house.new_id, numbered_tokens())
    assert pool.address == "pool/p"
    guard = GuardActor(house.around, GuardSettings())
    async with house.running(guard.run, "guard"), house.running(pool.run, "pool/p"):
        await trio.sleep(1.0)
        (worker_id,) = processes.started
        (rows,) = await house.store.apply(ops.LoadWorkers())
        assert [row.handle for row in rows_of(rows, ops.WorkerRow)] == ["h"]
        processes.dies.set()
        await trio.sleep(1.0)
        assert await house.keep_ends() == [worker_id]
        assert len(processes.started) == 2
    async with house.running(guard.run, "guard"), house.running(pool.run, "pool/p"):
        await trio.sleep(1.0)
        assert processes.adopted == processes.started[1:]


async def test_a_pool_ends_a_worker_that_never_reports(autojump_clock: MockClock) -> None:
    house = House()
    processes = Processes()
    settings = PoolSettings(name="p", worker=SIZE, min_workers=1)
    pool = PoolActor(house.around, settings, processes, house.new_id, numbered_tokens())
    guard = GuardActor(house.around, GuardSettings())
    async with house.running(guard.run, "guard"), house.running(pool.run, "pool/p"):
        await trio.sleep(WORKER_START_LIMIT_S - 1.0)
        assert len(processes.started) == 1
        await trio.sleep(2.0)
        assert await house.keep_ends() == processes.started[:1]
        assert len(processes.started) == 2


class Sliced:
    """A policy with three plans to make, which writes down what it was asked."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.diary: list[str] = []
        self.left = 3
        self._mailbox = mailbox

    def handle(self, letter: Letter, now_s: float) -> None:
        self.diary.append("letter")

    def tick(self, now_s: float) -> None:
        pass

    def plan(self, now_s: float) -> GroupPlan | None:
        if not self.left:
            return None
        self.left -= 1
        self.diary.append("plan")
        return GroupPlan(operations=[], sends=[])

    def settle(self, plan: GroupPlan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        if self.left == 2:
            self._mailbox.post_nowait(Letter(client.WatchTasks(task_ids=("a",)), source="client/me", target="x"))
        return []


async def test_letters_are_taken_between_the_slices_of_a_long_plan(autojump_clock: MockClock) -> None:
    house, mailbox = House(), Mailbox("x")
    policy = Sliced(mailbox)
    with trio.move_on_after(0.1):
        await decide_commit_send(policy, mailbox, house.around, "x")
    assert policy.diary == ["plan", "letter", "plan", "plan"]


async def test_commits_and_their_time_are_counted_also_when_they_fail(autojump_clock: MockClock) -> None:
    house = House()
    with pytest.RaisesGroup(StoreUnavailable, flatten_subgroups=True, allow_unwrapped=True):
        async with house.running(house.tasks().run, "tasks"):
            await house.submit("a")
            await trio.sleep(1.0)
            before = house.around.counts.commits
            house.store.fail_next()
            await house.submit("b")
            await trio.sleep(1.0)
    assert before > 0
    assert house.around.counts.commits == before + 1
    assert house.around.counts.tasks_accepted == 1
