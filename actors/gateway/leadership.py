"""Asks the store who leads, while our own brain cannot be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from ...errors import StoreUnavailable
from ...store.face import Store
from ...store.operations import Leadership, ReadLeadership
from .policy import LeadershipRead

ASK_EVERY_S: Final = 1.0
_log: Final = structlog.get_logger("gateway.leadership")

ReadLeader = Callable[[], Awaitable[LeadershipRead | None]]


def reader_of(store: Store) -> ReadLeader:
    """What reads the row of leadership; None while nobody ever led."""

    async def read() -> LeadershipRead | None:
        (row,) = await store.apply(ReadLeadership())
        return LeadershipRead(epoch=row.epoch, url=row.url) if isinstance(row, Leadership) else None

    return read


class LeadershipWatch:
    """Asks each second from some moment on, until stopped; `heard` is told each answer."""

    def __init__(self, read: ReadLeader, heard: Callable[[LeadershipRead], None]) -> None:
        self._read = read
        self._heard = heard
        self._scope = trio.CancelScope()

    def start(self, nursery: trio.Nursery, after_s: float) -> None:
        """Ask first after so long, in place of what was planned before."""
        self.stop()
        self._scope = trio.CancelScope()
        nursery.start_soon(self._run, self._scope, after_s)

    def stop(self) -> None:
        """Ask no more."""
        self._scope.cancel(reason="the brain is heard")

    async def _run(self, scope: trio.CancelScope, after_s: float) -> None:
        with scope:
            await trio.sleep(after_s)
            while True:
                await self._ask()
                await trio.sleep(ASK_EVERY_S)

    async def _ask(self) -> None:
        try:
            read = await self._read()
        except StoreUnavailable as error:
            _log.info("neither the brain nor the store says who leads", why=str(error))
            return
        if read is not None:
            self._heard(read)
