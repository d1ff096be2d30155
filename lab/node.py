"""What a kubelet writes of its node and into its lease. Pure."""

from __future__ import annotations

import math
from typing import Final

from ..kube.objects import Meta
from . import KUBERNETES
from .podstatus import Note
from .traystate import TrayState

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
# The API server speaks WebSocket to kubelets that say so, and SPDY to others.
DECLARED: Final = ["ExtendWebSocketsToKubelet"]


def node_body(tray: TrayState) -> dict[str, object]:
    """A node as it registers."""
    return {
        "metadata": {"name": tray.plan.name, "labels": tray.labels},
        "spec": {"providerID": f"lab://{tray.plan.name}"},
    }


def node_status(tray: TrayState, port: int, now: str) -> dict[str, object]:
    """Capacity, addresses, conditions; `port` is where its kubelet answers."""
    plan = tray.plan
    room: dict[str, object] = {"cpu": str(plan.cpu), "memory": plan.memory, "pods": str(plan.pods)}
    room["ephemeral-storage"] = "1Ti"
    capacity, allocatable = dict(room), dict(room)
    if plan.cards:
        capacity["nvidia.com/gpu"] = str(len(plan.cards))
        allocatable["nvidia.com/gpu"] = str(len(tray.healthy))
    return {
        "capacity": capacity,
        "allocatable": allocatable,
        "addresses": [
            {"type": "InternalIP", "address": plan.address},
            {"type": "Hostname", "address": plan.name},
        ],
        "conditions": [_condition(*each, now) for each in _CONDITIONS],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "declaredFeatures": DECLARED,
        "nodeInfo": {
            "architecture": plan.model.arch,
            "operatingSystem": "linux",
            "kubeletVersion": KUBERNETES,
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "lab://1",
            "osImage": "levers9 lab",
            "kernelVersion": "6.8.0",
            "machineID": plan.name,
            "systemUUID": plan.name,
            "bootID": plan.name,
        },
    }


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> dict[str, object]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def lease_spec(node: str, every_s: float, now: str) -> dict[str, object]:
    """The lease of a node, renewed `now`."""
    return {"holderIdentity": node, "leaseDurationSeconds": math.ceil(4 * every_s), "renewTime": now}


def lease_body(node: str, uid: str, spec: dict[str, object]) -> dict[str, object]:
    """A new lease, which goes when its node goes."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {"metadata": {"name": node, "ownerReferences": [owner] if uid else []}, "spec": spec}


def event_body(pod: Meta, note: Note, node: str, number: str, now: str) -> dict[str, object]:
    """An event of a pod."""
    return {
        "metadata": {"name": f"{pod.name}.{number}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": "Warning" if note.is_warning else "Normal",
        "reason": note.reason,
        "message": note.message,
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
