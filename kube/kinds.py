"""The kinds of objects that we speak of."""

from __future__ import annotations

from typing import Final

from .face import Kind
from .objects import Job, Node, Other, Pod

NODES: Final = Kind(group="", version="v1", plural="nodes", singular="Node", type=Node, namespaced=False)
PODS: Final = Kind(group="", version="v1", plural="pods", singular="Pod", type=Pod)
JOBS: Final = Kind(group="batch", version="v1", plural="jobs", singular="Job", type=Job)
NAMESPACES: Final = Kind(
    group="", version="v1", plural="namespaces", singular="Namespace", type=Other, namespaced=False
)
SECRETS: Final = Kind(group="", version="v1", plural="secrets", singular="Secret", type=Other)
SERVICE_ACCOUNTS: Final = Kind(group="", version="v1", plural="serviceaccounts", singular="ServiceAccount", type=Other)
ROLES: Final = Kind(group="rbac.authorization.k8s.io", version="v1", plural="roles", singular="Role", type=Other)
ROLE_BINDINGS: Final = Kind(
    group="rbac.authorization.k8s.io", version="v1", plural="rolebindings", singular="RoleBinding", type=Other
)
CLUSTER_ROLES: Final = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterroles",
    singular="ClusterRole",
    type=Other,
    namespaced=False,
)
CLUSTER_ROLE_BINDINGS: Final = Kind(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterrolebindings",
    singular="ClusterRoleBinding",
    type=Other,
    namespaced=False,
)
DEPLOYMENTS: Final = Kind(group="apps", version="v1", plural="deployments", singular="Deployment", type=Other)
LEASES: Final = Kind(group="coordination.k8s.io", version="v1", plural="leases", singular="Lease", type=Other)
