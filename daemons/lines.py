"""What the processes of a replica say, line by line, as the root passes it on.

The root alone knows whether a person reads along: its children write into its pipe. It tells them by LEVERS9_LOGS.
Nothing here loads a library for logs: a root has no use for one.
"""

from __future__ import annotations

import enum
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

LOGS_VARIABLE: Final = "LEVERS9_LOGS"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_DIM: Final = "\x1b[2m{}\x1b[0m"

_log: Final = logging.getLogger("levers9")


class LogStyle(enum.StrEnum):
    """For whom logs are written: a person at a terminal, or a program that reads an object a line."""

    PRETTY = "pretty"
    JSON = "json"


class _Record(msgspec.Struct, frozen=True):
    """A line of the root itself."""

    event: str
    level: str
    logger: str
    timestamp: str


class _Wrapped(msgspec.Struct, frozen=True):
    """A line of a program that writes no JSON: Postgres, say."""

    process: str
    event: str


def chosen_style(environment: Mapping[str, str], *, is_terminal: bool) -> LogStyle:
    """What LEVERS9_LOGS says, else pretty on a terminal and JSON otherwise; a word we do not know counts as none."""
    otherwise = LogStyle.PRETTY if is_terminal else LogStyle.JSON
    said = environment.get(LOGS_VARIABLE, otherwise)
    return LogStyle(said) if said in tuple(LogStyle) else otherwise


def as_json(process: str, line: str) -> str:
    """One JSON object that names the process: the object in the line with one key more, or the line as its event."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return msgspec.json.encode(_Wrapped(process, line)).decode()
    fields.pop("process", None)
    return msgspec.json.encode({"process": process, **fields}).decode()


def for_person(process: str, line: str) -> str:
    """The line behind a dim name."""
    return f"{_DIM.format(f'{process}:')} {line}"


def without_colours(line: str) -> str:
    """For a file: what a terminal would show as colours is not in it."""
    return _COLOURS.sub("", line)


class RootLogs(logging.Handler):
    """Sends what the root itself logs the same way as its children's lines: each record is a line of `root`."""

    def __init__(self, on_line: Callable[[str, str], None], style: LogStyle) -> None:
        super().__init__()
        self._on_line = on_line
        self._style = style
        self._converter = logging.Formatter(datefmt="%Y-%m-%dT%H:%M:%SZ")
        self._converter.converter = time.gmtime

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        if self._style is LogStyle.PRETTY:
            for line in self._converter.format(record).splitlines():
                self._on_line("root", line)
            return
        time_of = self._converter.formatTime(record, self._converter.datefmt)
        said = _Record(self._converter.format(record), record.levelname.lower(), record.name, time_of)
        self._on_line("root", msgspec.json.encode(said).decode())

    def install(self) -> None:
        """From now on, this is where the loggers of ours write."""
        _log.handlers[:] = [self]
        _log.propagate = False
