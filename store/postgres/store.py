"""The store in Postgres, as Trio sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import trio

from ...errors import ClosedByUs, StoreUnavailable
from ..face import StoreStatistics
from ..island import Island, Reply, open_island
from ..operations import Answer, Operation
from . import accounts, clusters, fleet, pools, tasks
from .groups import Answers, Counts, Readers, Request, Writer
from .migrate import Migration, known_migrations, migrate
from .plans import plan_of
from .session import WRITER, Lost, connect_patiently, translated

_REGISTERED = (accounts, clusters, fleet, pools, tasks)  # importing them declares the plans of their operations
PATIENCE_S: Final = 10.0
READERS: Final = 3


class PostgresStore:
    """A `Store` in Postgres. `open_postgres` makes one."""

    def __init__(self, island: Island, writer: Writer, readers: Readers, counts: Counts) -> None:
        self._island = island
        self._writer = writer
        self._readers = readers
        self._counts = counts
        self._waiting = 0
        self.closed = False

    async def apply(self, *operations: Operation, epoch: int | None = None) -> tuple[Answer, ...]:
        """See `Store.apply`. Writes are committed in the order of their calls; reads do not queue behind them.

        While Postgres is away, callers wait for it for some seconds before they hear `StoreUnavailable`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise ClosedByUs("the store was closed by us")
        self._waiting += 1
        try:
            if epoch is None and not any(plan_of(operation).writes for operation in operations):
                return await self._island.call(lambda: self._readers.read(operations))
            return await self._write(operations, epoch)
        finally:
            self._waiting -= 1

    async def _write(self, operations: tuple[Operation, ...], epoch: int | None) -> Answers:
        reply: Reply[Answers] = Reply()
        self._writer.inbox.append(Request(operations, epoch, reply))
        if not self._writer.awake:
            self._writer.wake()
            self._island.turn()
        return await reply.wait()

    def statistics(self) -> StoreStatistics:
        """See `Store.statistics`."""
        counts = self._counts
        return StoreStatistics(
            operations=counts.operations,
            commits=counts.commits,
            failures=counts.failures,
            largest_group=counts.largest_group,
            waiting=self._waiting,
        )


@asynccontextmanager
async def open_postgres(
    url: str,
    *,
    patience_s: float = PATIENCE_S,
    readers: int = READERS,
    migrations: tuple[Migration, ...] | None = None,
) -> AsyncIterator[PostgresStore]:
    """Connect to `postgresql://…`, bring its schema up to date, and serve operations while the block lasts.

    Raises `StoreUnavailable` when nothing answers for `patience_s`, and `Refused` for a database of a newer levers9.
    """
    steps = known_migrations() if migrations is None else migrations
    async with open_island("postgres") as island:
        await island.call(lambda: _prepare(url, patience_s, steps))
        store = await island.call(lambda: _build(island, url, patience_s, readers))
        try:
            yield store
        finally:
            store.closed = True


async def _prepare(url: str, patience_s: float, migrations: tuple[Migration, ...]) -> None:
    session = await connect_patiently(url, WRITER, patience_s)
    try:
        await migrate(session, migrations)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise translated(error) from error
    except Lost as error:
        raise StoreUnavailable(f"the connection to Postgres broke: {error}") from error
    finally:
        await session.close()


async def _build(island: Island, url: str, patience_s: float, readers: int) -> PostgresStore:
    counts = Counts()
    writer = Writer(url, patience_s, counts)
    reading = Readers(url, readers, patience_s, counts)
    island.start(writer.run())
    island.start(reading.run())
    return PostgresStore(island, writer, reading, counts)
