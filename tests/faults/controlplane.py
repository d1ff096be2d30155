"""A control plane of real processes for fault tests: started on free ports, its parts found by their command lines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg

POOL = """
[[pools]]
name = "local"
min_workers = {workers}
max_workers = {workers}
cpu = 1
memory = 2048
"""


class ControlPlane:
    """One `levers9 controlplane` process tree. Its parts are the descendants of its root."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        gateways: int = 1,
        database_url: str = "",
        redis_url: str = "",
        arguments: Sequence[str] = (),
        settings: str = "",
    ) -> None:
        self._folder = folder
        self._gateways = gateways
        self._arguments = arguments
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.toml").write_text(settings or POOL.format(workers=workers))
        self._urls = {"LEVERS9_DATABASE_URL": database_url, "LEVERS9_REDIS_URL": redis_url}
        self.log = folder / "controlplane.log"
        self.run_dir = folder / "run"
        self.token = ""
        self.stream_url = self.http_url = ""

    def start(self, objects: Path | None = None) -> None:
        """Start it and wait until it says that it is ready."""
        argv = [sys.executable, "-m", "levers9.daemons.controlplane", "--json"]
        argv += ["--config", str(self._folder / "settings.toml"), "--state-dir", str(self._folder / "state")]
        argv += ["--run-dir", str(self.run_dir), "--stream-port", "0", "--http-port", "0"]
        argv += ["--metrics-port", "-1", "--gateways", str(self._gateways)]
        argv += self._arguments
        if objects is not None:
            argv += ["--objects-url", f"file://{objects}"]
        env = {**os.environ, **{name: value for name, value in self._urls.items() if value}}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.token = said.get("first_admin_token", self.token)
            if said.get("ready"):
                self.stream_url, self.http_url = said["stream_url"], said["http_url"]
                return
        raise AssertionError(f"the control plane ended:\n{self.log.read_text()[-4000:]}")

    def wait_for_token(self) -> None:
        """The first admin token may be told after the gateways are ready."""
        assert self.process.stdout is not None
        while not self.token:
            said = json.loads(self.process.stdout.readline())
            self.token = said.get("first_admin_token", "")

    def stop(self) -> None:
        """TERM, and KILL for what did not listen."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        finally:
            for pid in (*self.workers(), *descendants(self.process.pid)):
                kill(pid)
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def parts(self, words: str) -> list[int]:
        """The processes of this tree whose command lines have these words."""
        return [pid for pid in descendants(self.process.pid) if words in command_of(pid)]

    def part(self, words: str) -> int:
        """The one process of this tree whose command line has these words."""
        found = self.parts(words)
        assert found, f"no process with {words!r} below {self.process.pid}"
        return found[0]

    def brain(self) -> int:
        """The brain's process."""
        return self.part("levers9.daemons.brain")

    def gateway(self) -> int:
        """The gateway's process."""
        return self.part("levers9.daemons.gateway")

    def postgres(self) -> int:
        """The postmaster."""
        return self.part("bin/postgres -D")

    def valkey(self) -> int:
        """The Valkey server."""
        return self.part("valkey-server")

    def read(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the embedded Postgres, asked past everything of ours."""

        async def ask() -> list[tuple[object, ...]]:
            connection = await asyncpg.connect(
                host=str(self.run_dir / "postgres"), user="postgres", database="postgres"
            )
            try:
                return [tuple(row) for row in await connection.fetch(query)]
            finally:
                await connection.close()

        return asyncio.run(ask())

    @property
    def environment(self) -> dict[str, str]:
        """That of a client of it."""
        host, _, port = self.stream_url.partition("://")[2].rpartition(":")
        return {
            **os.environ,
            "LEVERS9_TOKEN": self.token,
            "LEVERS9_CONTROLPLANE_HOST": host,
            "LEVERS9_CONTROLPLANE_PORT": port,
            "LEVERS9_HTTP_URL": self.http_url,
        }

    def ask(self, path: str, body: dict[str, str] | None = None, *, method: str = "GET") -> bytes:
        """What REST answers; an answer that is an error is raised."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http_url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            found: bytes = answer.read()
        return found

    def leftovers(self, within_s: float = 15.0) -> list[str]:
        """End the root as a person does; what of its tree, or with its folder in the command line, is left then."""
        tree = descendants(self.process.pid)
        self.process.terminate()
        self.process.wait(timeout=30)

        def left() -> list[str]:
            mark = str(self._folder)
            return [said for pid in all_pids() if (said := command_of(pid)) and (pid in tree or mark in said)]

        with suppress(AssertionError):
            wait_until(lambda: not left(), "nothing is left", within_s)
        return left()

    def workers(self) -> list[int]:
        """The worker processes that this control plane started, whoever is their parent by now."""
        mark = f"--state-dir {self._folder}/state/worker"
        return [
            pid for pid in all_pids() if "levers9.daemons.worker" in (command := command_of(pid)) and mark in command
        ]


def wait_until(true: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    """Return once something is so."""
    ends_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


def all_pids() -> list[int]:
    """Every process."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_of(pid: int) -> str:
    """A command line, or an empty text when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for pid in all_pids():
        try:
            found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def descendants(root: int) -> list[int]:
    """All processes below one, nearest first."""
    by_parent: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        by_parent.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        children = by_parent.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """End one process that a test started."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class MapRun:
    """A map of many calls in a process of its own; each call leaves its key and attempt in a file as it runs."""

    def __init__(self, folder: Path, plane: ControlPlane, *, calls: int, sleep_s: float, stream_port: int = 0) -> None:
        (folder / "runners").mkdir(parents=True, exist_ok=True)
        self.effects = folder / "effects"
        self.effects.touch()
        self.results = folder / "results.json"
        self.log = folder / "client.log"
        env = plane.environment
        if stream_port:
            env["LEVERS9_CONTROLPLANE_PORT"] = str(stream_port)
        program = Path(__file__).with_name("mapped") / "recorded_map.py"
        argv = [sys.executable, str(program), str(self.effects), str(self.results), str(calls), str(sleep_s)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> MapRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for_effects(self, count: int, within_s: float = 90.0) -> None:
        """Return once so many calls have begun."""
        ends = time.monotonic() + within_s
        while (begun := self.effects.stat().st_size // EFFECT_BYTES) < count:
            assert self.process.poll() is None, f"the map ended early:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < ends, f"only {begun} of {count} calls began:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.01)

    def finish(self, within_s: float = 120.0) -> tuple[list[int], list[tuple[int, int]]]:
        """The results, and each (key, attempt) that ran."""
        try:
            code = self.process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the map did not end:\n{self.log.read_text()[-3000:]}") from None
        assert code == 0, self.log.read_text()[-3000:]
        lines = self.effects.read_text().splitlines()
        ran = [(int(key), int(attempt)) for key, attempt in (line.split() for line in lines)]
        results: list[int] = json.loads(self.results.read_text())
        return results, ran


class Cable:
    """A TCP relay to a port of this host, whose connections a test may cut."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Close every connection as a broken cable does, once there is one; returns how many ends there were."""
        until_s = time.monotonic() + 20.0
        while not self._ends and time.monotonic() < until_s:
            time.sleep(0.01)
        return self._close_all()

    def _close_all(self) -> int:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        return len(ends)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()
        self._close_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


EFFECT_BYTES = 16


@contextmanager
def running(plane: ControlPlane, objects: Path | None = None) -> Iterator[ControlPlane]:
    """A control plane for the length of a block."""
    plane.start(objects)
    try:
        yield plane
    finally:
        plane.stop()
