"""Pods and what they refer to, with the fields that a kubelet reads of them; the agent reads fewer."""

from __future__ import annotations

from typing import Final

import msgspec

from ..kube.face import Kind
from ..kube.objects import Condition, Meta, Other, Quantities, Resources


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base: Kubernetes' own names in camel case."""


class KeyRef(_Part, frozen=True, kw_only=True):
    """A key of a secret or configuration map."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldRef(_Part, frozen=True, kw_only=True):
    """A field of the pod itself."""

    field_path: str


class ResourceRef(_Part, frozen=True, kw_only=True):
    """What a container asks for or may use."""

    resource: str
    container_name: str = ""
    divisor: str = "1"


class ValueFrom(_Part, frozen=True, kw_only=True):
    """Where a variable's value comes from; one of them is set."""

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceRef | None = None


class EnvVar(_Part, frozen=True, kw_only=True):
    """A variable."""

    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class SourceRef(_Part, frozen=True, kw_only=True):
    """All keys of a secret or configuration map."""

    name: str = ""
    optional: bool = False


class EnvFrom(_Part, frozen=True, kw_only=True):
    """Variables that come together."""

    prefix: str = ""
    secret_ref: SourceRef | None = None
    config_map_ref: SourceRef | None = None


class Exec(_Part, frozen=True, kw_only=True):
    """A command."""

    command: tuple[str, ...] = ()


class Header(_Part, frozen=True, kw_only=True):
    """A header of a request."""

    name: str
    value: str = ""


class HttpGet(_Part, frozen=True, kw_only=True):
    """A request; well if its status is 200 to 399."""

    path: str = "/"
    port: int | str = 80
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class TcpSocket(_Part, frozen=True, kw_only=True):
    """A connection; well if it can be opened."""

    port: int | str = 0
    host: str = ""


class Probe(_Part, frozen=True, kw_only=True):
    """A question to a container, asked again and again."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3


class Port(_Part, frozen=True, kw_only=True):
    """A port with a name."""

    container_port: int
    name: str = ""


class VolumeMount(_Part, frozen=True, kw_only=True):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    sub_path: str = ""


class Container(_Part, frozen=True, kw_only=True):
    """A container as it was asked for."""

    name: str
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    ports: tuple[Port, ...] | None = None
    resources: Resources | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    restart_policy: str | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None


class KeyPath(_Part, frozen=True, kw_only=True):
    """Which key becomes which file."""

    key: str
    path: str


class SecretVolume(_Part, frozen=True, kw_only=True):
    """A file for each key of a secret."""

    secret_name: str = ""
    name: str = ""  # in a projected volume
    items: tuple[KeyPath, ...] | None = None
    optional: bool = False


class ConfigMapVolume(_Part, frozen=True, kw_only=True):
    """A file for each key of a configuration map."""

    name: str = ""
    items: tuple[KeyPath, ...] | None = None
    optional: bool = False


class HostPath(_Part, frozen=True, kw_only=True):
    """A folder of the node."""

    path: str
    type: str = ""


class TokenSource(_Part, frozen=True, kw_only=True):
    """A token of the pod's service account."""

    path: str
    expiration_seconds: int = 3607
    audience: str = ""


class DownwardFile(_Part, frozen=True, kw_only=True):
    """A field of the pod as a file."""

    path: str
    field_ref: FieldRef | None = None


class Downward(_Part, frozen=True, kw_only=True):
    """Fields of the pod as files."""

    items: tuple[DownwardFile, ...] | None = None


class Projection(_Part, frozen=True, kw_only=True):
    """One source of a projected volume."""

    secret: SecretVolume | None = None
    config_map: ConfigMapVolume | None = None
    service_account_token: TokenSource | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")


class Projected(_Part, frozen=True, kw_only=True):
    """Several sources in one folder."""

    sources: tuple[Projection, ...] | None = None


class Empty(_Part, frozen=True, kw_only=True):
    """An empty folder."""

    medium: str = ""


class Volume(_Part, frozen=True, kw_only=True):
    """A folder for containers; of another kind than these it is empty."""

    name: str
    empty_dir: Empty | None = None
    host_path: HostPath | None = None
    secret: SecretVolume | None = None
    config_map: ConfigMapVolume | None = None
    projected: Projected | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")


class PodSpec(_Part, frozen=True, kw_only=True):
    """A pod as it was asked for."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    restart_policy: str = "Always"
    service_account_name: str = ""
    host_network: bool = False
    hostname: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None


class PodMeta(Meta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a pod has besides: how long it may take to end."""

    deletion_grace_period_seconds: int | None = None


class PodStatus(_Part, frozen=True, kw_only=True):
    """The part of a pod's status that others than its kubelet write, too."""

    phase: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None
    qos_class: str = ""


class Pod(_Part, frozen=True, kw_only=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Secret(_Part, frozen=True, kw_only=True):
    """A secret: bytes by key."""

    metadata: Meta
    data: dict[str, bytes] | None = None  # msgspec undoes the base64


class ConfigMap(_Part, frozen=True, kw_only=True):
    """A configuration map."""

    metadata: Meta
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


class TokenStatus(_Part, frozen=True, kw_only=True):
    """A token."""

    token: str = ""


class TokenRequest(_Part, frozen=True, kw_only=True):
    """The answer to a request for a token."""

    metadata: Meta = Meta()
    status: TokenStatus = TokenStatus()


class Event(_Part, frozen=True, kw_only=True):
    """What `kubectl describe` shows below."""

    metadata: Meta


PODS: Final = Kind(group="", version="v1", plural="pods", singular="Pod", type=Pod)
SECRETS: Final = Kind(group="", version="v1", plural="secrets", singular="Secret", type=Secret)
CONFIG_MAPS: Final = Kind(group="", version="v1", plural="configmaps", singular="ConfigMap", type=ConfigMap)
LEASES: Final = Kind(group="coordination.k8s.io", version="v1", plural="leases", singular="Lease", type=Other)
EVENTS: Final = Kind(group="", version="v1", plural="events", singular="Event", type=Event)


def quantities(of: Quantities | None) -> Quantities:
    """Quantities, or none."""
    return of or {}


def tokens_of(account: str) -> Kind[TokenRequest]:
    """Where tokens of a service account are asked for: what is created there is an answer, and never kept."""
    return Kind(
        group="", version="v1", plural=f"serviceaccounts/{account}/token", singular="TokenRequest", type=TokenRequest
    )
