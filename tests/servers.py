"""Real servers for tests, one a session each: import these fixtures into a folder's conftest."""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import asyncpg
import msgspec
import pytest
import redis.asyncio
import trio
from localbucket import S3Handler

from levers9.store.embedded import ServerProcess, prepare_postgres, prepare_valkey, until_ready
from levers9.store.island import open_island

READY_S = 60
logging.getLogger("localbucket").disabled = True  # it writes to a stream that pytest has closed by then
MEMORY_BYTES = 2 << 30


class RunningServer:
    """A server of a test, which may kill it and start it again."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.start()

    @property
    def url(self) -> str:
        return self.server.url

    def start(self) -> None:
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.server.argv, cwd=self.server.folder, stdin=quiet, stdout=quiet, stderr=quiet
        )

    def wait_until_ready(self) -> None:
        async def wait() -> None:
            with trio.fail_after(READY_S):
                await until_ready(self.server)

        thread = threading.Thread(target=trio.run, args=(wait,))  # the fixture may be set up inside a run of Trio
        thread.start()
        thread.join()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Kill it and start it as a supervisor would: again, should orphans of the killed one be in the way."""
        self.kill()
        while True:
            self.start()
            if trio.run(self._ready_or_ended):
                return

    async def _ready_or_ended(self) -> bool:
        with trio.fail_after(READY_S):
            while self.process.poll() is None:
                with trio.move_on_after(0.1):
                    await until_ready(self.server)
                    return True
        return False

    def stop(self, number: int | None = None) -> None:
        self.process.send_signal(self.server.stop_signal if number is None else number)
        self.process.wait(timeout=30)


def quick_folder() -> str | None:
    """Where files live in memory, if there is room: a server that is killed loses no more there than on a disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES
    return str(memory) if roomy else None


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """Short: pytest's own paths are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="levers9-", dir=quick_folder()) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(servers_folder: Path) -> Iterator[RunningServer]:
    server = prepare_postgres(servers_folder / "data", servers_folder / "run")
    quick = ("-c", "fsync=off", "-c", "full_page_writes=off")  # nobody pulls this machine's plug during a test
    running = RunningServer(msgspec.structs.replace(server, argv=(*server.argv, *quick)))
    running.wait_until_ready()
    yield running
    running.stop(signal.SIGQUIT)  # nobody reads its files again


@pytest.fixture(scope="session")
def postgres_url(postgres: RunningServer) -> str:
    """A real Postgres, shared by the session. Tests that write take `database_url`."""
    return postgres.url


async def sql(url: str, *statements: str) -> None:
    """Run statements as they are, on a connection of their own."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    async with open_island("sql") as island:
        await island.call(run)


async def until_locked(url: str, table: str, mode: str) -> None:
    """Return once somebody holds or awaits a lock of this mode on a table. The deadline is the caller's."""
    ask = f"""DO $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE relation = '{table}'::regclass AND mode = '{mode}') LOOP
            PERFORM pg_sleep(0.005);
        END LOOP;
    END $$"""
    await sql(url, ask)


@pytest.fixture
async def database_url(postgres_url: str) -> str:
    """An empty database of the test's own."""
    name = f"test_{uuid.uuid4().hex}"
    await sql(postgres_url, f"CREATE DATABASE {name} STRATEGY file_copy")
    return postgres_url.replace("/postgres?", f"/{name}?")


@pytest.fixture(scope="session")
def valkey(servers_folder: Path) -> Iterator[RunningServer]:
    running = RunningServer(prepare_valkey(servers_folder / "run"))
    running.wait_until_ready()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def valkey_url(valkey: RunningServer) -> str:
    """A real Valkey, shared by the session."""
    return valkey.url


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an S3 server answers that keeps its buckets in a folder."""
    handler = type("Handler", (S3Handler,), {"data_root": tmp_path_factory.mktemp("s3"), "log_message": quiet})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = quiet  # type: ignore[method-assign]  # callers that leave in the middle are part of the tests
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def quiet(*_: object) -> None:
    """A test's server says nothing."""


async def empty(url: str) -> None:
    """Delete every row; TRUNCATE would make new files and wait for the disk."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        rows = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema_migrations'"
        )
        await connection.execute(";".join(f"DELETE FROM {row[0]}" for row in rows) or "SELECT 1")
        await connection.close()

    async with open_island("empty") as island:
        await island.call(run)


async def flush(url: str) -> None:
    """Empty a Valkey."""

    async def run() -> None:
        client = redis.asyncio.from_url(url)
        await client.flushall()
        await client.aclose()

    async with open_island("flush") as island:
        await island.call(run)
