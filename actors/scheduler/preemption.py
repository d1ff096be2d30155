"""Who must stop so that a request has quota, and room: off unless a quota says otherwise, as few as will do.

Within its own quota a request stops those of lower priority (and, where the quota says so, those of the same priority
that were asked for later): an order in which nobody is before himself, so there is no loop. From other quotas of its
cohort it only takes back what is its own: it must stay within what its quota has, and stops only those of quotas that
use more than they have. Whoever was stopped so could take something back in turn only while within its own, from
somebody beyond his; each step brings usage nearer to what was agreed, so that ends as well. Priorities count here
without ageing: waiting makes nobody stop others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ...model.queues import Quota, Reclaim, Within
from .grants import Grant, Grants
from .quotas import Option, Purse, QuotaState, fits

VICTIMS_MAX: Final = 64  # of one request
PREEMPTED_MAX: Final = 3  # how often one request is stopped for others
CANDIDATES_MAX: Final = 1024  # that are tried for it

Asking = tuple[int, float, str]  # priority without ageing, when it was asked for, its identity


def may_preempt(quota: Quota) -> bool:
    """Whether anybody could ever have to stop for a request of this quota."""
    return quota.preempt is not Within.NEVER or quota.reclaim is not Reclaim.NEVER


class Preemption:
    """One search for victims: of a request of `size` members that would take `option` of `quota`.

    `stopped` says how often a request was stopped for others already.
    """

    def __init__(
        self,
        grants: Grants,
        quota: QuotaState,
        option: Option,
        size: int,
        asking: Asking,
        stopped: Mapping[str, int],
    ) -> None:
        self._grants = grants
        self._quota = quota
        self._option = option
        self._size = size
        self._asking = asking
        self._stopped = stopped

    def victims(self, enough: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
        """Their identities, in the order in which they were found; none where all that may stop are not enough."""
        taken: list[Grant] = []
        try:
            found = self._take(taken, enough) and self._put_back(taken, enough)
            return tuple(grant.request.request_id for grant in taken) if found else ()
        finally:
            for grant in taken:
                _take_again(grant)

    def _take(self, taken: list[Grant], enough: Callable[[tuple[str, ...]], bool]) -> bool:
        """One after another until it fits. Whoever is asked for again must still be beyond what its quota has."""
        for grant in self._candidates()[:CANDIDATES_MAX]:
            if len(taken) >= VICTIMS_MAX:
                return False
            if self._may_stop(grant):
                _give_up(grant)
                taken.append(grant)
                if fits(self._option, self._size) and enough(_names(taken)):
                    return True
        return False

    def _put_back(self, taken: list[Grant], enough: Callable[[tuple[str, ...]], bool]) -> bool:
        """Those that turn out not to be needed stay: the last was, the others are tried from the last to the first."""
        for grant in taken[-2::-1]:
            rest = [other for other in taken if other is not grant]
            _take_again(grant)
            if fits(self._option, self._size) and enough(_names(rest)):
                taken.remove(grant)
            else:
                _give_up(grant)
        return True

    def _candidates(self) -> list[Grant]:
        """Those of quotas that borrow first, then by priority from the lowest, then those asked for last."""
        found = [grant for grant in self._possible() if self._may_stop(grant) and self._helps(grant)]
        found.sort(key=lambda grant: grant.newest_first, reverse=True)
        return sorted(found, key=lambda grant: grant.row.quota is self._quota)

    def _possible(self) -> Iterator[Grant]:
        config = self._quota.config
        least = self._grants.least_value(self._quota.tree)
        if least is None:
            return iter(())
        lower = least < self._asking[0]
        equal = config.preempt is Within.LOWER_OR_NEWER_EQUAL and least <= self._asking[0]
        if not lower and not equal and config.reclaim is not Reclaim.ANY:
            return iter(())
        return self._grants.of_tree(self._quota.tree)

    def _may_stop(self, grant: Grant) -> bool:
        if self._stopped.get(grant.request.request_id, 0) >= PREEMPTED_MAX:
            return False
        return self._within(grant) if grant.row.quota is self._quota else self._across(grant)

    def _within(self, grant: Grant) -> bool:
        value, requested_at_s, name = self._asking
        if self._quota.config.preempt is Within.NEVER:
            return False
        if grant.value != value or self._quota.config.preempt is Within.LOWER_PRIORITY:
            return grant.value < value
        return (grant.request.requested_at_s, grant.request.request_id) > (requested_at_s, name)

    def _across(self, grant: Grant) -> bool:
        reclaim = self._quota.config.reclaim
        if reclaim is Reclaim.NEVER or (reclaim is Reclaim.LOWER_PRIORITY and grant.value >= self._asking[0]):
            return False
        own = all(purse.used + amount * self._size <= purse.total for purse, amount in self._option.demand)
        return own and any(purse.borrowed and self._wants(purse) for purse, _ in grant.option.demand)

    def _helps(self, grant: Grant) -> bool:
        """Quota that it does not take is not freed; without counted quota it may at least free room."""
        return not self._option.demand or any(self._wants(purse) for purse, _ in grant.option.demand)

    def _wants(self, other: Purse) -> bool:
        return any((purse.flavor, purse.resource) == (other.flavor, other.resource) for purse, _ in self._option.demand)


def _give_up(grant: Grant) -> None:
    for purse, amount in grant.option.demand:
        purse.give(amount * grant.left)


def _take_again(grant: Grant) -> None:
    for purse, amount in grant.option.demand:
        purse.take(amount * grant.left)


def _names(grants: list[Grant]) -> tuple[str, ...]:
    return tuple(grant.request.request_id for grant in grants)
