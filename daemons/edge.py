"""The edge of a daemon's process: errors of ours become sentences on standard error, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..errors import LeversError

INTERRUPTED = 130


def open_standard_streams() -> None:
    """Put the null device where standard input, output or error were closed.

    Else the next file or socket that is opened takes their number, and what is printed goes there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  # for as long as we live


def told(program: str, run: Callable[[], int], say: Callable[[str], None] | None = None) -> int:
    """What `run` returns; 1 where it raises an error of ours, alone or in groups, and 130 after Ctrl-C.

    `say` gets each sentence; without it they are printed on standard error.
    """
    errors: list[BaseException] = []
    interrupted = False
    code = 1
    try:
        code = run()
    except* LeversError as group:
        errors = leaves(group)
    except* KeyboardInterrupt:
        interrupted = True
    for error in errors:
        (say or _print)(f"{program}: {error}")
    return INTERRUPTED if interrupted and not errors else code


def _print(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, in order, each sentence once."""
    found: dict[str, BaseException] = {}
    for error in group.exceptions:
        for leaf in leaves(error) if isinstance(error, BaseExceptionGroup) else [error]:
            found.setdefault(str(leaf), leaf)
    return list(found.values())
