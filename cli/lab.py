"""`levers9 lab`: an emulated GPU cluster with a real Kubernetes API server, and faults on demand."""

from __future__ import annotations

import os
import shlex
import sys
import time
import uuid
from typing import Annotated, Final

import cyclopts
import msgspec

from ..errors import INVALID, Refused
from ..lab.asked import check
from ..lab.binaries import provide
from ..lab.folder import LabFolder, LabSettings, lab_folder, no_lab
from ..lab.running import end_lab, is_running, start_lab
from ..lab.talk import AskFault, AskStatus, Done, LabStatus, TrayStatus, ask
from ..lab.verbs import SLOW_S, SLOWEST_S, Verb
from .output import Json, print_json, print_table

app = cyclopts.App(name="lab", help="An emulated GPU cluster: a real API server, simulated nodes, faults on demand.")
Node = Annotated[str, cyclopts.Parameter(name="NODE", help="As `levers9 lab status` names it, such as tray-0.")]


def _folder() -> LabFolder:
    return lab_folder(os.environ)


@app.command
def up(
    *,
    trays: int = 2,
    gpus: int = 4,
    gpu: str = "GB200",
    cpu: int = 64,
    memory: str = "512Gi",
    name: str = "levers9-lab",
    image: tuple[str, ...] = (),
    user: tuple[str, ...] = ("guest",),
    trays_per_domain: int = 18,
    grace: int = 8,
) -> None:
    """Start a lab in the background, and return when its nodes are ready.

    Without Kubernetes' programs at hand it builds them once, which takes Go and some minutes.

    Example: levers9 lab up --trays 4 --gpus 8 --gpu H100

    Parameters
    ----------
    trays
        How many nodes.
    gpus
        How many cards each.
    gpu
        Which card, such as GB200, H100, L4.
    cpu
        How many cores a node says it has.
    memory
        How much memory a node says it has.
    name
        The name of the kube context.
    image
        A pattern of further images that nodes can pull.
    user
        Somebody with a kubeconfig of their own and no rights yet.
    trays_per_domain
        How many trays are in one NVLink domain.
    grace
        How many seconds a node may be silent before it counts as not ready.
    """
    started = time.monotonic()
    folder = _folder()
    settings = LabSettings(
        lab_id=uuid.uuid4().hex,
        name=name,
        trays=trays,
        gpus=gpus,
        gpu=gpu,
        cpu=cpu,
        memory=memory,
        images=image,
        users=user,
        trays_per_domain=trays_per_domain,
        grace_s=grace,
    )
    check(settings)
    settings = msgspec.structs.replace(settings, binaries=_binaries())
    start_lab(folder, settings, _say)
    _say(f"The lab is up after {time.monotonic() - started:.1f} s. Next:")
    print(f"export KUBECONFIG={shlex.quote(str(folder.kubeconfig()))}")


def _binaries() -> dict[str, str]:
    """The programs; while they are built, a terminal shows the seconds in one line, a log gets a line now and then."""
    if not sys.stderr.isatty():
        return provide(os.environ, _say)

    def show(words: str) -> None:
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    try:
        return provide(os.environ, show, every_s=1.0)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@app.command
def status(*, json: Json = False) -> None:
    """Show the lab: its nodes, their cards, and what is wrong with them."""
    found = ask(_folder(), AskStatus())
    assert isinstance(found, LabStatus)
    if json:
        print_json(found)
        return
    headings = ("NODE", "STATE", "CARD", "CARDS", "FREE", "PODS", "DOMAIN", "FAULTS")
    print_table(headings, map(_row, found.trays), "The lab has no nodes.")


def _row(tray: TrayStatus) -> tuple[str, ...]:
    state = "ready" if tray.ready else "not ready"
    state = f"{state}, cordoned" if tray.cordoned else state
    counts = (str(tray.cards), str(tray.cards_free), str(tray.pods))
    return tray.node, state, tray.gpu, *counts, tray.domain[:8], ", ".join(tray.faults) or "–"


@app.command
def down() -> None:
    """End the lab, and everything that it has started."""
    if not end_lab(_folder()):
        raise no_lab()
    _say("The lab is down.")


@app.command
def kubeconfig(*, user: str = "") -> None:
    """Print the path of the lab's kubeconfig.

    Parameters
    ----------
    user
        That of a user instead of the administrator's.
    """
    folder = _folder()
    settings = folder.settings()
    if settings is None or not is_running(folder):
        raise no_lab()
    if user and user not in settings.users:
        raise Refused(f"The lab has no user {user}.", f"It has {', '.join(settings.users)}.", "See: lab up --user.")
    print(folder.kubeconfig(user))


def _fault(verb: Verb, node: str, slow_s: float = SLOW_S) -> None:
    done = ask(_folder(), AskFault(verb=verb, node=node, slow_s=slow_s))
    assert isinstance(done, Done)
    print(done.words)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


@app.command
def slow(node: Node, /, *, seconds: float = SLOW_S) -> None:
    """Let a node's kubelet react late; `steady` undoes it.

    Parameters
    ----------
    seconds
        How late.
    """
    if not 0 < seconds <= SLOWEST_S:
        raise Refused(f"{seconds:g} s is no delay.", fix=f"Write more than 0, and at most {SLOWEST_S:g}.", code=INVALID)
    _fault(Verb.SLOW, node, seconds)


_WORDS: Final = {
    Verb.CORDON: "Let a node take no new pods; `uncordon` undoes it.",
    Verb.UNCORDON: "Let a node take pods again.",
    Verb.POWER_OFF: "Cut a node's power: its processes are gone at once; `power-on` undoes it.",
    Verb.POWER_ON: "Give a node power again.",
    Verb.PARTITION: "Cut a node's network: what runs there goes on, and nobody hears of it; `heal` undoes it.",
    Verb.HEAL: "Give a node its network again.",
    Verb.STEADY: "Let a node's kubelet react at once again.",
    Verb.FAIL_PULL: "Let a node fail to pull images; `pull-again` undoes it.",
    Verb.PULL_AGAIN: "Let a node pull images again.",
    Verb.EVICT: "Let a node evict its pods, as it does when it lacks memory.",
    Verb.LOSE_CARD: "Take a card from a node; `regain-card` undoes it.",
    Verb.REGAIN_CARD: "Give a node a lost card back.",
    Verb.SPLIT_DOMAIN: "Put a node alone into an NVLink domain; `join-domain` undoes it.",
    Verb.JOIN_DOMAIN: "Put a node back into its NVLink domain.",
}


def _command(verb: Verb) -> None:
    def act(node: Node, /) -> None:
        _fault(verb, node)

    act.__doc__ = _WORDS[verb]
    app.command(act, name=verb.value)


for _verb in _WORDS:
    _command(_verb)
