"""The objects of Kubernetes, each with the fields that we read of it: what else there is costs nothing to decode."""

from __future__ import annotations

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base: Kubernetes' own names in camel case."""


class Owner(_Part, frozen=True, kw_only=True):
    """Who owns an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(_Part, frozen=True, kw_only=True):
    """What every object has. Names are not identities: objects count by `uid`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class Condition(_Part, frozen=True, kw_only=True):
    """A condition of any object."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


# Nodes


class Taint(_Part, frozen=True, kw_only=True):
    """What keeps pods without a toleration away."""

    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(_Part, frozen=True, kw_only=True):
    """How a node may be used."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeAddress(_Part, frozen=True, kw_only=True):
    """Where a node is reached."""

    type: str
    address: str


class NodeStatus(_Part, frozen=True, kw_only=True):
    """What a node has; quantities are texts or numbers, as they were written."""

    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[Condition, ...] | None = None
    addresses: tuple[NodeAddress, ...] | None = None


class Node(_Part, frozen=True, kw_only=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Pods

Quantities = dict[str, str | int | float]


class Resources(_Part, frozen=True, kw_only=True):
    """What is asked for."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class EnvVar(_Part, frozen=True, kw_only=True):
    """A variable; one whose value comes from elsewhere has none here."""

    name: str
    value: str = ""


class Container(_Part, frozen=True, kw_only=True):
    """A container of a pod; an init container with `restart_policy` Always is a sidecar."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class Named(_Part, frozen=True, kw_only=True):
    """An object of the same namespace, by name."""

    name: str = ""


class DeviceClaim(_Part, frozen=True, kw_only=True):
    """Devices that a pod claims, by a claim or by a template of one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(_Part, frozen=True, kw_only=True):
    """A pod as it was asked for."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    resource_claims: tuple[DeviceClaim, ...] | None = None
    image_pull_secrets: tuple[Named, ...] | None = None


class ContainerDetail(_Part, frozen=True, kw_only=True):
    """Why a container waits, or how it ended."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerStates(_Part, frozen=True, kw_only=True):
    """One of them is set."""

    waiting: ContainerDetail | None = None
    running: ContainerDetail | None = None
    terminated: ContainerDetail | None = None


class ContainerStatus(_Part, frozen=True, kw_only=True):
    """A container as it is now."""

    name: str = ""
    image: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerStates = ContainerStates()
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class ClaimedResources(_Part, frozen=True, kw_only=True):
    """CPU, memory and the like that a claim of devices gave to a pod."""

    resources: Quantities | None = None


class PodStatus(_Part, frozen=True, kw_only=True):
    """A pod as it is now.

    `resources` and `allocated_resources` are of the pod as a whole. `resize` is how Kubernetes before 1.33 said what
    became of a resize; later ones have a condition.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resize: str = ""
    resources: Resources | None = None
    allocated_resources: Quantities | None = None
    node_allocatable_resource_claim_statuses: tuple[ClaimedResources, ...] | None = None


class Pod(_Part, frozen=True, kw_only=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Jobs


class JobStatus(_Part, frozen=True, kw_only=True):
    """How a Job stands."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] | None = None


class Job(_Part, frozen=True, kw_only=True):
    """A Job."""

    metadata: Meta
    status: JobStatus = JobStatus()


class Other(_Part, frozen=True, kw_only=True):
    """Any object of which only the metadata matters."""

    metadata: Meta
