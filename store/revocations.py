"""A store that tells the gateways of the tokens that were revoked through it."""

from __future__ import annotations

from typing import Final

import trio

from .face import Store, StoreStatistics
from .operations import Answer, Applied, Operation, RevokeTokens
from .wakeups import TOKENS_CHANNEL, Wakeups

REST_S: Final = 0.25  # between two wake-ups: containers end all the time, and one look finds all that came before


class RevocationsTold:
    """A `Store` that wakes the gateways after each commit that made a token invalid.

    Nobody waits for the wake-up: `run` sends it. One that is lost is no harm, since gateways also look by themselves.
    """

    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store = store
        self._wakeups = wakeups
        self._revoked = trio.Event()

    async def apply(self, *operations: Operation, epoch: int | None = None) -> tuple[Answer, ...]:
        """See `Store.apply`."""
        answers = await self._store.apply(*operations, epoch=epoch)
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, RevokeTokens) and isinstance(answer, Applied) and answer.ids:
                self._revoked.set()
        return answers

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`."""
        return self._store.statistics()

    async def run(self) -> None:
        """Send the wake-ups until cancelled."""
        while True:
            await self._revoked.wait()
            self._revoked = trio.Event()
            await self._wakeups.publish(TOKENS_CHANNEL, "revoked")
            await trio.sleep(REST_S)
