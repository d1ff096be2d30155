"""What is shown: tables on a terminal, plain columns in a pipe, JSON where asked."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeVar

import cyclopts
import msgspec

from ..model.hearsay import plain
from ..wire.rest.answer import Answer

T = TypeVar("T", bound=msgspec.Struct)

Json = Annotated[bool, cyclopts.Parameter(name="--json", negative="", help="Print JSON.")]

_GAP: Final = "  "
_CLOSE: Final = " "  # between columns where the terminal is narrow
_WHOLE: Final = frozenset({"STATE", "KIND"})  # besides the first column, which people copy
_REASONS: Final = ("WHY", "HELD")  # as the last column: sentences, which nobody can read in five characters
_NARROWEST: Final = 5
_SHORT: Final = 9  # a column of so many characters is cut only when all wider ones have given what they can
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
_CODES: Final = {"green": 32, "cyan": 36, "yellow": 33, "red": 31}
_COLOURS: Final = {
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
    "online": "green",
    "waiting": "yellow",
    "stale": "yellow",
    "offline": "red",
    "unknown": "yellow",
    "gave up": "red",
    "quarantined": "red",
}


def print_json(value: object) -> None:
    """JSON for programs, indented for people. That an answer is no error is said by our exit status."""
    shown = msgspec.to_builtins(value)
    if isinstance(value, Answer):
        del shown["ok"]
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Rows on a terminal in its width, without columns that say nothing; whole columns in a pipe.

    `empty` is said on a terminal where there are no rows.
    """
    table = [tuple(headings), *(tuple(row) for row in rows)]
    on_terminal = sys.stdout.isatty()
    if on_terminal and len(table) == 1:
        print(empty)
        return
    for line in for_terminal(table) if on_terminal else in_columns(table):
        sys.stdout.write(f"{line}\n")


def in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Each cell whole, for programs."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return [_GAP.join(cut(cell, width).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]


def for_terminal(table: Sequence[Sequence[str]]) -> list[str]:
    """Each row one line of the terminal, states in their colours, the headings in bold.

    Reasons, for which a line has no room, stand below the row that they belong to, and so do columns at the end of it
    where the terminal is too narrow for all.
    """
    room = shutil.get_terminal_size().columns
    columns = [column for column in zip(*table) if any(cell not in ("", "–") for cell in column[1:])]
    widths = [max(map(len, column)) for column in columns]
    below: list[Sequence[str]] = []
    if len(columns) > 1 and columns[-1][0] in _REASONS and sum(widths) + len(_GAP) * (len(widths) - 1) > room:
        below.append(columns.pop())
    whole = [not place or column[0] in _WHOLE for place, column in enumerate(columns)]
    gap = _GAP if _least(columns, whole, _GAP) <= room else _CLOSE
    while len(columns) > 1 and _least(columns, whole, gap) > room:
        below.insert(0, columns.pop())
    widths = fitted(widths[: len(columns)], whole, room, gap)
    lines: list[str] = []
    for number, row in enumerate(zip(*columns)):
        cells = (cut(cell, width).ljust(width) for cell, width in zip(row, widths))
        lines.append(gap.join(map(_in_colour, cells)).rstrip())
        if number:
            lines += _below([(column[0], column[number]) for column in below], room)
    return [f"{_BOLD}{lines[0]}{_PLAIN}", *lines[1:]]


def _least(columns: Sequence[Sequence[str]], whole: Sequence[bool], gap: str) -> int:
    """How wide these columns are when each has given what it can."""
    widths = (max(map(len, column)) for column in columns)
    least = (width if kept else min(width, _NARROWEST) for width, kept in zip(widths, whole))
    return sum(least) + len(gap) * (len(columns) - 1)


def _below(cells: Sequence[tuple[str, str]], room: int) -> list[str]:
    """What a row has no room for: short cells together, a reason in lines of its own."""
    said = [(heading, cell) for heading, cell in cells if cell not in ("", "–")]
    short = _GAP.join(f"{heading}: {cell}" for heading, cell in said if heading not in _REASONS)
    texts = [short, *(f"{heading}: {cell}" for heading, cell in said if heading in _REASONS)]
    return [textwrap.indent(wrapped(text, room - len(_GAP)), _GAP) for text in texts if text]


def fitted(widths: Sequence[int], whole: Sequence[bool], room: int, gap: str = _GAP) -> list[int]:
    """The widths of columns in `room` characters: the widest give first, short ones last, and never those that are to
    stay whole.
    """
    found = list(widths)
    spare = room - len(gap) * (len(found) - 1)
    for longest in (_SHORT, 0):
        giving = [place for place, width in enumerate(widths) if not whole[place] and width > longest]
        while sum(found) > spare and giving:
            widest = max(giving, key=lambda place: found[place])
            if found[widest] <= _NARROWEST:
                break
            found[widest] -= 1
    return found


def cut(text: str, width: int) -> str:
    """A text of one line that drives no terminal, with a sign where it was cut."""
    text = text if "\n" in text else plain(text)
    line = plain(text.partition("\n")[0])
    return line if len(line) <= width and line == text else line[: max(0, width - 1)] + "…"


def ago(time_s: float, now_s: float | None = None) -> str:
    """How long ago that was, such as "3 min"; a dash for never."""
    return "–" if not time_s else duration(max(0.0, (time.time() if now_s is None else now_s) - time_s))


def duration(seconds: float) -> str:
    """A time span in two figures or so."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _in_colour(cell: str) -> str:
    colour = _COLOURS.get(cell.rstrip())
    return f"\x1b[{_CODES[colour]}m{cell}{_PLAIN}" if colour else cell


def short_names(names: Sequence[str]) -> list[str]:
    """Names of functions; on a terminal without their app, where all are of one."""
    apps = {name.rpartition("/")[0] for name in names}
    return [name.rpartition("/")[2] for name in names] if len(apps) == 1 and sys.stdout.isatty() else list(names)


def print_sentence(text: str) -> None:
    """A sentence for people: on a terminal its lines break between words."""
    print(wrapped(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else plain(text))


def wrapped(text: str, width: int) -> str:
    """A sentence in lines of whole words, which drives no terminal."""
    return textwrap.fill(plain(text), max(40, width), break_long_words=False, break_on_hyphens=False)
