"""What the policy of attached clusters decides: one transaction, the messages after it, and pools that come and go."""

from __future__ import annotations

import msgspec

from ...model.clusters import pool_of
from ...store import operations as ops
from ...wire.message import Message, Send


class ClusterPool(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of a cluster. `owner` attached it and calls it `known_as`; it takes work of `serves` only, "": of any.

    One that is `retiring` is over with its last worker.
    """

    name: str
    serves: str
    owner: str
    known_as: str
    gpu_type: str
    retiring: bool = False

    @classmethod
    def of(cls, row: ops.ClusterRow, *, trusted: bool) -> ClusterPool:
        """That of an attached cluster, as it is now; `trusted`: the platform's workspaces may share workers."""
        return cls(
            name=pool_of(row.workspace_id, row.spec.name),
            serves=serves(row, trusted=trusted),
            owner=row.workspace_id,
            known_as=row.spec.name,
            gpu_type=row.spec.gpu_type,
            retiring=row.leaving,
        )


def serves(row: ops.ClusterRow, *, trusted: bool) -> str:
    """The one workspace whose work goes to a cluster from now on, "" for any."""
    return "" if row.shared and trusted else row.workspace_id


class BeginPool(msgspec.Struct, frozen=True):
    """Start this pool's actor, in place of one of that name."""

    pool: ClusterPool


class TermsOfPool(msgspec.Struct, frozen=True):
    """From now on calls are judged by these; its actor hears of it by itself."""

    pool: ClusterPool


class FinishPool(msgspec.Struct, frozen=True):
    """Stop this pool's actor: it has no worker any more."""

    name: str


Change = BeginPool | TermsOfPool | FinishPool


class ClusterPlan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and what follows from it."""

    operations: list[ops.Operation] = []
    sends: list[Send] = []
    changes: list[Change] = []

    def send(self, target: str, message: Message, correlation: str = "") -> None:
        """Once it is committed."""
        self.sends.append(Send(target, message, correlation))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.operations or self.sends or self.changes)
