"""What `levers9 queue`, `quota` and `topology` share: the control plane's answer, and how it is changed."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from ..errors import FORBIDDEN, Refused
from ..model.queue_tables import QueueingTable
from .output import print_json
from .plane import ask


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs, MiB, cards."""

    cpu: float
    memory_mib: int
    gpu: float


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it stands."""

    name: str
    workspace: str
    quota: str
    pending: int
    admitted: int
    used: Amount
    share: float


class QuotaFlavor(msgspec.Struct, frozen=True, kw_only=True):
    """One flavor of a quota as it stands; what only the platform's admin may see is None for others."""

    name: str
    flavor: str
    pending: int
    admitted: int
    used: Amount
    cohort: str | None = None
    nominal: Amount | None = None
    borrowed: Amount | None = None
    held: bool | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How queues and quotas stand, and, for the platform's admin, how they are configured."""

    queues: tuple[Queue, ...]
    quotas: tuple[QuotaFlavor, ...]
    queueing: QueueingTable | None = None


def standing() -> Standing:
    """How it stands now."""
    return ask(Standing, "GET", "queueing")


def configured() -> QueueingTable:
    """The configuration. Raises `Refused` for whoever may not see it."""
    found = standing().queueing
    if found is None:
        fix = "`levers9 queue list` and `levers9 quota list` show what is yours."
        raise Refused("Only the platform's admin sees how queues are configured.", fix=fix, code=FORBIDDEN)
    return found


def put(part: str, name: str, thing: msgspec.Struct, *, json: bool, what: str, done: str = "set") -> None:
    """Put one thing, and say so."""
    ask(Standing, "PUT", f"queueing/{part}/{quote(name)}", body=thing)
    if json:
        print_json(thing)
    else:
        print(f"{what} {name} is {done}.")


def drop(part: str, name: str, *, json: bool, what: str) -> None:
    """Take one thing away, and say so."""
    ask(Standing, "DELETE", f"queueing/{part}/{quote(name)}")
    if json:
        print_json({"deleted": name})
    else:
        print(f"{what} {name} is deleted.")


def memory(mib: float) -> str:
    """Such as "1.5 GiB"; a dash for none."""
    if not mib:
        return "–"
    return f"{mib / 1024:g} GiB" if mib >= 1024 else f"{mib:g} MiB"


def number(value: float) -> str:
    """A dash for none."""
    return f"{value:g}" if value else "–"
