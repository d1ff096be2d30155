"""What callers hear when Postgres goes away, and what is there when it comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from levers9_test_servers import RunningServer, sql, until_locked

from levers9.errors import INVALID, OutcomeUnknown, Refused, StoreUnavailable
from levers9.model.states import End, TaskState
from levers9.store.embedded import prepare_postgres
from levers9.store.face import Store
from levers9.store.operations import (
    AcceptTasks,
    AttemptEnd,
    CreateWorkspace,
    EndAttempts,
    ListWorkspaces,
    ReadTasks,
    TakeLeadership,
    TaskRow,
    TaskToAccept,
)
from levers9.store.postgres import open_postgres
from levers9.wire.message import Payload

pytestmark = pytest.mark.slow

TAKE = TakeLeadership(holder="a", url="", now_s=1.0)
KILL_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'levers9'"
LOCK_TASKS = "BEGIN; LOCK TABLE tasks IN EXCLUSIVE MODE; SELECT pg_sleep(0.5); COMMIT"


@pytest.fixture
def own_postgres(servers_folder: Path, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A Postgres that the test may kill."""
    folder = servers_folder / f"own{abs(hash(request.node.name)) % 10_000}"
    running = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    running.wait_until_ready()
    yield running
    running.kill()


def accepting(*task_ids: str) -> AcceptTasks:
    arguments = Payload("msgpack", b"1", "", 1)
    tasks = tuple(
        TaskToAccept(task_id=task_id, arguments=arguments, container_id="c", worker_id="w") for task_id in task_ids
    )
    return AcceptTasks(workspace_id="w", stub_id="s", tasks=tasks, now_s=1.0)


def creating(number: int) -> CreateWorkspace:
    return CreateWorkspace(workspace_id=f"workspace-{number}", name=f"{number}", now_s=1.0)


async def test_a_connection_cut_while_idle_is_replaced_and_nobody_notices(database_url: str) -> None:
    async with open_postgres(database_url) as store:
        await store.apply(creating(1))
        await store.apply(ListWorkspaces())
        await sql(database_url, KILL_OTHERS)
        await store.apply(creating(2))
        (rows,) = await store.apply(ListWorkspaces())
        assert isinstance(rows, tuple)
        assert len(rows) == 2
        assert store.statistics().failures == 0


@pytest.mark.parametrize("operations", [1, 2])
async def test_a_connection_cut_within_a_write_is_told_by_whether_it_may_have_happened(
    database_url: str, operations: int
) -> None:
    """One operation is its own commit; of two, the first is cut before COMMIT was sent."""
    async with open_postgres(database_url) as store:
        await store.apply(TAKE)
        heard: list[Exception] = []

        async def write() -> None:
            try:
                await store.apply(*[accepting(f"task-{n}") for n in range(operations)], epoch=1)
            except StoreUnavailable as error:
                heard.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sql, database_url, LOCK_TASKS)
            await until_locked(database_url, "tasks", "ExclusiveLock")
            nursery.start_soon(write)
            await until_locked(database_url, "tasks", "RowExclusiveLock")
            await sql(database_url, KILL_OTHERS)
        assert [type(error) for error in heard] == [OutcomeUnknown if operations == 1 else StoreUnavailable]
        assert await store.apply(ReadTasks(task_ids=("task-0", "task-1"))) == ((),)


async def test_what_the_store_cannot_hold_is_refused_and_the_others_of_the_group_are_served(database_url: str) -> None:
    async with open_postgres(database_url) as store:
        heard: dict[int, str] = {}

        async def write(number: int) -> None:
            name = "nul \0" if number == 7 else f"{number}"
            try:
                await store.apply(CreateWorkspace(workspace_id=f"workspace-{number}", name=name, now_s=1.0))
            except Refused as error:
                heard[number] = error.code

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(write, number)
        (rows,) = await store.apply(ListWorkspaces())
        assert isinstance(rows, tuple)
        assert (heard, len(rows)) == ({7: INVALID}, 19)


async def test_callers_wait_for_a_postgres_that_comes_back(own_postgres: RunningServer) -> None:
    async with open_postgres(own_postgres.url) as store:
        await store.apply(creating(1))
        own_postgres.kill()
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create_until_sure, store)
                nursery.start_soon(store.apply, ListWorkspaces())
                await trio.testing.wait_all_tasks_blocked()
                await restart(own_postgres)
            (rows,) = await store.apply(ListWorkspaces())
        assert isinstance(rows, tuple)
        assert len(rows) == 2


async def create_until_sure(store: Store) -> None:
    """The backends of a killed Postgres live for some milliseconds more, and may be cut in the middle."""
    while True:
        try:
            await store.apply(creating(2))
            return
        except OutcomeUnknown:
            await trio.lowlevel.checkpoint()


async def restart(server: RunningServer) -> None:
    await trio.to_thread.run_sync(server.restart)


async def test_callers_hear_that_a_postgres_stays_away(own_postgres: RunningServer) -> None:
    async with open_postgres(own_postgres.url, patience_s=0.2) as store:
        own_postgres.kill()
        with trio.fail_after(10):
            for operation in (creating(1), ListWorkspaces()):
                with pytest.raises(StoreUnavailable, match="Postgres does not answer") as caught:
                    await store.apply(operation)
                assert not isinstance(caught.value, OutcomeUnknown)


async def test_nothing_acknowledged_is_lost_when_postgres_is_killed_in_the_middle_of_commits(
    own_postgres: RunningServer,
) -> None:
    acknowledged: set[str] = set()
    ended: set[str] = set()
    unknown: set[str] = set()
    refused: set[str] = set()

    async with open_postgres(own_postgres.url) as store:
        await store.apply(TAKE)

        async def call(caller: int) -> None:
            for number in range(150):
                task_id = f"task-{caller}-{number}"
                try:
                    await store.apply(accepting(task_id), epoch=1)
                    acknowledged.add(task_id)
                    end = AttemptEnd(task_id=task_id, attempt=1, state=TaskState.COMPLETE, end=End.OK)
                    await store.apply(EndAttempts(ends=(end,), now_s=2.0), ReadTasks(task_ids=()), epoch=1)
                    ended.add(task_id)
                except OutcomeUnknown:
                    unknown.add(task_id)
                except StoreUnavailable:
                    refused.add(task_id)

        async def kill_three_times() -> None:
            for kill in range(1, 4):
                while len(ended) < 250 * kill:  # noqa: ASYNC110
                    await trio.sleep(0.001)
                await restart(own_postgres)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_three_times)
                for caller in range(8):
                    nursery.start_soon(call, caller)
            (rows,) = await store.apply(ReadTasks(task_ids=tuple(sorted(acknowledged | unknown | refused))))
    assert isinstance(rows, tuple)
    found = {row.task_id: row for row in rows if isinstance(row, TaskRow)}
    assert acknowledged - set(found) == set()
    assert [task_id for task_id in ended if found[task_id].state is not TaskState.COMPLETE] == []
    assert refused & set(found) - acknowledged == set()
    assert unknown | refused != set()
    assert len(ended) > 1000
