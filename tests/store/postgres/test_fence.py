"""Two holders of leadership: what the older one sends is there before the next epoch begins, or it is refused."""

import pytest
import trio
from levers9_test_servers import sql, until_locked

from levers9.errors import EpochSuperseded
from levers9.model.states import ContainerState, End, TaskState
from levers9.store.face import Store
from levers9.store.operations import (
    AcceptTasks,
    AttemptEnd,
    ContainerRow,
    EndAttempts,
    Leadership,
    Operation,
    PutContainers,
    ReadTasks,
    TakeLeadership,
    TaskRow,
    TaskToAccept,
)
from levers9.store.postgres import open_postgres
from levers9.wire.message import Payload

pytestmark = pytest.mark.slow

DEADLINE_S = 20
NEXT_EPOCH = "BEGIN; UPDATE leadership SET epoch = epoch + 1; SELECT pg_sleep(0.3); COMMIT"
NEXT_EPOCH_THAT_FAILS = NEXT_EPOCH.replace("COMMIT", "ROLLBACK")
RENEWAL = NEXT_EPOCH.replace("epoch = epoch + 1", "renewed_at_s = 2")
RENEWAL_THAT_FAILS = RENEWAL.replace("COMMIT", "ROLLBACK")
HOLD_CONTAINERS = "BEGIN; LOCK TABLE containers IN EXCLUSIVE MODE; SELECT pg_sleep(0.5); COMMIT"


def taking(holder: str, now_s: float) -> TakeLeadership:
    """Ask to lead; who asks saw the first epoch say nothing since it began."""
    return TakeLeadership(holder=holder, url="", now_s=now_s, silent_epoch=1, silent_since_s=1.0)


def accepting(*task_ids: str) -> AcceptTasks:
    arguments = Payload("msgpack", b"1", "", 1)
    tasks = [TaskToAccept(task_id=each, arguments=arguments, container_id="c", worker_id="w") for each in task_ids]
    return AcceptTasks(workspace_id="w", stub_id="s", tasks=tuple(tasks), now_s=1.0)


def ending(*task_ids: str) -> EndAttempts:
    ends = [AttemptEnd(task_id=each, attempt=1, state=TaskState.COMPLETE, end=End.OK) for each in task_ids]
    return EndAttempts(ends=tuple(ends), now_s=2.0)


async def states(store: Store) -> list[TaskState]:
    (rows,) = await store.apply(ReadTasks(task_ids=("task-1", "task-2", "task-3")))
    assert isinstance(rows, tuple)
    return [row.state for row in rows if isinstance(row, TaskRow)]


@pytest.mark.parametrize(
    "operations",
    [
        (accepting("task-2"),),
        (accepting("task-2", "task-3"),),
        (ending("task-1"),),
        (ending("task-1", "task-2"),),
        (accepting("task-2"), ending("task-1")),
        (ReadTasks(task_ids=()), ending("task-1")),
    ],
    ids=["accept one", "accept two", "end one", "end two", "a group", "a group that begins with a read"],
)
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "rolled back"])
async def test_a_write_that_meets_the_next_epoch_waits_and_then_is_refused_or_done(
    database_url: str, operations: tuple[Operation, ...], committed: bool
) -> None:
    heard: list[str] = []

    async def write() -> None:
        try:
            await store.apply(*operations, epoch=1)
            heard.append("done")
        except EpochSuperseded:
            heard.append("refused")

    with trio.fail_after(DEADLINE_S):
        async with open_postgres(database_url) as store:
            await store.apply(taking("a", 1.0), accepting("task-1"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sql, database_url, NEXT_EPOCH if committed else NEXT_EPOCH_THAT_FAILS)
                await until_locked(database_url, "leadership", "RowExclusiveLock")
                nursery.start_soon(write)
                await until_locked(database_url, "leadership", "RowShareLock")
            assert heard == ["refused" if committed else "done"]
            changed = (await states(store)) != [TaskState.RUNNING]
            assert changed is not committed


async def test_the_next_epoch_waits_for_a_transaction_of_the_one_before(database_url: str) -> None:
    """The short statement at its head locked the epoch for the whole transaction."""
    order: list[str] = []

    async def write() -> None:
        row = ContainerRow(container_id="c", stub_id="s", workspace_id="w", state=ContainerState.REQUESTED)
        await old.apply(accepting("task-1"), PutContainers(containers=(row,)), epoch=1)
        order.append("the old leader's write")

    async def take() -> None:
        (answer,) = await new.apply(taking("b", 100.0))
        assert isinstance(answer, Leadership)
        assert answer.epoch == 2
        assert await states(new) == [TaskState.RUNNING]
        order.append("the new leader's epoch")

    with trio.fail_after(DEADLINE_S):
        async with open_postgres(database_url) as old, open_postgres(database_url) as new:
            await old.apply(taking("a", 1.0))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sql, database_url, HOLD_CONTAINERS)
                await until_locked(database_url, "containers", "ExclusiveLock")
                nursery.start_soon(write)
                await until_locked(database_url, "containers", "RowExclusiveLock")
                nursery.start_soon(take)
            assert sorted(order) == ["the new leader's epoch", "the old leader's write"]
            with pytest.raises(EpochSuperseded):
                await old.apply(ending("task-1"), epoch=1)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "rolled back"])
async def test_who_asks_for_a_place_that_is_being_renewed_waits_and_is_told_of_the_renewal(
    database_url: str, committed: bool
) -> None:
    """The statement saw the renewal that it names; when the lock is let go, there may be a later one."""
    answers: list[object] = []

    async def take() -> None:
        answers.extend(await store.apply(taking("b", 100.0)))

    with trio.fail_after(DEADLINE_S):
        async with open_postgres(database_url) as store:
            await store.apply(taking("a", 1.0))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sql, database_url, RENEWAL if committed else RENEWAL_THAT_FAILS)
                await until_locked(database_url, "leadership", "RowExclusiveLock")
                nursery.start_soon(take)
            renewed = Leadership(epoch=1, holder="a", url="", renewed_at_s=2.0)
            taken = Leadership(epoch=2, holder="b", url="", renewed_at_s=100.0)
            assert answers == [renewed if committed else taken]


async def test_one_end_that_applies_to_nothing_is_no_supersession(database_url: str) -> None:
    async with open_postgres(database_url) as store:
        await store.apply(taking("a", 1.0))
        for operation, ids in (
            (accepting("task-1"), ("task-1",)),
            (accepting("task-1"), ()),
            (ending("task-1"), ("task-1",)),
            (ending("task-1"), ()),
            (ending("unknown"), ()),
        ):
            (answer,) = await store.apply(operation, epoch=1)
            assert getattr(answer, "ids", None) == ids
