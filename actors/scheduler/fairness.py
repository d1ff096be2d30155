"""Who has had how much: dominant shares by weight, of what is used now and of what was used lately.

A share is the largest part, over all resources, that somebody has of everything there is. Counted is what is used now
plus a mean of what was used, in which the past fades by half in each half-life; so a newcomer goes before somebody who
has had much, and catches up, and after a few half-lives all is forgotten. Everything is integers: any machine comes to
the same shares.
"""

from __future__ import annotations

from typing import Final

from ...model.resources import Amount
from .quotas import in_order

STEPS: Final = 64  # of a half-life; a mean moves on in whole steps
STEP_FACTOR: Final = 4_248_701_965  # 2**32 * 2**(-1/64)
MEAN_SCALE: Final = 1 << 10  # of means, so that rounding does not eat small ones
SHARE_ONE: Final = 1 << 30  # the share of somebody of weight 1 who has had everything: half of it now, half lately
SETTLE_MS: Final = 1000  # means move on once a second at most


Past = tuple[tuple[int, ...], tuple[int, ...]]


class Account:
    """What one workspace, or one queue, uses and used."""

    __slots__ = ("_mean", "_since_ms", "_spent", "members", "share", "used", "weight")

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight
        self.members = 0  # containers that use it
        self.used = [0, 0, 0]  # in the order of RESOURCES
        self.share = 0  # as counted last
        self._spent = [0, 0, 0]  # use times milliseconds since means moved on
        self._mean = [0, 0, 0]  # times MEAN_SCALE
        self._since_ms = 0

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

    def forget(self) -> None:
        """The past does not count any more, what is used now does."""
        self._mean = [0, 0, 0]
        self._spent = [0, 0, 0]

    def start(self, now_ms: int) -> None:
        """Begin to count here."""
        self._since_ms = now_ms

    def remember(self, now_ms: int) -> Past:
        """What was used, up to now."""
        self._spend(now_ms)
        return tuple(self._mean), tuple(self._spent)

    def recall(self, past: Past, now_ms: int) -> None:
        """This was used up to now, by this or by another account."""
        self._mean, self._spent, self._since_ms = list(past[0]), list(past[1]), now_ms

    def now(self, scales: tuple[int, int, int]) -> int:
        """The share of what is used now alone."""
        used = self.used
        return max(used[0] * scales[0], used[1] * scales[1], used[2] * scales[2]) * 2 // (SCALE * self.weight)

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
    return SHARE_ONE // 2 * SCALE // total if total > 0 else 0


class Clock:
    """How far means have to move on. Time that goes back stands still."""

    def __init__(self, half_life_s: float, now_ms: int) -> None:
        self._step_ms = max(1, int(half_life_s * 1000) // STEPS)
        self._settled_ms = now_ms

    def due(self, now_ms: int) -> bool:
        """Whether means may move on again."""
        return now_ms - self._settled_ms >= max(SETTLE_MS, self._step_ms)

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
