"""A whole brain and its pools, on workers that exist only as messages: created, ordered, drained, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import msgspec
import pytest
import trio
from trio.testing import MockClock

from levers9.daemons.brain import Brain
from levers9.daemons.orders import BrainOrders
from levers9.daemons.pools import machines_of
from levers9.daemons.settings import GuardTable, NodeTable, PoolTable, Settings
from levers9.model.ids import Chance
from levers9.model.resources import Shape
from levers9.model.states import TaskState, TokenKind, WorkerState
from levers9.model.tokens import SECRET_BYTES, make_token
from levers9.store import operations as ops
from levers9.store.memory import MemoryStore
from levers9.store.operations import rows_of
from levers9.wire import operating
from levers9.wire.carrier import Carrier
from levers9.wire.client import (
    NewTask,
    RegisterStub,
    RequestRefused,
    StubRegistered,
    StubSpec,
    SubmitTasks,
    TasksAccepted,
    TasksFinished,
)
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message, Payload

WITHIN_S = 60.0


async def nobody_comes(
    url: str, handler: Callable[[Carrier], Awaitable[None]], *, task_status: trio.TaskStatus[None]
) -> None:
    task_status.started()
    await trio.sleep_forever()


def table(name: str, **keys: object) -> PoolTable:
    given = {"name": name, "kind": "replay", "isolation": "trusted", "cpu": 1.0, "memory": 512, **keys}
    return msgspec.convert(given, PoolTable)


class Plane:
    """A brain over a store, and somebody who asks it."""

    def __init__(self, store: MemoryStore, *pools: PoolTable, guard: GuardTable | None = None) -> None:
        chance = Chance(3)
        orders = BrainOrders(
            settings=Settings(run_dir="/run/nowhere", pools=pools, provisioning_guard=guard or GuardTable()),
            root_pid=1,
            worker_urls=(),
            worker_http_url="",
            replica_id="replica-0",
            replica_token=make_token(TokenKind.REPLICA, chance.secret(SECRET_BYTES)),
            admin_token=make_token(TokenKind.CLUSTER_ADMIN, chance.secret(SECRET_BYTES)),
        )
        self.store = store
        self.brain = Brain(
            orders=orders,
            store=store,
            chance=chance,
            clock=trio.current_time,
            machines=machines_of(orders, trio.current_time),
            listen=nobody_comes,
        )
        self._mailbox = Mailbox("gateway/g")
        self.brain.post.register("gateway/g", self._mailbox)
        self._numbers = count(1)

    @asynccontextmanager
    async def reigning(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.brain.run)
            await trio.sleep(8.0)  # an earlier leader's lease has run out
            yield
            nursery.cancel_scope.cancel()

    async def tell(self, message: Message, target: str = "") -> None:
        number = f"letter-{next(self._numbers)}"
        target = target or message.receiver
        await self.brain.post.send(
            Letter(message, "gateway/g", target, workspace="w", kind=TokenKind.CLUSTER_ADMIN, id=number)
        )

    async def heard(self, kind: type[Message]) -> Message:
        with trio.fail_after(WITHIN_S):
            while True:
                message = (await self._mailbox.take()).message
                if isinstance(message, kind):
                    return message

    async def ask(self, message: Message, kind: type[Message]) -> Message:
        await self.tell(message)
        return await self.heard(kind)

    async def workers(self, pool: str) -> dict[str, WorkerState]:
        (rows,) = await self.store.apply(ops.LoadWorkers())
        return {row.worker_id: row.state for row in rows_of(rows, ops.WorkerRow) if row.pool == pool}

    async def until(self, true: Callable[[], Awaitable[bool]]) -> None:
        with trio.fail_after(WITHIN_S):
            while not await true():  # noqa: ASYNC110 - the store tells nobody
                await trio.sleep(0.5)

    async def available(self, pool: str, wanted: int) -> None:
        async def enough() -> bool:
            return list((await self.workers(pool)).values()) == [WorkerState.AVAILABLE] * wanted

        await self.until(enough)

    def paths(self) -> list[str]:
        return [child.path.removeprefix("brain/leader/reign/") for child in self.brain.standing().children]

    async def pool(self, name: str) -> operating.PoolStanding:
        await trio.sleep(2.0)
        stand = await self.ask(operating.ReadPools(), operating.PoolsStand)
        assert isinstance(stand, operating.PoolsStand)
        return next(one for one in stand.pools if one.name == name)


async def test_warm_workers_come_on_the_nodes_of_their_pool(autojump_clock: MockClock) -> None:
    nodes = (
        NodeTable(name="n1", gpu="A100", gpu_count=2),
        NodeTable(name="n2"),
        NodeTable(name="n3", state="cordoned"),
    )
    plane = Plane(MemoryStore(), table("p", nodes=nodes, min_workers=2))
    async with plane.reigning():
        await plane.available("p", 2)
        standing = await plane.pool("p")
    assert [(node.name, bool(node.worker_id)) for node in standing.nodes] == [("n1", True), ("n2", True), ("n3", False)]
    assert (standing.workers, standing.pending, standing.holds) == (2, 0, ())


SPEC = StubSpec(
    app="a",
    name="f",
    kind="job",
    handler="m:f",
    code_key="",
    python="3.11",
    shape=Shape(cpu_milli=1000, memory_mib=512),
    timeout_s=60.0,
    retries=0,
    keep_warm_s=30.0,
)


async def submit(plane: Plane, count: int) -> tuple[NewTask, ...]:
    registered = await plane.ask(RegisterStub(spec=SPEC), StubRegistered)
    assert isinstance(registered, StubRegistered)
    tasks = tuple(NewTask(f"task-{number}", Payload("msgpack", b"\x92\x90\x80")) for number in range(count))
    await plane.ask(SubmitTasks(stub_id=registered.stub_id, tasks=tasks), TasksAccepted)
    return tasks


@pytest.mark.slow
async def test_calls_run_on_workers_that_are_only_messages(autojump_clock: MockClock) -> None:
    plane = Plane(MemoryStore(), table("p", max_workers=3))
    async with plane.reigning():
        tasks = await submit(plane, 20)
        ended: dict[str, TaskState] = {}
        while len(ended) < len(tasks):
            finished = await plane.heard(TasksFinished)
            assert isinstance(finished, TasksFinished)
            ended.update({result.task_id: result.state for result in finished.results})
    assert set(ended.values()) == {TaskState.COMPLETE}
    assert 1 <= len(await plane.workers("p")) <= 3


@pytest.mark.slow
async def test_so_much_is_kept_free_before_anybody_asks_and_nothing_else(autojump_clock: MockClock) -> None:
    keeping = table("p", max_workers=9, min_free_cpu=2.0, idle_s=5.0)
    plane = Plane(MemoryStore(), keeping, table("q", max_workers=9, idle_s=5.0, min_workers=0))
    async with plane.reigning():
        await plane.available("p", 2)
        await submit(plane, 1)
        await plane.available("p", 3)  # a warm container has taken one of them
        await trio.sleep(60.0)
        await plane.available("p", 2)


@pytest.mark.slow
async def test_the_guard_holds_a_pool_and_lets_the_rest_go_later(autojump_clock: MockClock) -> None:
    plane = Plane(MemoryStore(), table("p", max_workers=9, min_workers=5), guard=GuardTable(pending=-1, per_minute=3))
    async with plane.reigning():
        await plane.available("p", 3)
        standing = await plane.pool("p")
        assert standing.holds == (
            "the provisioning guard holds it: 3 workers were added within a minute, and the limit is 3.",
        )
        await trio.sleep(60.0)
        await plane.available("p", 5)


async def test_a_pool_is_created_and_deleted_while_the_platform_runs(autojump_clock: MockClock) -> None:
    plane = Plane(MemoryStore(), table("p"))
    async with plane.reigning():
        spec = operating.PoolSpec(
            name="new", table=msgspec.json.encode(table("new", min_workers=2, max_workers=2)).decode()
        )
        stand = await plane.ask(operating.CreatePool(spec=spec), operating.PoolsStand)
        assert isinstance(stand, operating.PoolsStand)
        assert stand.names == ("p", "new")
        await plane.available("new", 2)
        assert "pool/new" in plane.paths()
        await plane.ask(operating.DeletePool(name="new"), operating.PoolsStand)

        async def gone() -> bool:
            return not await plane.workers("new") and "pool/new" not in plane.paths()

        await plane.until(gone)
        (specs,) = await plane.store.apply(ops.ListPoolSpecs())
        reign = [child for child in plane.brain.standing().children if child.path == "brain/leader/reign"]
    assert (specs, reign[0].restarts) == ((), 0)


async def test_a_pool_that_takes_the_name_of_a_deleted_one_does_not_serve_its_workspace_alone(
    autojump_clock: MockClock,
) -> None:
    plane = Plane(MemoryStore(), table("p", isolation="none"))

    async def put(**keys: object) -> Message:
        spec = operating.PoolSpec(name="new", table=msgspec.json.encode(table("new", **keys)).decode())
        return await plane.ask(operating.CreatePool(spec=spec), operating.PoolsStand)

    async def gone() -> bool:
        return "pool/new" not in plane.paths()

    async with plane.reigning():
        await put(isolation="none")
        await plane.ask(operating.DeletePool(name="new"), operating.PoolsStand)
        await plane.until(gone)
        await put()
        await trio.sleep(10.0)
        assert isinstance(await plane.ask(RegisterStub(spec=SPEC), StubRegistered), StubRegistered)


async def test_a_created_pool_outlives_its_leader_and_workers_that_do_not_are_replaced(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    first = Plane(store, table("p", min_workers=1))
    async with first.reigning():
        spec = operating.PoolSpec(name="new", table=msgspec.json.encode(table("new", min_workers=1)).decode())
        await first.ask(operating.CreatePool(spec=spec), operating.PoolsStand)
        await first.available("new", 1)
    before = {**await first.workers("p"), **await first.workers("new")}
    second = Plane(store, table("p", min_workers=1))
    async with second.reigning():
        await second.available("p", 1)
        await second.available("new", 1)
        after = {**await second.workers("p"), **await second.workers("new")}
    assert not before.keys() & after.keys()


async def test_workers_are_cordoned_and_drained(autojump_clock: MockClock) -> None:
    plane = Plane(MemoryStore(), table("p", min_workers=1))
    async with plane.reigning():
        await plane.available("p", 1)
        (worker_id,) = await plane.workers("p")
        wish = operating.TellWorkers(worker_ids=(worker_id,), wish=operating.WorkerWish.CORDON)
        told = await plane.ask(wish, operating.WorkersTold)
        assert told == operating.WorkersTold(states=((worker_id, "cordoned"),))
        await plane.tell(msgspec.structs.replace(wish, wish=operating.WorkerWish.DRAIN))

        async def replaced() -> bool:
            return worker_id not in await plane.workers("p")

        await plane.until(replaced)
        await plane.available("p", 1)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"name": "new", "cpus": 2}, "Object contains unknown field `cpus`"),
        ({"name": "other"}, "The pool is named 'new' and 'other'."),
        ({"name": "new", "cpu": -1}, "Pool 'new': cpu: cpu=-1.0 is not a quantity."),
        ({"name": "new", "nodes": [{"name": "n1"}]}, "node 'n1' is in pool 'p' already"),
    ],
)
async def test_a_pool_that_cannot_be_is_refused_in_words(
    autojump_clock: MockClock, keys: dict[str, object], said: str
) -> None:
    plane = Plane(MemoryStore(), table("p", nodes=(NodeTable(name="n1"),)))
    async with plane.reigning():
        spec = operating.PoolSpec(name="new", table=msgspec.json.encode(keys).decode())
        refused = await plane.ask(operating.CreatePool(spec=spec), RequestRefused)
    assert isinstance(refused, RequestRefused)
    assert said in refused.failure.what


async def test_a_node_of_one_created_pool_is_free_again_once_that_pool_is_gone(autojump_clock: MockClock) -> None:
    plane = Plane(MemoryStore())

    def creation(name: str) -> operating.CreatePool:
        keys = msgspec.json.encode(table(name, nodes=(NodeTable(name="n1"),)))
        return operating.CreatePool(spec=operating.PoolSpec(name=name, table=keys.decode()))

    async def gone() -> bool:
        return "pool/first" not in plane.paths()

    async with plane.reigning():
        await plane.ask(creation("first"), operating.PoolsStand)
        refused = await plane.ask(creation("second"), RequestRefused)
        assert isinstance(refused, RequestRefused)
        assert "node 'n1' is in pool 'first' already" in refused.failure.what
        await plane.ask(operating.DeletePool(name="first"), operating.PoolsStand)
        await plane.until(gone)
        stand = await plane.ask(creation("second"), operating.PoolsStand)
    assert isinstance(stand, operating.PoolsStand)
    assert stand.names == ("second",)
