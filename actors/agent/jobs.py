"""The Job of a worker that was ordered (figures, "worker Job")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ...kube.objects import Meta, Taint
from ...model.clusters import CARD_RESOURCES, CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from ...model.figures import JOB_GRACE_S, JOB_KEPT_S
from ...wire.cluster import AgentSettings, WorkerJob

WORKER: Final = "levers9.dev/worker"
NODE: Final = "levers9.dev/node"  # an annotation: names of nodes may be longer than labels
NODE_UID: Final = "levers9.dev/node-uid"
CONTAINER: Final = "worker"
CACHE: Final = "/var/lib/levers9/images/cache"
STATE: Final = "/var/lib/levers9/state"

Json = Mapping[str, object]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent stands, and what its workers get from it: `environment` is that of its way out, a proxy say."""

    cluster_id: str
    namespace: str
    environment: tuple[tuple[str, str], ...] = ()


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The node of an order: the taints that its worker tolerates, and which kind of cards it has."""

    taints: tuple[Taint, ...] = ()
    kind: int = 0


def worker_of(meta: Meta, place: Place) -> str:
    """The worker that an object of ours belongs to; "" for what is not ours."""
    labels = meta.labels
    if (
        meta.namespace != place.namespace
        or labels.get(MANAGED_BY_LABEL) != MANAGED_BY
        or labels.get(CLUSTER_LABEL) != place.cluster_id
    ):
        return ""
    return labels.get(WORKER, "")


def selector_of(place: Place) -> str:
    """The label selector of our Jobs."""
    return f"{MANAGED_BY_LABEL}={MANAGED_BY},{CLUSTER_LABEL}={place.cluster_id}"


def body_of(job: WorkerJob, settings: AgentSettings, place: Place, ground: Ground) -> Json:
    """The Job: one pod, once, on this very node; the scheduler looks whether there is room, and says why not."""
    labels = {MANAGED_BY_LABEL: MANAGED_BY, WORKER: job.worker_id, CLUSTER_LABEL: place.cluster_id}
    node = {NODE: job.node, NODE_UID: job.node_uid}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.worker_id,
            "namespace": place.namespace,
            "labels": labels,
            "annotations": node,
        },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": JOB_KEPT_S,
            "template": {
                "metadata": {"labels": labels, "annotations": _STAYS | node},
                "spec": _pod(job, settings, place, ground),
            },
        },
    }


_STAYS: Final = {  # autoscalers leave a node alone while a worker runs there; an idle one winds down by itself
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def _pod(job: WorkerJob, settings: AgentSettings, place: Place, ground: Ground) -> Json:
    pod: dict[str, object] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": JOB_GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": _pinned(job.node),
        "tolerations": [_toleration(taint) for taint in ground.taints],
        "containers": [_container(job, settings, place, ground)],
        "volumes": [
            {"name": "image-cache", "hostPath": {"path": CACHE, "type": "DirectoryOrCreate"}},
            {"name": "state", "emptyDir": {}},
        ],
    }
    if job.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if job.pull_secret:
        pod["imagePullSecrets"] = [{"name": job.pull_secret}]
    return pod


def _pinned(node: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _toleration(taint: Taint) -> Json:
    toleration = {"key": taint.key, "effect": taint.effect}
    return toleration | ({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"})


def _container(job: WorkerJob, settings: AgentSettings, place: Place, ground: Ground) -> Json:
    requests = {"cpu": f"{job.capacity.cpu_milli}m", "memory": f"{job.capacity.memory_mib}Mi"}
    cards = {CARD_RESOURCES[ground.kind]: str(job.capacity.gpu_count)} if job.capacity.gpu_count else {}
    return {
        "name": CONTAINER,
        "image": job.image,
        "imagePullPolicy": "Always",
        "command": ["levers9", "worker", *_flags(job, settings)],
        "env": _environment(job, settings, place),
        "resources": {"requests": requests | cards, "limits": cards},
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "image-cache", "mountPath": CACHE}, {"name": "state", "mountPath": STATE}],
    }


def _flags(job: WorkerJob, settings: AgentSettings) -> tuple[str, ...]:
    where = ("--listen",) if job.listens else ("--url", settings.stream_url)
    pairs = (
        ("--id", job.worker_id),
        ("--pool", job.pool),
        where,
        ("--http-url", settings.http_url),
        ("--cpu-milli", str(job.capacity.cpu_milli)),
        ("--memory-mib", str(job.capacity.memory_mib)),
        ("--gpu-count", str(job.capacity.gpu_count)),
        ("--gpu-type", job.capacity.gpu_type),
        ("--node", job.node),
        ("--state-dir", STATE),
    )
    return tuple(word for pair in pairs if all(pair) for word in pair)


def _environment(job: WorkerJob, settings: AgentSettings, place: Place) -> list[Json]:
    told = [("LEVERS9_WORKER_TOKEN", job.token), *place.environment]
    if settings.ca_pem:
        told.append(("LEVERS9_CA_PEM", settings.ca_pem))
    found = (("LEVERS9_POD_IP", "status.podIP"), ("LEVERS9_HOST_IP", "status.hostIP"))
    values: list[Json] = [{"name": name, "value": value} for name, value in told]
    return values + [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in found]
