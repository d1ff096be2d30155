"""The table of commands, and the edge at which every error becomes a sentence and an exit code."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Final

import cyclopts

from .. import __version__
from ..errors import LeversError
from ..model.hearsay import plain

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
_COMMAND: Final = "  kubectl "  # so begins a line of an error that people copy

_GROUPS: Final = {
    "run": ("run:run", "Run a function of a file on a worker, and show what it prints."),
    "task": ("tasks:app", "Calls: list, show, why, logs, stop."),
    "pool": ("pools:app", "Pools of workers: list, show, create, delete."),
    "worker": (
        "machines:workers_app",
        "Workers: list, cordon, uncordon, drain. Pools start them, by `levers9 worker` with options.",
    ),
    "cluster": ("clusters:app", "Clusters that you run: join, list, nodes, share, manifest, leave."),
    "queue": ("queues:app", "Queues: list, put, delete; priorities."),
    "quota": ("quotas:app", "Quotas: list, put, hold, release, delete, apply; flavors, cohorts, shares."),
    "topology": ("queues:topologies_app", "How nodes hang together: list, put, delete."),
    "container": ("machines:containers_app", "List containers."),
    "lab": ("lab:app", "An emulated GPU cluster: up, status, down, kubeconfig, and faults for its nodes."),
    "trace": ("trace:app", "The scheduler's journal: record, replay, diff, explain."),
    "inspect": ("inspect:inspect", "Show the control plane's live tree: states, restarts, mailboxes, rates."),
    "token": ("tokens:app", "Tokens: list, create, revoke."),
    "workspace": ("workspaces:app", "Workspaces: list, create."),
    "login": ("settings:login", "Keep a token and the control plane's address, after trying them."),
    "config": ("settings:app", "The configuration: show, set, path."),
}
_DAEMONS: Final = {
    "dev": "Everything on this machine, without configuration. With --run FILE it runs that program and stops.",
    "controlplane": "A control plane.",
    "gateway": "One gateway process of a control plane; control planes start their own.",
    "agent": "The agent of an attached cluster; `levers9 cluster join` has its manifest.",
}


def build() -> cyclopts.App:
    """The command line. Groups are named here and loaded when they are used."""
    app = cyclopts.App(
        name="levers9",
        help="Decorate a Python function, and it runs on a machine with the right card.",
        version=__version__,
        help_format="plaintext",  # markdown would load another 100 ms of libraries
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        default_parameter=cyclopts.Parameter(show_default=_default, negative_iterable=(), negative_bool=()),
    )
    for name, words in _DAEMONS.items():
        app.command(_never, name=name, help=words)
    for name, (place, words) in _GROUPS.items():
        app.command(f"{__package__}.{place}", name=name, help=words)
    app.register_install_completion_command()
    return app


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        code = build()(arguments)
        return code if isinstance(code, int) and not isinstance(code, bool) else 0
    except cyclopts.CycloptsError as error:
        return _told(_usage(error), USAGE)
    except LeversError as error:
        return _told(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return FAILED


def _default(value: object) -> str | None:
    """What the help says of a default; that a flag is not set, or a text empty, goes without saying."""
    if value is None or value is False or value in ("", ()):
        return None
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _never() -> None:
    """Daemons are started before this table is looked at; here they are only named in the help."""


def _usage(error: cyclopts.CycloptsError) -> str:
    chain = " ".join(error.command_chain or ())
    told = str(error)
    if isinstance(error, cyclopts.UnusedCliTokensError):
        told = f"That is more than it takes: {shlex.join(error.unused_tokens or ())}."
    return f"{told} See: {' '.join(part for part in ('levers9', chain, '--help') if part)}"


def _told(sentence: str, code: int) -> int:
    """On standard error; a command to copy stays in a line of its own, as it is."""
    lines = sentence.split("\n")
    text = " ".join(["levers9:", *" ".join(line for line in lines if not line.startswith(_COMMAND)).split()])
    if sys.stderr.isatty():
        from .output import wrapped

        text = wrapped(text, shutil.get_terminal_size().columns)
    print(text, *(plain(line) for line in lines if line.startswith(_COMMAND)), sep="\n", file=sys.stderr)
    return code
