"""`levers9 config` and `levers9 login`: where the control plane is, and who we are."""

from __future__ import annotations

import configparser
import getpass
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import cyclopts
import msgspec

from ..errors import ConfigError
from ..sdk.config import KEYS, SECTION, VARIABLES, Settings, config_path, nearest, read_file, resolve, running_dev
from ..sdk.rest import Rest
from .output import Json, print_json, print_table

app = cyclopts.App(name="config", help="The configuration: show, set, path.")

_SHOWN: Final = 6  # of a token


class Whoami(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token that is."""

    workspace: str
    kind: str


@app.command
def show(*, json: Json = False) -> None:
    """Show what is set, and where."""
    path = config_path()
    values = read_file(path)
    rows: list[tuple[str, str, str]] = [(key, values[key], str(path)) for key in KEYS if key in values]
    for key, variable in VARIABLES.items():
        if os.environ.get(variable):
            rows = [row for row in rows if row[0] != key] + [(key, os.environ[variable], variable)]
    hidden = [(key, _hidden(value) if key == "token" else value, origin) for key, value, origin in rows]
    if json:
        print_json([{"key": key, "value": value, "from": origin} for key, value, origin in hidden])
    else:
        print_table(("KEY", "VALUE", "FROM"), hidden, "")
        if not hidden:
            print(_nothing_set(path))


@app.command(name="set")
def set_(key: str, value: str, /) -> None:
    """Set a key of the file, such as: levers9 config set controlplane_host levers9.example."""
    if key not in KEYS:
        meant = nearest(key, KEYS)
        raise ConfigError(
            f"There is no key {key!r}. "
            + (f"Did you mean {meant!r}?" if meant else f"The keys are: {', '.join(KEYS)}.")
        )
    write({key: value})
    print(f"{key} is set in {config_path()}.")


@app.command
def path() -> None:
    """Print where the file is."""
    print(config_path())


def login(
    *,
    token: Annotated[str, cyclopts.Parameter(help="The token; asked for where it is not given.")] = "",
    host: str = "",
    port: int = 0,
    http_url: str = "",
    tls: Annotated[bool | None, cyclopts.Parameter(negative="--no-tls")] = None,
) -> None:
    """Keep a token and the control plane's address in the configuration file, after trying them.

    Parameters
    ----------
    host
        The control plane's host; 127.0.0.1 by default.
    port
        Its port for streams; 1993 by default, 443 with --tls.
    http_url
        Its address for HTTP, where it is not the same host.
    tls
        Speak TLS; needed beyond this machine.
    """
    given = token or _asked()
    values = {"token": given, "controlplane_host": host, "controlplane_port": str(port or (443 if tls else 0) or "")}
    values |= {"controlplane_http_url": http_url, "tls": "" if tls is None else str(tls).lower()}
    settings = _tried({key: value for key, value in values.items() if value})
    known = _whoami(settings)
    write({key: value for key, value in values.items() if value})
    print(f"You are in workspace {known.workspace or '(the platform)'} as {known.kind}. It is kept in {config_path()}.")


def write(values: dict[str, str]) -> None:
    """Put keys into the file's default section; it is the user's alone. Raises `ConfigError` where that fails."""
    path = config_path()
    merged = read_file(path) | values
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(path, encoding="utf-8")
    parser[SECTION] = merged
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            parser.write(file)
        partial.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}. Set LEVERS9_TOKEN and the like in the environment instead."
        ) from error


def _tried(values: dict[str, str]) -> Settings:
    names = {VARIABLES[key]: value for key, value in values.items() if key in VARIABLES}
    tls = values["tls"] == "true" if "tls" in values else None
    return resolve(tls=tls, environment={**os.environ, **names})


def _whoami(settings: Settings) -> Whoami:
    rest = Rest(settings.http_url, settings.token)
    try:
        return msgspec.json.decode(rest.call("GET", "/api/v1/whoami"), type=Whoami)
    finally:
        rest.close()


def _asked() -> str:
    found = (getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not found:
        raise ConfigError("No token was given. Use --token, or type it where it is asked for.")
    return found


def _nothing_set(path: Path) -> str:
    dev = running_dev()
    used = f"The `levers9 dev` that runs here is used: {dev.http_url}." if dev else "No `levers9 dev` runs here."
    return f"Nothing is set. {used} {path} would be read."


def _hidden(token: str) -> str:
    return token[:_SHOWN] + "…"
