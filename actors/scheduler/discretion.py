"""What of a reason its asker may know: others' nodes are counted, not named, and pools are called as the asker does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...model.pool_names import called
from ...model.reasons import Excluded, HoldKind, Reason
from .fleet import Fleet, Pool

IN_GENERAL: Final = {  # instead of what the pool of somebody else says itself, which may name machines and images
    HoldKind.GUARD: "its provisioning guard holds the order.",
    HoldKind.MAXIMUM: "it has all the workers that it may have.",
    HoldKind.BACK_OFF: "its last workers ended early; the next one starts in a moment.",
    HoldKind.GANG: "its workers can't be started now.",
    HoldKind.CLUSTER: "its workers do not start now; its owner can see why.",
}
ELSE: Final = "its owner can see why."


class Discretion:
    """Every reason passes here before it is told."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def told(self, reasons: Iterable[Reason], workspace: str) -> tuple[Reason, ...]:
        """As this workspace may hear them."""
        return tuple(self._told(reason, workspace) for reason in reasons)

    def _told(self, reason: Reason, workspace: str) -> Reason:
        if not reason.pool and not reason.excluded:
            return reason
        detail = reason.detail
        if detail and reason.pool and not self.may_know(reason.pool, workspace):
            detail = IN_GENERAL.get(reason.kind, ELSE)
        return msgspec.structs.replace(
            reason,
            pool=self.called(reason.pool, workspace),
            excluded=self._nodes(reason.excluded, workspace),
            detail=detail,
        )

    def may_know(self, pool: str, workspace: str) -> bool:
        """Whether a workspace may know what the machines of a pool are called."""
        known = self._fleet.pools.get(pool)
        return known is None or known.owner in ("", workspace)

    def called(self, name: str, workspace: str) -> str:
        """What a workspace calls a pool: a cluster by its short name, unless that could be another one."""
        pool = self._fleet.pools.get(name)
        return name if pool is None else called(pool, self._fleet.eligible(workspace, ""), workspace)

    def _nodes(self, excluded: tuple[Excluded, ...], workspace: str) -> tuple[Excluded, ...]:
        """One's own by name; others', of one pool and for one reason, together."""
        told: list[Excluded] = []
        counted: dict[tuple[str, str], Excluded] = {}
        for one in excluded:
            if self.may_know(one.pool, workspace):
                told.append(msgspec.structs.replace(one, pool=self._cluster(one.pool, workspace)))
                continue
            before = counted.get((one.pool, one.why))
            count = one.count + (0 if before is None else before.count)
            counted[one.pool, one.why] = msgspec.structs.replace(one, node="", count=count)
        for one in counted.values():
            told.append(msgspec.structs.replace(one, pool=self.called(one.pool, workspace)))
        return tuple(told)

    def _cluster(self, name: str, workspace: str) -> str:
        """The cluster of a node that has a name of its own; "" where the pool is none."""
        pool: Pool | None = self._fleet.pools.get(name)
        return self.called(name, workspace) if pool is not None and pool.owner else ""
