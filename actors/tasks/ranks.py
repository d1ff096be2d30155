"""An attempt that a gang runs: each rank comes to an end of its own, and together they are the attempt's.

It succeeds when all ranks have, with the result of rank 0, and fails with the first that failed. Where one rank falls,
others fail because of it, and may be heard first: so the attempt waits a little for what brought them down. Ends are
acknowledged only when the attempt is over: until then workers tell them again to whoever leads.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.states import End
from ...wire import scheduling
from ...wire.work import AttemptKey, AttemptResult
from .group import Group
from .outcomes import LOSSES
from .warm import Gang, RankEnd, Warm

RANKS_SETTLE_S: Final = 5.0  # within this, evidence of a worker's end is there: its work runs elsewhere then
_WEIGHTS: Final = {End.DISCONNECTED: 0, End.KILLED: 0, End.CANCELLED: 0, End.OUT_OF_MEMORY: 1, End.TIMED_OUT: 2}
_LIGHTEST: Final = 3


def verdict(gang: Gang, cancelling: bool, now_s: float) -> RankEnd | None:
    """How the attempt ended, or None while it goes on. One that is being cancelled ends once none of its ranks runs."""
    failed = [rank for rank, end in gang.ended.items() if end.result.end is not End.OK]
    if len(gang.ended) < gang.size and (cancelling or not _failed_for_good(gang, failed, now_s)):
        return None
    rank = min(failed, key=lambda one: _weight(gang.ended[one].result), default=0)
    end = gang.ended[rank]
    return end if cancelling or end.result.end is End.OK else _named(end, rank, gang.size)


def _failed_for_good(gang: Gang, failed: list[int], now_s: float) -> bool:
    if not failed or gang.failed_at_s is None:
        return False
    lost = any(gang.ended[rank].result.end in LOSSES for rank in failed)
    return lost or now_s >= gang.failed_at_s + RANKS_SETTLE_S


def _weight(result: AttemptResult) -> int:
    """What brought the others down comes first; among equals the first that was heard."""
    return _WEIGHTS.get(result.end, _LIGHTEST)


def _named(end: RankEnd, rank: int, size: int) -> RankEnd:
    """The failure says whose it is. Log lines are those of rank 0, so the number of another's last one says nothing."""
    who, failure = f"Rank {rank} of {size}: ", end.result.failure
    if failure is not None:
        traceback = failure.traceback and f"{who}\n{failure.traceback}"
        failure = msgspec.structs.replace(failure, what=who + failure.what, traceback=traceback)
    result = msgspec.structs.replace(
        end.result,
        failure=failure,
        last_log_line=0 if rank else end.result.last_log_line,
    )
    return msgspec.structs.replace(end, result=result, why=who + end.why)


class Ranks:
    """Keeps the ends of ranks, and lets a gang go once its attempt is over."""

    def __init__(self, group: Group) -> None:
        self._group = group

    @staticmethod
    def note(gang: Gang, rank: int, end: RankEnd, now_s: float) -> None:
        """A rank has come to its end; hearing so twice is hearing it once."""
        gang.ended[rank] = end
        if end.result.end is not End.OK and gang.failed_at_s is None:
            gang.failed_at_s = now_s

    def finish(self, gang: Gang, why: str) -> None:
        """The attempt is over: what its ranks told need not be kept, and those that still run it are stopped."""
        for end in gang.ended.values():
            key = AttemptKey(end.result.task_id, end.result.attempt)
            self._group.acknowledge(f"worker/{end.worker_id}", end.container_id, [key])
        running = [gang.members[rank] for rank in sorted(gang.members) if rank not in gang.ended]
        self.release([member for member in running if gang.task_id in member.holding], why)

    def release(self, members: list[Warm], why: str) -> None:
        """Give these back; those that were given back before are left alone."""
        staying = [member for member in members if not member.leaving]
        for member in staying:
            member.leaving = True
        if staying:
            container_ids = tuple(member.container_id for member in staying)
            self._group.send("scheduler", scheduling.ReleaseContainers(container_ids=container_ids, why=why))
