"""The manifest of an agent: everything that an attached cluster is given, and why. Pure.

The rights are those of the architecture, section 9: nodes and pods may be listed and watched in the whole cluster, Jobs
may be made and deleted in the agent's own namespace, and nothing else.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec
import yaml

from ...model.clusters import AGENT, CARD_RESOURCES, CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, Flavour
from ...model.tokens import hint_of

TOKEN_KEY: Final = "token"
CA_KEY: Final = "ca.crt"
_RBAC: Final = "rbac.authorization.k8s.io"
_LINES: Final = re.compile(r"(?:[!-~]+(?: [!-~]+)*\n){2,}")  # such as certificates
_USER: Final = 65532  # nobody, in images without a user of their own
_READ: Final = ("list", "watch")
_JOBS: Final = ("get", *_READ, "create", "delete")
# Of nodes with cards, labels and taints: the agent, which needs none, rather stands elsewhere, and there where there is
# no other node.
_CARD_LABELS: Final = {
    Flavour.PLAIN: ("nvidia.com/gpu.present",),
    Flavour.GKE: ("nvidia.com/gpu.present", "cloud.google.com/gke-accelerator"),
    Flavour.EKS: ("nvidia.com/gpu.present", "k8s.amazonaws.com/accelerator"),
    Flavour.AKS: ("nvidia.com/gpu.present", "kubernetes.azure.com/accelerator"),
}
_CARD_TAINTS: Final = (*({"key": key} for key in CARD_RESOURCES), {"key": "sku", "value": "gpu"})  # aks says sku
Body = dict[str, object]


class _Readable(yaml.SafeDumper):
    """YAML as people write it: texts of several lines as blocks, and nothing by reference."""

    def ignore_aliases(self, data: object) -> bool:
        """Write each value out."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if _LINES.fullmatch(value) else None)


_Readable.add_representer(str, _text)


class AgentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest is made of. `url` is the one address that serves streams and HTTP by path.

    Without `token` there is no Secret among the objects: the one in the cluster stays. `ca_pem` are certificates to
    trust beside the system's. `pull_secret` names a secret that is there already.
    """

    cluster_id: str
    name: str
    namespace: str
    image: str
    url: str
    token: str = ""
    ca_pem: str = ""
    pull_secret: str = ""
    flavour: Flavour = Flavour.PLAIN


def render(told: AgentManifest) -> str:
    """The manifest as YAML, with a comment on each object: what it is for."""
    name, url = json.dumps(told.name), json.dumps(told.url)
    head = (
        f"# The agent of cluster {name} in levers9. It dials {url} and reports nodes; nothing dials in.\n"
        "# Apply it with: kubectl apply -f FILE\n"
    )
    return head + "".join(_document(comment, body) for comment, body in _objects(told))


def _document(comment: str, body: Body) -> str:
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    return f"---\n{lines}{yaml.dump(body, Dumper=_Readable, sort_keys=False, default_flow_style=False, width=110)}"


def _objects(told: AgentManifest) -> list[tuple[str, Body]]:
    """In the order in which they can be made."""
    wide = f"{AGENT}-{told.namespace}"  # such names are the whole cluster's: two agents in it do not clash
    secret = (("Who the agent is: a token for this cluster alone. `levers9 cluster leave` revokes it.", _secret(told)),)
    return [
        (
            "Where the agent and the workers run. Workers need privileges there: they start containers.",
            _namespace(told),
        ),
        ("Whom the rights below are given to.", _made("v1", "ServiceAccount", AGENT, told)),
        (
            "What it may read: which nodes there are, and what the pods on them leave free. It may change neither.",
            _role(told, wide, "ClusterRole", [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": [*_READ]}]),
        ),
        ("The reading is the agent's.", _binding(told, wide, "ClusterRole")),
        (
            "What it may make and delete: Jobs, one for each worker, in this namespace and nowhere else.",
            _role(told, AGENT, "Role", [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*_JOBS]}]),
        ),
        ("The Jobs are the agent's.", _binding(told, AGENT, "Role")),
        *(secret if told.token else ()),
        ("The agent itself.", _deployment(told)),
    ]


def labels_of(cluster_id: str) -> dict[str, str]:
    """What every object of an agent is labelled with."""
    return {
        "app.kubernetes.io/name": AGENT,
        MANAGED_BY_LABEL: MANAGED_BY,
        CLUSTER_LABEL: cluster_id,
    }


def _made(api: str, kind: str, name: str, told: AgentManifest, *, wide: bool = False, **rest: object) -> Body:
    metadata: Body = {"name": name}
    if not wide:
        metadata["namespace"] = told.namespace
    metadata["labels"] = labels_of(told.cluster_id)
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _namespace(told: AgentManifest) -> Body:
    """Without labels of the agent: it outlives it."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": told.namespace, "labels": labels}}


def _role(told: AgentManifest, name: str, kind: str, rules: list[Body]) -> Body:
    return _made(f"{_RBAC}/v1", kind, name, told, wide=kind == "ClusterRole", rules=rules)


def _binding(told: AgentManifest, name: str, kind: str) -> Body:
    return _made(
        f"{_RBAC}/v1",
        f"{kind}Binding",
        name,
        told,
        wide=kind == "ClusterRole",
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": AGENT, "namespace": told.namespace}],
    )


def _secret(told: AgentManifest) -> Body:
    kept = {TOKEN_KEY: told.token} | ({CA_KEY: told.ca_pem} if told.ca_pem else {})
    return _made("v1", "Secret", AGENT, told, type="Opaque", stringData=kept)


def _deployment(told: AgentManifest) -> Body:
    selector = {"app.kubernetes.io/name": AGENT}
    metadata: Body = {"labels": labels_of(told.cluster_id)}
    if told.token:  # a new token takes effect with a new pod
        metadata["annotations"] = {"levers9.dev/token": hint_of(told.token)}
    template = {"metadata": metadata, "spec": _pod(told)}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # never two of them
        "selector": {"matchLabels": selector},
        "template": template,
    }
    return _made("apps/v1", "Deployment", AGENT, told, spec=spec)


def _pod(told: AgentManifest) -> Body:
    pod: Body = {
        "serviceAccountName": AGENT,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _elsewhere(told.flavour)}},
        "tolerations": [taint | {"operator": "Equal" if "value" in taint else "Exists"} for taint in _CARD_TAINTS],
        "containers": [_container(told)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
    }
    if told.flavour is not Flavour.PLAIN:
        pod["nodeSelector"] = {"kubernetes.io/os": "linux"}  # theirs may have Windows nodes
    if told.pull_secret:
        pod["imagePullSecrets"] = [{"name": told.pull_secret}]
    return pod


def _elsewhere(flavour: Flavour) -> list[Body]:
    absent = [{"key": label, "operator": "DoesNotExist"} for label in _CARD_LABELS[flavour]]
    return [{"weight": 1, "preference": {"matchExpressions": absent}}]


def _container(told: AgentManifest) -> Body:
    return {
        "name": "agent",
        "image": told.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["levers9", "agent"],
        "env": _environment(told),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _environment(told: AgentManifest) -> list[Body]:
    return [
        {"name": "LEVERS9_CLUSTER_ID", "value": told.cluster_id},
        {"name": "LEVERS9_URL", "value": told.url},
        {"name": "LEVERS9_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "LEVERS9_AGENT_TOKEN", "valueFrom": {"secretKeyRef": {"name": AGENT, "key": TOKEN_KEY}}},
        {"name": "LEVERS9_CA_PEM", "valueFrom": {"secretKeyRef": {"name": AGENT, "key": CA_KEY, "optional": True}}},
    ]
