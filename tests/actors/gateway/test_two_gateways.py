"""Two gateway processes and a real Valkey between them: what one of them hears, the other one knows at once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest
import trio

from levers9.actors.gateway.logs import LOOK_AGAIN_S
from levers9.daemons.gateway import ReadyLine
from levers9.errors import Refused
from levers9.model.ids import Chance
from levers9.model.states import ContainerState, End, TaskState, TokenKind
from levers9.model.tokens import hash_of, hint_of, make_token
from levers9.store.operations import (
    AcceptTasks,
    AttemptEnd,
    ContainerRow,
    CreateToken,
    CreateWorkspace,
    EndAttempts,
    Operation,
    PutContainers,
    RevokeTokens,
    TaskToAccept,
    TokenRow,
)
from levers9.store.postgres import open_postgres
from levers9.store.redis import open_redis
from levers9.store.revocations import RevocationsTold
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.link import DialledLink, Opened
from levers9.wire.message import Payload

from .test_process import House, lead, until_well

if TYPE_CHECKING:
    from .conftest import FakeBrain

pytestmark = pytest.mark.slow
DEADLINE_S = 60
WITHIN_S = 5.0  # alone on a machine it takes some milliseconds; without a wake-up, a minute
PERSON, CALLER, WORKER = (
    make_token(kind, bytes([number]) * 32)
    for number, kind in enumerate((TokenKind.CLUSTER_ADMIN, TokenKind.WORKSPACE, TokenKind.WORKER))
)
LINES = 5


def token(token_id: str, kind: TokenKind, value: str, workspace_id: str, subject: str = "") -> CreateToken:
    row = TokenRow(
        token_id=token_id,
        workspace_id=workspace_id,
        kind=kind,
        name=token_id,
        hash=hash_of(value),
        hint=hint_of(value),
        active=True,
        created_at_s=1.0,
        subject=subject,
    )
    return CreateToken(token=row)


def rows() -> tuple[Operation, ...]:
    """A caller, a person, a worker with a container, and a task that runs there."""
    container = ContainerRow(
        container_id="c-1", stub_id="s-1", workspace_id="ws-1", state=ContainerState.READY, worker_id="w-1"
    )
    task = TaskToAccept(task_id="task-1", arguments=Payload("msgpack", b""), container_id="c-1", worker_id="w-1")
    return (
        CreateWorkspace(workspace_id="ws-1", name="one", now_s=1.0),
        token("t-person", TokenKind.CLUSTER_ADMIN, PERSON, ""),
        token("t-caller", TokenKind.WORKSPACE, CALLER, "ws-1"),
        token("t-worker", TokenKind.WORKER, WORKER, "", "w-1"),
        PutContainers(containers=(container,)),
        AcceptTasks(workspace_id="ws-1", stub_id="s-1", tasks=(task,), now_s=time.time()),
    )


@pytest.fixture
async def pair(
    tmp_path: Path, database_url: str, valkey_url: str, fake_brain: FakeBrain
) -> AsyncIterator[tuple[ReadyLine, ReadyLine]]:
    """Two gateways of one brain, on one database and one Valkey."""
    async with open_postgres(database_url) as store:
        await store.apply(*rows())
    async with one_gateway("g1", tmp_path, database_url, valkey_url, fake_brain) as first:
        async with one_gateway("g2", tmp_path, database_url, valkey_url, fake_brain) as second:
            yield first, second


@asynccontextmanager
async def one_gateway(
    name: str, folder: Path, database_url: str, valkey_url: str, brain: FakeBrain
) -> AsyncIterator[ReadyLine]:
    house = House(folder, database_url)
    url = f"ipc://{folder}/{name}.ipc"
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await lead(brain, nursery, url)
            async with house.gateway("--gateway-id", name, "--brain", url, "--redis-url", valkey_url) as (_, ready):
                await until_well(ready.http_port)
                yield ready
            nursery.cancel_scope.cancel()


def http(ready: ReadyLine, value: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {value}"}
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{ready.http_port}", headers=headers, timeout=DEADLINE_S)


class Watched:
    """A carrier that tells when it is over. Nothing but its other end ends it here."""

    def __init__(self, carrier: Carrier, closed: trio.Event) -> None:
        self._carrier = carrier
        self._closed = closed

    def __getattr__(self, name: str) -> object:
        return getattr(self._carrier, name)

    async def aclose(self) -> None:
        self._closed.set()
        await self._carrier.aclose()


async def until_closed(ready: ReadyLine, *, task_status: trio.TaskStatus[None]) -> None:
    """Hold a caller's stream until its gateway closes it."""
    url = f"ws://127.0.0.1:{ready.stream_port}/v1/stream?peer=client"
    closed = trio.Event()

    async def dial() -> Carrier:
        return Watched(await websocket.connect(url, token=CALLER), closed)

    link = DialledLink(name="sdk", dial=dial, chance=Chance(1))

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        with suppress(Refused):  # it dials again, in vain
            await link.run(task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        while not isinstance(await link.next_event(), Opened):
            pass
        assert not closed.is_set()
        task_status.started()
        await closed.wait()
        nursery.cancel_scope.cancel()


async def test_a_token_revoked_at_one_gateway_closes_its_stream_at_the_other(pair: tuple[ReadyLine, ReadyLine]) -> None:
    first, second = pair
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery, http(first, PERSON) as person:
            await nursery.start(until_closed, second)
            began = trio.current_time()
            assert (await person.delete("/api/v1/tokens/t-caller")).status_code == 200
    assert trio.current_time() - began < WITHIN_S


async def test_a_token_revoked_by_the_brain_closes_its_streams_everywhere(
    pair: tuple[ReadyLine, ReadyLine], database_url: str, valkey_url: str
) -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_postgres(database_url) as store, open_redis(valkey_url) as wakeups:
            told = RevocationsTold(store, wakeups)
            async with trio.open_nursery() as telling:
                telling.start_soon(told.run)
                async with trio.open_nursery() as nursery:
                    for ready in pair:
                        await nursery.start(until_closed, ready)
                    began = trio.current_time()
                    await told.apply(RevokeTokens(token_ids=("t-caller",)))
                took_s = trio.current_time() - began
                telling.cancel_scope.cancel()
    assert took_s < WITHIN_S


async def test_who_follows_a_log_at_one_gateway_sees_at_once_what_came_to_the_other(
    pair: tuple[ReadyLine, ReadyLine], database_url: str
) -> None:
    first, second = pair
    took_s: list[float] = []
    began = 0.0
    with trio.fail_after(DEADLINE_S):
        async with http(first, WORKER) as worker, http(second, CALLER) as caller:
            await post_line(worker, 0)
            async with caller.stream("GET", "/api/v1/tasks/task-1/logs?follow=1") as answer:
                async for line in answer.aiter_lines():
                    if "end" in msgspec.json.decode(line):
                        continue
                    took_s.append(trio.current_time() - began)
                    began = trio.current_time()
                    if len(took_s) < LINES:
                        await post_line(worker, len(took_s))
                    else:
                        await end_task(database_url)
    assert len(took_s) == LINES
    assert min(took_s[1:]) < LOOK_AGAIN_S / 2, "without a wake-up, each takes as long as the reader's own pause"


async def post_line(worker: httpx2.AsyncClient, number: int) -> None:
    """Deliver a chunk of one line."""
    chunk = msgspec.msgpack.encode([["task-1", 1, number + 1, "out", 5.0, f"line {number}"]])
    assert (await worker.post(f"/api/v1/logs/c-1/{number}", content=chunk)).status_code == 200


async def end_task(database_url: str) -> None:
    """The task is over, and has no line more."""
    end = AttemptEnd(task_id="task-1", attempt=1, state=TaskState.COMPLETE, end=End.OK, last_log_line=LINES)
    async with open_postgres(database_url) as store:
        await store.apply(EndAttempts(ends=(end,), now_s=time.time()))
