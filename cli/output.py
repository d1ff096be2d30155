"""What is shown: tables on a terminal, plain columns in a pipe, JSON where asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

import cyclopts
import msgspec

T = TypeVar("T", bound=msgspec.Struct)

Json = Annotated[bool, cyclopts.Parameter(name="--json", negative="", help="Print JSON.")]

_COLOURS = {
    "COMPLETE": "green",
    "RUNNING": "cyan",
    "RETRY": "yellow",
    "CANCELLING": "yellow",
    "ERROR": "red",
    "TIMEOUT": "red",
    "EXPIRED": "red",
    "ready": "green",
    "available": "green",
    "running": "green",
    "unknown": "yellow",
    "gave up": "red",
    "quarantined": "red",
}


def print_json(value: object) -> None:
    """JSON for programs, indented for people."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """A table on a terminal, columns in a pipe; `empty` where there are no rows."""
    listed = [tuple(row) for row in rows]
    if sys.stdout.isatty():
        _print_rich(headings, listed, empty)
        return
    widths = [max(map(len, column)) for column in zip(headings, *listed)]
    for row in (tuple(headings), *listed):
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() + "\n")


def ago(time_s: float, now_s: float | None = None) -> str:
    """How long ago that was, such as "3 min"; a dash for never."""
    return "–" if not time_s else duration(max(0.0, (time.time() if now_s is None else now_s) - time_s))


def duration(seconds: float) -> str:
    """A time span in two figures or so."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def coloured(word: str) -> str:
    """A state in its colour, as rich's markup."""
    from rich.markup import escape

    colour = _COLOURS.get(word)
    return f"[{colour}]{escape(word)}[/]" if colour else escape(word)


def _print_rich(headings: Sequence[str], rows: list[tuple[str, ...]], empty: str) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        Console().print(empty)
        return
    table = Table(*headings, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(coloured, row))
    Console().print(table)
