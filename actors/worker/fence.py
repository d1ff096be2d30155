"""A worker that nobody may have heard of for a lease starts nothing that it was given before it has asked. Pure."""

from __future__ import annotations

from typing import Final

from ...model.figures import CARRIER_DEAD_AFTER_S, PEER_SILENT_AFTER_S, WORKER_LEASE_S

# Each side counts from when it heard the other, and may be heard last before it hears last: by as long as a stream is
# kept that brings the other side nothing. And the other side may know at once that a stream has ended that only seems
# silent here.
FENCE_MARGIN_S: Final = CARRIER_DEAD_AFTER_S + PEER_SILENT_AFTER_S
FENCE_AFTER_S: Final = WORKER_LEASE_S - FENCE_MARGIN_S


class Fence:
    """Up from `FENCE_AFTER_S` after the stream went quiet until the control plane has answered question `number`."""

    def __init__(self) -> None:
        self.number = 0
        self.up = False
        self.due_s: float | None = None

    def quiet(self, now_s: float) -> None:
        """The stream has ended, or is silent."""
        if self.due_s is None:
            self.due_s = now_s + FENCE_AFTER_S

    def heard(self) -> None:
        """The control plane is heard. A fence that is up stays so until it answers, and not an earlier question."""
        self.due_s = None
        self.number += self.up

    def holds(self, now_s: float) -> bool:
        """Whether nothing may start."""
        return self.up or (self.due_s is not None and self.due_s <= now_s)

    def goes_up(self, now_s: float) -> bool:
        """True once, when it is due."""
        if self.due_s is None or self.due_s > now_s:
            return False
        self.up, self.due_s = True, None
        return True

    def lower(self) -> None:
        """The control plane has answered."""
        self.up = False
