"""How well the agent sees its cluster: what it watches, since when it does not, and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from .events import View, ViewLost

_RIGHTS: Final = {
    View.NODES: "list and watch nodes",
    View.PODS: "list and watch the pods of all namespaces",
    View.JOBS: "list and watch Jobs of its namespace",
}


class Views:
    """The three views. `changed` is set when what is told of them differs; whoever tells it clears it."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s  # nothing was seen before
        self._listing: dict[View, None] = {}
        self._listed: dict[View, None] = {}
        self._lost: dict[View, tuple[float, ViewLost]] = {}
        self.changed = False

    @property
    def complete(self) -> bool:
        """Whether everything was seen at least once."""
        return len(self._listed) == len(View)

    @property
    def current(self) -> bool:
        """Whether everything is kept up to date now."""
        return self.complete and not self._lost

    def listing(self, view: View) -> bool:
        """Whether what is told of it now was there before we looked."""
        return view in self._listing

    def began(self, view: View) -> None:
        """All of it is about to be told anew."""
        self._listing[view] = None

    def ended(self, view: View, now_s: float) -> None:
        """It was."""
        self._listing.pop(view, None)
        self.changed = self.changed or view not in self._listed
        self._listed[view] = None
        self.kept(view)

    def kept(self, view: View) -> None:
        """It is kept up to date."""
        self.changed = self._lost.pop(view, None) is not None or self.changed

    def lost(self, event: ViewLost, now_s: float) -> None:
        """It is not kept up to date any more."""
        since_s, before = self._lost.get(event.view, (now_s - event.age_s, None))
        self.changed = self.changed or before is None or before.forbidden != event.forbidden
        self._lost[event.view] = (since_s, event)

    def age_s(self, now_s: float) -> float:
        """How old the oldest of them is."""
        if not self.complete:
            return now_s - self._since_s
        return max((now_s - since_s for since_s, _ in self._lost.values()), default=0.0)

    def problem(self, unix: Callable[[float], float]) -> str:
        """Why it does not see its cluster as it should, in words; "" when it does."""
        forbidden = [_RIGHTS[view] for view in View if view in self._lost and self._lost[view][1].forbidden]
        if forbidden:
            return f"The agent may not {' and '.join(forbidden)}: apply its manifest again."
        if not self._lost:
            return ""
        since_s, event = min(self._lost.values(), key=lambda lost: lost[0])
        at = datetime.fromtimestamp(unix(since_s), UTC)
        return f"The agent has not seen {event.view} of its cluster since {at:%Y-%m-%d %H:%M:%S} UTC: {event.why}"
