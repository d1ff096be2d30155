"""levers9 on a laptop: everything under one root, no configuration, nothing left running.

`main` is what `levers9 dev` calls. With `--run FILE -- ARGS` it runs that program against itself and stops.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from ..errors import Refused
from ..model.places import dev_connection_path
from ..model.states import TokenKind
from ..model.tokens import SECRET_BYTES, make_token
from .cluster_tables import AttachedClustersTable
from .edge import INTERRUPTED, open_standard_streams, told
from .lines import LogStyle, as_json, chosen_style, for_person, without_colours
from .outlet import Outlet
from .root import Ready, Root, check_writable, default_run_dir
from .settings import TABLES, PoolTable, Settings, check_values, load_settings
from .signals import until_signal

_STDOUT: Final = 1
_STDERR: Final = 2
_FOUND_BY: Final = ("external_url", "external_ca")
_LOG_MAX_BYTES: Final = 16 << 20  # what is longer at a start becomes the one log that is kept besides
_RESERVED_MIB: Final = 1024  # left to the laptop, the control plane and the servers


def main(argv: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C, or until the program of `--run` has ended; returns its exit code."""
    open_standard_streams()
    arguments = _parser().parse_args(argv)
    with Outlet(_STDOUT) as said, Outlet(_STDERR) as warned:
        return told("levers9 dev", lambda: _main(arguments, said, warned), warned.say)


def _main(arguments: argparse.Namespace, said: Outlet, warned: Outlet) -> int:
    state_dir = Path(arguments.state_dir or Path.home() / ".levers9" / "dev").absolute()
    check_writable(state_dir)
    with _alone(state_dir):
        return trio.run(_run, arguments, state_dir, said, warned)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="levers9 dev", description="levers9 on this machine, until Ctrl-C.")
    parser.add_argument("--state-dir", default="", help="where it keeps its state (default: ~/.levers9/dev)")
    parser.add_argument("--stream-port", type=int, default=None, help="default 1993; 0 takes a free one")
    parser.add_argument("--http-port", type=int, default=None, help="default 1994; 0 takes a free one")
    parser.add_argument("--metrics-port", type=int, default=-1, help="default: none")
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="workers; the machine is shared out between them")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="TOML: its pools, guard, queues and external_url instead"
    )
    parser.add_argument("--run", default="", metavar="FILE", help="run this Python program, then stop")
    parser.add_argument("--logs", action="store_true", help="show the logs of the control plane")
    parser.add_argument("arguments", nargs="*", help="for the program of --run, behind --")
    return parser


async def _run(arguments: argparse.Namespace, state_dir: Path, said: Outlet, warned: Outlet) -> int:
    code = INTERRUPTED
    async with until_signal():
        code = await _run_root(arguments, state_dir, said, warned)
    return code


async def _run_root(arguments: argparse.Namespace, state_dir: Path, said: Outlet, warned: Outlet) -> int:
    token = _token(state_dir)
    settings = _settings(arguments, state_dir)
    if not (state_dir / "postgres").exists():
        warned.say(f"First start: a database is made in {state_dir}, which takes some seconds.")
    # Without --logs only the file gets them, and that is read by a person.
    style = chosen_style(os.environ, is_terminal=not arguments.logs or sys.stderr.isatty())
    root = Root(
        settings,
        admin_token=token,
        owns_workers=True,
        on_line=_log_to(state_dir, warned if arguments.logs else None, style),
        warn=warned.say,
        style=style,
    )
    async with root.running() as ready:
        with connection_file(ready, token):
            if arguments.run:
                return await _run_program(arguments, ready, token)
            said.say(f"levers9 runs: streams on {ready.stream_url}, HTTP on {ready.http_url}.")
            said.say("Programs of this user find it by themselves. Ctrl-C stops it.")
            await trio.sleep_forever()


async def _run_program(arguments: argparse.Namespace, ready: Ready, token: str) -> int:
    host, _, port = ready.stream_url.partition("://")[2].rpartition(":")
    env = {
        **os.environ,
        "LEVERS9_TOKEN": token,
        "LEVERS9_CONTROLPLANE_HOST": host,
        "LEVERS9_CONTROLPLANE_PORT": port,
        "LEVERS9_HTTP_URL": ready.http_url,
    }
    argv = [sys.executable, arguments.run, *arguments.arguments]
    done = await trio.run_process(argv, env=env, check=False)
    return done.returncode


def _settings(arguments: argparse.Namespace, state_dir: Path) -> Settings:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 - _RESERVED_MIB
    workers = max(1, arguments.workers)
    pool = PoolTable(
        name="local",
        isolation="trusted",  # one person's laptop
        min_workers=workers,
        max_workers=workers,
        cpu=cores / workers,
        memory=max(256, memory // workers),
    )
    defaults = Settings()
    settings = Settings(
        state_dir=str(state_dir),
        run_dir=str(default_run_dir(state_dir)),
        stream_port=defaults.stream_port if arguments.stream_port is None else arguments.stream_port,
        http_port=defaults.http_port if arguments.http_port is None else arguments.http_port,
        metrics_port=arguments.metrics_port,
        gateways=arguments.gateways,
        pools=(pool,),
        attached_clusters=AttachedClustersTable(isolation="trusted"),
    )
    if arguments.config:
        settings = with_file(settings, Path(arguments.config))
    check_values(settings)
    return settings


def with_file(settings: Settings, path: Path) -> Settings:
    """What a file says of pools, their guard, queues and attached clusters, and by which address those find us; where
    the state is and which ports there are is ours.
    """
    given = load_settings(path, {})
    return msgspec.structs.replace(settings, **{name: getattr(given, name) for name in (*TABLES, *_FOUND_BY)})


def _token(state_dir: Path) -> str:
    path = state_dir / "token"
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    token = make_token(TokenKind.CLUSTER_ADMIN, secrets.token_bytes(SECRET_BYTES))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


class _alone:  # reads as a word: `with _alone(folder)`
    """One `levers9 dev` for a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"

    def __enter__(self) -> None:
        self._file = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip()
            raise Refused(
                f"levers9 dev already runs on this state (process {holder}).",
                fix="Use that one, stop it, or give this one its own --state-dir.",
            ) from error
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.truncate(0)
        self._file.close()


class connection_file:  # reads as a word, as `_alone`
    """While it runs, programs of this user find it here; after it they find the one that was there before, if that
    still runs.
    """

    def __init__(self, ready: Ready, token: str) -> None:
        self._path = Path(dev_connection_path(os.environ, os.getuid()))
        self._text = json.dumps(
            {"stream_url": ready.stream_url, "http_url": ready.http_url, "token": token, "pid": os.getpid()}
        )

    def __enter__(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._before = self._path.read_text() if self._path.exists() else ""
        self._write(self._text)

    def _write(self, text: str) -> None:
        fresh = self._path.with_name(f".{os.getpid()}.json")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        fresh.replace(self._path)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            if self._path.read_text() != self._text:
                return
            self._path.unlink()
            if _still_runs(self._before):
                self._write(self._before)


def _still_runs(connection: str) -> bool:
    """Whether the process that left this word of how to reach it is there."""
    try:
        os.kill(int(json.loads(connection)["pid"]), 0)
    except (ValueError, KeyError, TypeError, OSError):
        return False
    return True


def _log_to(state_dir: Path, shown: Outlet | None, style: LogStyle) -> Callable[[str, str], None]:
    path = state_dir / "logs" / "controlplane.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_MAX_BYTES:
        path.replace(path.with_suffix(".log.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(name: str, line: str) -> None:
        said = as_json(name, line) if style is LogStyle.JSON else for_person(name, line)
        with suppress(OSError):  # a full disk costs lines of the log, and not the child that wrote them
            os.write(descriptor, f"{without_colours(said)}\n".encode())
        if shown is not None:
            shown.say(said)

    return write


if __name__ == "__main__":
    sys.exit(main())
