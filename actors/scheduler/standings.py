"""Queues and quotas as people see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...model.resources import Amount, amount_of
from ...wire.operating import QueueStanding, QuotaStanding
from .fairness import SHARE_ONE, share_of
from .grants import Grants
from .lanes import Row
from .quotas import QuotaState
from .rows import Rows

Standings = tuple[tuple[QueueStanding, ...], tuple[QuotaStanding, ...]]


def standings(rows: Rows, grants: Grants, scales: tuple[int, int, int]) -> Standings:
    """All queues by workspace and name, all quotas by name, each flavor of theirs in its place."""
    in_order = sorted(rows, key=lambda row: (row.space.name, row.name))
    queues = tuple(_queue(row, scales) for row in in_order)
    return queues, tuple(_quotas(rows, in_order, grants))


def _queue(row: Row, scales: tuple[int, int, int]) -> QueueStanding:
    account = row.space.account
    return QueueStanding(
        name=row.name,
        workspace=row.space.name,
        quota=row.quota.name if row.quota is not None else "",
        pending=row.pending,
        admitted=row.admitted,
        used=Amount(*row.account.used),
        share_milli=share_of(account.used, account.weight, scales) * 1000 // SHARE_ONE,
    )


def _quotas(rows: Rows, in_order: list[Row], grants: Grants) -> Iterator[QuotaStanding]:
    admitted: Counter[tuple[str, str]] = Counter()
    used: dict[tuple[str, str], Amount] = {}
    pending: Counter[str] = Counter()
    for grant in grants:
        if grant.row.quota is not None:
            place = (grant.row.quota.name, grant.option.flavor)
            admitted[place] += 1
            used[place] = used.get(place, Amount()).plus(amount_of(grant.request.shape, grant.left))
    for row in in_order:
        if row.quota is not None:
            pending[row.quota.name] += row.pending
    for state in sorted(rows.quotas.values(), key=lambda state: state.name):
        for flavor, nominal, borrowed in _flavors(state):
            yield QuotaStanding(
                name=state.name,
                cohort=state.config.cohort,
                flavor=flavor,
                pending=pending[state.name],
                admitted=admitted[state.name, flavor],
                nominal=nominal,
                used=used.get((state.name, flavor), Amount()),
                borrowed=borrowed,
            )


def _flavors(state: QuotaState) -> Iterator[tuple[str, Amount, Amount]]:
    """Each flavor with what the quota has of it and what it borrows; of a quota without any, everything as one."""
    if not state.flavors:
        yield "", Amount(), Amount()
    for flavor, purses in state.flavors:
        nominal = (purse.nominal if purse is not None else 0 for purse in purses)
        borrowed = (purse.borrowed if purse is not None else 0 for purse in purses)
        yield flavor.name, Amount(*nominal), Amount(*borrowed)
