"""A gateway as a process of its own: real Postgres, nng to its brain, and real ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest
import trio

from levers9.daemons.gateway import ReadyLine
from levers9.model.ids import Chance
from levers9.model.states import TokenKind
from levers9.model.tokens import hash_of, hint_of, make_token
from levers9.store.embedded import ServerProcess, prepare_postgres, until_ready
from levers9.store.operations import CreateToken, TokenRow
from levers9.store.postgres import open_postgres
from levers9.wire.carriers import nng, websocket
from levers9.wire.client import TasksAccepted, WatchTasks
from levers9.wire.codec import Envelope, pack
from levers9.wire.control import GatewayReady, LeaderIs
from levers9.wire.link import Acceptor, DialledLink

if TYPE_CHECKING:
    from .conftest import FakeBrain

pytestmark = pytest.mark.slow
WORKSPACE_TOKEN = make_token(TokenKind.WORKSPACE, b"p" * 32)


@dataclass
class House:
    """A database, a run directory, and the brain's socket."""

    folder: Path
    database_url: str

    @property
    def brain_url(self) -> str:
        return f"ipc://{self.folder}/brain.ipc"

    @asynccontextmanager
    async def gateway(self, *more: str) -> AsyncIterator[tuple[subprocess.Popen[bytes], ReadyLine]]:
        """A gateway process that is ready."""
        words = [sys.executable, "-m", "levers9.daemons.gateway", "--gateway-id", "g1", "--brain", self.brain_url]
        words += ["--database-url", self.database_url, "--objects-url", f"file://{self.folder}/objects"]
        words += ["--stream-port", "0", "--http-port", "0", "--metrics-port", "-1", *more]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder)  # noqa: ASYNC220  # forking takes no time
        try:
            assert process.stdout is not None
            line = await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
            yield process, msgspec.json.decode(line, type=ReadyLine)
        finally:
            process.kill()
            await trio.to_thread.run_sync(process.wait)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Postgres that knows one token."""
    folder = tmp_path_factory.mktemp("postgres")
    postgres = prepare_postgres(folder / "data", folder, die_with_parent=True)
    with (folder / "postgres.log").open("wb") as log:
        process = subprocess.Popen(postgres.argv, cwd=postgres.folder, stdout=log, stderr=log)
    try:
        trio.run(prepare, postgres)
        yield postgres.url
    finally:
        process.send_signal(postgres.stop_signal)
        process.wait(20)


async def prepare(postgres: ServerProcess) -> None:
    with trio.fail_after(30):
        await until_ready(postgres)
        async with open_postgres(postgres.url) as store:
            await store.apply(CreateToken(token=token_row()))


@pytest.fixture
def house(tmp_path: Path, database_url: str) -> House:
    return House(tmp_path, database_url)


def token_row() -> TokenRow:
    return TokenRow(
        token_id="t1",
        workspace_id="ws-a",
        kind=TokenKind.WORKSPACE,
        name="n",
        hash=hash_of(WORKSPACE_TOKEN),
        hint=hint_of(WORKSPACE_TOKEN),
        active=True,
        created_at_s=time.time(),
    )


async def lead(brain: FakeBrain, nursery: trio.Nursery, url: str) -> None:
    """Listen as the brain does, and answer a gateway that is ready with who leads."""
    brain.acceptor = Acceptor(chance=brain.chance)
    brain.answers[GatewayReady] = lambda _: LeaderIs(epoch=1)
    brain.answers[WatchTasks] = lambda m: TasksAccepted(task_ids=m.task_ids)
    await nursery.start(brain.acceptor.run)
    await nursery.start(partial(nng.serve, url, partial(brain.acceptor.serve, name="g", on_link=brain.own)))


async def until_well(port: int) -> None:
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        while (await http.get("/health")).status_code != 200:  # noqa: ASYNC110  # it has no Event for us
            await trio.sleep(0.05)


async def test_a_gateway_process_relays_between_a_caller_and_its_brain(house: House, fake_brain: FakeBrain) -> None:
    with trio.fail_after(60):
        async with house.gateway() as (_, ready), trio.open_nursery() as nursery:
            await lead(fake_brain, nursery, house.brain_url)
            await until_well(ready.http_port)
            url = f"ws://127.0.0.1:{ready.stream_port}/v1/stream?peer=client"
            dial = partial(websocket.connect, url, token=WORKSPACE_TOKEN)
            link = DialledLink(name="sdk", dial=dial, chance=Chance(1))
            await nursery.start(link.run)
            await link.send(Envelope("q1", "", "tasks", pack(WatchTasks(task_ids=("t",)))))
            await fake_brain.wait_for(WatchTasks)
            nursery.cancel_scope.cancel()
    ((envelope, _),) = fake_brain.heard(WatchTasks)
    assert (envelope.workspace, envelope.kind) == ("ws-a", "workspace")


async def test_told_to_stop_it_stops_with_a_clean_exit(house: House) -> None:
    with trio.fail_after(30):
        async with house.gateway() as (process, _):
            process.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(process.wait) == 0


async def test_a_second_gateway_of_the_same_parent_shares_its_ports(house: House) -> None:
    with trio.fail_after(30):
        async with house.gateway() as (_, first):
            ports = ["--stream-port", str(first.stream_port), "--http-port", str(first.http_port)]
            async with house.gateway(*ports) as (_, second):
                assert (second.stream_port, second.http_port) == (first.stream_port, first.http_port)


def test_a_port_that_somebody_else_holds_ends_it_with_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        words = ["--gateway-id", "g", "--brain", "ipc:///none", "--database-url", "postgresql:///none"]
        words += ["--objects-url", "/none", "--http-port", str(port)]
        done = subprocess.run(
            [sys.executable, "-m", "levers9.daemons.gateway", *words],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 2
    assert f"Port {port} for HTTP is in use. Process {os.getpid()} holds it" in done.stderr
