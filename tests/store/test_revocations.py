"""Whoever revokes tokens need not think of the gateways: they are woken."""

import pytest
import trio

from levers9.model.states import TokenKind
from levers9.store.memory import MemoryStore
from levers9.store.operations import Applied, CreateToken, ListTokens, RevokeTokens, TokenRow
from levers9.store.revocations import REST_S, RevocationsTold
from levers9.store.wakeups import TOKENS_CHANNEL, MemoryWakeups


def token(number: int) -> CreateToken:
    row = TokenRow(
        token_id=f"token-{number}",
        workspace_id="w",
        kind=TokenKind.WORKSPACE,
        name="",
        hash=bytes([number]),
        hint="",
        active=True,
        created_at_s=1.0,
        subject="container-1",
    )
    return CreateToken(token=row)


@pytest.fixture
def wakeups() -> MemoryWakeups:
    return MemoryWakeups()


@pytest.fixture
async def told(wakeups: MemoryWakeups, nursery: trio.Nursery) -> RevocationsTold:
    store = RevocationsTold(MemoryStore(), wakeups)
    nursery.start_soon(store.run)
    await store.apply(token(1), token(2), token(3))
    return store


async def test_a_revocation_wakes_whoever_listens(
    told: RevocationsTold, wakeups: MemoryWakeups, autojump_clock: trio.testing.MockClock
) -> None:
    async with wakeups.subscribe(TOKENS_CHANNEL) as texts:
        assert await told.apply(ListTokens(), RevokeTokens(token_ids=("token-1",)))
        with trio.fail_after(1):
            assert await anext(texts) == "revoked"


async def test_many_revocations_at_once_are_few_wakeups_and_the_last_one_is_heard(
    told: RevocationsTold, wakeups: MemoryWakeups, autojump_clock: trio.testing.MockClock
) -> None:
    heard: list[float] = []
    async with wakeups.subscribe(TOKENS_CHANNEL) as texts:
        await told.apply(RevokeTokens(token_ids=("token-1",)))
        await anext(texts)
        heard.append(trio.current_time())
        await told.apply(RevokeTokens(token_ids=("token-2",)))
        await told.apply(RevokeTokens(token_ids=("token-3",)))
        await anext(texts)
        heard.append(trio.current_time())
        with trio.move_on_after(60) as scope:
            await anext(texts)
        assert scope.cancelled_caught
    assert heard[1] - heard[0] == pytest.approx(REST_S)


async def test_what_revokes_nothing_wakes_nobody(
    told: RevocationsTold, wakeups: MemoryWakeups, autojump_clock: trio.testing.MockClock
) -> None:
    async with wakeups.subscribe(TOKENS_CHANNEL) as texts:
        assert await told.apply(RevokeTokens(token_ids=("unknown",)), token(4)) == (
            Applied(),
            Applied(ids=("token-4",)),
        )
        with trio.move_on_after(60) as scope:
            await anext(texts)
        assert scope.cancelled_caught
    assert told.statistics().operations == 5
