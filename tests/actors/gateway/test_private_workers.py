"""A worker of a private cluster carries a token that is good for its workspace alone, whatever it asks for."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import pytest

from levers9.model.states import ContainerState, TokenKind
from levers9.store.operations import ContainerRow, PutContainers
from levers9.wire.work import AttemptsHeld

if TYPE_CHECKING:
    from .conftest import Stand

DATA = b"code"
KEY = f"blob/{hashlib.sha256(DATA).hexdigest()}"
LINES = msgspec.msgpack.encode([["t", 1, 1, "out", 1.5, "line"]])


async def placed(stand: Stand) -> str:
    """A container of each workspace is on the worker, as if placement had failed; returns the worker's token."""
    rows = tuple(
        ContainerRow(
            container_id=f"of-{workspace}",
            stub_id="s",
            workspace_id=workspace,
            state=ContainerState.READY,
            worker_id="w1",
        )
        for workspace in ("ws-a", "ws-b")
    )
    await stand.store.apply(PutContainers(containers=rows))
    for workspace in ("ws-a", "ws-b"):
        await stand.objects.put(f"{workspace}/{KEY}", DATA)
    return await stand.token(TokenKind.WORKER_PRIVATE, "ws-a", subject="w1")


async def test_it_reads_objects_of_its_own_workspace_only(stand: Stand) -> None:
    async with stand.http(await placed(stand)) as http:
        own = await http.get(f"/api/v1/objects/{KEY}?workspace=ws-a")
        unsaid = await http.get(f"/api/v1/objects/{KEY}")
        others = await http.get(f"/api/v1/objects/{KEY}?workspace=ws-b")
    assert (own.content, unsaid.content, others.status_code) == (DATA, DATA, 403)


@pytest.mark.parametrize("path", ["put", "get", "missing"])
async def test_it_writes_and_asks_in_its_own_workspace_only(stand: Stand, path: str) -> None:
    body = msgspec.msgpack.encode({KEY: DATA} if path == "put" else [KEY])
    async with stand.http(await placed(stand)) as http:
        own = await http.post(f"/api/v1/objects/{path}?workspace=ws-a", content=body)
        others = await http.post(f"/api/v1/objects/{path}?workspace=ws-b", content=body)
    assert (own.status_code, others.status_code) == (200, 403)


async def test_it_delivers_logs_of_its_own_workspace_only(stand: Stand) -> None:
    async with stand.http(await placed(stand)) as http:
        own = await http.post("/api/v1/logs/of-ws-a/0", content=LINES)
        others = await http.post("/api/v1/logs/of-ws-b/0", content=LINES)
    assert (own.status_code, others.status_code) == (200, 403)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/tasks",
        "/api/v1/workers",
        "/api/v1/controlplane/clusters",
        "/api/v1/cluster",
        "/api/v1/tokens",
        "/api/v1/workspaces",
        "/api/v1/pools",
        "/api/v1/queueing",
    ],
)
async def test_it_reads_nothing_that_is_for_people(stand: Stand, path: str) -> None:
    async with stand.http(await placed(stand)) as http:
        assert (await http.get(path)).status_code == 403


async def test_what_it_says_on_its_stream_is_stamped_with_its_workspace_and_its_name(stand: Stand) -> None:
    token = await placed(stand)
    async with stand.peer("/v1/stream?peer=worker&id=w1", token) as peer:
        await peer.send(AttemptsHeld(container_id="of-ws-a", attempts=(), window=1))
        ((envelope, _),) = await stand.brain.wait_for(AttemptsHeld)
    assert (envelope.source, envelope.workspace, envelope.kind) == ("worker/w1", "ws-a", "worker_private")
