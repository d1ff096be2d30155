"""The judgement of a supervisor, pure: who comes back, after how long, and when it is enough."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from .model.doubling import doubled_s

HISTORY: Final = 1_000  # endings that a supervisor remembers


class Lifetime(enum.Enum):
    """Which endings of a child are followed by a new life."""

    PERMANENT = "permanent"  # every ending
    TRANSIENT = "transient"  # a crash; a child that returns has done its work
    TEMPORARY = "temporary"  # none


class Strategy(enum.Enum):
    """Who is restarted together with a child that crashed."""

    ONE_FOR_ONE = "one for one"  # nobody
    ONE_FOR_ALL = "one for all"  # all children
    REST_FOR_ONE = "rest for one"  # those that were started after it


class Backoff(msgspec.Struct, frozen=True):
    """How long a child waits for its next life: `min_s`, doubling with each failure up to `max_s`.

    Up to the share `jitter` of it is taken off by chance. A life of at least `reset_after_s` begins anew with `min_s`.
    """

    min_s: float = 0.1
    max_s: float = 30.0
    jitter: float = 0.5
    reset_after_s: float = 60.0


class Intensity(msgspec.Struct, frozen=True):
    """How often children may come back: the supervisor gives up with the failure after `restarts` within `within_s`.

    Intensities multiply down a tree: 10 here and 10 above are 100 restarts of a leaf before the top gives up.
    """

    restarts: int = 10
    within_s: float = 60.0


class Terms(msgspec.Struct, frozen=True):
    """What one child and its supervisor agreed on."""

    restart: Lifetime = Lifetime.PERMANENT
    backoff: Backoff = Backoff()
    intensity: Intensity = Intensity()


class Ending(msgspec.Struct, frozen=True):
    """How a life of a child ended. `lived_s` counts from when it said that it was ready, 0 if it never did."""

    child: str
    at_s: float
    why: str
    crashed: bool
    lived_s: float

    def sentence(self) -> str:
        """The ending in words."""
        return f"{self.child} {'crashed' if self.crashed else 'ended'} after {self.lived_s:.1f} s: {self.why}"


class Restart(msgspec.Struct, frozen=True):
    """Bring it back after so many seconds."""

    after_s: float


class Stop(msgspec.Struct, frozen=True):
    """Its time is over; that is as it should be."""


class GiveUp(msgspec.Struct, frozen=True):
    """Too many failures: the supervisor ends with its children, and says what happened, oldest first."""

    history: tuple[str, ...]


def judge(now_s: float, history: tuple[Ending, ...], terms: Terms, chance: float = 0.0) -> Restart | Stop | GiveUp:
    """What follows on the last ending of `history`, which holds the endings of all children, oldest first.

    `chance` is a number in [0, 1) that decides on the jitter.
    """
    ending = history[-1]
    if terms.restart is Lifetime.TEMPORARY or (terms.restart is Lifetime.TRANSIENT and not ending.crashed):
        return Stop()
    recent = tuple(each for each in history if each.at_s > now_s - terms.intensity.within_s)
    if len(recent) > terms.intensity.restarts:
        return GiveUp(tuple(each.sentence() for each in recent))
    backoff = terms.backoff
    wait_s = doubled_s(backoff.min_s, _failures_in_a_row(history, backoff.reset_after_s) - 1, backoff.max_s)
    return Restart(wait_s * (1.0 - backoff.jitter * chance))


def _failures_in_a_row(history: tuple[Ending, ...], healthy_after_s: float) -> int:
    """Endings of the last child since its last healthy life; the end of a healthy life is the first of a new row."""
    failures = 0
    for ending in reversed(history):
        if ending.child == history[-1].child:
            failures += 1
            if ending.lived_s >= healthy_after_s:
                break
    return failures
