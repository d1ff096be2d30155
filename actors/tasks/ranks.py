"""An attempt that a gang runs: each rank comes to an end of its own, and the attempt ends when all of them have.

It succeeds with the result of rank 0 when all have succeeded. Where one rank falls, others fail because of it and may
be heard first: so a failure waits a little for what brought it about. Then that rank is the culprit, the others are
stopped, and the attempt fails as the culprit did. Until it is over no end is acknowledged: workers tell them again to
whoever leads.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.states import End
from ...wire import scheduling
from ...wire.work import AttemptKey
from .group import Group
from .outcomes import LOSSES
from .warm import Gang, RankEnd, Warm

RANKS_SETTLE_S: Final = 5.0  # within this, evidence of a worker's end is there: its work runs elsewhere then
_LOSSES: Final = LOSSES | {End.CANCELLED}  # without a cancel of the task its container was told to stop
_WEIGHTS: Final = dict.fromkeys(_LOSSES, 0) | {End.OUT_OF_MEMORY: 1, End.TIMED_OUT: 2}
_LIGHTEST: Final = 3


class Ranks:
    """Judges the ends of ranks. It is told to stop ranks through the group."""

    def __init__(self, group: Group) -> None:
        self._group = group

    @staticmethod
    def note(gang: Gang, rank: int, end: RankEnd, now_s: float) -> None:
        """A rank has come to its end; hearing so twice is hearing it once."""
        gang.ended[rank] = end
        if end.result.end is not End.OK and gang.failed_at_s is None:
            gang.failed_at_s = now_s

    def judge(self, gang: Gang, cancelling: bool, now_s: float) -> RankEnd | None:
        """How the attempt ended, or None while a rank still runs; stops the others once it is known why it fails."""
        over = len(gang.ended) == gang.size
        if gang.culprit is None and not cancelling:
            gang.culprit = _culprit(gang, over, now_s)
            if gang.culprit is not None and not over:
                self._stop(gang)
        if not over:
            return None
        if gang.culprit is not None:
            return _named(gang.ended[gang.culprit], gang.culprit, gang.size)
        return next((end for end in gang.ended.values() if end.result.end is not End.OK), gang.ended[0])

    def _stop(self, gang: Gang) -> None:
        running = [gang.members[rank] for rank in sorted(gang.members) if rank not in gang.ended]
        why = f"rank {gang.culprit} of its gang has failed"
        self.release([member for member in running if gang.task_id in member.holding], why)

    def acknowledge(self, gang: Gang) -> None:
        """The attempt is over: what its ranks told need not be kept any more."""
        for end in gang.ended.values():
            if not end.worker_id:  # it was lost while nobody led: nobody told its end
                continue
            key = AttemptKey(end.result.task_id, end.result.attempt)
            self._group.acknowledge(f"worker/{end.worker_id}", end.container_id, [key])

    def release(self, members: list[Warm], why: str) -> None:
        """Give these back; those that were given back before are left alone."""
        staying = [member for member in members if not member.leaving]
        for member in staying:
            member.leaving = True
        if staying:
            container_ids = tuple(member.container_id for member in staying)
            self._group.send("scheduler", scheduling.ReleaseContainers(container_ids=container_ids, why=why))


def _culprit(gang: Gang, over: bool, now_s: float) -> int | None:
    """What brought the others down: a loss before want of memory, that before a timeout, else what was heard first."""
    failed = {rank: end.result.end for rank, end in gang.ended.items() if end.result.end is not End.OK}
    if not failed or gang.failed_at_s is None:
        return None
    lost = any(end in _LOSSES for end in failed.values())
    if not (over or lost or now_s >= gang.failed_at_s + RANKS_SETTLE_S):
        return None
    return min(failed, key=lambda rank: _WEIGHTS.get(failed[rank], _LIGHTEST))


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
