"""Leadership: one at a time, each with an epoch of its own, and the older one can write no more."""

import pytest
import trio

from levers9.errors import EpochSuperseded
from levers9.store.face import Store
from levers9.store.operations import (
    Applied,
    CreateWorkspace,
    Leadership,
    ListWorkspaces,
    ReadLeadership,
    RenewLeadership,
    ResignLeadership,
    TakeLeadership,
)


def taking(holder: str, now_s: float, silent: tuple[int, float] = (0, 0.0)) -> TakeLeadership:
    """Ask to lead; `silent` is the epoch and the renewal that the holder saw for a whole lease."""
    epoch, since_s = silent
    return TakeLeadership(holder=holder, url=f"ws://{holder}", now_s=now_s, silent_epoch=epoch, silent_since_s=since_s)


def leading(holder: str, epoch: int, renewed_at_s: float) -> Leadership:
    return Leadership(epoch=epoch, holder=holder, url=f"ws://{holder}", renewed_at_s=renewed_at_s)


CREATE = CreateWorkspace(workspace_id="workspace-1", name="one", now_s=1.0)


async def test_nobody_leads_at_first(store: Store) -> None:
    assert await store.apply(ReadLeadership()) == (None,)
    assert await store.apply(RenewLeadership(epoch=1, now_s=1.0)) == (None,)


async def test_the_first_to_ask_leads_with_epoch_one(store: Store) -> None:
    assert await store.apply(taking("a", 10.0)) == (leading("a", 1, 10.0),)


async def test_a_second_holder_hears_who_leads(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(taking("b", 14.9)) == (leading("a", 1, 10.0),)


async def test_a_holder_that_asks_again_is_told_no_more_than_another(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(taking("a", 11.0)) == (leading("a", 1, 10.0),)


@pytest.mark.parametrize("now_s", [-3600.0, 10.0, 14.0, 3600.0])
async def test_a_renewal_keeps_the_second_holder_away_whatever_its_clock_says(store: Store, now_s: float) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(RenewLeadership(epoch=1, now_s=14.0)) == (leading("a", 1, 14.0),)
    assert await store.apply(taking("b", now_s, silent=(1, 10.0))) == (leading("a", 1, 14.0),)
    assert await store.apply(taking("b", now_s)) == (leading("a", 1, 14.0),)


async def test_a_renewal_by_a_clock_that_was_set_back_is_one_too(store: Store) -> None:
    await store.apply(taking("a", 3600.0))
    assert await store.apply(RenewLeadership(epoch=1, now_s=4.0)) == (leading("a", 1, 4.0),)
    assert await store.apply(taking("b", 9.0, silent=(1, 3600.0))) == (leading("a", 1, 4.0),)


async def test_what_was_seen_of_one_epoch_does_not_take_the_next(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    await store.apply(taking("b", 10.0, silent=(1, 10.0)))
    assert await store.apply(taking("c", 10.0, silent=(1, 10.0))) == (leading("b", 2, 10.0),)


@pytest.mark.parametrize("now_s", [-3600.0, 15.0, 3600.0])
async def test_a_lease_that_ran_out_goes_to_the_next_epoch_whatever_the_clock_of_its_holder_says(
    store: Store, now_s: float
) -> None:
    seen_s = 1e9 + 0.123456
    await store.apply(taking("a", 10.0), RenewLeadership(epoch=1, now_s=seen_s))
    assert await store.apply(taking("b", now_s, silent=(1, seen_s))) == (leading("b", 2, now_s),)
    assert await store.apply(RenewLeadership(epoch=1, now_s=16.0)) == (leading("b", 2, now_s),)


async def test_of_many_who_saw_the_same_silence_exactly_one_leads(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    answers: list[object] = []

    async def ask(holder: str) -> None:
        answers.extend(await store.apply(taking(holder, 10.0, silent=(1, 10.0))))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, f"holder-{number}")
    assert len(set(map(repr, answers))) == 1
    assert await store.apply(ReadLeadership()) == (answers[0],)
    assert "epoch=2" in repr(answers[0])


async def test_a_resigned_leader_is_followed_at_once_and_may_write_no_more(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(ResignLeadership(epoch=1)) == (Applied(ids=("1",)),)
    assert await store.apply(ResignLeadership(epoch=1)) == (Applied(),)
    with pytest.raises(EpochSuperseded):
        await store.apply(CREATE, epoch=1)
    assert await store.apply(taking("b", 10.1)) == (leading("b", 2, 10.1),)


async def test_only_the_epoch_that_leads_may_write(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(CREATE, epoch=1) == (Applied(ids=("workspace-1",)),)
    await store.apply(taking("b", 20.0, silent=(1, 10.0)))
    for operations in ((CREATE,), (ListWorkspaces(),), (CREATE, CREATE), (ListWorkspaces(), CREATE)):
        with pytest.raises(EpochSuperseded, match="leader with epoch 1"):
            await store.apply(*operations, epoch=1)


async def test_a_superseded_group_changes_nothing(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    await store.apply(taking("b", 20.0, silent=(1, 10.0)))
    with pytest.raises(EpochSuperseded):
        await store.apply(ListWorkspaces(), CREATE, epoch=1)
    assert await store.apply(ListWorkspaces()) == ((),)


async def test_an_empty_group_of_a_superseded_epoch_is_refused_too(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    assert await store.apply(epoch=1) == ()
    with pytest.raises(EpochSuperseded):
        await store.apply(epoch=2)


async def test_of_many_who_ask_at_once_exactly_one_leads(store: Store) -> None:
    answers: list[object] = []

    async def ask(holder: str) -> None:
        answers.extend(await store.apply(taking(holder, 10.0)))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, f"holder-{number}")
    assert len(answers) == 20
    assert len(set(map(repr, answers))) == 1


async def test_a_superseded_caller_does_not_disturb_those_beside_it(store: Store) -> None:
    await store.apply(taking("a", 10.0))
    await store.apply(taking("b", 20.0, silent=(1, 10.0)))
    heard: list[str] = []

    async def write(number: int) -> None:
        operation = CreateWorkspace(workspace_id=f"workspace-{number}", name=str(number), now_s=1.0)
        try:
            await store.apply(operation, epoch=1 + number % 2)
        except EpochSuperseded:
            heard.append(f"workspace-{number}")

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(write, number)
    (workspaces,) = await store.apply(ListWorkspaces())
    assert isinstance(workspaces, tuple)
    assert sorted(heard) == [f"workspace-{number}" for number in (0, 2, 4, 6, 8)]
    assert len(workspaces) == 5
