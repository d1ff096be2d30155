"""The agent's decisions: changes of its cluster and the control plane's letters in, reports and worker Jobs out.

A report has all there is; the newest counts. It is due every 10 s, and within a second of a change that it would show.
"""

from __future__ import annotations

from typing import Final

from ...model.figures import REPORT_CHANGE_S, REPORT_EVERY_S
from ...wire.cluster import AgentReady, AgentSettings, ClusterReported, CreateWorkerJob, DeleteWorkerJob, JobReport
from . import events
from .events import Decision, Event, Tell, View
from .inventory import Inventory
from .jobs import Place, worker_of
from .orders import OrderKeeper
from .reporting import Life, in_parts
from .views import Views

_GATHER_S: Final = REPORT_CHANGE_S / 10  # changes come in bursts: the first waits so long for others,
_APART_S: Final = REPORT_CHANGE_S / 2  # and reports of changes are so far apart


class AgentPolicy:
    """One agent of one cluster, for one life. Pods of a priority below `ignore_below` take no room (None: all do)."""

    def __init__(self, place: Place, life: Life, now_s: float, *, ignore_below: int | None = None) -> None:
        self._place = place
        self._life = life
        self._epoch = life.epoch
        self._inventory = Inventory(ignore_below=ignore_below)
        self._keeper = OrderKeeper(place, self._inventory, life.unix)
        self._views = Views(now_s)
        self._settings: AgentSettings | None = None
        self._leader_epoch = 0
        self._sequence = 0
        self._open = False
        self._told_s = now_s - REPORT_EVERY_S
        self._due_s = now_s + REPORT_EVERY_S

    def next_deadline_s(self) -> float:
        """When `TimePassed` is to be told."""
        return self._due_s

    def inspect(self, now_s: float) -> tuple[JobReport, ...]:
        """Where each worker stands now."""
        return self._keeper.reports(now_s)

    def handle(self, event: Event, now_s: float) -> list[Decision]:
        """What follows of an event."""
        decisions = self._handled(event, now_s)
        if isinstance(event, events.TimePassed) and now_s >= self._due_s:
            decisions += self._review(now_s)
            decisions += self._report(now_s)
        self._plan(now_s)
        return decisions

    def _handled(self, event: Event, now_s: float) -> list[Decision]:
        match event:
            case events.NodeIs():
                return self._node(event, now_s)
            case events.PodIs(pod, gone):
                if worker_of(pod.metadata, self._place):
                    return self._keeper.pod(pod, now_s, gone=gone)
                self._inventory.pod(pod, gone=gone)
            case events.JobIs(job, gone):
                return self._keeper.job(job, now_s, gone=gone, listed=self._views.listing(View.JOBS))
            case events.LetterCame():
                return self._letter(event, now_s)
            case events.JobMade():
                return self._keeper.made(event, now_s)
            case events.JobNotMade():
                return self._keeper.not_made(event, now_s)
            case events.JobDropped():
                return self._keeper.dropped(event, now_s)
            case _:
                return self._watched(event, now_s)
        return []

    def _node(self, event: events.NodeIs, now_s: float) -> list[Decision]:
        meta = event.node.metadata
        if event.gone:
            self._inventory.remove(meta.name, meta.uid)
            return self._review(now_s)
        was_ready = self._inventory.ready(meta.uid)
        self._inventory.put(event.node)
        return self._review(now_s) if self._inventory.ready(meta.uid) and not was_ready else []

    def _review(self, now_s: float) -> list[Decision]:
        return self._keeper.review(now_s, seeing=self._views.current)

    # How well we see

    def _watched(self, event: Event, now_s: float) -> list[Decision]:
        match event:
            case events.ListBegan(view, served_at_s):
                if served_at_s:
                    self._keeper.served(served_at_s, now_s)
                self._views.began(view)
                self._began(view)
            case events.ListEnded(view):
                self._views.ended(view, now_s)
                decisions = self._ended(view, now_s)
                self._keeper.complete = self._views.complete
                return decisions + self._review(now_s)
            case events.ViewKept(view):
                self._views.kept(view)
            case events.ViewLost():
                self._views.lost(event, now_s)
            case events.LinkOpened(resumed):
                return self._opened(resumed)
            case events.LinkQuiet():
                self._open = False
        return []

    def _began(self, view: View) -> None:
        match view:
            case View.NODES:
                self._inventory.nodes_began()
            case View.PODS:
                self._inventory.pods_began()
                self._keeper.pods_began()
            case View.JOBS:
                self._keeper.jobs_began()

    def _ended(self, view: View, now_s: float) -> list[Decision]:
        match view:
            case View.NODES:
                self._inventory.nodes_ended()
                return []
            case View.PODS:
                self._inventory.pods_ended()
                return self._keeper.pods_ended(now_s)
            case View.JOBS:
                return self._keeper.jobs_ended(now_s)

    # The control plane

    def _opened(self, resumed: bool) -> list[Decision]:
        self._open = True
        self._keeper.changed = True
        return [] if resumed else self._ready()

    def _ready(self) -> list[Decision]:
        version = self._life.version
        return [Tell(AgentReady(cluster_id=self._place.cluster_id, epoch=self._epoch, version=version))]

    def _letter(self, event: events.LetterCame, now_s: float) -> list[Decision]:
        match event.message:
            case AgentSettings() as settings if self._heeds(settings.leader_epoch):
                return self._configure(settings)
            case CreateWorkerJob() as order if self._heeds(order.leader_epoch):
                if self._settings is not None and self._views.complete:
                    return self._keeper.order(order, self._settings, now_s)
            case DeleteWorkerJob() as removal if self._heeds(removal.leader_epoch):
                if self._views.complete:
                    return self._keeper.remove(removal, now_s)
            case _:
                pass  # an older leader's words, or none of an agent's
        return []

    def _configure(self, settings: AgentSettings) -> list[Decision]:
        """One that has just begun comes after all others, whatever its clock says; another may be over."""
        if settings.agent_epoch > self._epoch and self._sequence:
            return [events.End(self._epoch)]
        if not self._sequence:
            self._epoch = max(self._epoch, settings.agent_epoch + 1)
        self._settings = settings
        self._inventory.configure(settings.spec)
        return []

    def _heeds(self, leader_epoch: int) -> bool:
        """Whether this is the newest leader that we have heard."""
        heeded = leader_epoch >= self._leader_epoch
        self._leader_epoch = max(self._leader_epoch, leader_epoch)
        return heeded

    # Reports

    def _plan(self, now_s: float) -> None:
        """A change is told soon; while nobody listens, and before we know what to tell, there is no hurry."""
        if not (self._open and self._settings is not None and self._changed()):
            return
        self._due_s = min(self._due_s, max(now_s + _GATHER_S, self._told_s + _APART_S))

    def _changed(self) -> bool:
        if self._views.complete:
            self._inventory.refresh()
        return self._keeper.changed or self._inventory.changed or self._views.changed

    def _report(self, now_s: float) -> list[Decision]:
        self._due_s = now_s + REPORT_EVERY_S
        self._keeper.changed = self._inventory.changed = self._views.changed = False
        if not self._open:
            return []
        if self._settings is None:
            return self._ready()  # the answer to an earlier one got lost, or nobody leads yet
        self._told_s = now_s
        self._sequence += 1
        complete = self._views.complete
        report = ClusterReported(
            cluster_id=self._place.cluster_id,
            epoch=self._epoch,
            sequence=self._sequence,
            nodes=self._inventory.reports() if complete else (),
            jobs=self._keeper.reports(now_s) if complete else (),
            view_age_s=self._views.age_s(now_s),
            matched=self._inventory.matched if complete else 0,
            version=self._life.version,
            started_at_s=self._life.started_at_s,
            flavour=self._inventory.flavour,
            leader_epoch=self._leader_epoch,
            problem=self._views.problem(self._life.unix) or self._inventory.problem,
            blind=not complete,
            every=complete and not self._settings.spec.selector.strip(),
        )
        return [Tell(part) for part in in_parts(report)]
