"""What an agent says becomes one whole report: large ones come in parts, and one of a blind agent has no nodes.

An agent runs in somebody's cluster, and so whoever owns that may say anything in its name. A word is refused as a whole
where it says what no agent of ours would: identities that nothing in Kubernetes has, more than is taken, a number that
no row holds. What is only shown or offered is clipped: sentences, sizes, times.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from string import ascii_letters, digits
from typing import Final

import msgspec

from ...model.hearsay import COUNT_MAX, INT4_MAX, count, seconds, sentence
from ...model.resources import Capacity
from ...wire.cluster import AgentReady, ClusterReported, JobReport, NodeReport

NODES_MAX: Final = 10_000  # twice what is measured; looking through more takes a leader's one loop over 0.2 s
JOBS_MAX: Final = 2 * NODES_MAX  # one worker a node, and as many again that end
PARTS_MAX: Final = 32  # what so many nodes and Jobs take with long labels: MiB that are kept of an agent at most
LABELS_MAX: Final = 64  # of a node: the allow-list has some thirty
CARDS_MAX: Final = 256  # of a node: 16 cards in 7 slices each are 112, and each is looked at by itself
_VERSION_MAX: Final = 64
_SHOWN: Final = 60
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")  # a DNS subdomain, as Kubernetes names nodes
_IDENTITY: Final = re.compile(r"[A-Za-z0-9._:-]{0,128}")  # no slash: handles are made of these
_WORKER: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_LABEL_SIGNS: Final = (ascii_letters + digits + "._/-").encode()
_ADDRESS: Final = re.compile(r"[0-9A-Za-z.:-]{0,253}")
_LABEL_KEY_MAX: Final = 317  # a prefix of 253, a slash, a name of 63
_LABEL_VALUE_MAX: Final = 63


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


# What is refused


def fault_of(message: AgentReady | ClusterReported) -> str:
    """Why a word of an agent, or a part of one, counts for nothing; "" where it may count."""
    return next(_faults(message), "")


def fault_in_sum(report: ClusterReported) -> str:
    """Why a whole report counts for nothing whose parts are well; "" where it may count."""
    return next(_faults_in_sum(report), "")


def _faults(message: AgentReady | ClusterReported) -> Iterator[str]:
    if not 0 <= message.epoch <= COUNT_MAX:
        yield f"its epoch {message.epoch} is no count"
    if isinstance(message, ClusterReported):
        yield from _faults_of_part(message)


def _faults_of_part(message: ClusterReported) -> Iterator[str]:
    for what, number in (("sequence", message.sequence), ("leader_epoch", message.leader_epoch)):
        if not 0 <= number <= COUNT_MAX:
            yield f"its {what} {number} is no count"
    if message.parts > PARTS_MAX:
        yield f"a report in {message.parts} parts, of which {PARTS_MAX} are taken: name fewer nodes by its selector"
    if not 0 <= message.part < message.parts:
        yield f"part {message.part} of {message.parts}"
    if not math.isfinite(message.view_age_s):
        yield f"its view is {message.view_age_s} s old"
    yield from _faults_in_sum(message)
    if not _are_well(message.nodes):
        for node in message.nodes:
            yield from _faults_of_node(node)
    for job in message.jobs:
        yield from _faults_of_job(job)


def _faults_in_sum(report: ClusterReported) -> Iterator[str]:
    if len(report.nodes) > NODES_MAX:
        yield f"{len(report.nodes)} nodes, of which {NODES_MAX} are taken: name fewer by its selector"
    if len(report.jobs) > JOBS_MAX:
        yield f"{len(report.jobs)} Jobs of workers, of which {JOBS_MAX} are taken: delete those that nobody needs"
    yield from _twice("node", (node.name for node in report.nodes))
    yield from _twice("worker", (job.worker_id for job in report.jobs))


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    counted = Counter(names)
    if counted and (most := counted.most_common(1)[0])[1] > 1:
        yield f"{what} {sentence(most[0], _SHOWN)!r} is in it {most[1]} times"


def _are_well(nodes: Sequence[NodeReport]) -> bool:
    """Whether no node has a fault: looked at together, for there are many and hardly one ever has."""
    words = list(chain.from_iterable(chain.from_iterable([node.labels for node in nodes])))
    return (
        all(map(_NAME.fullmatch, [node.name for node in nodes]))
        and all(map(_IDENTITY.fullmatch, [node.uid for node in nodes]))
        and max([len(node.labels) for node in nodes], default=0) <= LABELS_MAX
        and max(map(len, words[::2]), default=0) <= _LABEL_KEY_MAX
        and max(map(len, words[1::2]), default=0) <= _LABEL_VALUE_MAX
        and not _have_odd_signs(words)
    )


def _have_odd_signs(words: Iterable[str]) -> bool:
    """Whether there are signs that no label has; a table of bytes is ten times as fast as an expression."""
    text = "".join(words)
    return not text.isascii() or bool(text.encode().translate(None, _LABEL_SIGNS))


def _faults_of_node(node: NodeReport) -> Iterator[str]:
    if not _NAME.fullmatch(node.name):
        yield f"{sentence(node.name, _SHOWN)!r} is no node's name"
    elif not _IDENTITY.fullmatch(node.uid):
        yield f"node {node.name} has no identity of Kubernetes"
    elif len(node.labels) > LABELS_MAX:
        yield f"node {node.name} has {len(node.labels)} labels, of which {LABELS_MAX} are taken"
    elif _have_odd_signs(chain.from_iterable(node.labels)):
        yield f"node {node.name} has labels with odd signs"
    elif any(len(key) > _LABEL_KEY_MAX or len(value) > _LABEL_VALUE_MAX for key, value in node.labels):
        yield f"node {node.name} has labels that are too long"


def _faults_of_job(job: JobReport) -> Iterator[str]:
    if not _WORKER.fullmatch(job.worker_id):
        yield f"{sentence(job.worker_id, _SHOWN)!r} is no worker"
    elif not (_IDENTITY.fullmatch(job.job_uid) and _IDENTITY.fullmatch(job.pod_uid)):
        yield f"the Job of worker {job.worker_id} has no identity of Kubernetes"
    elif job.node and not _NAME.fullmatch(job.node):
        yield f"{sentence(job.node, _SHOWN)!r} is no node's name"


# What is clipped


def clipped(report: ClusterReported) -> ClusterReported:
    """A report that is not refused, with what is shown of it made short and plain, and sizes that can be."""
    return msgspec.structs.replace(
        report,
        nodes=tuple([_clipped_node(node) for node in report.nodes]),
        jobs=tuple([_clipped_job(job) for job in report.jobs]),
        view_age_s=seconds(report.view_age_s),
        matched=count(report.matched),
        version=sentence(report.version, _VERSION_MAX),
        started_at_s=seconds(report.started_at_s),
        problem=sentence(report.problem),
    )


def _clipped_node(node: NodeReport) -> NodeReport:
    if _can_be(node):
        return node
    whole = _room(node.allocatable, _LARGEST)
    return msgspec.structs.replace(node, allocatable=whole, free=_room(node.free, whole), why=sentence(node.why))


def _can_be(node: NodeReport) -> bool:
    """Whether there is nothing to clip, as of almost any node."""
    whole, free = node.allocatable, node.free
    return (
        0 <= free.cpu_milli <= whole.cpu_milli <= INT4_MAX
        and 0 <= free.memory_mib <= whole.memory_mib <= INT4_MAX
        and 0 <= free.gpu_count <= whole.gpu_count <= CARDS_MAX
        and not (node.why or whole.gpu_type or free.gpu_type)
    )


_LARGEST: Final = Capacity(cpu_milli=INT4_MAX, memory_mib=INT4_MAX, gpu_count=CARDS_MAX)


def _room(said: Capacity, most: Capacity) -> Capacity:
    """Not below nothing, and not more than there is. Which cards they are says the cluster's owner."""
    return Capacity(
        cpu_milli=count(said.cpu_milli, most.cpu_milli),
        memory_mib=count(said.memory_mib, most.memory_mib),
        gpu_count=count(said.gpu_count, most.gpu_count),
    )


def _clipped_job(job: JobReport) -> JobReport:
    address = job.address if _ADDRESS.fullmatch(job.address) else ""
    return msgspec.structs.replace(job, since_s=seconds(job.since_s), why=sentence(job.why), address=address)
