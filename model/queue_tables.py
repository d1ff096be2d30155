"""The configuration of queues as people write it: CPUs, "16Gi", cards, names of workspaces. In files, REST and answers.

A limit is a quantity, or a table of `nominal`, `borrowing` and `lending`. Within the platform everything is in integers
and workspaces go by their identities: `queueing_of` and `table_of` translate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..errors import INVALID, NOT_FOUND, Refused
from .queues import (
    Cohort,
    FairShare,
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Reclaim,
    Share,
    Topology,
    Within,
)
from .resources import memory_mib

Quantity = int | float | str
_MOST: Final = 2**63 - 1
_NONE: Final = re.compile(r"\s*0+(\.0+)?\s*([MGT]i?)?B?\s*\Z")  # of memory


class LimitsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much there is, may be borrowed, and is lent; without the last two there is no limit to that."""

    nominal: Quantity = 0
    borrowing: Quantity | None = None
    lending: Quantity | None = None


Given = Quantity | LimitsTable


class FlavorLimitsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of one flavor; what is left out is not counted."""

    flavor: str
    cpu: Given | None = None
    memory: Given | None = None
    gpu: Given | None = None


class QuotaTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """See `Quota`."""

    name: str
    cohort: str = ""
    flavors: tuple[FlavorLimitsTable, ...] = ()
    reclaim: Reclaim = Reclaim.NEVER
    preempt: Within = Within.NEVER
    held: bool = False


class CohortTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """See `Cohort`."""

    name: str
    parent: str = ""
    flavors: tuple[FlavorLimitsTable, ...] = ()


class ShareTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """See `Share`; `workspace` is a name, `max_cpu` in CPUs."""

    workspace: str
    weight: int = 1
    max_containers: int | None = None
    max_cpu: Quantity | None = None
    max_gpus: int | None = None


class QueueingTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of it. A queue's `workspace` is a name, too."""

    flavors: tuple[Flavor, ...] = ()
    cohorts: tuple[CohortTable, ...] = ()
    quotas: tuple[QuotaTable, ...] = ()
    queues: tuple[Queue, ...] = ()
    shares: tuple[ShareTable, ...] = ()
    priorities: tuple[PriorityClass, ...] = ()
    topologies: tuple[Topology, ...] = ()
    fair_share: FairShare = FairShare()


# From tables


def queueing_of(table: QueueingTable, workspaces: Mapping[str, str] | None = None) -> Queueing:
    """What a table says, with the identities of workspaces by their names; identities may be given as they are.

    Raises `Refused` for quantities that are none, and for names that no workspace has; None leaves names alone.
    """
    return Queueing(
        flavors=table.flavors,
        cohorts=tuple(
            Cohort(name=each.name, parent=each.parent, flavors=_limits_of(each.flavors)) for each in table.cohorts
        ),
        quotas=tuple(_quota_of(each) for each in table.quotas),
        queues=tuple(
            msgspec.structs.replace(each, workspace=_identity(each.workspace, workspaces)) for each in table.queues
        ),
        shares=tuple(_share_of(each, workspaces) for each in table.shares),
        priorities=table.priorities,
        topologies=table.topologies,
        fair_share=table.fair_share,
    )


def _quota_of(table: QuotaTable) -> Quota:
    return Quota(
        name=table.name,
        cohort=table.cohort,
        flavors=_limits_of(table.flavors),
        reclaim=table.reclaim,
        preempt=table.preempt,
        held=table.held,
    )


def _share_of(table: ShareTable, workspaces: Mapping[str, str] | None) -> Share:
    return Share(
        workspace=_identity(table.workspace, workspaces),
        weight=table.weight,
        max_containers=table.max_containers,
        max_cpu_milli=None if table.max_cpu is None else thousandths(table.max_cpu),
        max_gpus=table.max_gpus,
    )


def _identity(name: str, workspaces: Mapping[str, str] | None) -> str:
    if workspaces is None or name in workspaces.values():
        return name
    if name not in workspaces:
        names = ", ".join(sorted(workspaces))
        raise Refused(f"There is no workspace {name!r}.", fix=f"Workspaces: {names}.", code=NOT_FOUND)
    return workspaces[name]


def _limits_of(tables: tuple[FlavorLimitsTable, ...]) -> tuple[FlavorLimits, ...]:
    return tuple(
        FlavorLimits(
            flavor=table.flavor,
            cpu=_limit_of(table.cpu, thousandths),
            memory=_limit_of(table.memory, mebibytes),
            gpu=_limit_of(table.gpu, thousandths),
        )
        for table in tables
    )


def _limit_of(given: Given | None, read: Callable[[Quantity], int]) -> Limits | None:
    if given is None:
        return None
    table = given if isinstance(given, LimitsTable) else LimitsTable(nominal=given)
    return Limits(
        nominal=read(table.nominal),
        borrowing=None if table.borrowing is None else read(table.borrowing),
        lending=None if table.lending is None else read(table.lending),
    )


def thousandths(value: Quantity) -> int:
    """Thousandths of CPUs or cards of `8`, `0.5`, `"8"` or `"500m"`; 0 is one. Raises `Refused` for anything else."""
    try:
        small = isinstance(value, str) and value.endswith("m")
        milli = int(value[:-1]) if small and isinstance(value, str) else _scaled(value)
    except (ValueError, OverflowError):
        milli = -1
    if not 0 <= milli <= _MOST:
        raise Refused(f"{value!r} is not a quantity.", fix='Give a number such as 8 or 0.5, or "500m".', code=INVALID)
    return milli


def _scaled(value: Quantity) -> int:
    """Whole numbers stay exact, however large they are."""
    text = str(value).strip()
    return int(text) * 1000 if text.lstrip("+-").isdigit() else round(float(text) * 1000)


def mebibytes(value: Quantity) -> int:
    """MiB of `512`, `"16Gi"`, `"1.5G"`; 0 is one. Raises `Refused` for anything else."""
    if _NONE.match(str(value)):
        return 0
    mib = memory_mib(math.ceil(value) if isinstance(value, float) and math.isfinite(value) else str(value))
    if mib > _MOST:
        raise Refused(f"memory={value!r} is more than can be counted.", fix="Give less.", code=INVALID)
    return mib


# To tables


def table_of(queueing: Queueing, workspaces: Mapping[str, str]) -> QueueingTable:
    """A configuration as people write it, with workspaces' names by their identities; unknown ones stay as they are."""
    return QueueingTable(
        flavors=queueing.flavors,
        cohorts=tuple(
            CohortTable(name=each.name, parent=each.parent, flavors=_limit_tables(each.flavors))
            for each in queueing.cohorts
        ),
        quotas=tuple(quota_table(each) for each in queueing.quotas),
        queues=tuple(
            msgspec.structs.replace(each, workspace=workspaces.get(each.workspace, each.workspace))
            for each in queueing.queues
        ),
        shares=tuple(_share_table(each, workspaces) for each in queueing.shares),
        priorities=queueing.priorities,
        topologies=queueing.topologies,
        fair_share=queueing.fair_share,
    )


def quota_table(quota: Quota) -> QuotaTable:
    """A quota as people write it."""
    return QuotaTable(
        name=quota.name,
        cohort=quota.cohort,
        flavors=_limit_tables(quota.flavors),
        reclaim=quota.reclaim,
        preempt=quota.preempt,
        held=quota.held,
    )


def _share_table(share: Share, workspaces: Mapping[str, str]) -> ShareTable:
    return ShareTable(
        workspace=workspaces.get(share.workspace, share.workspace),
        weight=share.weight,
        max_containers=share.max_containers,
        max_cpu=None if share.max_cpu_milli is None else units(share.max_cpu_milli),
        max_gpus=share.max_gpus,
    )


def _limit_tables(limits: tuple[FlavorLimits, ...]) -> tuple[FlavorLimitsTable, ...]:
    return tuple(
        FlavorLimitsTable(
            flavor=each.flavor,
            cpu=_limit_table(each.cpu, units),
            memory=_limit_table(each.memory, memory),
            gpu=_limit_table(each.gpu, units),
        )
        for each in limits
    )


def _limit_table(limits: Limits | None, write: Callable[[int], Quantity]) -> Given | None:
    if limits is None:
        return None
    nominal = write(limits.nominal)
    if limits.borrowing is None and limits.lending is None:
        return nominal
    return LimitsTable(
        nominal=nominal,
        borrowing=None if limits.borrowing is None else write(limits.borrowing),
        lending=None if limits.lending is None else write(limits.lending),
    )


def units(milli: int) -> Quantity:
    """CPUs or cards: a whole number where it is one; thousandths of very large ones are kept as text."""
    if milli % 1000 == 0:
        return milli // 1000
    return milli / 1000 if abs(milli) < 2**50 else f"{milli}m"


def memory(mib: int) -> str:
    """Memory as text: "18Gi", "500Mi"."""
    return f"{mib // 1024}Gi" if mib and mib % 1024 == 0 else f"{mib}Mi"
