"""A revoked token is good for nothing: it is looked up anew at once, and the streams that it opened are closed."""

from __future__ import annotations

from typing import Final

import structlog
import trio

from ...errors import StoreUnavailable
from ...model.tokens import hash_of
from ...store.face import Store
from ...store.operations import FindToken
from ...store.wakeups import TOKENS_CHANNEL, Subscription, Wakeups
from .auth import Gate
from .relay import Relay

LOOK_AGAIN_S: Final = 60.0  # for tokens that were revoked while wake-ups were lost
_LOOKED_UP_AT_ONCE: Final = 500
_log: Final = structlog.get_logger("gateway.revocation")


class Revocation:
    """Closes streams whose token is no longer active. `replica_token` is not in the store, and is never revoked."""

    def __init__(self, store: Store, gate: Gate, relay: Relay, wakeups: Wakeups, replica_token: str = "") -> None:
        self._store = store
        self._gate = gate
        self._relay = relay
        self._wakeups = wakeups
        self._shared = hash_of(replica_token) if replica_token else b""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look when told to, and once a minute, until cancelled."""
        async with self._wakeups.subscribe(TOKENS_CHANNEL) as texts:
            task_status.started()
            while True:
                await self._look(texts)

    async def _look(self, texts: Subscription) -> None:
        with trio.move_on_after(LOOK_AGAIN_S):
            await anext(texts)
        self._gate.forget()
        try:
            gone = await self._inactive()
        except StoreUnavailable as error:
            _log.warning("tokens could not be looked up", why=str(error))
            return
        closed = await self._relay.close_streams_of(gone)
        if closed:
            _log.info("streams of revoked tokens were closed", streams=closed)

    async def _inactive(self) -> list[bytes]:
        hashes = [one for one in self._relay.token_hashes() if one != self._shared]
        gone: list[bytes] = []
        for start in range(0, len(hashes), _LOOKED_UP_AT_ONCE):
            asked = hashes[start : start + _LOOKED_UP_AT_ONCE]
            rows = await self._store.apply(*(FindToken(hash=one) for one in asked))
            gone += [one for one, row in zip(asked, rows, strict=True) if row is None]
        return gone
