"""Real servers for tests, one a session each: import these fixtures into a folder's conftest."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from levers9.store.embedded import ServerProcess, prepare_postgres, prepare_valkey, until_ready

READY_S = 60


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

        trio.run(wait)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(self.server.stop_signal)
        self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="levers9-") as folder:  # pytest's own paths are too long for sockets
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(servers_folder: Path) -> Iterator[RunningServer]:
    running = RunningServer(prepare_postgres(servers_folder / "data", servers_folder / "run"))
    running.wait_until_ready()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_url(postgres: RunningServer) -> str:
    """A real Postgres, shared by the session: make a database of your own in it (`?` parameters after the path)."""
    return postgres.url


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
