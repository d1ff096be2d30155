"""The provisioning guard, pure: a bug in the accounting above it can cost a few workers, never a flood.

It stands above all pools. Requests of one pool are answered in the order in which they came, so that none is held for
ever; pools do not wait for each other. A request that alone is larger than a limit, such as a large gang, goes once
nothing else of its pool is counted against that limit: all of it, or nothing yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from ...model.figures import GUARD_PENDING, GUARD_PER_MINUTE, GUARD_WINDOW_S
from ...store import operations as ops
from ...wire import scheduling
from ...wire.letter import Letter
from ...wire.message import Send
from .orders import PENDING


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of each pool. Below zero a limit is off; 0 holds everything."""

    pending: int = GUARD_PENDING  # workers that are ordered and have not reported
    per_minute: int = GUARD_PER_MINUTE  # workers added within a minute


class ProvisioningRequest(msgspec.Struct, frozen=True, kw_only=True):
    """So many workers of a pool, all at once. `key` names the request: a gang's, or the one worker's."""

    pool: str
    key: str
    workers: int = 1


class Admitted(msgspec.Struct, frozen=True):
    """They may be ordered."""


class Held(msgspec.Struct, frozen=True):
    """They may not be ordered yet; `why` is a sentence without its subject."""

    why: str


class _Counts(msgspec.Struct, kw_only=True):
    """One pool. `told` are its pending workers as it says, `admitted` those that it has not counted among them yet."""

    told: int = 0
    admitted: dict[str, int] = msgspec.field(default_factory=dict)
    held: dict[str, ProvisioningRequest] = msgspec.field(default_factory=dict)
    added: deque[tuple[float, int]] = msgspec.field(default_factory=deque)

    @property
    def pending(self) -> int:
        return self.told + sum(self.admitted.values())

    @property
    def within_a_minute(self) -> int:
        return sum(workers for _, workers in self.added)

    @property
    def idle(self) -> bool:
        return not (self.told or self.admitted or self.held or self.added)


class ProvisioningGuard:
    """Holds worker orders of a pool while too many are pending, or too many were added within a minute.

    A held order is not a failed order: `release` names those that may go now.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._pools: dict[str, _Counts] = {}
        self._now_s = 0.0

    def load(self, workers: Iterable[ops.WorkerRow], now_s: float) -> None:
        """Begin from the store: what is pending there, and what was ordered within the last minute."""
        for row in workers:
            counts = self._pools.setdefault(row.pool, _Counts())
            counts.told += row.state in PENDING
            if row.ordered_at_s > now_s - GUARD_WINDOW_S:
                counts.added.append((min(row.ordered_at_s, now_s), 1))
        for counts in self._pools.values():
            counts.added = deque(sorted(counts.added))
        self._now_s = now_s

    def admit(self, request: ProvisioningRequest, now_s: float) -> Admitted | Held:
        """Judge a request, a gang as one. Asked twice it is answered alike, and counted once."""
        counts = self._pools.setdefault(request.pool, _Counts())
        if request.key in counts.admitted:
            return Admitted()
        counts.held[request.key] = request
        self._pass_time(now_s)
        if next(iter(counts.held)) != request.key:
            return Held(
                self._why(counts, counts.held[next(iter(counts.held))]) or "orders that were held before go first"
            )
        if why := self._why(counts, request):
            return Held(why)
        self._let_go(counts, request)
        return Admitted()

    def count_pending(self, pool: str, pending: int) -> None:
        """A pool says how many of its workers are pending."""
        self._pools.setdefault(pool, _Counts()).told = pending

    def forget(self, pool: str, key: str) -> None:
        """A request is over: its workers are counted by their pool now, or it is no longer made. "" is all of them."""
        counts = self._pools.get(pool)
        if counts is None:
            return
        for known in (key,) if key else (*counts.held, *counts.admitted):
            counts.held.pop(known, None)
            counts.admitted.pop(known, None)

    def release(self, now_s: float) -> tuple[ProvisioningRequest, ...]:
        """The held requests that may go now, in the order in which they came."""
        self._pass_time(now_s)
        released: list[ProvisioningRequest] = []
        for counts in self._pools.values():
            for request in tuple(counts.held.values()):
                if self._why(counts, request):
                    break
                self._let_go(counts, request)
                released.append(request)
        self._pools = {pool: counts for pool, counts in self._pools.items() if not counts.idle}
        return tuple(released)

    def _pass_time(self, now_s: float) -> None:
        """A clock that goes back is not followed: nothing is counted for less than a minute."""
        self._now_s = max(self._now_s, now_s)
        for counts in self._pools.values():
            while counts.added and counts.added[0][0] <= self._now_s - GUARD_WINDOW_S:
                counts.added.popleft()

    def _let_go(self, counts: _Counts, request: ProvisioningRequest) -> None:
        del counts.held[request.key]
        counts.admitted[request.key] = request.workers
        counts.added.append((self._now_s, request.workers))

    def _why(self, counts: _Counts, request: ProvisioningRequest) -> str:
        """Why a request must wait; empty when it may go."""
        limits = self._settings
        if not _allows(limits.pending, counts.pending, request.workers):
            return f"{counts.pending} of its workers are pending, and the limit is {limits.pending}"
        if not _allows(limits.per_minute, counts.within_a_minute, request.workers):
            return f"{counts.within_a_minute} workers were added within a minute, and the limit is {limits.per_minute}"
        return ""


def _allows(limit: int, counted: int, more: int) -> bool:
    """What is larger than the limit goes alone."""
    if limit <= 0:
        return limit < 0
    return counted + more <= limit or (counted == 0 and more > limit)


class GuardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent; the guard keeps nothing in the store."""

    sends: tuple[Send, ...]
    operations: tuple[ops.Operation, ...] = ()


class GuardPolicy:
    """Letters of pools in, answers out."""

    def __init__(self, settings: GuardSettings) -> None:
        self._guard = ProvisioningGuard(settings)
        self._sends: list[Send] = []

    def load(self, workers: Iterable[ops.WorkerRow], now_s: float) -> None:
        """Begin from the store."""
        self._guard.load(workers, now_s)

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in; nobody but pools is listened to."""
        if not letter.source.startswith("pool/"):
            return
        match letter.message:
            case scheduling.AskGuard(pool=pool, key=key, workers=workers):
                judged = self._guard.admit(ProvisioningRequest(pool=pool, key=key, workers=workers), now_s)
                if isinstance(judged, Held):
                    self._sends.append(Send(letter.source, scheduling.GuardHolds(key=key, why=judged.why)))
                else:
                    self._sends.append(Send(letter.source, scheduling.GuardAdmits(key=key)))
            case scheduling.WorkersPending(pool=pool, pending=pending):
                self._guard.count_pending(pool, pending)
            case scheduling.GuardForgets(pool=pool, key=key):
                self._guard.forget(pool, key)

    def tick(self, now_s: float) -> None:
        """`plan` looks at the clock."""

    def plan(self, now_s: float) -> GuardPlan | None:
        """Answer what was asked, and release what may go; None when there is nothing to say."""
        for request in self._guard.release(now_s):
            self._sends.append(Send(f"pool/{request.pool}", scheduling.GuardAdmits(key=request.key)))
        sends, self._sends = tuple(self._sends), []
        return GuardPlan(sends=sends) if sends else None

    @staticmethod
    def settle(plan: GuardPlan, answers: tuple[ops.Answer, ...]) -> tuple[Send, ...]:
        """Nothing was committed."""
        return plan.sends
