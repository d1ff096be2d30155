"""The scheduler's actor on a Postgres that commits with fsync; `tasks`, the pool and its workers are played.

What is real: every row of a container (requested, placed, ready, ended), its token, the journal, the messages in the
order of the product, each sent once its commit has returned. What is played: a container does nothing for as long as it
is said to run, and messages do not leave the process.
"""

import heapq
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from levers9.actors.committing import Surroundings
from levers9.actors.scheduler.actor import ADDRESS, SchedulerActor
from levers9.actors.scheduler.events import Event, NodeSet, QueueingSet, Request
from levers9.actors.scheduler.journal import Header
from levers9.actors.scheduler.journal_files import JournalWriter
from levers9.actors.scheduler.simulation import Job, Outcome
from levers9.model.ids import Chance
from levers9.model.queues import Queueing
from levers9.model.states import ContainerState, End, TokenKind, WorkerState
from levers9.model.tokens import SECRET_BYTES, make_token
from levers9.store import operations as ops
from levers9.store.embedded import run_embedded_postgres
from levers9.store.face import Store
from levers9.store.postgres import open_postgres
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.post import Post
from levers9.wire.scheduling import (
    ContainerEnded,
    ContainerGone,
    ContainerReady,
    PoolDeclared,
    RequestContainers,
    StartContainer,
    StopContainer,
    WorkerAccepted,
    WorkerReported,
)

GROUPED_S: Final = 0.01  # who comes within this time is asked for with one commit, as `tasks` groups its callers
ROWS_AT_ONCE: Final = 2_000
LETTERS_MAX: Final = 1_000_000  # the world's mailbox is never the one that is full


class Played(msgspec.Struct, kw_only=True):
    """A job in the world: what it is, which try of it runs, and its containers that have not ended."""

    outcome: Outcome
    stub_id: str
    left: dict[str, None] = msgspec.field(default_factory=dict)


class World:
    """Everything around the scheduler. `outcomes` are in the order in which jobs were handed in."""

    def __init__(self, store: Store, post: Post, opening: Iterable[Event]) -> None:
        self._store = store
        self._post = post
        self._nodes = [event for event in opening if isinstance(event, NodeSet)]
        self._mailbox = Mailbox("world", LETTERS_MAX, local_slots=LETTERS_MAX)
        self._jobs: dict[str, Played] = {}  # by container
        self._ends: list[tuple[float, str, str]] = []  # when, the container, its worker
        self._bell = trio.Event()
        self._reported = 0
        self.settled = trio.Event()  # all workers' reports are committed
        self._left = self._unstarted = 0
        self.outcomes: list[Outcome] = []
        self.done = trio.Event()
        self.all_started = trio.Event()
        self.began_s = 0.0
        self.ended_at_s = 0.0

    # Before

    async def settle(self) -> None:
        """Rows of all workers, as if the pool had ordered them."""
        rows = [_worker_row(node) for node in self._nodes]
        await self._store.apply(ops.PutWorkers(workers=tuple(rows)))
        for address in ("tasks", *{f"pool/{node.pool}" for node in self._nodes}):
            self._post.register(address, self._mailbox)
        for node in self._nodes:
            self._post.register(f"worker/{node.node_id}", self._mailbox)

    async def report(self) -> None:
        """All workers report."""
        for node in self._nodes:
            message = WorkerReported(
                worker_id=node.node_id, pool=node.pool, epoch=1, capacity=node.capacity, containers=()
            )
            await self._say(node.node_id, message)

    async def put_stubs(self, jobs: Iterable[Job]) -> None:
        """Make the functions known whose containers are asked for, one for each group of equal requests."""
        stubs = {job.request.group: _stub_row(job.request) for job in jobs}
        puts = [ops.PutStub(stub=row) for row in stubs.values()]
        for start in range(0, len(puts), ROWS_AT_ONCE):
            await self._store.apply(*puts[start : start + ROWS_AT_ONCE])

    # The run

    async def submit(self, jobs: Iterable[Job]) -> None:
        """Ask for room for each job at its time, once its rows are committed."""
        waiting = sorted(jobs, key=lambda job: job.at_s)[::-1]
        self._left = self._unstarted = len(waiting)
        self.began_s = trio.current_time()
        while waiting:
            now_s = trio.current_time() - self.began_s
            batch: list[Job] = []
            while waiting and waiting[-1].at_s <= now_s + GROUPED_S and len(batch) < ROWS_AT_ONCE:
                batch.append(waiting.pop())
            await self._ask([self._hand_in(job) for job in batch])
            if waiting:
                await trio.sleep_until(self.began_s + waiting[-1].at_s - GROUPED_S / 2)

    def _hand_in(self, job: Job) -> Played:
        outcome = Outcome(job=job)
        self.outcomes.append(outcome)
        return Played(outcome=outcome, stub_id=job.request.group)

    async def _ask(self, played: list[Played]) -> None:
        rows = [row for one in played for row in self._rows(one)]
        if not rows:
            return
        await self._store.apply(ops.PutContainers(containers=tuple(rows)))
        singles: dict[str, list[str]] = {}
        for one in played:
            if len(one.left) == 1:
                singles.setdefault(one.stub_id, []).extend(one.left)
            else:
                await self._request(one, tuple(one.left), f"g-{next(iter(one.left))}")
        for container_ids in singles.values():
            await self._request(self._jobs[container_ids[0]], tuple(container_ids), "")

    async def _request(self, one: Played, container_ids: tuple[str, ...], gang_id: str) -> None:
        request = one.outcome.job.request
        message = RequestContainers(
            stub_id=one.stub_id,
            workspace_id=request.workspace,
            spec=_spec(request),
            container_ids=container_ids,
            gang_id=gang_id,
        )
        await self._post.deliver(Letter(message, source="tasks", target=ADDRESS))

    def _rows(self, one: Played) -> list[ops.ContainerRow]:
        request, tries = one.outcome.job.request, one.outcome.preemptions
        names = [f"{member}~{tries}" if tries else member for member in request.members]
        one.left = dict.fromkeys(names)
        self._jobs.update(dict.fromkeys(names, one))
        return [
            ops.ContainerRow(
                container_id=name,
                stub_id=one.stub_id,
                workspace_id=request.workspace,
                state=ContainerState.REQUESTED,
                requested_at_s=time.time(),
                gang_id=f"g-{names[0]}" if request.gang else "",
                rank=rank,
            )
            for rank, name in enumerate(names)
        ]

    async def hear(self) -> None:
        """Take what the scheduler says, as its workers and `tasks`, until cancelled."""
        while True:
            again: list[Played] = []
            for letter in await self._mailbox.take_batch():
                match letter.message:
                    case StartContainer(container_id=container_id):
                        await self._start(container_id, letter.target.partition("/")[2])
                    case StopContainer(container_id=container_id):
                        heapq.heappush(self._ends, (0.0, container_id, letter.target.partition("/")[2]))
                        self._bell.set()
                    case ContainerGone(container_id=container_id, preempted=preempted):
                        again += self._gone(container_id, preempted)
                    case WorkerAccepted():
                        self._reported += 1
                        if self._reported == len(self._nodes):
                            self.settled.set()
            await self._ask(again)

    async def _start(self, container_id: str, worker_id: str) -> None:
        one, now_s = self._jobs[container_id], trio.current_time()
        if one.outcome.admitted_at_s < 0:
            one.outcome.admitted_at_s = now_s - self.began_s
            self._unstarted -= 1
            if not self._unstarted:
                self.all_started.set()
        heapq.heappush(self._ends, (now_s + one.outcome.job.run_s, container_id, worker_id))
        self._bell.set()
        await self._say(worker_id, ContainerReady(container_id=container_id, window=1))

    def _gone(self, container_id: str, preempted: bool) -> list[Played]:
        """The end of a container is committed; the last one ends its job, or has it come again."""
        one = self._jobs.pop(container_id, None)
        if one is None:
            return []
        one.left.pop(container_id, None)
        if one.left:
            return []
        if preempted:
            one.outcome.preemptions += 1
            return [one]
        one.outcome.ended_at_s = self.ended_at_s = trio.current_time() - self.began_s
        self._left -= 1
        if not self._left:
            self.done.set()
        return []

    async def end(self) -> None:
        """End containers at their times, until cancelled."""
        while True:
            self._bell = trio.Event()
            while self._ends and self._ends[0][0] <= trio.current_time():
                _, container_id, worker_id = heapq.heappop(self._ends)
                await self._say(worker_id, ContainerEnded(container_id=container_id, end=End.OK))
            with trio.move_on_at(self._ends[0][0] if self._ends else float("inf")):
                await self._bell.wait()

    async def _say(self, worker_id: str, message: Message) -> None:
        await self._post.deliver(Letter(message, source=f"worker/{worker_id}", target=ADDRESS))


def _worker_row(node: NodeSet) -> ops.WorkerRow:
    return ops.WorkerRow(
        worker_id=node.node_id,
        pool=node.pool,
        state=WorkerState.ORDERED,
        capacity=node.capacity,
        traits=node.traits,
        ordered_at_s=time.time(),
    )


def _spec(request: Request) -> StubSpec:
    return StubSpec(
        app="bench",
        name=request.group,
        kind="job",
        handler="bench:nothing",
        code_key="",
        python="3.11",
        shape=request.shape,
        timeout_s=3600.0,
        retries=0,
        nodes=len(request.members),
        together=request.together,
        queue=request.queue,
        priority=request.priority,
    )


def _stub_row(request: Request) -> ops.StubRow:
    return ops.StubRow(
        stub_id=request.group, workspace_id=request.workspace, spec=_spec(request), created_at_s=time.time()
    )


@asynccontextmanager
async def open_world(opening: tuple[Event, ...], *, reported: bool = True) -> AsyncIterator[World]:
    """A scheduler that leads and whose workers have all reported, unless they are yet to."""
    chance = Chance()
    with tempfile.TemporaryDirectory(prefix="levers9-bench-") as folder:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(run_embedded_postgres, Path(folder, "data"), Path(folder, "run"))
            async with open_postgres(server.url) as store:
                post = Post(chance=chance)
                world = World(store, post, opening)
                await world.settle()
                scheduler = await _scheduler(store, post, chance, opening, Path(folder, "journal"))
                mailbox = Mailbox(ADDRESS)
                post.register(ADDRESS, mailbox)
                nursery.start_soon(world.hear)
                nursery.start_soon(world.end)
                await nursery.start(scheduler.run, mailbox)
                if reported:
                    await world.report()
                    await world.settled.wait()
                yield world
                nursery.cancel_scope.cancel(reason="the bench has ended")


async def _scheduler(
    store: Store, post: Post, chance: Chance, opening: tuple[Event, ...], journal: Path
) -> SchedulerActor:
    (leading,) = await store.apply(ops.TakeLeadership(holder="bench", url="", now_s=time.time()))
    assert isinstance(leading, ops.Leadership)
    around = Surroundings(post=post, store=store, epoch=leading.epoch, clock=time.time)
    queueing = next((event.queueing for event in opening if isinstance(event, QueueingSet)), Queueing())
    pools = dict.fromkeys(event.pool for event in opening if isinstance(event, NodeSet))
    declared = tuple(PoolDeclared(pool=pool, keep_workers=1_000_000) for pool in pools)

    def new_token(kind: TokenKind) -> str:
        return make_token(kind, chance.secret(SECRET_BYTES))

    writer = JournalWriter(journal, Header(0, epoch=leading.epoch))
    return SchedulerActor(around, chance.id, new_token, declared, queueing, writer)
