"""Small objects of Kubernetes for tests, out of plain data as an API server would send it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from levers9.kube.objects import Job, Node, Pod

Plain = Mapping[str, object]


def node(
    name: str = "n1",
    *,
    uid: str = "",
    cards: str | int = 4,
    labels: Mapping[str, str] | None = None,
    ready: str = "True",
    spec: Plain | None = None,
    **quantities: str | int,
) -> Node:
    """A node that is ready, with cards; `quantities` such as cpu="7910m" replace those of its allocatable."""
    there = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(cards)} | quantities
    status = {
        "capacity": there,
        "allocatable": there,
        "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady"}],
    }
    meta = {"name": name, "uid": uid or f"uid-{name}", "labels": dict(labels or {})}
    return msgspec.convert({"metadata": meta, "spec": spec or {}, "status": status}, Node)


def pod(
    name: str = "p1",
    node: str = "n1",
    *,
    uid: str = "",
    namespace: str = "default",
    requests: Plain | None = None,
    phase: str = "Running",
    spec: Plain | None = None,
    status: Plain | None = None,
    labels: Mapping[str, str] | None = None,
) -> Pod:
    """A pod of one container."""
    containers = [{"name": "app", "image": "app:1", "resources": {"requests": requests or {}}}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": uid or f"uid-{name}", "namespace": namespace, "labels": dict(labels or {})},
            "spec": {"nodeName": node, "containers": containers} | dict(spec or {}),
            "status": {"phase": phase} | dict(status or {}),
        },
        Pod,
    )


def job(
    name: str,
    *,
    uid: str = "",
    node: str = "n1",
    node_uid: str = "",
    cluster_id: str = "c1",
    namespace: str = "levers9",
    created: str = "2026-01-01T00:00:00Z",
    ended: str = "",
) -> Job:
    """A worker's Job."""
    conditions = [{"type": ended, "status": "True", "reason": "BackoffLimitExceeded"}] if ended else []
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"job-{name}",
                "creationTimestamp": created,
                "labels": marks(name, cluster_id),
                "annotations": {"levers9.dev/node": node, "levers9.dev/node-uid": node_uid or f"uid-{node}"},
            },
            "status": {"conditions": conditions},
        },
        Job,
    )


def marks(worker_id: str, cluster_id: str = "c1") -> dict[str, str]:
    """The labels of what is a worker's."""
    return {
        "app.kubernetes.io/managed-by": "levers9",
        "levers9.dev/worker": worker_id,
        "levers9.dev/cluster": cluster_id,
    }
