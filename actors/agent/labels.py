"""Which labels of a node are told: where it stands among others, and what it is. No name of a host is among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PREFIXES: Final = (
    "accelerator.topograph.run/",  # NVLink domains
    "fabric.topograph.run/",  # leaf and spine
    "network.topology.nvidia.com/",
    "topology.kubernetes.io/",
    "topology.k8s.aws/",
)
_NAMES: Final = frozenset(
    {
        "nvidia.com/gpu.clique",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.family",
        "nvidia.com/mig.strategy",
        "amd.com/gpu.product-name",
        "amd.com/gpu.vram",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "karpenter.sh/capacity-type",
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-accelerator",
        "cloud.google.com/gke-nodepool",
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-tpu-topology",
        "cloud.google.com/gke-gpu-partition-size",
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "eks.amazonaws.com/capacityType",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
        "kubernetes.azure.com/scalesetpriority",
    }
)
_GKE_TOPOLOGY: Final = ("cloud.google.com/gke-", "-topology")


def told_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels of the allow-list, sorted by key."""
    return tuple(sorted((key, value) for key, value in labels.items() if _told(key)))


def _told(key: str) -> bool:
    first, last = _GKE_TOPOLOGY
    return key in _NAMES or key.startswith(_PREFIXES) or (key.startswith(first) and key.endswith(last))
