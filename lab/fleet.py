"""All trays of a lab: their kubelets, fed by one watch over pods, and the state of their nodes by one over nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from ..kube.face import Change, ChangeType, Kube, Listing
from ..kube.kinds import NODES
from ..kube.objects import Node
from .following import follow
from .kubelet import Kubelet
from .objects import PODS, Pod
from .pod import PodServices
from .traystate import TrayState

_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Fleet:
    """The kubelets, by the names of their nodes."""

    def __init__(
        self, trays: tuple[TrayState, ...], folder: Path, services: PodServices, port: int, lease_every_s: float
    ) -> None:
        self.kubelets = {
            tray.plan.name: Kubelet(tray, folder / tray.plan.name, services, port, lease_every_s) for tray in trays
        }
        self.nodes: dict[str, Node] = {}
        self.kube: Kube = services.kube
        self._news = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run all kubelets until cancelled; ready once every node is."""
        async with trio.open_nursery() as nursery:
            for kubelet in self.kubelets.values():
                nursery.start_soon(kubelet.run, name=kubelet.name)
            nursery.start_soon(follow, self.kube, PODS, "spec.nodeName!=", self._pods_listed, self._pod_changed)
            nursery.start_soon(follow, self.kube, NODES, "", self._nodes_listed, self._node_changed)
            await self.until(lambda: all(self.is_ready(name) for name in self.kubelets))
            task_status.started()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the nodes."""
        while not holds():
            await self._news.wait()

    def is_ready(self, name: str) -> bool:
        """Whether the scheduler may place pods there, but for a cordon."""
        node = self.nodes.get(name)
        if node is None:
            return False
        ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
        return ready and not any(taint.key in _NOT_READY for taint in node.spec.taints or ())

    def _pods_listed(self, listing: Listing[Pod]) -> None:
        by_node: dict[str, dict[str, Pod]] = {}
        for pod in listing.items:
            by_node.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = pod
        for name, kubelet in self.kubelets.items():
            kubelet.pods = by_node.get(name, {})
            kubelet.wake()

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.item
        if pod is None or (kubelet := self.kubelets.get(pod.spec.node_name)) is None:
            return
        if change.type is ChangeType.DELETED:
            kubelet.pods.pop(pod.metadata.uid, None)
        else:
            kubelet.pods[pod.metadata.uid] = pod
        kubelet.wake()

    def _nodes_listed(self, listing: Listing[Node]) -> None:
        self.nodes = {node.metadata.name: node for node in listing.items}
        self._tell()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.item is None:
            return
        if change.type is ChangeType.DELETED:
            self.nodes.pop(change.item.metadata.name, None)
        else:
            self.nodes[change.item.metadata.name] = change.item
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
