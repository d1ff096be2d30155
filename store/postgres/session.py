"""One connection on the island: prepared statements, and errors that say whether anything can have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from ...errors import INVALID, Refused, StoreUnavailable
from .plans import Arguments, Record

ANSWER_S: Final = 30.0  # a server that is silent for longer counts as lost
CONNECT_S: Final = 10.0
TRANSACTION_S: Final = 15.0
_BOUNDED_FROM: Final = 17  # the first Postgres that knows transaction_timeout
_FIRST_DELAY_S: Final = 0.02
_MAX_DELAY_S: Final = 1.0

_COMMON: Final = {"application_name": "levers9", "jit": "off"}
# Statements of the writer take arrays of any length: one plan by the indexes serves all, and planning costs nothing.
WRITER: Final = _COMMON | {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "synchronous_commit": "on",
    "idle_in_transaction_session_timeout": "5000",  # a leader that froze must not hold the lock on its epoch
}
READER: Final = _COMMON | {"default_transaction_read_only": "on"}


_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class Lost(Exception):
    """The connection is no more. What was sent last may or may not have been carried out."""


class LostBefore(Lost):
    """The connection turned out to be gone before the statement was sent."""


class Session:
    """A connection that prepares each statement once."""

    def __init__(self, connection: asyncpg.Connection[Record]) -> None:
        self._connection = connection
        self._prepared: dict[str, asyncpg.prepared_stmt.PreparedStatement[Record]] = {}

    @property
    def closed(self) -> bool:
        """Whether it is known to be gone."""
        return self._connection.is_closed()

    async def fetch(self, sql: str, arguments: Arguments) -> Sequence[Record]:
        """The rows. Raises `Lost`, or asyncpg's own error when the server refused the statement."""
        try:
            statement = self._prepared.get(sql)
            if statement is None:
                statement = self._prepared[sql] = await self._connection.prepare(sql, timeout=ANSWER_S)
            return await statement.fetch(*arguments, timeout=ANSWER_S)
        except _ERRORS as error:
            raise self._judged(error) from error

    async def execute(self, words: str) -> None:
        """BEGIN, COMMIT and the like. Raises as `fetch`."""
        try:
            await self._connection.execute(words, timeout=ANSWER_S)
        except _ERRORS as error:
            raise self._judged(error) from error

    async def bound_transactions(self, for_s: float = TRANSACTION_S) -> None:
        """Have the server end a transaction of ours that takes longer. Raises as `fetch`.

        A leader that freezes may do so in the middle of a statement. That is not idle for Postgres, and the lock on the
        leader's epoch would stay. Servers before 17 cannot do it.
        """
        if self._connection.get_server_version().major >= _BOUNDED_FROM:
            await self.execute(f"SET transaction_timeout = {for_s * 1000:.0f}")

    def _judged(self, error: Exception) -> Exception:
        """What the server refused, it has rolled back; all else, and its farewells (class 57 and 08), is a loss."""
        refused = isinstance(error, asyncpg.PostgresError) and not str(error.sqlstate).startswith(("57", "08"))
        invalid = isinstance(error, asyncpg.DataError)  # also asyncpg's own, which never went out
        if (refused or invalid) and not self.closed:
            return error
        # asyncpg speaks so when the server's farewell, or the end, had come in before we said anything.
        before = isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError))
        self.drop()
        return (LostBefore if before else Lost)(str(error) or type(error).__name__)

    def drop(self) -> None:
        """Forget the connection without a farewell."""
        self._connection.terminate()

    async def close(self) -> None:
        """Say goodbye, for a second at most."""
        try:
            await self._connection.close(timeout=1.0)
        except _ERRORS:
            self.drop()


async def connect(url: str, settings: Mapping[str, str]) -> Session:
    """Connect once. Raises `StoreUnavailable`."""
    try:
        connection = await asyncpg.connect(
            url, timeout=CONNECT_S, statement_cache_size=0, server_settings=dict(settings)
        )
    except ValueError as error:
        raise Refused("The address of the store cannot be read.", str(error), "Give postgresql://…", INVALID) from error
    except _ERRORS as error:
        raise StoreUnavailable(f"Postgres does not answer: {str(error) or type(error).__name__}") from error
    return Session(connection)


async def connect_patiently(url: str, settings: Mapping[str, str], patience_s: float) -> Session:
    """Connect, again and again for `patience_s`, waiting longer each time. Raises `StoreUnavailable` then."""
    loop = asyncio.get_running_loop()
    gives_up, delay_s = loop.time() + patience_s, _FIRST_DELAY_S
    while True:
        try:
            return await connect(url, settings)
        except StoreUnavailable:
            if loop.time() + delay_s > gives_up:
                raise
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, _MAX_DELAY_S)


def translated(error: asyncpg.PostgresError | asyncpg.InterfaceError) -> StoreUnavailable | Refused:
    """What a refusal of the server means to callers; nothing was changed."""
    if isinstance(error, asyncpg.DataError):
        return Refused("The store cannot hold this.", str(error), code=INVALID)
    if isinstance(error, asyncpg.DiskFullError):
        return StoreUnavailable(f"the disk of Postgres is full: {error}")
    return StoreUnavailable(f"Postgres refused: {error}")
