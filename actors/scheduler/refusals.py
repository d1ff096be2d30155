"""Why there is no quota for a request, for whoever asks for it."""

from __future__ import annotations

from ...model.reasons import HoldKind, Reason
from .lanes import Row
from .quotas import Option, QuotaState, lacks


def held(row: Row) -> Reason:
    """Its quota admits nothing new, or it has none."""
    if row.quota is None:
        return Reason(kind=HoldKind.QUEUE_HELD, detail=f"The workspace has no queue {row.name}.")
    return Reason(kind=HoldKind.QUEUE_HELD, quota=row.quota.name)


def lacking(quota: QuotaState, options: tuple[Option, ...], size: int, saved: bool) -> Reason:
    """What the first flavor lacks."""
    if not options:
        detail = f"No flavor of quota {quota.name} has what it asks for."
        return Reason(kind=HoldKind.QUOTA, quota=quota.name, detail=detail)
    detail = "Freed quota is saved for a request that goes before it." if saved else ""
    short = lacks(options[0], size)
    return Reason(kind=HoldKind.QUOTA, quota=quota.name, flavor=options[0].flavor, lacks=short, detail=detail)
