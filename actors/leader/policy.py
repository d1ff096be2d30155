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
    """The view of one life of a replica's brain. `url` is where the replica's streams are dialled.

    A replica has one brain at a time, so whoever finds its own replica leading by another life knows that life to be
    over, and resigns for it instead of waiting for the lease. Each reign has an epoch of its own: one that ended by
    itself is resigned before the next can begin, so that no commit of the former, late and unheard of, falls into the
    latter.
    """

    def __init__(self, replica: str, life: str, url: str) -> None:
        self._replica = replica
        self._holder = f"{replica}/{life}"
        self._url = url
        self._reigning = 0
        self._resigning = 0
        self._known = (0, "")

    @property
    def reigning(self) -> int:
        """The epoch in which we lead, or 0."""
        return self._reigning

    @property
    def resigning(self) -> bool:
        """Whether a reign is over, and the store has yet to hear it."""
        return self._resigning > 0

    @property
    def followed(self) -> tuple[int, str]:
        """The newest epoch that we know, and the leader's url."""
        return self._known

    def next_operation(self, now_s: float) -> ops.Operation:
        """What to ask the store now."""
        if self._resigning:
            return ops.ResignLeadership(epoch=self._resigning)
        if self._reigning:
            return ops.RenewLeadership(epoch=self._reigning, now_s=now_s)
        return ops.TakeLeadership(holder=self._holder, url=self._url, now_s=now_s, lease_s=LEADER_LEASE_S)

    def heard(self, answer: ops.Leadership) -> tuple[Decision, ...]:
        """What the row says now."""
        ours = answer.holder == self._holder
        if ours and answer.epoch == self._resigning:
            return ()  # the question was on its way when that reign ended
        if self._reigning and (answer.epoch != self._reigning or not ours):
            self._reigning = 0
            return (EndReign(f"{answer.holder} leads with epoch {answer.epoch}"), *self._follow(answer))
        if not self._reigning and not ours and answer.holder.startswith(f"{self._replica}/"):
            self._resigning = answer.epoch
            return ()
        if ours and not self._reigning:
            self._reigning = answer.epoch
            self._known = (answer.epoch, "")
            return (BeginReign(answer.epoch),)
        return () if ours else self._follow(answer)

    def _follow(self, row: ops.Leadership) -> tuple[Follow, ...]:
        if self._known == (row.epoch, row.url):
            return ()
        self._known = (row.epoch, row.url)
        return (Follow(row.epoch, row.url),)

    def reign_ended(self, epoch: int) -> None:
        """Our actors of this epoch ended by themselves: let the next epoch begin, ours or another's."""
        if epoch and epoch == self._reigning:
            self._reigning = 0
            self._resigning = epoch

    def resigned(self) -> None:
        """The store knows that our last reign is over."""
        self._resigning = 0
