"""Where an attached cluster stands, as a table over what is known of its agent."""

from __future__ import annotations

from typing import Final

from ...model.clusters import ClusterState
from ...model.figures import REPORT_STALE_S

_Known = tuple[bool, bool, bool]  # it has reported once, its last report is fresh, its stream is open

CLUSTER_STATES: Final[dict[_Known, ClusterState]] = {
    (True, True, True): ClusterState.ONLINE,
    (True, True, False): ClusterState.ONLINE,
    (True, False, True): ClusterState.STALE,
    (True, False, False): ClusterState.OFFLINE,
} | {(False, fresh, is_open): ClusterState.WAITING for fresh in (True, False) for is_open in (True, False)}


def state_of(*, reported: bool, as_of_s: float, is_open: bool, now_s: float) -> ClusterState:
    """The state of a cluster whose agent last saw it at `as_of_s`."""
    return CLUSTER_STATES[reported, now_s - as_of_s < REPORT_STALE_S, is_open]


AWAY: Final[dict[ClusterState, str]] = {
    ClusterState.WAITING: "no agent has reported of its cluster yet",
    ClusterState.STALE: "its agent does not see its cluster: no worker starts there until it does",
    ClusterState.OFFLINE: "its agent is away: no worker starts there until it is back",
    ClusterState.ONLINE: "",
}
