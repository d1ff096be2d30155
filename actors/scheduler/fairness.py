"""Who has had how much: dominant shares by weight, of what is used now and of what was used lately.

A share is the largest part, over all resources, that somebody has of everything there is. Counted is what is used now
plus a mean of what was used, in which the past fades by half in each half-life; so a newcomer goes before somebody who
has had much, and catches up, and after a few half-lives all is forgotten. Everything is integers: any machine comes to
the same shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...model.resources import Amount
from .quotas import in_order

STEPS: Final = 1024  # of a half-life; a mean moves on in whole steps, eight of them at least
STEP_FACTOR: Final = 4_292_061_010  # 2**32 * 2**(-1/1024)
MEAN_SCALE: Final = 1 << 10  # of means, so that rounding does not eat small ones
SHARE_ONE: Final = 1 << 30  # the share of somebody of weight 1 who has had everything: half of it now, half lately
NEAR: Final = 64  # totals that differ by less than a part of this are near
SETTLE_MS: Final = 1000  # means move on once a second at most


Past = tuple[tuple[int, ...], tuple[int, ...]]


class Account:
    """What one workspace, or one queue, uses and used."""

    __slots__ = ("_mean", "_since_ms", "_spent", "members", "share", "used", "weight")

    def __init__(self, now_ms: int) -> None:
        self.weight = 1
        self.members = 0  # containers that use it
        self.used = [0, 0, 0]  # in the order of RESOURCES
        self.share = 0  # as counted last
        self._spent = [0, 0, 0]  # use times milliseconds since means moved on
        self._mean = [0, 0, 0]  # times MEAN_SCALE
        self._since_ms = now_ms

    @property
    def idle(self) -> bool:
        """Whether nothing is left to remember."""
        return not any(self.used) and not any(self._mean) and not any(self._spent)

    def charge(self, amounts: tuple[int, int, int], times: int, now_ms: int) -> None:
        """So much more is used from now on; less where `times` is below zero."""
        self._spend(now_ms)
        self.members += times
        used = self.used
        used[0] += amounts[0] * times
        used[1] += amounts[1] * times
        used[2] += amounts[2] * times

    def _spend(self, now_ms: int) -> None:
        elapsed = now_ms - self._since_ms
        if elapsed > 0:
            self._since_ms = now_ms
            spent, used = self._spent, self.used
            spent[0] += used[0] * elapsed
            spent[1] += used[1] * elapsed
            spent[2] += used[2] * elapsed

    def settle(self, now_ms: int, elapsed_ms: int, factor: int) -> None:
        """Means move on by so many milliseconds, in which `factor` / 2**32 of the past is kept."""
        self._spend(now_ms)
        for place in range(3):
            lately = self._spent[place] * MEAN_SCALE // elapsed_ms
            self._mean[place] = lately + ((self._mean[place] - lately) * factor >> 32)
            self._spent[place] = 0

    def remember(self, now_ms: int) -> Past:
        """What was used, up to now."""
        self._spend(now_ms)
        return tuple(self._mean), tuple(self._spent)

    def recall(self, past: Past, now_ms: int) -> None:
        """This was used up to now, by this or by another account."""
        self._mean, self._spent, self._since_ms = list(past[0]), list(past[1]), now_ms

    def count(self, scales: tuple[int, int, int]) -> int:
        """The share as of now; also kept in `share`."""
        used, mean = self.used, self._mean
        self.share = max(
            (used[0] * MEAN_SCALE + mean[0]) * scales[0],
            (used[1] * MEAN_SCALE + mean[1]) * scales[1],
            (used[2] * MEAN_SCALE + mean[2]) * scales[2],
        ) // (SCALE * MEAN_SCALE * self.weight)
        return self.share


SCALE: Final = 1 << 32


def scales_of(total: Amount) -> tuple[int, int, int]:
    """What a unit of each resource counts; nothing where there is none of it."""
    cpu, memory, gpu = in_order(total)
    return _scale(cpu), _scale(memory), _scale(gpu)


def _scale(total: int) -> int:
    return -(-SHARE_ONE // 2 * SCALE // total) if total > 0 else 0


def share_of(used: Sequence[int], weight: int, scales: tuple[int, int, int]) -> int:
    """The share of what is used now alone."""
    return max(used[0] * scales[0], used[1] * scales[1], used[2] * scales[2]) * 2 // (SCALE * weight)


class Clock:
    """How far means have to move on. Time that goes back stands still."""

    def __init__(self, half_life_s: float, now_ms: int) -> None:
        self._step_ms = max(1, int(half_life_s * 1000) // STEPS)
        self._settled_ms = now_ms

    def due(self, now_ms: int) -> bool:
        """Whether means may move on again."""
        return now_ms - self._settled_ms >= max(SETTLE_MS, 8 * self._step_ms)

    @property
    def settled_ms(self) -> int:
        """When means moved on last."""
        return self._settled_ms

    def set(self, settled_ms: int) -> None:
        """Means moved on then."""
        self._settled_ms = settled_ms

    def step(self, now_ms: int) -> tuple[int, int]:
        """The milliseconds since means moved on, and what is kept of the past, in parts of 2**32."""
        elapsed_ms, self._settled_ms = now_ms - self._settled_ms, now_ms
        return elapsed_ms, kept(elapsed_ms // self._step_ms)


def kept(steps: int) -> int:
    """What is left of the past after so many steps, in parts of 2**32."""
    left, factor = 1 << 32, STEP_FACTOR
    steps = min(steps, STEPS * 64)  # nothing is left after 64 half-lives
    while steps:
        if steps & 1:
            left = left * factor >> 32
        factor = factor * factor >> 32
        steps >>= 1
    return left


class Fairness:
    """The accounts of all workspaces and queues, and what there is of everything."""

    def __init__(self, half_life_s: float) -> None:
        self.scales = (0, 0, 0)
        self.spaces: dict[str, Account] = {}
        self.rows: dict[tuple[str, str], Account] = {}
        self._total = (0, 0, 0)
        self._counted = (0, 0, 0)
        self._clock = Clock(half_life_s, 0)

    def set_half_life(self, half_life_s: float, now_ms: int) -> None:
        """The past fades like this from now on."""
        self._clock = Clock(half_life_s, now_ms)

    def set_total(self, total: Amount) -> bool:
        """All there is; whether shares have to be counted anew. Small changes wait until means move on."""
        self._total = in_order(total)
        return not _near(self._total, self._counted) and self._scale()

    def _scale(self) -> bool:
        changed, self._counted = self._counted != self._total, self._total
        self.scales = scales_of(Amount(*self._total))
        return changed

    def of_space(self, name: str, weight: int, now_ms: int) -> Account:
        """The account of a workspace."""
        account = self.spaces.get(name)
        if account is None:
            account = self.spaces[name] = Account(now_ms)
        account.weight = weight
        return account

    def of_row(self, space: str, name: str, weight: int, now_ms: int) -> Account:
        """The account of a queue."""
        account = self.rows.get((space, name))
        if account is None:
            account = self.rows[space, name] = Account(now_ms)
        account.weight = weight
        return account

    def settle(self, now_ms: int) -> bool:
        """Means move on if it is time; whether all shares have to be counted anew."""
        if not self._clock.due(now_ms):
            return False
        elapsed_ms, factor = self._clock.step(now_ms)
        for account in (*self.spaces.values(), *self.rows.values()):
            if not account.idle:
                account.settle(now_ms, elapsed_ms, factor)
        self._scale()
        return True

    def remember(self, now_ms: int) -> FairnessPast:
        """All that is known of the past."""
        return FairnessPast(
            now_ms,
            self._clock.settled_ms,
            self._counted,
            tuple((name, account.remember(now_ms)) for name, account in self.spaces.items()),
            tuple((name, account.remember(now_ms)) for name, account in self.rows.items()),
        )

    def recall(self, past: FairnessPast) -> None:
        """Go on from what others remembered."""
        self._clock.set(past.settled_ms)
        self._counted = past.counted
        self.scales = scales_of(Amount(*past.counted))
        for name, of_space in past.spaces:
            self.spaces.setdefault(name, Account(past.now_ms)).recall(of_space, past.now_ms)
        for row, of_row in past.rows:
            self.rows.setdefault(row, Account(past.now_ms)).recall(of_row, past.now_ms)


class FairnessPast(msgspec.Struct, frozen=True, array_like=True):
    """What a journal keeps of shares."""

    now_ms: int
    settled_ms: int
    counted: tuple[int, int, int]
    spaces: tuple[tuple[str, Past], ...]
    rows: tuple[tuple[tuple[str, str], Past], ...]


def _near(total: tuple[int, ...], counted: tuple[int, ...]) -> bool:
    return all(abs(now - then) * NEAR <= then for now, then in zip(total, counted))
