"""A hold as data for programs, in the units of people: what REST answers, and the SDK reads."""

from __future__ import annotations

import msgspec

from .reasons import Excluded, Holder, HoldKind, Lack, Reason


class HoldLack(msgspec.Struct, frozen=True, kw_only=True):
    """How much more is needed: CPUs, MiB of memory, cards, or nodes."""

    resource: str
    amount: float


class HoldExcluded(msgspec.Struct, frozen=True, kw_only=True):
    """A node that does not count, and why; without a name, `count` nodes of a pool whose nodes the caller may not know.

    `since_s` is from when that is so, in Unix seconds, 0 where nobody knows.
    """

    node: str
    why: str
    count: int = 1
    pool: str = ""
    since_s: float = 0.0


class HoldHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who has it: a function of the caller's own, or "" for other workspaces. `frees_by_s` is in Unix seconds."""

    who: str
    containers: int
    cards: float = 0.0
    frees_by_s: float = 0.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that are free on several nodes: all of them, and the most on one, which is not enough."""

    free: float
    most: float


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See `Reason`."""

    kind: HoldKind
    lacks: tuple[HoldLack, ...] = ()
    pool: str = ""
    quota: str = ""
    flavor: str = ""
    topology: str = ""
    level: str = ""
    fits: int = 0
    wanted: int = 0
    spread: Spread | None = None
    ahead: int = 0
    excluded: tuple[HoldExcluded, ...] = ()
    holders: tuple[HoldHolder, ...] = ()
    detail: str = ""
    machines_only: bool = False


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `task why`: sentences, outermost reason first, and data on what its containers wait for."""

    task_id: str = ""
    state: str = ""
    reasons: tuple[str, ...] = ()
    holds: tuple[Hold, ...] = ()


def hold_of(reason: Reason) -> Hold:
    """The hold in the units of people."""
    return Hold(
        kind=reason.kind,
        lacks=tuple(_lack(each) for each in reason.lacks),
        pool=reason.pool,
        quota=reason.quota,
        flavor=reason.flavor,
        topology=reason.topology,
        level=reason.level,
        fits=reason.fits,
        wanted=reason.wanted,
        spread=Spread(free=reason.free / 1000, most=reason.most / 1000) if reason.free else None,
        ahead=reason.ahead,
        excluded=tuple(_excluded(each) for each in reason.excluded),
        holders=tuple(_holder(each) for each in reason.holders),
        detail=reason.detail,
        machines_only=reason.machines_only,
    )


def _lack(lack: Lack) -> HoldLack:
    whole = lack.resource in ("memory", "nodes", "containers")
    return HoldLack(resource=lack.resource, amount=lack.amount if whole else lack.amount / 1000)


def _excluded(excluded: Excluded) -> HoldExcluded:
    return HoldExcluded(
        node=excluded.node, why=excluded.why, count=excluded.count, pool=excluded.pool, since_s=excluded.since_s
    )


def _holder(holder: Holder) -> HoldHolder:
    return HoldHolder(
        who=holder.who, containers=holder.containers, cards=holder.gpu_milli / 1000, frees_by_s=holder.frees_by_s
    )
