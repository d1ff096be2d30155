"""What the tests of `kube/` share: the same cluster twice, in memory and as a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from levers9.kube.client import open_kube
from levers9.kube.memory import MemoryCluster
from levers9.lab.binaries import missing
from levers9.model.ids import Chance

from .api_server import GUEST, ApiServer, running_api_server
from .worlds import MemoryWorld, RealWorld, World


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    if reason := missing():
        pytest.skip(reason)
    with running_api_server() as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.slow)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        world: World = MemoryWorld(MemoryCluster(controllers=False))
        await world.begin()
        yield world
        return
    server: ApiServer = request.getfixturevalue("api_server")
    async with open_kube(server.endpoint(), Chance()) as admin, open_kube(server.endpoint(GUEST), Chance()) as guest:
        world = RealWorld(server, admin, guest)
        await world.begin()
        yield world
        await world.come_back()
