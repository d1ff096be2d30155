"""The command line. Each group of verbs is a module that is loaded when it is used; daemons skip all of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

DAEMONS: Final = ("dev", "controlplane", "worker", "gateway", "agent")
# `levers9 worker list` is a question, `levers9 worker …` is a worker
_VERBS: Final = ("list", "cordon", "uncordon", "drain", "--help", "-h")


def main(argv: Sequence[str] | None = None) -> None:
    """The entry of the console script. Exits with 0, with 1 for an error, with 2 for a wrong command line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(_daemon(arguments) if _is_daemon(arguments) else _command(arguments))


def _is_daemon(arguments: list[str]) -> bool:
    if not arguments or arguments[0] not in DAEMONS:
        return False
    return arguments[0] != "worker" or not arguments[1:] or arguments[1] not in _VERBS


def _daemon(arguments: list[str]) -> int:
    # Where it does not listen to signals, before and after its work, Ctrl-C ends it as TERM does: Python would write
    # where in its imports it was, and wait for ever where nobody reads that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    module = import_module(f"..daemons.{arguments[0]}", __name__)
    code = module.main(arguments[1:])
    return code if isinstance(code, int) else 0


def _command(arguments: list[str]) -> int:
    from .app import run

    return run(arguments)
