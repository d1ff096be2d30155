"""A cluster in memory: nodes come and go, Jobs get pods, and whoever drives it says how these fare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from .bodies import Json, copied, list_at, text_at
from .face import Kind
from .history import Stored
from .kinds import NODES, PODS
from .memory_api import MemoryApi
from .objects import Node, Pod

T = TypeVar("T", bound=msgspec.Struct)

CARD_RESOURCE: Final = "nvidia.com/gpu"
_PODS_A_NODE: Final = 110
_READINESS: Final = {
    True: ("True", "KubeletReady", ""),
    False: ("False", "KubeletNotReady", "node.kubernetes.io/not-ready"),
    None: ("Unknown", "NodeStatusUnknown", "node.kubernetes.io/unreachable"),
}
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


class MemoryCluster(MemoryApi):
    """See `Kube`; beside it, what nodes and their kubelets do, step by step. Pods are named `namespace/name`; without a
    namespace it is "default". What is not there raises `KeyError`."""

    # Nodes

    def add_node(
        self,
        name: str,
        *,
        cards: int = 8,
        card_resource: str = CARD_RESOURCE,
        cpu: str = "64",
        memory: str = "512Gi",
        labels: Mapping[str, str] | None = None,
    ) -> Node:
        """A node that is ready."""
        room: Json = {"cpu": cpu, "memory": memory, "pods": str(_PODS_A_NODE), card_resource: str(cards)}
        if not cards:
            del room[card_resource]
        body: Json = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
            "spec": {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "conditions": [self._condition("Ready", "True", "KubeletReady")],
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{self._objects.version % 250 + 1}"}],
            },
        }
        self._objects.create(NODES, copied(body))
        return self._set_node(name, {})

    def remove_node(self, name: str) -> None:
        """It is gone for good, and its pods with it."""
        self._objects.remove(NODES, self._stored(NODES, name))
        self.control.lose_pods_of(name)
        self.control.settle()

    def cordon(self, name: str, on: bool = True) -> Node:
        """Let it take no new pods, or take them again."""
        self._set_taint(name, _UNSCHEDULABLE, "", "NoSchedule", on)
        return self._set_node(name, {"spec": {"unschedulable": True if on else None}})

    def taint(self, name: str, key: str, value: str = "", effect: str = "NoSchedule") -> Node:
        """Keep pods away that do not tolerate this."""
        return self._set_taint(name, key, value, effect, True)

    def untaint(self, name: str, key: str) -> Node:
        """Take every taint of this key away."""
        return self._set_taint(name, key, "", "", False)

    def set_ready(self, name: str, ready: bool | None = True) -> Node:
        """Ready, not ready, or None: nobody heard of it."""
        status, reason, taint = _READINESS[ready]
        for _, _, key in _READINESS.values():
            if key:
                self._set_taint(name, key, "", "NoSchedule", key == taint)
        others = [each for each in self._conditions(name) if each.get("type") != "Ready"]
        return self._set_node(name, {"status": {"conditions": [*others, self._condition("Ready", status, reason)]}})

    def set_cards(self, name: str, cards: int, card_resource: str = CARD_RESOURCE) -> Node:
        """So many of its cards may be used from now on: the others are lost, or back."""
        return self._set_node(name, {"status": {"allocatable": {card_resource: str(cards)}}})

    # Pods

    def add_pod(
        self,
        pod: str,
        node: str = "",
        *,
        cards: int = 0,
        card_resource: str = CARD_RESOURCE,
        cpu: str = "0",
        memory: str = "0",
        labels: Mapping[str, str] | None = None,
    ) -> Pod:
        """Another tenant's pod: it runs at once on the node that is named; without one the scheduler finds one."""
        namespace, name = _split(pod)
        asked: Json = {"cpu": cpu, "memory": memory}
        if cards:
            asked[card_resource] = str(cards)
        spec: Json = {"containers": [{"name": "main", "resources": {"requests": asked, "limits": asked}}]}
        if node:
            spec["nodeName"] = node
        self._objects.create(PODS, {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}, namespace)
        self.control.settle()
        return self.start_pod(pod) if node else self._pod(pod)

    def start_pod(self, pod: str) -> Pod:
        """Its containers run and are ready."""
        running: Json = {"running": {"startedAt": self.now_text()}}
        status: Json = {
            "phase": "Running",
            "podIP": f"10.1.0.{self._objects.version % 250 + 1}",
            "hostIP": "10.0.0.1",
            "conditions": [*self._pod_conditions(pod), self._condition("Ready", "True", "")],
            "containerStatuses": self._containers(pod, running, ready=True),
        }
        return self._set_pod(pod, status)

    def fail_pull(self, pod: str, reason: str = "ImagePullBackOff", message: str = "Back-off pulling image") -> Pod:
        """Its image cannot be pulled: it waits."""
        waiting: Json = {"waiting": {"reason": reason, "message": message}}
        return self._set_pod(
            pod, {"phase": "Pending", "containerStatuses": self._containers(pod, waiting, ready=False)}
        )

    def end_pod(self, pod: str, exit_code: int = 0, reason: str = "", *, status_reason: str = "") -> Pod:
        """Its containers end, such as with 137 and "OOMKilled"; a pod that is being deleted is gone then.

        `status_reason` is the pod's own, such as "Evicted".
        """
        ended: Json = {
            "terminated": {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed")}
        }
        status: Json = {
            "phase": "Failed" if exit_code else "Succeeded",
            "reason": status_reason or None,
            "conditions": [*self._pod_conditions(pod), self._condition("Ready", "False", "PodCompleted")],
            "containerStatuses": self._containers(pod, ended, ready=False),
        }
        told = self._set_pod(pod, status)
        if told.metadata.deletion_timestamp:
            self.remove_pod(pod)
        return told

    def remove_pod(self, pod: str) -> None:
        """It is gone at once, whatever it was doing."""
        namespace, name = _split(pod)
        self._objects.remove(PODS, self._stored(PODS, name, namespace))
        self.control.settle()

    def pods_of_job(self, name: str, namespace: str) -> tuple[Pod, ...]:
        """The pods of a Job, by name."""
        return self.all_of(PODS, namespace, labels=f"batch.kubernetes.io/job-name={name}")

    def hold_pods(self, on: bool = True) -> None:
        """Jobs get no pod, as where a quota or a webhook forbids it; or they get them again."""
        self.control.makes_pods = not on
        self.control.look_at_every_job()

    def terminate_gracefully(self, on: bool = True) -> None:
        """Pods that are deleted stay on their node until `end_pod`, as with real kubelets."""
        self.control.graceful = on

    def remove_finished_jobs(self) -> None:
        """Remove Jobs that ended as long ago as they ask to be kept."""
        self.control.remove_expired(self.now_text)

    # How

    def _condition(self, type_: str, status: str, reason: str) -> Json:
        return {"type": type_, "status": status, "reason": reason, "lastTransitionTime": self.now_text()}

    def _conditions(self, node: str) -> list[Json]:
        return list_at(self._stored(NODES, node).body, "status", "conditions")

    def _pod_conditions(self, pod: str) -> list[Json]:
        namespace, name = _split(pod)
        stored = self._stored(PODS, name, namespace)
        return [each for each in list_at(stored.body, "status", "conditions") if each.get("type") != "Ready"]

    def _containers(self, pod: str, state: Json, *, ready: bool) -> list[Json]:
        namespace, name = _split(pod)
        asked = list_at(self._stored(PODS, name, namespace).body, "spec", "containers")
        return [{"name": text_at(each, "name"), "ready": ready, "restartCount": 0, "state": state} for each in asked]

    def _set_taint(self, name: str, key: str, value: str, effect: str, on: bool) -> Node:
        taints = [each for each in list_at(self._stored(NODES, name).body, "spec", "taints") if each.get("key") != key]
        if on:
            taints.append({"key": key, "effect": effect, **({"value": value} if value else {})})
        return self._set_node(name, {"spec": {"taints": list(taints) or None}})

    def _set_node(self, name: str, patch: Json) -> Node:
        self._objects.patch(NODES, self._stored(NODES, name), patch)
        self.control.settle()
        node = self.find(NODES, name)
        assert node is not None
        return node

    def _set_pod(self, pod: str, status: Json) -> Pod:
        namespace, name = _split(pod)
        self._objects.patch(PODS, self._stored(PODS, name, namespace), {"status": copied(status)})
        self.control.settle()
        return self._pod(pod)

    def _pod(self, pod: str) -> Pod:
        namespace, name = _split(pod)
        found = self.find(PODS, name, namespace)
        assert found is not None
        return found

    def _stored(self, kind: Kind[T], name: str, namespace: str = "") -> Stored:
        stored = self._objects.at(kind, name, namespace)
        if stored is None:
            raise KeyError(f"{self.name} has no {kind.singular} {name!r}")
        return stored


def _split(pod: str) -> tuple[str, str]:
    namespace, mark, name = pod.partition("/")
    return (namespace, name) if mark else ("default", namespace)
