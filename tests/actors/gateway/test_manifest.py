"""The manifest of an agent: what is in it, which rights it gives, and that nothing else is."""

from __future__ import annotations

from typing import cast

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from levers9.actors.gateway.manifest import AgentManifest, render
from levers9.model.clusters import Flavour

TOLD = AgentManifest(
    cluster_id="cluster-1",
    name="lab-1",
    namespace="gpu",
    image="registry.example/levers9:1",
    url="https://levers9.example",
    token="l9_agent_" + "A" * 43,
    ca_pem="-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n",
    pull_secret="pull",
)
Object = dict[str, "object"]


def objects(told: AgentManifest = TOLD) -> dict[str, Object]:
    found = list(yaml.safe_load_all(render(told)))
    return {one["kind"]: one for one in found}


def test_what_is_applied_is_these_objects_in_the_order_in_which_they_can_be_made() -> None:
    assert list(objects()) == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Secret",
        "Deployment",
    ]


def test_without_a_token_there_is_no_secret_and_everything_else() -> None:
    kinds = list(objects(msgspec.structs.replace(TOLD, token="")))
    assert kinds == [kind for kind in objects() if kind != "Secret"]


def test_the_rights_are_to_read_nodes_and_pods_and_to_keep_jobs_in_its_namespace() -> None:
    found = objects()
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}
    ]
    assert found["Role"]["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "delete"]}
    ]
    assert cast("Object", found["Role"]["metadata"])["namespace"] == "gpu"
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert found[kind]["subjects"] == [{"kind": "ServiceAccount", "name": "levers9-agent", "namespace": "gpu"}]


def test_objects_of_the_whole_cluster_are_named_after_the_namespace_so_that_two_agents_do_not_clash() -> None:
    names = [cast("Object", objects()[kind]["metadata"])["name"] for kind in ("ClusterRole", "ClusterRoleBinding")]
    assert names == ["levers9-agent-gpu", "levers9-agent-gpu"]


def test_the_agent_runs_alone_and_without_privilege() -> None:
    spec = cast("Object", objects()["Deployment"]["spec"])
    pod = cast("Object", cast("Object", spec["template"])["spec"])
    (container,) = cast("list[Object]", pod["containers"])
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert cast("Object", pod["securityContext"])["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (container["name"], container["command"]) == ("agent", ["levers9", "agent"])
    assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_the_agent_is_told_who_it_is_and_where_to_dial_and_its_token_is_in_the_secret_alone() -> None:
    text, found = render(TOLD), objects()
    assert text.count(TOLD.token) == 1
    assert found["Secret"]["stringData"] == {"token": TOLD.token, "ca.crt": TOLD.ca_pem}
    pod = cast("dict[str, dict[str, dict[str, list[Object]]]]", found["Deployment"]["spec"])["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in cast("list[Object]", pod["containers"][0]["env"])}
    assert variables == {
        "LEVERS9_CLUSTER_ID": "cluster-1",
        "LEVERS9_URL": "https://levers9.example",
        "LEVERS9_NAMESPACE": None,
        "LEVERS9_AGENT_TOKEN": None,
        "LEVERS9_CA_PEM": None,
    }


def test_a_new_token_takes_effect_as_its_pod_is_another() -> None:
    other = msgspec.structs.replace(TOLD, token="l9_agent_" + "B" * 43)
    assert objects()["Deployment"] != objects(other)["Deployment"]


def test_a_flavour_matters_where_its_nodes_with_cards_are_labelled_otherwise() -> None:
    plain, gke = render(TOLD), render(msgspec.structs.replace(TOLD, flavour=Flavour.GKE))
    assert "kubernetes.io/os" not in plain
    assert "cloud.google.com/gke-accelerator" in gke
    assert "kubernetes.io/os: linux" in gke


def test_it_stands_on_a_node_with_cards_where_there_are_no_others_and_rather_elsewhere() -> None:
    pod = cast("dict[str, dict[str, Object]]", objects()["Deployment"]["spec"])["template"]["spec"]
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "amd.com/gpu", "operator": "Exists"},
        {"key": "sku", "value": "gpu", "operator": "Equal"},
    ]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in str(pod["affinity"])
    assert "'requiredDuring" not in str(pod["affinity"])


def test_each_object_says_what_it_is_for() -> None:
    documents = render(TOLD).split("---\n#")
    assert len(documents) == 9
    assert "nothing dials in" in documents[0]


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_whatever_a_person_wrote_stays_a_value(name: str, image: str, url: str) -> None:
    told = msgspec.structs.replace(TOLD, name=name, image=image, url=url)
    pod = cast("dict[str, dict[str, dict[str, list[Object]]]]", objects(told)["Deployment"]["spec"])
    assert len(objects(told)) == 8
    assert pod["template"]["spec"]["containers"][0]["image"] == image
