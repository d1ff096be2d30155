"""Attached clusters: what is told of one when it joins, and where it stands."""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Final

import msgspec

from ..errors import INVALID, Refused

NAMESPACE: Final = "levers9"
AGENT: Final = "levers9-agent"  # the name of what stands in an agent's namespace
CLUSTER_LABEL: Final = "levers9.dev/cluster"  # the cluster's identity, on all that is of it
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "levers9"
CARD_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")  # whole cards, one unit each; taints have these keys too
JOB_HANDLE: Final = "job/"  # so begin the handles of workers that are Jobs
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # with what `pool_of` adds, a name of Kubernetes


class Flavour(enum.StrEnum):
    """Whose Kubernetes it is, as far as that matters for workers there."""

    PLAIN = ""
    GKE = "gke"
    EKS = "eks"
    AKS = "aks"


class ClusterState(enum.StrEnum):
    """Where an attached cluster stands (figures)."""

    WAITING = "waiting"  # its agent has never dialled in
    ONLINE = "online"
    STALE = "stale"  # the last report is 90 s old or older, the stream is open
    OFFLINE = "offline"  # stale, and no stream


class Origin(enum.StrEnum):
    """How a cluster lends its nodes."""

    ATTACHED = "attached"  # its agent dials in
    LOCAL = "local"  # we run in it
    CREDENTIAL = "kubernetes"  # we call its API with a credential, and dial its workers


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says when a cluster joins. `selector` is a label selector in Kubernetes' own words, "" for all.

    `worker_image` "" is the platform's; `pull_secret` names a secret in the namespace; `host_network` None is as the
    platform has it.
    """

    name: str
    gpu_type: str
    namespace: str = NAMESPACE
    selector: str = ""
    flavour: Flavour = Flavour.PLAIN
    worker_image: str = ""
    pull_secret: str = ""
    host_network: bool | None = None


def pool_of(workspace_id: str, name: str) -> str:
    """The name of a cluster's pool: names are per workspace, so that it tells clusters of one name apart."""
    mark = hashlib.sha256(f"{workspace_id}/{name}".encode()).hexdigest()[:6]
    return f"{name}-{mark}"


def check_name(name: str) -> None:
    """Raises `Refused` for what can be no cluster's name."""
    if not _NAME.fullmatch(name):
        raise Refused(
            f"{name[:60]!r} is no name of a cluster.",
            fix="Write 1 to 40 of a-z, 0-9 and -, such as lab-1.",
            code=INVALID,
        )
