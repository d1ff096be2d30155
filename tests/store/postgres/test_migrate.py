"""The schema comes up once, whoever comes first, and a newer one is left alone."""

import pytest
import trio
from levers9_test_servers import sql

from levers9.errors import Refused, StoreUnavailable
from levers9.store.operations import ListWorkspaces
from levers9.store.postgres import open_postgres
from levers9.store.postgres.migrate import Migration, known_migrations

pytestmark = pytest.mark.slow


async def open_and_read(url: str) -> None:
    async with open_postgres(url) as store:
        assert await store.apply(ListWorkspaces()) == ((),)


async def test_several_processes_that_start_at_once_are_fine(database_url: str) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(open_and_read, database_url)


async def test_only_what_is_missing_is_applied(database_url: str) -> None:
    extra = Migration(len(known_migrations()) + 1, "it's more", "CREATE TABLE more (a int)")
    await open_and_read(database_url)
    for _ in range(2):  # the second time, CREATE TABLE would fail
        async with open_postgres(database_url, migrations=(*known_migrations(), extra)):
            pass
    await sql(database_url, "SELECT * FROM more")


async def test_a_step_that_fails_leaves_nothing_behind(database_url: str) -> None:
    broken = Migration(len(known_migrations()) + 1, "broken", "CREATE TABLE half (a int); SELECT no_such()")
    with pytest.raises(StoreUnavailable, match="no_such"):
        async with open_postgres(database_url, migrations=(*known_migrations(), broken)):
            pass
    await sql(database_url, "CREATE TABLE half (a int)")
    await open_and_read(database_url)


async def test_the_schema_of_a_newer_program_is_refused(database_url: str) -> None:
    await open_and_read(database_url)
    await sql(database_url, "INSERT INTO schema_migrations (number, name) VALUES (9999, 'future')")
    with pytest.raises(Refused, match="belongs to a newer levers9") as caught:
        await open_and_read(database_url)
    assert caught.value.code == "newer_schema"


async def test_an_address_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Refused, match="address of the store"):
        await open_and_read("mysql://localhost/")


def test_the_steps_are_numbered_without_gaps() -> None:
    assert [step.number for step in known_migrations()] == list(range(1, len(known_migrations()) + 1))
