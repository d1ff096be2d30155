"""`levers9 quota`: how much there is for whom; flavors, cohorts and shares."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import cyclopts
import msgspec

from ..errors import INVALID, NOT_FOUND, ConfigError, Refused
from ..model import queues as model
from ..model.queue_tables import (
    CohortTable,
    FlavorLimitsTable,
    Given,
    LimitsTable,
    QueueingTable,
    QuotaTable,
    ShareTable,
)
from .output import Json, print_json, print_table
from .plane import ask
from .queueing import Amount, QuotaFlavor, Standing, configured, drop, memory, number, put, standing

app = cyclopts.App(name="quota", help="Quotas: list, put, hold, release, delete, apply; flavors, cohorts, shares.")
flavors_app = cyclopts.App(name="flavor", help="Nodes of one make: list, put, delete.")
cohorts_app = cyclopts.App(name="cohort", help="Quotas that lend each other: list, put, delete.")
shares_app = cyclopts.App(name="share", help="What a workspace may, and its weight: list, put, delete.")
for part in (flavors_app, cohorts_app, shares_app):
    app.command(part)

Name = Annotated[str, cyclopts.Parameter(name="NAME")]
Workspace = Annotated[str, cyclopts.Parameter(name="WORKSPACE")]
NONE: Final = "none"  # an option that takes a limit away
Owner = TypeVar("Owner", QuotaTable, CohortTable)


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one flavor. What is not given stays as it is; "none" takes a limit away."""

    cpu: str = ""
    "CPUs, such as 8."
    memory: str = ""
    'Such as "16Gi".'
    gpu: str = ""
    "Cards."
    cpu_borrowing: str = ""
    "How many more CPUs may be borrowed of the cohort."
    memory_borrowing: str = ""
    "How much more memory may be borrowed."
    gpu_borrowing: str = ""
    "How many more cards may be borrowed."
    cpu_lending: str = ""
    "How many of the CPUs others may borrow."
    memory_lending: str = ""
    "How much of the memory others may borrow."
    gpu_lending: str = ""
    "How many of the cards others may borrow."

    @property
    def given(self) -> bool:
        """Whether anything is."""
        return self != Limits()

    def over(self, old: FlavorLimitsTable) -> FlavorLimitsTable:
        """The old limits with these changes."""
        return FlavorLimitsTable(
            flavor=old.flavor,
            cpu=_limit(old.cpu, self.cpu, self.cpu_borrowing, self.cpu_lending),
            memory=_limit(old.memory, self.memory, self.memory_borrowing, self.memory_lending),
            gpu=_limit(old.gpu, self.gpu, self.gpu_borrowing, self.gpu_lending),
        )


def _limit(old: Given | None, nominal: str, borrowing: str, lending: str) -> Given | None:
    if nominal == NONE or (old is None and not (nominal or borrowing or lending)):
        return None
    table = old if isinstance(old, LimitsTable) else LimitsTable(nominal=0 if old is None else old)
    return LimitsTable(
        nominal=nominal or table.nominal,
        borrowing=None if borrowing == NONE else borrowing or table.borrowing,
        lending=None if lending == NONE else lending or table.lending,
    )


# Quotas


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List quotas by flavor: requests that wait and that have room, what is used, and of how much."""
    found = standing()
    quotas = found.quotas
    if found.queueing is not None:
        held = {one.name for one in found.queueing.quotas if one.held}
        quotas = tuple(msgspec.structs.replace(one, held=one.name in held) for one in quotas)
    if json:
        print_json(quotas)
        return
    headings = ("QUOTA", "FLAVOR", "COHORT", "PENDING", "ADMITTED", "CPU", "MEMORY", "CARDS", "BORROWED", "STATE")
    rows = (_row(one, "held" if one.held else "") for one in quotas)
    print_table(headings, rows, "There are no quotas: nothing is limited.")


def _row(one: QuotaFlavor, state: str) -> tuple[str, ...]:
    most = one.nominal or Amount(cpu=0, memory_mib=0, gpu=0)
    used = (
        _of(number(one.used.cpu), number(most.cpu)),
        _of(memory(one.used.memory_mib), memory(most.memory_mib)),
        _of(number(one.used.gpu), number(most.gpu)),
    )
    names = (one.name, one.flavor or "–", one.cohort or "–")
    return *names, str(one.pending), str(one.admitted), *used, _amount(one.borrowed), state


def _of(used: str, most: str) -> str:
    return used if most == "–" else f"{used.replace('–', '0')} of {most}"


def _amount(amount: Amount | None) -> str:
    if amount is None:
        return "–"
    parts = (
        f"{amount.cpu:g} CPUs" if amount.cpu else "",
        memory(amount.memory_mib) if amount.memory_mib else "",
        f"{amount.gpu:g} card{'' if amount.gpu == 1 else 's'}" if amount.gpu else "",
    )
    return ", ".join(part for part in parts if part) or "–"


@app.command(name="put")
def put_(
    name: Name,
    /,
    *,
    flavor: str = "",
    limits: Limits = Limits(),
    without: str = "",
    cohort: str | None = None,
    reclaim: Literal["never", "lower_priority", "any"] | None = None,
    preempt: Literal["never", "lower_priority", "lower_or_newer_equal_priority"] | None = None,
    json: Json = False,
) -> None:
    """Make a quota, or change what is given of it.

    Parameters
    ----------
    flavor
        Whose limits are given.
    without
        A flavor that the quota has no more.
    cohort
        With whom it lends and borrows; "" for nobody.
    reclaim
        From whom it takes back what it lent, by stopping their containers.
    preempt
        Whom of its own it stops for a request of higher priority.
    """
    old = next((one for one in configured().quotas if one.name == name), QuotaTable(name=name))
    new = msgspec.structs.replace(
        _limited(old, flavor, limits, without),
        cohort=old.cohort if cohort is None else cohort,
        reclaim=old.reclaim if reclaim is None else model.Reclaim(reclaim),
        preempt=old.preempt if preempt is None else model.Within(preempt),
    )
    put("quotas", name, new, json=json, what="Quota")


def _limited(old: Owner, flavor: str, limits: Limits, without: str) -> Owner:
    flavors = {one.flavor: one for one in old.flavors if one.flavor != without}
    if not flavor and limits.given:
        if len(flavors) != 1:
            raise Refused("Of which flavor are these limits?", fix="Name it with --flavor.", code=INVALID)
        flavor = next(iter(flavors))
    if flavor:
        flavors[flavor] = limits.over(flavors.get(flavor, FlavorLimitsTable(flavor=flavor)))
    return msgspec.structs.replace(old, flavors=tuple(flavors.values()))


@app.command
def hold(name: Name, /, *, json: Json = False) -> None:
    """Admit nothing new by this quota; what runs goes on."""
    _hold(name, held=True, json=json)


@app.command
def release(name: Name, /, *, json: Json = False) -> None:
    """Admit again what waits for a quota that was held."""
    _hold(name, held=False, json=json)


def _hold(name: str, *, held: bool, json: bool) -> None:
    quotas = configured().quotas
    old = next((one for one in quotas if one.name == name), None)
    if old is None:
        names = ", ".join(one.name for one in quotas) or "none"
        fix = f"Quotas: {names}."
        if name == model.DEFAULT:
            fix = "Calls without a queue go by it, without a limit. Make it with `levers9 quota put default` first."
        raise Refused(f"There is no quota {name!r}.", fix=fix, code=NOT_FOUND)
    done = "held" if held else "released"
    put("quotas", name, msgspec.structs.replace(old, held=held), json=json, what="Quota", done=done)


@app.command
def delete(name: Name, /, *, json: Json = False) -> None:
    """Delete a quota; queues that name it have to name another first."""
    drop("quotas", name, json=json, what="Quota")


@app.command
def apply(file: Path, /, *, json: Json = False) -> None:
    """Put everything that a TOML file has under [queueing]; what it does not name stays as it is."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}. Name another file.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}. Write `key = value`, and texts in quotes.") from error
    try:
        given = msgspec.convert(table.get("queueing", table), QueueingTable)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}. Correct it.") from error
    found = ask(Standing, "PUT", "queueing", body=given)
    if json:
        print_json(found)
    else:
        print(f"{file} is applied.")


# Flavors, cohorts, shares


@flavors_app.command(name="list")
def list_flavors(*, json: Json = False) -> None:
    """List flavors: which nodes are theirs."""
    found = configured().flavors
    if json:
        print_json(found)
        return
    rows = (
        (one.name, one.pool or "any", one.gpu_type or "any", _labels(one.labels), one.topology or "–") for one in found
    )
    print_table(("FLAVOR", "POOL", "CARD", "LABELS", "TOPOLOGY"), rows, "There are no flavors.")


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "–"


@flavors_app.command(name="put")
def put_flavor(
    name: Name,
    /,
    *,
    pool: str = "",
    gpu_type: str = "",
    label: tuple[str, ...] = (),
    topology: str = "",
    json: Json = False,
) -> None:
    """Make a flavor, or set it anew. A node belongs to one flavor at most.

    Parameters
    ----------
    pool
        The pool that its nodes are of; any by default.
    gpu_type
        Their cards; any by default.
    label
        KEY=VALUE that each of them has; may be given several times.
    topology
        How they hang together.
    """
    wrong = next((one for one in label if "=" not in one), None)
    if wrong is not None:
        raise Refused(f"{wrong!r} is no label.", fix="Write KEY=VALUE.", code=INVALID)
    labels = {key: value for key, _, value in (one.partition("=") for one in label)}
    flavor = model.Flavor(name=name, pool=pool, gpu_type=gpu_type, labels=labels, topology=topology)
    put("flavors", name, flavor, json=json, what="Flavor")


@flavors_app.command(name="delete")
def delete_flavor(name: Name, /, *, json: Json = False) -> None:
    """Delete a flavor."""
    drop("flavors", name, json=json, what="Flavor")


@cohorts_app.command(name="list")
def list_cohorts(*, json: Json = False) -> None:
    """List cohorts: who is in them."""
    found = configured()
    if json:
        print_json(found.cohorts)
        return
    rows = [
        (
            one.name,
            one.parent or "–",
            ", ".join(each.name for each in found.quotas if each.cohort == one.name) or "–",
            ", ".join(each.flavor for each in one.flavors) or "–",
        )
        for one in found.cohorts
    ]
    print_table(("COHORT", "PARENT", "QUOTAS", "FLAVORS OF ITS OWN"), rows, "There are no cohorts.")


@cohorts_app.command(name="put")
def put_cohort(
    name: Name,
    /,
    *,
    parent: str | None = None,
    flavor: str = "",
    limits: Limits = Limits(),
    without: str = "",
    json: Json = False,
) -> None:
    """Make a cohort, or change what is given of it.

    Parameters
    ----------
    parent
        The cohort that it is in; "" for none.
    flavor
        Whose limits are given: what the cohort has of its own.
    without
        A flavor of which it has nothing more.
    """
    old = next((one for one in configured().cohorts if one.name == name), CohortTable(name=name))
    new = _limited(old, flavor, limits, without)
    new = msgspec.structs.replace(new, parent=old.parent if parent is None else parent)
    put("cohorts", name, new, json=json, what="Cohort")


@cohorts_app.command(name="delete")
def delete_cohort(name: Name, /, *, json: Json = False) -> None:
    """Delete a cohort."""
    drop("cohorts", name, json=json, what="Cohort")


@shares_app.command(name="list")
def list_shares(*, json: Json = False) -> None:
    """List shares; a workspace without one has weight 1 and no limits."""
    found = configured().shares
    if json:
        print_json([msgspec.structs.asdict(one) for one in found])  # with the weight where it is 1
        return
    rows = (
        (one.workspace, str(one.weight), _most(one.max_containers), _most(one.max_cpu), _most(one.max_gpus))
        for one in found
    )
    print_table(("WORKSPACE", "WEIGHT", "CONTAINERS", "CPU", "CARDS"), rows, "Every workspace has weight 1.")


def _most(limit: float | str | None) -> str:
    return "–" if limit is None else str(limit)


@shares_app.command(name="put")
def put_share(
    workspace: Workspace,
    /,
    *,
    weight: int = 1,
    max_containers: int | None = None,
    max_cpu: str | None = None,
    max_gpus: int | None = None,
    json: Json = False,
) -> None:
    """Set a workspace's weight in fair share, and how much of it may run at a time; without a number: any.

    Parameters
    ----------
    weight
        Twice the weight is twice the share while others wait.
    max_containers
        Containers at a time.
    max_cpu
        CPUs at a time.
    max_gpus
        Cards at a time.
    """
    share = ShareTable(
        workspace=workspace, weight=weight, max_containers=max_containers, max_cpu=max_cpu, max_gpus=max_gpus
    )
    put("shares", workspace, share, json=json, what="Share of workspace")


@shares_app.command(name="delete")
def delete_share(workspace: Workspace, /, *, json: Json = False) -> None:
    """Take a workspace's share away: weight 1, no limits."""
    drop("shares", workspace, json=json, what="Share of workspace")
