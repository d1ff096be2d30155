"""Each test of this folder runs against memory and against a real Postgres."""

from collections.abc import AsyncIterator

import pytest
from levers9_test_servers import empty

from levers9.store.face import Store
from levers9.store.memory import MemoryStore
from levers9.store.postgres import open_postgres


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.slow)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    url = request.getfixturevalue("postgres_url")
    await empty(url)
    async with open_postgres(url) as opened:
        yield opened
