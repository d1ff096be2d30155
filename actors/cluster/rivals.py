"""Whether two agents speak for one cluster: each that begins supersedes the other, which ends and begins again."""

from __future__ import annotations

from typing import Final

LOOKED_AT_S: Final = 900.0  # a Deployment starts its pod again within 300 s, so that each has had its turn
_KEPT: Final = 8
RIVALS: Final = "two agents speak for it with one token, and end each other by turns: delete one of their Deployments"


class Rivals:
    """The lives of an agent that were heard after a newer one. One may be late; several are another agent's."""

    def __init__(self) -> None:
        self._late: dict[int, float] = {}

    def hear(self, epoch: int, now_s: float) -> None:
        """A life that another has superseded was heard."""
        self._late.setdefault(epoch, now_s)
        for oldest in sorted(self._late)[:-_KEPT]:
            del self._late[oldest]

    def are_there(self, now_s: float) -> bool:
        """Whether several were, not long ago."""
        return sum(now_s - heard_s < LOOKED_AT_S for heard_s in self._late.values()) > 1
