"""Where the control plane is and who we are: arguments, then variables, then the file, then a running `levers9 dev`."""

from __future__ import annotations

import configparser
import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..model import places
from ..model.loopback import is_loopback

SECTION: Final = "default"
STREAM_PATH: Final = "/v1/stream?peer=client"
STREAM_PORT: Final = 1993  # as model/figures, which this module spares the program that never calls
HTTP_PORT: Final = 1994
KEYS: Final = ("token", "controlplane_host", "controlplane_port", "controlplane_http_url", "tls")
VARIABLES: Final = {
    "token": "LEVERS9_TOKEN",
    "controlplane_host": "LEVERS9_CONTROLPLANE_HOST",
    "controlplane_port": "LEVERS9_CONTROLPLANE_PORT",
    "controlplane_http_url": "LEVERS9_HTTP_URL",
}
_TRUTHS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """A control plane and the right to use it. `origin` says where the token came from."""

    token: str
    stream_url: str
    http_url: str
    origin: str


def config_path() -> Path:
    """The configuration file; `LEVERS9_CONFIG` names another one."""
    given = os.environ.get("LEVERS9_CONFIG")
    return Path(given) if given else _home() / ".levers9" / "config"


def read_file(path: Path) -> dict[str, str]:
    """The keys of the `[default]` section; none without a file. Raises `ConfigError` naming line and nearest key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. Correct the file, or remove it.") from error
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text, str(path))
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or next((number for number, _ in getattr(error, "errors", [])), 0)
        raise ConfigError(f"{path}, line {line}: {_one_line(error)}. Write KEY = VALUE below [default].") from error
    if not parser.has_section(SECTION):
        return _without_default(path, text, parser.sections())
    found = dict(parser.items(SECTION))
    for key in found:
        if key not in KEYS:
            raise ConfigError(_bad_key(path, text, key))
    return found


def resolve(
    token: str | None = None,
    host: str | None = None,
    port: int | None = None,
    tls: bool | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Settle on one control plane. Raises `ConfigError` with what to do when there is no token, or a value is wrong."""
    variables = os.environ if environment is None else environment
    path = config_path()
    values = read_file(path)
    origins = dict.fromkeys(values, str(path))
    for key, variable in VARIABLES.items():
        if variables.get(variable):
            values[key], origins[key] = variables[variable], f"the variable {variable}"
    given = {"token": token, "controlplane_host": host, "controlplane_port": None if port is None else str(port)}
    for key, value in given.items():
        if value is not None:
            values[key], origins[key] = value, "the program"
    if tls is not None:
        values["tls"], origins["tls"] = str(tls), "the program"
    if (host is not None or port is not None) and origins.get("controlplane_http_url") != "the program":
        values.pop("controlplane_http_url", None)  # it belongs to the address that was just replaced
    if not values.get("token"):
        return _from_dev(path, {key: origins[key] for key in values})
    return _settings(values, origins)


def nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    """The known word that was probably meant, or an empty text."""
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.5)), "")


def _settings(values: dict[str, str], origins: dict[str, str]) -> Settings:
    host = values.get("controlplane_host", "127.0.0.1")
    port = _port(values.get("controlplane_port", str(STREAM_PORT)), origins.get("controlplane_port", ""))
    secure = values.get("controlplane_http_url", "").startswith("https://")
    tls = _truth(values.get("tls", str(secure)), origins.get("tls", ""))
    letter = "s" if tls else ""
    shown = f"[{host}]" if ":" in host else host
    http_port = HTTP_PORT if port == STREAM_PORT else port
    http_url = values.get("controlplane_http_url", f"http{letter}://{shown}:{http_port}").rstrip("/")
    stream_url = f"ws{letter}://{shown}:{port}{STREAM_PATH}"
    for url in (stream_url, http_url):
        _refuse_plain(url)
    return Settings(values["token"], stream_url, http_url, origins["token"])


def _refuse_plain(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss", "http", "https") or not parts.hostname:
        raise ConfigError(f"{url!r} is not an address. Give controlplane_http_url as https://HOST[:PORT].")
    if parts.scheme in ("ws", "http") and not is_loopback(parts.hostname):
        raise ConfigError(
            f"The token would travel unencrypted to {parts.hostname}. Set tls = true (and an https:// "
            "controlplane_http_url), or reach the control plane over loopback."
        )


def running_dev() -> Settings | None:
    """How to reach this user's running `levers9 dev`, or None."""
    return read_dev(Path(places.dev_connection_path(os.environ, os.getuid())))


def _from_dev(path: Path, origins: dict[str, str]) -> Settings:
    found = running_dev()
    if found is not None and not origins:
        return found
    if origins:
        key, origin = next(iter(origins.items()))
        raise ConfigError(
            f"There is no token, but {key} in {origin} names a control plane. `levers9 login` keeps a token"
            + (f"; without {' and '.join(sorted(origins))} the `levers9 dev` that runs here is used." if found else ".")
        )
    raise ConfigError(
        f"There is no token: neither LEVERS9_TOKEN nor {path} gives one, and no `levers9 dev` runs here. "
        "Start `levers9 dev` on this machine, or run `levers9 login` for a control plane elsewhere."
    )


def read_dev(path: Path) -> Settings | None:
    """How to reach this user's running `levers9 dev`, or None; what another user or a dead process left is none."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        os.kill(int(content["pid"]), 0)
        stream_url, http_url = content["stream_url"].rstrip("/"), content["http_url"].rstrip("/")
        return Settings(content["token"], stream_url + STREAM_PATH, http_url, "levers9 dev")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _home() -> Path:
    return Path(os.path.expanduser("~"))


def _port(value: str, origin: str) -> int:
    if value.isdecimal() and 0 < int(value) < 65536:
        return int(value)
    raise ConfigError(f"controlplane_port in {origin} is {value!r}. Give a number from 1 to 65535.")


def _truth(value: str, origin: str) -> bool:
    if value.lower() not in _TRUTHS:
        raise ConfigError(f"tls in {origin} is {value!r}. Give true or false.")
    return _TRUTHS[value.lower()]


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")


def _line_of(text: str, pattern: str) -> int:
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if re.match(pattern, line, re.IGNORECASE)), 0)


def _bad_key(path: Path, text: str, key: str) -> str:
    line = _line_of(text, rf"\s*{re.escape(key)}\s*[=:]")
    meant = nearest(key, KEYS)
    advice = f"Did you mean {meant!r}?" if meant else f"The keys are: {', '.join(KEYS)}."
    return f"{path}, line {line}: there is no key {key!r}. {advice}"


def _without_default(path: Path, text: str, sections: list[str]) -> dict[str, str]:
    meant = nearest(SECTION, sections)
    if not meant:
        return {}
    line = _line_of(text, rf"\s*\[{re.escape(meant)}\]")
    raise ConfigError(f"{path}, line {line}: there is no section {SECTION!r}, but [{meant}]. Did you mean [{SECTION}]?")
