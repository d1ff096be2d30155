"""The agent's shell: what mirrors and letters bring goes to the policy, and its decisions are carried out.

The same actor runs in an attached cluster, on a link, and inside a brain for a cluster of its own, on its post.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog
import trio

from ...errors import AlreadyThere, EpochSuperseded, KubeRefused, KubeUnavailable
from ...kube.face import ChangeType, Kube
from ...kube.kinds import JOBS, NODES
from ...kube.mirror import Away, Back, Changed, Listed, Mirror, MirrorStatistics
from ...model.ids import Chance
from ...wire.cluster import ClusterReported
from ...wire.mailbox import Mailbox
from ...wire.message import Message
from . import events
from .events import Decision, Event, View
from .jobs import Place, selector_of, worker_of
from .policy import AgentPolicy
from .reporting import Life
from .seen_pods import SEEN_PODS

_TURN: Final = 200  # objects of a list, before others have their turn: a few milliseconds
_FORBIDDEN: Final = 403
_AFTER_S: Final = 1e-6  # past a deadline, whatever the sum of two times is rounded to
_log = structlog.get_logger()

Say = Callable[[Message], Awaitable[None]]
T = TypeVar("T", bound=msgspec.Struct)


class AgentStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """An agent at a glance. `reported_at_s` is its own clock's, 0 before the first report left."""

    reports: int
    reported_at_s: float
    views: tuple[tuple[str, MirrorStatistics], ...]


class AgentActor:
    """One agent of one cluster, for one life with this `epoch`. `say` tells the control plane; it may wait."""

    def __init__(
        self,
        *,
        kube: Kube,
        place: Place,
        say: Say,
        epoch: int,
        version: str,
        chance: Chance,
        clock: Callable[[], float] = trio.current_time,
        unix: Callable[[], float] = time.time,
        ignore_below: int | None = None,
    ) -> None:
        now_s = clock()
        life = Life(epoch=epoch, started_at_s=unix(), started_s=now_s, version=version)
        self._policy = AgentPolicy(place, life, now_s, ignore_below=ignore_below)
        self._kube = kube
        self._place = place
        self._say = say
        self._clock = clock
        self._unsaid: list[Message] = []  # bounded: a newer report takes the place of one that has not begun to leave
        self._leaving = 0  # the sequence of the report that did: over a slow link a large one takes a while
        self._saying = trio.Event()
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._epoch = epoch
        self._over = trio.Event()
        self._reports, self._reported_at_s = 0, 0.0
        told_jobs = partial(self._told, View.JOBS, event=events.JobIs)
        self._nodes = Mirror(kube, NODES, partial(self._told, View.NODES, event=events.NodeIs), chance)
        self._pods = Mirror(kube, SEEN_PODS, partial(self._told, View.PODS, event=events.PodIs), chance)
        self._jobs = Mirror(kube, JOBS, told_jobs, chance, namespace=place.namespace, labels=selector_of(place))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch, report and keep Jobs until cancelled. Raises `EpochSuperseded` once a newer life has reported."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._say_all)
            nursery.start_soon(self._watch_time)
            for mirror in (self._nodes.run, self._pods.run, self._jobs.run):
                nursery.start_soon(mirror)
            task_status.started()
            await self._over.wait()
            raise EpochSuperseded("this agent", self._epoch)

    async def serve(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run with the letters of a mailbox, for a control plane in the same process."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run)
            self.hear(events.LinkOpened())
            task_status.started()
            while True:
                letter = await mailbox.take()
                self.hear(events.LetterCame(letter.message))

    def hear(self, event: Event) -> None:
        """Something happened."""
        for decision in self._policy.handle(event, self._clock()):
            self._perform(decision)
        self._wake.set()

    def statistics(self) -> AgentStatistics:
        """What it did so far, and how it sees its cluster."""
        mirrors = ((View.NODES, self._nodes), (View.PODS, self._pods), (View.JOBS, self._jobs))
        views = tuple((view.value, mirror.statistics()) for view, mirror in mirrors)
        return AgentStatistics(reports=self._reports, reported_at_s=self._reported_at_s, views=views)

    # What the cluster tells

    async def _told(
        self, view: View, news: Listed[T] | Changed[T] | Away | Back, event: Callable[[T, bool], Event]
    ) -> None:
        match news:
            case Listed(items, served_at_s):
                self.hear(events.ListBegan(view, served_at_s))
                for place, item in enumerate(items):
                    self.hear(event(item, False))
                    if place % _TURN == 0:
                        await trio.lowlevel.checkpoint()
                self.hear(events.ListEnded(view))
            case Changed(type_, item):
                self.hear(event(item, type_ is ChangeType.DELETED))
            case Away(age_s, error, status):
                self.hear(events.ViewLost(view, error, status == _FORBIDDEN, age_s))
            case Back():
                self.hear(events.ViewKept(view))

    # Decisions

    def _perform(self, decision: Decision) -> None:
        match decision:
            case events.Tell(message):
                if isinstance(message, ClusterReported) and message.part == 0:
                    self._unsaid = [one for one in self._unsaid if not self._replaced(one)]
                self._unsaid.append(message)
                self._saying.set()
            case events.MakeJob():
                self._effects().start_soon(self._make, decision)
            case events.DropJob():
                self._effects().start_soon(self._drop, decision)
            case events.End(epoch):
                self._epoch = epoch
                self._over.set()

    def _replaced(self, unsaid: Message) -> bool:
        """Whether a newer report has all that it says. Half a report says nothing: what began to leave is finished."""
        return isinstance(unsaid, ClusterReported) and unsaid.sequence != self._leaving

    def _effects(self) -> trio.Nursery:
        assert self._nursery is not None, "run() comes first"
        return self._nursery

    async def _make(self, decision: events.MakeJob) -> None:
        worker_id = decision.worker_id
        try:
            job = await self._kube.create(JOBS, decision.body, self._place.namespace)
        except AlreadyThere:
            self.hear(await self._found(worker_id))
        except KubeUnavailable as error:
            self.hear(events.JobNotMade(worker_id, str(error), unsure=True))
        except KubeRefused as error:
            _log.warning("a worker's Job was refused", worker_id=worker_id, error=str(error))
            self.hear(events.JobNotMade(worker_id, str(error)))
        else:
            self.hear(events.JobMade(worker_id, job))

    async def _found(self, worker_id: str) -> Event:
        """Already there is success, where it is ours."""
        try:
            job = await self._kube.get(JOBS, worker_id, self._place.namespace)
        except (KubeUnavailable, KubeRefused) as error:
            return events.JobNotMade(worker_id, str(error), unsure=True)
        if job is None:
            return events.JobNotMade(worker_id, "it was there, and is not any more", unsure=True)
        if worker_of(job.metadata, self._place) != worker_id:
            return events.JobNotMade(worker_id, f"There is a Job {worker_id} that is not ours.")
        return events.JobMade(worker_id, job)

    async def _drop(self, decision: events.DropJob) -> None:
        worker_id = decision.worker_id
        try:
            uid = decision.uid or await self._uid_of(worker_id)
            found = bool(uid) and await self._kube.delete(JOBS, worker_id, self._place.namespace, uid=uid)
        except (KubeUnavailable, KubeRefused) as error:
            self.hear(events.JobDropped(worker_id, why=str(error)))
            return
        _log.info("a worker's Job was deleted", worker_id=worker_id, why=decision.why, found=found)
        self.hear(events.JobDropped(worker_id, found))

    async def _uid_of(self, worker_id: str) -> str:
        job = await self._kube.get(JOBS, worker_id, self._place.namespace)
        return job.metadata.uid if job is not None and worker_of(job.metadata, self._place) == worker_id else ""

    # Out

    async def _say_all(self) -> None:
        while True:
            await self._saying.wait()
            self._saying = trio.Event()
            while self._unsaid:
                message = self._unsaid.pop(0)
                if isinstance(message, ClusterReported):
                    self._leaving = message.sequence
                await self._say(message)
                if isinstance(message, ClusterReported):
                    self._reports += 1
                    self._reported_at_s = self._clock()

    # Time

    async def _watch_time(self) -> None:
        while True:
            self._wake = trio.Event()
            wait_s = max(0.0, self._policy.next_deadline_s() - self._clock())
            with trio.move_on_after(wait_s + _AFTER_S):
                await self._wake.wait()
            if self._policy.next_deadline_s() <= self._clock():
                self.hear(events.TimePassed())
