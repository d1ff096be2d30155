"""The kubelet of one tray: its node, its lease, and the pods that are bound to it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

from ..errors import KubeRefused, KubeUnavailable
from ..kube.face import Kube
from ..kube.kinds import NODES
from ..kube.quantities import NANO
from .container import now_s
from .expansion import PodPlace, quantity
from .node import event_body, lease_body, lease_spec, node_body, node_status
from .objects import EVENTS, LEASES, PODS, Pod
from .pod import PodLife, PodServices
from .podstatus import Outcome, status_body
from .trays import pod_address
from .traystate import TrayState

LEASE_NAMESPACE: Final = "kube-node-lease"
_RETRY_S: Final = 0.5
_OVER: Final = ("Succeeded", "Failed")
_log: Final = logging.getLogger("levers9.lab")


class Kubelet:
    """See the module. `pods` are those bound to the tray, as the last watch told; `sync` acts on them."""

    def __init__(self, tray: TrayState, folder: Path, services: PodServices, port: int, lease_every_s: float) -> None:
        self.tray = tray
        self.lives: dict[str, PodLife] = {}
        self.lives_seen: dict[str, PodLife] = {}  # also those that are over, while their pods are there
        self.pods: dict[str, Pod] = {}
        self.registered = trio.Event()
        self._folder = folder
        self._services = services
        self._kube: Kube = services.kube
        self._port = port
        self._lease_every_s = lease_every_s
        self._reachable = trio.Event()
        self._reachable.set()
        self._wake = trio.Event()
        self._forgetting: set[str] = set()
        self._node_uid = ""
        self._nursery: trio.Nursery | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.tray.plan.name

    async def run(self) -> None:
        """Register, and serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await self._until_done(self._register)
            self.registered.set()
            self._nursery.start_soon(self._renew)
            while True:
                await self._reachable.wait()
                wake = self._wake
                await trio.sleep(self.tray.faults.slow_s)
                if self.tray.reachable:
                    self.sync()
                await wake.wait()

    def wake(self) -> None:
        """Something has changed: a pod, or what is wrong with the tray."""
        self._wake.set()
        self._wake = trio.Event()

    # --- The node ----------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        if await self._kube.get(NODES, self.name) is None:
            await self._kube.create(NODES, node_body(self.tray))
        node = await self._kube.patch(NODES, self.name, {"metadata": {"labels": self.tray.labels}})
        self._node_uid = node.metadata.uid if node is not None else ""
        await self._beat()
        await self.tell_status()

    async def tell_status(self) -> None:
        """Write capacity, addresses and conditions."""
        body = {"status": node_status(self.tray, self._port, now_s())}
        await self._kube.patch(NODES, self.name, body, subresource="status")

    async def tell_labels(self) -> None:
        """Write the labels; those that the tray no longer has are left: it only ever changes their values."""
        await self._kube.patch(NODES, self.name, {"metadata": {"labels": self.tray.labels}})

    async def _renew(self) -> None:
        while True:
            await self._reachable.wait()
            await self._until_done(self._beat)
            await self._until_done(self._stand)
            await trio.sleep(self._lease_every_s)

    async def _beat(self) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = lease_spec(self.name, self._lease_every_s, now)
        if await self._kube.patch(LEASES, self.name, {"spec": spec}, LEASE_NAMESPACE) is None:
            await self._kube.create(LEASES, lease_body(self.name, self._node_uid, spec), LEASE_NAMESPACE)

    async def _stand(self) -> None:
        """Where a beat came too late, on a busy machine, Kubernetes takes the node for lost until it says how it is."""
        node = await self._kube.get(NODES, self.name)
        if node is not None and not any(
            one.type == "Ready" and one.status == "True" for one in node.status.conditions or ()
        ):
            await self.tell_status()

    async def _until_done(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await act()
            except (KubeUnavailable, KubeRefused) as error:
                _log.warning("%s: %s", self.name, error)
                await trio.sleep(_RETRY_S)
            else:
                return

    # --- Faults ------------------------------------------------------------------------------------------------

    def set_power(self, on: bool) -> None:
        """Without power all processes are gone at once, and the tray is silent."""
        self.tray.faults.powered = on
        if not on:
            for life in self.lives.values():
                life.lost = not life.over.is_set()
                life.killing.cancel(reason="its tray has lost power")
        self._reach()

    def set_connection(self, whole: bool) -> None:
        """Cut off, the tray is silent, and what runs there goes on."""
        self.tray.faults.connected = whole
        self._reach()

    def _reach(self) -> None:
        """Fall silent, or go on from what the API server says now."""
        if not self.tray.reachable:
            if self._reachable.is_set():
                self._reachable = trio.Event()
            return
        assert self._nursery is not None
        self._reachable.set()
        self._nursery.start_soon(self._until_done, self._register)
        self.wake()

    def nudge(self) -> None:
        """Let waiting pulls try again."""
        for life in self.lives.values():
            life.nudge()

    async def evict(self) -> None:
        """Evict all pods, as under memory pressure."""
        why = Outcome("Evicted", "The node was low on resource: memory.")
        async with trio.open_nursery() as nursery:
            for life in self.lives.values():
                if not life.over.is_set():
                    nursery.start_soon(_evict, life, why)

    # --- Its pods ----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Compare what is bound here with what runs here, and act on each difference."""
        for uid, pod in self.pods.items():
            life = self.lives.get(uid)
            if life is None:
                self._begin(pod)
            else:
                self._go_on(life, pod)
        for uid, life in self.lives.items():
            if uid not in self.pods:
                life.killing.cancel(reason="the pod is no longer there")
                life.changed()
        for uid in [each for each in self.lives_seen if each not in self.pods and each not in self.lives]:
            self.lives_seen.pop(uid).remove_files()

    def _begin(self, pod: Pod) -> None:
        assert self._nursery is not None
        before = self.lives_seen.get(pod.metadata.uid)
        is_over = pod.status.phase in _OVER or (before is not None and not before.lost)
        if pod.metadata.deletion_timestamp:
            self._nursery.start_soon(self._forget, pod)
        elif not is_over:  # what is over may be told as running still by an older watch event
            life = self._life(pod, before)
            self.lives[pod.metadata.uid] = self.lives_seen[pod.metadata.uid] = life
            self._nursery.start_soon(self._live, life)

    def _go_on(self, life: PodLife, pod: Pod) -> None:
        assert self._nursery is not None
        life.pod = pod
        if not pod.metadata.deletion_timestamp:
            return
        if not life.stopping.is_set():
            grace_s = pod.metadata.deletion_grace_period_seconds
            self._nursery.start_soon(life.stop, life.grace_s if grace_s is None else float(grace_s))
        life.changed()

    def _life(self, pod: Pod, before: PodLife | None) -> PodLife:
        uid = pod.metadata.uid
        host = self.tray.plan.address
        address = host if pod.spec.host_network else pod_address(self.tray.plan, self.tray.place(uid))
        place = PodPlace(node=self.name, host_ip=host, pod_ip=address)
        life = PodLife(pod, self.tray, place, self._folder / "pods" / uid, self._services)
        if self.tray.allocate(uid, cards_asked(pod)) is None:
            message = "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
            life.outcome = Outcome("UnexpectedAdmissionError", f"{message}nvidia.com/gpu")
        elif before is None and pod.status.phase == "Running" and pod.spec.restart_policy == "Never":
            life.outcome = Outcome("NodeLost", "Its containers were lost with an earlier kubelet.")
        elif before is not None and not life.resume(before):
            life.over.set()
        if life.outcome is not None:
            life.over.set()
        return life

    async def _live(self, life: PodLife) -> None:
        uid = life.pod.metadata.uid
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell, life)
            if life.over.is_set():
                life.changed()
            else:
                await life.run()
            self.tray.release(uid)
            if life.lost:
                nursery.cancel_scope.cancel(reason="its tray has lost power")
        self.tray.release(uid, place=True)
        del self.lives[uid]
        self.wake()

    async def _tell(self, life: PodLife) -> None:
        """Write its status after each change, until it has ended and that is written, or the pod is not there."""
        while True:
            await life.dirty.wait()
            await self._reachable.wait()
            await trio.sleep(self.tray.faults.slow_s)
            life.dirty = trio.Event()
            if life.pod.metadata.uid not in self.pods:
                if life.over.is_set():
                    return
                continue
            over = life.over.is_set()
            written = await self._write(life)
            await self._write_notes(life)
            if not written:
                life.changed()
                await trio.sleep(_RETRY_S)
            elif over:
                return

    async def _write(self, life: PodLife) -> bool:
        meta = life.pod.metadata
        body = status_body(life.view, life.pod.status.conditions or (), now_s())
        patch = {"metadata": {"uid": meta.uid}, "status": body}
        try:
            await self._kube.patch(PODS, meta.name, patch, meta.namespace, subresource="status")
        except KubeRefused as refused:
            return refused.reason in ("Conflict", "NotFound")  # another pod of that name
        except KubeUnavailable as error:
            _log.warning("%s: %s", self.name, error)
            return False
        return True

    async def _write_notes(self, life: PodLife) -> None:
        """Events are for people: one that can't be written is lost."""
        meta = life.pod.metadata
        while life.notes:
            body = event_body(meta, life.notes.popleft(), self.name, uuid.uuid4().hex[:16], now_s())
            try:
                await self._kube.create(EVENTS, body, meta.namespace)
            except (KubeRefused, KubeUnavailable) as error:
                _log.info("%s: an event of %s was not written: %s", self.name, meta.name, error)

    async def _forget(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.uid in self._forgetting:
            return
        self._forgetting.add(meta.uid)

        async def delete() -> None:
            await self._kube.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_s=0)

        await self._until_done(delete)
        self._forgetting.discard(meta.uid)


async def _evict(life: PodLife, why: Outcome) -> None:
    await life.stop(0.0, why, disrupted=True)


def cards_asked(pod: Pod) -> int:
    """How many cards a pod's containers are given together."""
    found = 0
    for container in pod.spec.containers:
        limits = (container.resources.limits if container.resources else None) or {}
        found += quantity(str(limits.get("nvidia.com/gpu", 0)))
    return found // NANO
