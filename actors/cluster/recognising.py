"""Whether an agent sees the cluster that we know: who joins again under a name may do so from another one.

An agent sees one cluster for all its life. A new life sees the same one where it tells of a Node or of a Job that we
know by its UID; before that, Nodes of the same names say nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.cluster import ClusterReported, NodeReport


class Recognised:
    """Of one cluster: the newest life of an agent that surely sees it, and the Nodes that it told of last."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._nodes: tuple[NodeReport, ...] = ()

    def doubt(self) -> None:
        """Another agent is to come, and who knows whence."""
        self._epoch = None

    def hear(self, report: ClusterReported, uids: Iterable[str]) -> bool:
        """Whether a report is of the cluster where these UIDs are, Nodes and Jobs; of any where there are none."""
        if report.epoch != self._epoch and _meets(report, self._nodes, uids):
            self._epoch = report.epoch
        if report.epoch == self._epoch:
            self._nodes = report.nodes
        return report.epoch == self._epoch


def _meets(report: ClusterReported, before: Iterable[NodeReport], uids: Iterable[str]) -> bool:
    ours = {uid for uid in uids if uid}
    if not ours:
        return True
    known = ours | {node.uid for node in before}
    told = [*(node.uid for node in report.nodes), *(job.job_uid for job in report.jobs)]
    return any(uid in known for uid in told if uid)
