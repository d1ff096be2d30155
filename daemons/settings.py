"""What a control plane is told: a TOML file, the environment over it, flags over both.

A wrong key is refused with the file, the line and the nearest right key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from ..errors import ConfigError, Refused
from ..model.figures import HTTP_PORT, METRICS_PORT, STREAM_PORT
from ..model.resources import Capacity, cpu_milli, memory_mib

Table = Mapping[str, object]

PORT_MAX: Final = 65_535
CHOICES: Final = {"kind": '"process"', "isolation": '"none" or "trusted"'}


class PoolTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[pools]]`: workers of one size as child processes. `memory` is MiB, or a quantity such as "4Gi".

    Code runs as plain processes there, so a pool serves the workspace `default` only; with `isolation = "trusted"` it
    serves all workspaces, which then trust each other.
    """

    name: str
    kind: Literal["process"] = "process"
    min_workers: int = 0
    max_workers: int = 1
    cpu: float = 1.0
    memory: int | str = 1024
    gpu: str = ""
    gpu_count: int = 0
    isolation: Literal["none", "trusted"] = "none"

    def capacity(self) -> Capacity:
        """The size of one worker."""
        return Capacity(
            cpu_milli=cpu_milli(self.cpu),
            memory_mib=memory_mib(self.memory),
            gpu_count=self.gpu_count,
            gpu_type=self.gpu,
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A control plane. Without `database_url` and `redis_url` it runs servers of its own in `state_dir`.

    `external_url` is where callers and workers find it from outside; `advertise_url` where other replicas dial its
    streams. Port 0 takes any free one. `metrics_port` -1 is none.
    """

    state_dir: str = ""
    run_dir: str = ""
    database_url: str = ""
    redis_url: str = ""
    objects_url: str = ""
    bind: str = "127.0.0.1"
    stream_port: int = STREAM_PORT
    http_port: int = HTTP_PORT
    metrics_port: int = METRICS_PORT
    external_url: str = ""
    advertise_url: str = ""
    cert: str = ""
    key: str = ""
    gateways: int = 1
    pools: tuple[PoolTable, ...] = ()


_ENVIRONMENT: Final = {f"LEVERS9_{name.upper()}": name for name in Settings.__struct_fields__ if name != "pools"}


def load_settings(path: Path | None, environment: Mapping[str, str] = os.environ, **flags: object) -> Settings:
    """The settings from a file (None: no file), the environment and flags. Raises `ConfigError`."""
    table: dict[str, object] = dict(_read(path)) if path is not None else {}
    for variable, name in _ENVIRONMENT.items():
        if variable in environment:
            table[name] = environment[variable]
    table.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = msgspec.convert(table, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_bad_value(path, _with_advice(str(error)))) from error
    check_values(settings, path)
    return settings


def check_values(settings: Settings, path: Path | None = None) -> None:
    """Raises `ConfigError` for values of the right kind that no control plane can have; `path` is where they stand."""
    for place, wrong in _wrong_values(settings):
        raise ConfigError(_bad_value(path, f"{wrong} - at `$.{place}`"))


def _wrong_values(settings: Settings) -> Iterator[tuple[str, str]]:
    """Where a value stands, and what is wrong with it and right instead."""
    if settings.gateways < 1:
        yield "gateways", f"{settings.gateways} is too few: write 1 or more"
    ports = {"stream_port": settings.stream_port, "http_port": settings.http_port}
    for key, port in ports.items():
        if not 0 <= port <= PORT_MAX:
            yield key, f"{port} is no port: write one from 1 to {PORT_MAX}, or 0 for any that is free"
    if not -1 <= settings.metrics_port <= PORT_MAX:
        yield "metrics_port", f"{settings.metrics_port} is no port: write one from 0 to {PORT_MAX}, or -1 for none"
    names = [pool.name for pool in settings.pools]
    for number, pool in enumerate(settings.pools):
        if pool.name in names[:number]:
            yield f"pools[{number}].name", f'another pool is named "{pool.name}": write a name of its own'
        yield from ((f"pools[{number}].{key}", wrong) for key, wrong in _wrong_in_pool(pool))


def _wrong_in_pool(pool: PoolTable) -> Iterator[tuple[str, str]]:
    if not pool.name:
        yield "name", 'it is empty: write a name such as "default"'
    for key, number in (("max_workers", pool.max_workers), ("gpu_count", pool.gpu_count)):
        if number < 0:
            yield key, f"{number} is too few: write 0 or more"
    if not 0 <= pool.min_workers <= pool.max_workers:
        yield "min_workers", f"{pool.min_workers} does not fit: write 0 to {pool.max_workers}, which is max_workers"
    try:
        pool.capacity()
    except Refused as refused:
        yield ("memory" if refused.what.startswith("memory") else "cpu"), str(refused)


def _with_advice(said: str) -> str:
    """What msgspec says of a choice that there is not, with those that there are."""
    key = re.search(r"^Invalid enum value .*\.(\w+)`$", said)
    choices = CHOICES.get(key[1]) if key else None
    return said.replace(" - at", f": write {choices} - at", 1) if choices else said


def _read(path: Path) -> Table:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Name another file with --config.") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"{path}, line {line[1] if line else text.count(chr(10)) + 1}"
        raise ConfigError(f"{where}: this is not TOML: {what}. Write `key = value`, and texts in quotes.") from error
    _check_keys(path, text, table, Settings.__struct_fields__)
    pools = table.get("pools", [])
    for pool in cast("list[Table]", pools) if isinstance(pools, list) else []:
        _check_keys(path, text, pool, PoolTable.__struct_fields__)
    return table


def _check_keys(path: Path, text: str, table: Table, known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(unknown_key(path, text, key, known))


def unknown_key(path: Path, text: str, key: str, known: tuple[str, ...]) -> str:
    """The sentence for a key that does not exist: the file, its line, the nearest key that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    advice = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(sorted(known))}."
    return f"{path}, line {line_of(text, key)}: there is no key `{key}`. {advice}"


def line_of(text: str, key: str, pool: int = 0) -> int:
    """The line that sets a key, counted from 1; of a key of pools, that of the pool with this number."""
    starts = [match.start() for match in re.finditer(r"^\s*\[\[\s*pools\s*\]\]", text, re.MULTILINE)]
    begin = starts[pool] if key in PoolTable.__struct_fields__ and pool < len(starts) else 0
    form = re.compile(rf"^[^\S\n]*\[*[^\S\n]*[\"']?{re.escape(key)}[\"']?\s*[\]=]", re.MULTILINE)
    match = form.search(text, begin)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _bad_value(path: Path | None, said: str) -> str:
    """The sentence for a value of the wrong kind, wherever it came from."""
    what, _, place = said.partition(" - at `$.")
    names = re.match(r"(\w+)(?:\[(\d+)\]\.(\w+))?", place)
    key = (names[3] or names[1]) if names else ""
    variable = f"LEVERS9_{key.upper()}"
    if path is None or key not in path.read_text():
        return f"{key or 'The settings'}: {what}. It comes from a flag, or from the variable {variable}."
    line = line_of(path.read_text(), key, int(names[2] or 0) if names else 0)
    return f"{path}, line {line}: {key}: {what.rstrip('.')}."
