"""Containers that a function has: each on its own, or as ranks of a gang that runs one call together."""

from __future__ import annotations

import msgspec

from ...wire.work import AttemptResult


class Warm(msgspec.Struct, kw_only=True):
    """A container of a stub: requested, or available with `window` credits. `holding` are its tasks, oldest first.

    `proved` once it ran a line of somebody's call; `leaving` once it was released: it gets no call any more.
    One that is `yielding` gets none either, and is released once it holds none.
    """

    container_id: str
    stub_id: str
    worker_id: str = ""
    available: bool = False
    window: int = 0
    holding: dict[str, None] = msgspec.field(default_factory=dict)
    idle_since_s: float = 0.0
    leaving: bool = False
    proved: bool = False
    yielding: bool = False
    why_yields: str = ""
    gang_id: str = ""
    rank: int = 0
    replaces: bool = False  # a member that its gang had lost
    address: str = ""  # of a gang's member: host:port at which the others reach it

    @property
    def stays(self) -> bool:
        """Whether it is warm, and takes calls or will."""
        return self.available and not self.leaving and not self.yielding

    @property
    def credits(self) -> int:
        """How many more calls it takes now."""
        return max(0, self.window - len(self.holding)) if self.stays else 0


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one rank of a gang's attempt ended, and whom to tell that it is known. `why`: how its container was lost."""

    container_id: str
    worker_id: str
    result: AttemptResult
    why: str = ""


class Gang(msgspec.Struct, kw_only=True):
    """Containers that run one call together, each as a rank of it. `members` lacks the ranks that were lost.

    It runs one call at a time, which each member holds until all of it is over; `ended` are the ranks that came to an
    end, in that order. `failed_at_s` is when the first of them failed, `culprit` the rank whose failure is the
    attempt's: the others are being stopped then. `owed` ranks are to be sent their orders again.
    """

    gang_id: str
    stub_id: str
    size: int
    members: dict[int, Warm] = msgspec.field(default_factory=dict)
    leaving: bool = False
    idle_since_s: float = 0.0
    task_id: str = ""
    ended: dict[int, RankEnd] = msgspec.field(default_factory=dict)
    failed_at_s: float | None = None
    culprit: int | None = None
    owed: dict[int, None] = msgspec.field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all its containers are warm and stay."""
        return not self.leaving and len(self.members) == self.size and all(one.stays for one in self.members.values())

    @property
    def free(self) -> bool:
        """Whether it takes a call now."""
        ready = self.whole and bool(self.address)
        return ready and not self.task_id and all(member.window for member in self.members.values())

    @property
    def yielding(self) -> bool:
        """Whether it makes room once its call has ended."""
        return any(member.yielding for member in self.members.values())

    @property
    def address(self) -> str:
        """Where its ranks meet, once that is known."""
        return self.members[0].address if 0 in self.members else ""

    @property
    def rooted(self) -> bool:
        """Whether a member stays beside which others can be replaced."""
        return any(not one.leaving and (one.available or not one.replaces) for one in self.members.values())

    @property
    def lacking(self) -> list[int]:
        """The ranks that have no container."""
        return [rank for rank in range(self.size) if rank not in self.members]
