"""`levers9 inspect`: the control plane's live tree."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from ..wire.control import ChildStanding
from .output import Json, for_terminal, print_json
from .plane import ask

if TYPE_CHECKING:
    from rich.text import Text

_EVERY_S: Final = 1.0


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The supervision tree, depth first, and what could not be delivered."""

    children: tuple[ChildStanding, ...]
    dead_letters: int = 0
    latest_dead: tuple[str, ...] = ()


def inspect(*, watch: bool = False, json: Json = False) -> None:
    """Show the control plane's live tree: states, restarts, mailboxes, rates, dead letters.

    Parameters
    ----------
    watch
        Show it anew each second until Ctrl-C.
    """
    tree = ask(Tree, "GET", "inspect")
    if json:
        print_json(tree)
    elif watch and sys.stdout.isatty():
        _watch(tree)
    else:
        _print(tree)
        while watch:
            time.sleep(_EVERY_S)
            _print(ask(Tree, "GET", "inspect"))


def lines_of(tree: Tree) -> list[tuple[str, ...]]:
    """One row a child: its name below the nearest of those above it that are shown, and its figures."""
    shown = {child.path for child in tree.children}
    return [
        (
            _name(child.path, shown),
            child.state,
            str(child.process_id) if child.process_id else "–",
            str(child.restarts),
            f"{child.mailbox_depth}/{child.mailbox_slots}" if child.mailbox_slots else "–",
            f"{child.received_per_s:,.0f}/s",
            f"{child.handled:,}",
            f"{child.failed:,}",
            child.last_failure,
        )
        for child in tree.children
    ]


def _name(path: str, shown: set[str]) -> str:
    above = [path[:place] for place, sign in enumerate(path) if sign == "/" and path[:place] in shown]
    return "  " * len(above) + (path[len(above[-1]) + 1 :] if above else path)


HEADINGS: Final = ("NAME", "STATE", "PID", "RESTARTS", "MAILBOX", "RATE", "HANDLED", "FAILED", "LAST FAILURE")


def _print(tree: Tree) -> None:
    from .output import print_table

    print_table(HEADINGS, lines_of(tree), "Nothing runs.")
    print(_dead(tree), flush=True)


def _watch(tree: Tree) -> None:
    from rich.live import Live

    with Live(_rendered(tree), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(_EVERY_S)
            live.update(_rendered(ask(Tree, "GET", "inspect")), refresh=True)


def _rendered(tree: Tree) -> Text:
    from rich.text import Text

    lines = [*for_terminal([HEADINGS, *lines_of(tree)]), "", f"dead letters: {tree.dead_letters:,}"]
    return Text.from_ansi("\n".join([*lines, *tree.latest_dead[-5:]]))


def _dead(tree: Tree) -> str:
    return f"dead letters: {tree.dead_letters:,}" + (
        f", the latest: {tree.latest_dead[-1]}" if tree.latest_dead else ""
    )
