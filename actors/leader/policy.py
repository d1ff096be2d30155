"""Campaigning for leadership, pure: what the row says in, what to do about it out."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

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


class Watch(msgspec.Struct):
    """For how long, by our clock, the leader has said nothing new; what it says by its own only tells words apart."""

    epoch: int = 0
    renewed_at_s: float = 0.0
    since_s: float = 0.0
    looked_at_s: float = -math.inf

    def look(self, row: ops.Leadership, steady_s: float) -> None:
        """We see the row. What we slept through was our own silence: then the leader's begins now."""
        told_anew = (row.epoch, row.renewed_at_s) != (self.epoch, self.renewed_at_s)
        if told_anew or not self._is_watched(steady_s):
            self.epoch, self.renewed_at_s, self.since_s = row.epoch, row.renewed_at_s, steady_s
        self.looked_at_s = steady_s

    def has_run_out(self, steady_s: float) -> bool:
        """Whether we have watched the leader say nothing for a whole lease."""
        return self._is_watched(steady_s) and steady_s - self.since_s >= LEADER_LEASE_S

    def _is_watched(self, steady_s: float) -> bool:
        return steady_s - self.looked_at_s < LEADER_LEASE_S


class Campaign:
    """The view of one life of a replica's brain. `url` is where the replica's streams are dialled.

    A replica has one brain at a time, so whoever finds its own replica leading by another life knows that life to be
    over, and resigns for it instead of waiting for the lease. Each reign has an epoch of its own: one that ended by
    itself is resigned before the next can begin, so that no commit of the former, late and unheard of, falls into the
    latter.

    Another replica's lease has run out when we have watched it say nothing new for as long, by our own clock, and the
    store gives its place only if it has said nothing since: no clock is compared with another replica's.
    """

    def __init__(self, replica: str, life: str, url: str) -> None:
        self._replica = replica
        self._holder = f"{replica}/{life}"
        self._url = url
        self._reigning = 0
        self._resigning = 0
        self._known = (0, "")
        self._watch = Watch()
        self._said_s = -math.inf

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

    def next_operation(self, now_s: float, steady_s: float) -> ops.Operation:
        """What to ask the store now; `steady_s` is our clock that is never set, the one that leases are told by."""
        if self._resigning:
            return ops.ResignLeadership(epoch=self._resigning)
        # No word is like an earlier one, also when our clock was set back: others tell by it that we said something.
        self._said_s = max(now_s, math.nextafter(self._said_s, math.inf))
        if self._reigning:
            return ops.RenewLeadership(epoch=self._reigning, now_s=self._said_s)
        take = ops.TakeLeadership(holder=self._holder, url=self._url, now_s=self._said_s)
        if not self._watch.has_run_out(steady_s):
            return take
        return replace(take, silent_epoch=self._watch.epoch, silent_since_s=self._watch.renewed_at_s)

    def heard(self, answer: ops.Leadership, steady_s: float) -> tuple[Decision, ...]:
        """What the row says; `steady_s` is when it was heard, for nothing is older than it looks."""
        self._watch.look(answer, steady_s)
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
