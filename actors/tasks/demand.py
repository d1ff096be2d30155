"""How many containers a stub wants, from its backlog and from how long its calls take."""

from __future__ import annotations

import math
from typing import Final

from ...model.figures import DRAIN_S

UNKNOWN_CALL_S: Final = 0.02  # what a call is taken to last before the first one has ended
COMING_MAX: Final = 256  # requests of one stub that wait for room: more would not be placed sooner
UNKNOWN_MAX: Final = 8  # containers asked for while nothing is known


def containers_wanted(backlog: int, mean_s: float | None, running_for_s: float, max_containers: int) -> int:
    """Containers for `backlog` unfinished calls; `running_for_s` is for how long one has run, and none has ended.

    `max_containers` 0 is no limit.
    """
    if backlog <= 0:
        return 0
    if mean_s is None:
        wanted = math.ceil(backlog * max(UNKNOWN_CALL_S, running_for_s) / DRAIN_S)
        wanted = min(wanted, UNKNOWN_MAX) if running_for_s < DRAIN_S else wanted
    else:
        wanted = math.ceil(backlog * max(mean_s, running_for_s) / DRAIN_S)  # this one may last longer than those before
    wanted = max(1, min(wanted, backlog))
    return min(wanted, max_containers) if max_containers else wanted
