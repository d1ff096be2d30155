"""A control plane in production: `levers9 controlplane`. Several of them on one database are its replicas."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from .edge import open_standard_streams, told
from .lines import LogStyle, as_json, chosen_style, for_person
from .outlet import Outlet
from .root import Ready, Root, check_writable, default_run_dir
from .settings import Settings, load_settings
from .signals import until_signal

_STDOUT: Final = 1
_STDERR: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    open_standard_streams()
    arguments = _parser().parse_args(argv)
    style = chosen_style(os.environ, is_terminal=sys.stderr.isatty())
    with Outlet(_STDOUT) as said, Outlet(_STDERR) as logs:
        say = partial(_say, logs, style)
        return told("levers9 controlplane", lambda: _main(arguments, said, logs), lambda error: say("root", error))


def _main(arguments: argparse.Namespace, said: Outlet, logs: Outlet) -> int:
    settings = _settings(arguments)
    check_writable(Path(settings.state_dir))
    trio.run(_run, settings, arguments.json, said, logs)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="levers9 controlplane", description="A control plane, until SIGTERM.")
    parser.add_argument("--config", default="", metavar="FILE", help="TOML; see docs/configuration.md")
    parser.add_argument("--state-dir", default=None, help="default: ~/.levers9/controlplane")
    parser.add_argument("--run-dir", default=None, help="for sockets; default: a short folder made from the state's")
    parser.add_argument("--database-url", default=None, help="Postgres; default: an embedded one")
    parser.add_argument("--redis-url", default=None, help="Redis or Valkey; default: an embedded one")
    parser.add_argument("--objects-url", default=None, help="s3://… or file://…; default: a folder of the state's")
    parser.add_argument("--bind", default=None)
    parser.add_argument("--stream-port", type=int, default=None)
    parser.add_argument("--http-port", type=int, default=None)
    parser.add_argument("--metrics-port", type=int, default=None, help="-1: none")
    parser.add_argument("--gateways", type=int, default=None)
    parser.add_argument("--external-url", default=None)
    parser.add_argument("--external-ca", default=None, metavar="FILE", help="certificates that attached clusters trust")
    parser.add_argument("--advertise-url", default=None)
    parser.add_argument("--cert", default=None)
    parser.add_argument("--key", default=None)
    parser.add_argument("--json", action="store_true", help="say as JSON lines when it is ready, and the first token")
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    flags = {name: value for name, value in vars(arguments).items() if name not in ("config", "json")}
    settings = load_settings(Path(arguments.config) if arguments.config else None, **flags)
    state_dir = Path(settings.state_dir or Path.home() / ".levers9" / "controlplane").absolute()
    run_dir = settings.run_dir or str(default_run_dir(state_dir))
    return msgspec.structs.replace(settings, state_dir=str(state_dir), run_dir=run_dir)


async def _run(settings: Settings, in_json: bool, said: Outlet, logs: Outlet) -> None:
    style = chosen_style(os.environ, is_terminal=sys.stderr.isatty())
    root = Root(
        settings,
        show_token=lambda token: said.say(_first_token(token, in_json)),
        on_line=partial(_say, logs, style),
        warn=partial(_say, logs, style, "root"),
        style=style,
    )
    async with until_signal(), root.running() as ready:
        said.say(_ready(ready, in_json))
        await trio.sleep_forever()


def _say(logs: Outlet, style: LogStyle, process: str, line: str) -> None:
    logs.say(as_json(process, line) if style is LogStyle.JSON else for_person(process, line))


def _first_token(token: str, in_json: bool) -> str:
    if in_json:
        return json.dumps({"first_admin_token": token})
    return f"The first admin token, shown this once:\n\n  {token}\n\nKeep it, and use it with `levers9 login`."


def _ready(ready: Ready, in_json: bool) -> str:
    if in_json:
        return json.dumps({"ready": True, "stream_url": ready.stream_url, "http_url": ready.http_url})
    return f"levers9 runs: streams on {ready.stream_url}, HTTP on {ready.http_url}."


if __name__ == "__main__":
    sys.exit(main())
