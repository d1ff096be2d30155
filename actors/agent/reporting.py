"""Reports as they travel: in parts, where a cluster is too large for one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from ...model.figures import FRAME_MAX_BYTES
from ...wire.cluster import ClusterReported, JobReport, NodeReport

T = TypeVar("T")
_PART_BYTES: Final = FRAME_MAX_BYTES // 2  # an estimate: the rest is for what it does not see
_NODE_BYTES: Final = 250  # without texts
_JOB_BYTES: Final = 150
_LABEL_BYTES: Final = 6


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One life of an agent. `started_at_s` is Unix time, `started_s` the same moment on its own clock."""

    epoch: int
    started_at_s: float
    started_s: float
    version: str

    def unix(self, now_s: float) -> float:
        """Unix time of a moment on its own clock."""
        return self.started_at_s + now_s - self.started_s


def in_parts(report: ClusterReported) -> tuple[ClusterReported, ...]:
    """The report, or its parts: each with as many nodes and Jobs as one frame surely takes."""
    nodes = tuple(_gathered(report.nodes, _node_bytes))
    jobs = tuple(_gathered(report.jobs, _job_bytes))
    parts = max(1, len(nodes) + len(jobs)) if len(nodes) > 1 or len(jobs) > 1 else 1
    if parts == 1:
        return (report,)
    pieces = [(piece, ()) for piece in nodes] + [((), piece) for piece in jobs]
    return tuple(
        msgspec.structs.replace(report, nodes=some_nodes, jobs=some_jobs, part=part, parts=parts)
        for part, (some_nodes, some_jobs) in enumerate(pieces)
    )


def _gathered(items: Iterable[T], size: Callable[[T], int]) -> Iterator[tuple[T, ...]]:
    piece: list[T] = []
    so_far = 0
    for item in items:
        bytes_ = size(item)
        if piece and so_far + bytes_ > _PART_BYTES:
            yield tuple(piece)
            piece, so_far = [], 0
        piece.append(item)
        so_far += bytes_
    if piece:
        yield tuple(piece)


def _node_bytes(node: NodeReport) -> int:
    labels = sum(len(key) + len(value) + _LABEL_BYTES for key, value in node.labels)
    return _NODE_BYTES + len(node.name) + 4 * len(node.why) + labels


def _job_bytes(job: JobReport) -> int:
    return _JOB_BYTES + len(job.worker_id) + len(job.node) + 4 * len(job.why)
