"""Campaigning for leadership, pure: what the row says in, what to do about it out."""

from __future__ import annotations

import msgspec

from ...model.figures import LEADER_LEASE_S
from ...store import operations as ops


class BeginReign(msgspec.Struct, frozen=True):
    """We lead with this epoch: start the actors that decide."""

    epoch: int


class EndReign(msgspec.Struct, frozen=True):
    """We lead no more: stop the actors that decide."""

    why: str


class Follow(msgspec.Struct, frozen=True):
    """Another replica leads; its streams are dialled at `url`."""

    epoch: int
    url: str


Decision = BeginReign | EndReign | Follow


class Campaign:
    """The view of one replica. `holder` names this life of it; `url` is where its streams are dialled."""

    def __init__(self, holder: str, url: str) -> None:
        self._holder = holder
        self._url = url
        self._reigning = 0
        self._known = (0, "")

    @property
    def reigning(self) -> int:
        """The epoch in which we lead, or 0."""
        return self._reigning

    @property
    def followed(self) -> tuple[int, str]:
        """The newest epoch that we know, and the leader's url."""
        return self._known

    def next_operation(self, now_s: float) -> ops.Operation:
        """What to ask the store now."""
        if self._reigning:
            return ops.RenewLeadership(epoch=self._reigning, now_s=now_s)
        return ops.TakeLeadership(holder=self._holder, url=self._url, now_s=now_s, lease_s=LEADER_LEASE_S)

    def heard(self, row: ops.Leadership) -> tuple[Decision, ...]:
        """What the row says now."""
        ours = row.holder == self._holder
        if self._reigning and (row.epoch != self._reigning or not ours):
            self._reigning = 0
            return (EndReign(f"{row.holder} leads with epoch {row.epoch}"), *self._follow(row))
        if ours and not self._reigning:
            self._reigning = row.epoch
            self._known = (row.epoch, "")
            return (BeginReign(row.epoch),)
        return () if ours else self._follow(row)

    def _follow(self, row: ops.Leadership) -> tuple[Follow, ...]:
        if self._known == (row.epoch, row.url):
            return ()
        self._known = (row.epoch, row.url)
        return (Follow(row.epoch, row.url),)

    def reign_ended(self) -> ops.ResignLeadership:
        """Our actors ended by themselves: let the next epoch begin, ours or another's."""
        operation = ops.ResignLeadership(epoch=self._reigning)
        self._reigning = 0
        return operation
