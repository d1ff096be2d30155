"""What an agent says becomes one whole report: large ones come in parts, and one of a blind agent has no nodes."""

from __future__ import annotations

from typing import Final

import msgspec

from ...wire.cluster import ClusterReported

PARTS_MAX: Final = 1_000


class Parts:
    """The parts of the newest report of one life of an agent, until all have come."""

    def __init__(self) -> None:
        self._of = (0, 0)
        self._parts: dict[int, ClusterReported] = {}

    def hear(self, part: ClusterReported) -> ClusterReported | None:
        """The whole report, once its last part is here; a later report's part ends those that lack some."""
        if part.parts <= 1:
            return part
        which = (part.epoch, part.sequence)
        if which < self._of or not 0 <= part.part < part.parts <= PARTS_MAX:
            return None
        if which > self._of:
            self._of, self._parts = which, {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return None
        pieces = [self._parts[number] for number in sorted(self._parts)]
        self._parts = {}
        return msgspec.structs.replace(
            part,
            nodes=tuple(node for piece in pieces for node in piece.nodes),
            jobs=tuple(job for piece in pieces for job in piece.jobs),
            part=0,
            parts=1,
        )


def sighted(report: ClusterReported, before: ClusterReported | None) -> ClusterReported:
    """A report with what was known before where its agent is blind."""
    if not report.blind or before is None:
        return report
    return msgspec.structs.replace(report, nodes=before.nodes, jobs=before.jobs, matched=before.matched)
