"""Who acts on what the in-memory cluster stores: the controllers of Jobs and owners, and the scheduler. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from .bodies import Json, at, list_at, map_at, text_at
from .face import Kind
from .history import Event, Stored
from .kinds import JOBS, NAMESPACES, NODES, PODS
from .memory_binding import Unschedulable, asked_of, place
from .memory_jobs import Tally, ended_at, pod_of, status_of, wants_pod
from .memory_objects import Objects, Place, Table, table_of

T = TypeVar("T", bound=msgspec.Struct)
ENDED = frozenset({"Succeeded", "Failed"})


class Control:
    """It notes what changed, and acts when it is told to `settle`.

    `makes_pods` off is a cluster in which Jobs get no pod, for a quota or a webhook. With `graceful`, a pod that a node
    has stays, marked as deleted, until that node has ended it.
    """

    def __init__(self, *, acts: bool = True) -> None:
        self._acts = acts
        self.makes_pods = True
        self.graceful = False
        self._objects: Objects
        self._jobs: dict[Place, None] = {}  # to be looked at
        self._tallies: dict[str, Tally] = {}  # by the Job's uid
        self._made = 0
        self._unbound: dict[Place, None] = {}
        self._room_changed = False
        self._on_node: dict[str, dict[str, Stored]] = {}  # node -> uid -> pod that has not ended
        self._taken: dict[str, Counter[str]] = {}  # node -> extended resources that they hold

    def serve(self, objects: Objects) -> None:
        """Act on these from now on."""
        self._objects = objects

    def noticed(self, table: Table, event: Event) -> None:
        """Something changed."""
        if table == table_of(PODS):
            self._pod_changed(event)
        elif table == table_of(JOBS):
            self._job_changed(event)
        elif table == table_of(NODES):
            self._room_changed = True

    def settle(self) -> None:
        """Act until nothing is left to do."""
        while self._acts and (self._jobs or (self._room_changed and self._unbound)):
            jobs, self._jobs = self._jobs, {}
            for namespace, name in jobs:
                self._look_at(namespace, name)
            if self._room_changed:
                self._room_changed = False
                self._bind_all()

    def look_at_every_job(self) -> None:
        """Such as after `makes_pods` was switched."""
        for job in self._objects.all_of(JOBS):
            self._jobs[job.namespace, job.name] = None
        self.settle()

    def end(self, kind: Kind[T], stored: Stored, grace_s: int | None = None) -> None:
        """Delete an object as its kind is deleted: pods by their nodes, where that is asked for."""
        if table_of(kind) == table_of(PODS):
            if not map_at(stored.body, "metadata").get("deletionTimestamp"):
                stored = self._objects.mark_deleted(kind, stored)
            if self.graceful and grace_s != 0 and _is_held(stored):
                return
        self._objects.remove(kind, stored)
        if table_of(kind) == table_of(NAMESPACES):
            self._objects.remove_inside(stored.name)

    def lose_pods_of(self, node: str) -> None:
        """A node is gone for good, and its pods with it."""
        for pod in tuple(self._on_node.get(node, {}).values()):
            self._objects.remove(PODS, pod)

    def remove_expired(self, ago: Callable[[float], str]) -> None:
        """Remove Jobs that ended over `ttlSecondsAfterFinished` ago; `ago` tells the time so many seconds ago."""
        for job in self._objects.all_of(JOBS):
            kept_s = at(job.body, "spec", "ttlSecondsAfterFinished")
            if isinstance(kept_s, int) and "" < ended_at(job.body) <= ago(kept_s):
                self.end(JOBS, job)
        self.settle()

    # Pods

    def _pod_changed(self, event: Event) -> None:
        pod = event.after or event.before
        assert pod is not None
        here = event.after is not None
        self._hold(event.before, event.after)
        if here and not _node_of(pod) and not _has_ended(pod):
            self._unbound[pod.namespace, pod.name] = None
            self._room_changed = self._room_changed or event.before is None
        else:
            self._unbound.pop((pod.namespace, pod.name), None)
        owner = next(
            (each for each in list_at(pod.body, "metadata", "ownerReferences") if each.get("kind") == "Job"), {}
        )
        tally = self._tallies.get(text_at(owner, "uid"))
        if tally is not None:
            tally.saw(pod.uid, pod.name, text_at(pod.body, "status", "phase"), here=here)
            self._jobs[pod.namespace, text_at(owner, "name")] = None

    def _hold(self, before: Stored | None, after: Stored | None) -> None:
        """Keep the account of who holds what of a node; what is given back is room for others."""
        was = before if before is not None and _is_held(before) else None
        now = after if after is not None and _is_held(after) else None
        if was is not None:
            del self._on_node[_node_of(was)][was.uid]
        if now is not None:
            self._on_node.setdefault(_node_of(now), {})[now.uid] = now
        if was is not None and now is not None and was.body["spec"] is now.body["spec"]:
            return  # only its status changed
        if was is not None:
            self._taken[_node_of(was)].subtract(asked_of(was.body))
            self._room_changed = True
        if now is not None:
            self._taken.setdefault(_node_of(now), Counter()).update(asked_of(now.body))

    # Jobs

    def _job_changed(self, event: Event) -> None:
        if event.after is not None:
            self._tallies.setdefault(event.after.uid, Tally())
            if event.before is None:
                self._jobs[event.after.namespace, event.after.name] = None
        elif event.before is not None:
            tally = self._tallies.pop(event.before.uid)
            for name in tuple(tally.names.values()):
                pod = self._objects.at(PODS, name, event.before.namespace)
                if pod is not None:
                    self.end(PODS, pod)

    def _look_at(self, namespace: str, name: str) -> None:
        job = self._objects.at(JOBS, name, namespace)
        if job is None:
            return
        tally = self._tallies[job.uid]
        if self.makes_pods and wants_pod(job.body, tally):
            self._made += 1
            self._objects.create(PODS, pod_of(job.body, self._made), namespace)
        patch = status_of(job.body, tally, self._objects.now())
        if patch:
            self._objects.patch(JOBS, job, patch)

    # The scheduler

    def _bind_all(self) -> None:
        nodes = [node.body for node in self._objects.all_of(NODES)]
        for namespace, name in tuple(self._unbound):
            pod = self._objects.at(PODS, name, namespace)
            assert pod is not None, "a pod that is gone is not unbound"
            found = place(pod.body, nodes, self._taken)
            self._objects.patch(PODS, pod, _bound(found, pod.body, self._objects.now()))


def _bound(found: str | Unschedulable, pod: Json, now: str) -> Json:
    others = [each for each in list_at(pod, "status", "conditions") if each.get("type") != "PodScheduled"]
    if isinstance(found, str):
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        return {"spec": {"nodeName": found}, "status": {"conditions": [*others, scheduled]}}
    known = next((each for each in list_at(pod, "status", "conditions") if each.get("message") == found.message), None)
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": found.message}
    return {"status": {"conditions": [*others, known or {**scheduled, "lastTransitionTime": now}]}}


def _has_ended(pod: Stored) -> bool:
    return text_at(pod.body, "status", "phase") in ENDED


def _node_of(pod: Stored) -> str:
    return text_at(pod.body, "spec", "nodeName")


def _is_held(pod: Stored) -> bool:
    return bool(_node_of(pod)) and not _has_ended(pod)
