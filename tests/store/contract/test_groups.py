"""Groups: each caller's operations stay together, in order, whoever else is there and whoever leaves."""

import pytest
import trio

from levers9.errors import INVALID, Refused
from levers9.model.states import End, TaskState
from levers9.store.face import Store
from levers9.store.operations import (
    Applied,
    AttemptEnd,
    CreateWorkspace,
    EndAttempts,
    ListWorkspaces,
    LoadOutbox,
    Operation,
    OutboxRow,
    PutOutbox,
    ReadTasks,
    TakeLeadership,
    WorkspaceRow,
)
from levers9.wire.message import Failure


def creating(number: int) -> CreateWorkspace:
    return CreateWorkspace(workspace_id=f"workspace-{number:04}", name=f"name {number:04}", now_s=float(number))


async def names(store: Store) -> list[str]:
    (rows,) = await store.apply(ListWorkspaces())
    assert isinstance(rows, tuple)
    return [row.name for row in rows if isinstance(row, WorkspaceRow)]


async def test_a_group_sees_what_it_did_so_far(store: Store) -> None:
    before, created, after = await store.apply(ListWorkspaces(), creating(1), ListWorkspaces())
    assert (before, created) == ((), Applied(ids=("workspace-0001",)))
    assert after == (WorkspaceRow(workspace_id="workspace-0001", name="name 0001", created_at_s=1.0),)


async def test_many_callers_at_once_each_get_their_own_answer(store: Store) -> None:
    answers: dict[int, object] = {}

    async def call(number: int) -> None:
        answers[number] = await store.apply(creating(number % 100), creating(number + 1000))

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(call, number)
    assert len(await names(store)) == 300
    assert [answers[number][1] for number in range(200)] == [  # type: ignore[index]
        Applied(ids=(f"workspace-{number + 1000}",)) for number in range(200)
    ]
    assert store.statistics().operations >= 400
    assert store.statistics().waiting == 0


async def test_writes_of_one_caller_after_another_keep_their_order(store: Store) -> None:
    async def write(number: int) -> None:
        row = OutboxRow(key="one", target="worker/1", payload=bytes([number]), created_at_s=float(number))
        await store.apply(PutOutbox(rows=(row,)))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(write, number)
            await trio.lowlevel.checkpoint()
    (rows,) = await store.apply(LoadOutbox())
    assert isinstance(rows, tuple)
    assert [row.payload for row in rows] == [bytes([49])]


async def test_a_cancelled_caller_does_not_undo_the_commit(store: Store) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.apply, creating(1))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await store.apply(creating(2))  # it queued behind, so the first one is decided now
    assert await names(store) == ["name 0001", "name 0002"]


async def test_a_caller_cancelled_before_it_called_does_nothing(store: Store) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.apply(creating(1))
    assert scope.cancelled_caught
    assert await names(store) == []


async def test_callers_with_and_without_an_epoch_do_not_mix(store: Store) -> None:
    await store.apply(TakeLeadership(holder="a", url="", now_s=1.0))
    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(lambda n=number: store.apply(creating(n), epoch=1 if n % 3 else None))
    assert len(await names(store)) == 30


@pytest.mark.parametrize("text", ["nul \0", "half a pair \ud800"])
@pytest.mark.parametrize("read", [False, True])
async def test_text_that_no_row_can_hold_is_refused_and_nothing_of_its_group_is_done(
    store: Store, text: str, read: bool
) -> None:
    odd: Operation = ReadTasks(task_ids=(text,)) if read else CreateWorkspace(workspace_id=text, name="odd", now_s=1.0)
    for operations in ((odd,), (creating(1), odd)):
        with pytest.raises(Refused) as caught:
            await store.apply(*operations)
        assert (caught.value.code, caught.value.what) == (INVALID, "The store cannot hold this.")
    assert await names(store) == []


async def test_what_a_failure_says_may_be_any_text(store: Store) -> None:
    end = AttemptEnd(
        task_id="unknown",
        attempt=1,
        state=TaskState.ERROR,
        end=End.ERROR,
        failure=Failure("error", "nul \0", "", "", b""),
    )
    assert await store.apply(EndAttempts(ends=(end,), now_s=1.0)) == (Applied(),)
