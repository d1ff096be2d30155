"""What a session leaves behind on the server when its client stands still."""

import asyncio

import asyncpg
import pytest
from levers9_test_servers import sql

from levers9.store.island import open_island
from levers9.store.operations import TakeLeadership
from levers9.store.postgres import open_postgres
from levers9.store.postgres.session import TRANSACTION_S, WRITER, Lost, Session

pytestmark = pytest.mark.slow

WITHIN_S = 20
LOCK = "SELECT epoch FROM leadership FOR UPDATE"
TAKE = TakeLeadership(holder="a", url="", now_s=1.0)
NOTE_BOUNDS = """
    CREATE TABLE bounds (bound text);
    CREATE FUNCTION note_bound() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO bounds VALUES (current_setting('transaction_timeout'));
        RETURN NEW;
    END $$;
    CREATE TRIGGER bound BEFORE INSERT OR UPDATE ON leadership FOR EACH ROW EXECUTE FUNCTION note_bound();
"""


async def test_who_stands_still_within_a_statement_keeps_no_lock(database_url: str) -> None:
    async def run() -> None:
        frozen = await asyncpg.connect(database_url, server_settings=WRITER)
        other = await asyncpg.connect(database_url)
        session = Session(frozen)
        await session.bound_transactions(0.2)
        await session.execute("BEGIN")
        await session.fetch(LOCK, ())
        await frozen.prepare("SELECT 1")  # what follows the first half of a statement never comes
        async with asyncio.timeout(WITHIN_S):
            assert await other.fetchval(LOCK) == 1
        await other.close()
        with pytest.raises(Lost):
            await session.execute("COMMIT")

    async with open_postgres(database_url) as store, open_island("frozen") as island:
        await store.apply(TAKE)
        await island.call(run)


async def test_what_writes_has_bounded_transactions(database_url: str) -> None:
    async def bounds() -> list[str]:
        connection = await asyncpg.connect(database_url)
        rows = await connection.fetch("SELECT bound FROM bounds")
        await connection.close()
        return [str(row["bound"]) for row in rows]

    async with open_postgres(database_url) as store, open_island("bounds") as island:
        await sql(database_url, NOTE_BOUNDS)
        await store.apply(TAKE)
        assert await island.call(bounds) == [f"{TRANSACTION_S:g}s"]
