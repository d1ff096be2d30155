"""What an agent may do in a real API server: each verb, each resource, in its own namespace and in others.

Yes exactly where the manifest's Role and ClusterRole say so, less what any account may do anyway.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
import trio
from levers9_test_lab import RunningLab, until

from levers9.actors.gateway.manifest import AgentManifest, render
from levers9.cli.kube_context import apply, parts_of, remove_agent
from levers9.kube.client import KubeClient
from levers9.kube.face import Kind
from levers9.kube.kinds import NAMESPACES, SERVICE_ACCOUNTS
from levers9.kube.objects import Meta

pytestmark = pytest.mark.slow

NAMESPACE: Final = "agents-rights"
TOLD: Final = AgentManifest(
    cluster_id="cluster-rights",
    name="rights",
    namespace=NAMESPACE,
    image="levers9:rights",
    url="https://levers9.example",
    token="l9_agent_" + "A" * 43,
)
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
ESCALATING: Final = (
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "roles"),
    ("escalate", "rbac.authorization.k8s.io", "roles"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"),
    ("approve", "certificates.k8s.io", "signers"),
    ("sign", "certificates.k8s.io", "signers"),
)
SUBRESOURCES: Final = (
    ("", "pods", "log"),
    ("", "pods", "exec"),
    ("", "pods", "attach"),
    ("", "pods", "portforward"),
    ("", "pods", "eviction"),
    ("", "pods", "status"),
    ("", "pods", "ephemeralcontainers"),
    ("", "nodes", "proxy"),
    ("", "nodes", "status"),
    ("", "serviceaccounts", "token"),
    ("", "namespaces", "finalize"),
    ("batch", "jobs", "status"),
    ("apps", "deployments", "scale"),
)
READ: Final = ("list", "watch")
AGENT: Final = f"system:serviceaccount:{NAMESPACE}:levers9-agent"
ANYBODY: Final = f"system:serviceaccount:{NAMESPACE}:default"
Cell = tuple[str, str, str, str, str]  # namespace ("" the whole cluster), verb, group, resource, subresource


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    metadata: Meta
    status: _Status = _Status()


REVIEWS: Final = Kind(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    singular="SubjectAccessReview",
    type=_Review,
    namespaced=False,
)


def resources(lab: RunningLab, kubectl: str) -> list[tuple[str, str]]:
    """Every resource that this API server serves, with its group."""
    found: list[tuple[str, str]] = []
    for path in ("/api/v1", *_groups(lab, kubectl)):
        listed = json.loads(_raw(lab, kubectl, path))
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        found += [(group, one["name"]) for one in listed["resources"] if "/" not in one["name"]]
    return sorted(set(found))


def _groups(lab: RunningLab, kubectl: str) -> Iterator[str]:
    for group in json.loads(_raw(lab, kubectl, "/apis"))["groups"]:
        yield f"/apis/{group['preferredVersion']['groupVersion']}"


def _raw(lab: RunningLab, kubectl: str, path: str) -> str:
    return subprocess.run(
        [kubectl, "get", "--raw", path], env=lab.environment, capture_output=True, text=True, timeout=30, check=True
    ).stdout


def cells(served: list[tuple[str, str]]) -> list[Cell]:
    """The whole matrix."""
    asked = [(group, name, "") for group, name in served] + list(SUBRESOURCES)
    found: list[Cell] = []
    for namespace in (NAMESPACE, "kube-system", ""):
        found += [(namespace, verb, *one) for one in asked for verb in VERBS]
        found += [(namespace, *one, "") for one in ESCALATING]
    return found


def expected(cell: Cell) -> bool:
    """What the architecture says: list and watch nodes and pods everywhere, keep Jobs at home."""
    namespace, verb, group, name, subresource = cell
    if subresource:
        return False
    reads = group == "" and name in ("nodes", "pods") and verb in READ
    keeps = namespace == NAMESPACE and (group, name) == ("batch", "jobs") and verb in ("get", *READ, "create", "delete")
    return reads or keeps


async def may(kube: KubeClient, account: str, cell: Cell) -> bool:
    """As `kubectl auth can-i --as` asks."""
    namespace, verb, group, name, subresource = cell
    where = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    spec = {"user": account, "groups": groups, "resourceAttributes": where}
    return (await kube.create(REVIEWS, {"metadata": {}, "spec": spec})).status.allowed


async def allowed(kube: KubeClient, account: str, asked: list[Cell]) -> set[Cell]:
    """Those cells that an account has, many asked at a time."""
    found: set[Cell] = set()
    waiting = iter(asked)

    async def ask() -> None:
        for cell in waiting:
            if await may(kube, account, cell):
                found.add(cell)

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(ask)
    return found


async def has(kube: KubeClient, account: str, wanted: list[Cell]) -> bool:
    """Whether an account has all of these: an API server learns of roles a moment after they were applied."""
    return await allowed(kube, account, wanted) == set(wanted)


async def test_an_agent_may_do_what_the_page_says_and_nothing_else(lab: RunningLab, kubectl: str) -> None:
    asked = cells(resources(lab, kubectl))
    async with lab.kube() as kube:
        await apply(kube, parts_of(render(TOLD)))
        try:
            await until(lambda: kube.get(SERVICE_ACCOUNTS, "default", NAMESPACE))
            await until(lambda: has(kube, AGENT, [cell for cell in asked if expected(cell)]))
            own = await allowed(kube, AGENT, asked)
            anyway = await allowed(kube, ANYBODY, sorted(own))
            listed = await _can_i(lab, kubectl)
        finally:
            with trio.move_on_after(20, shield=True):
                await remove_agent(kube, TOLD.cluster_id, NAMESPACE)
                await kube.delete(NAMESPACES, NAMESPACE)
    assert len(asked) > 1_500
    assert own - anyway == {cell for cell in asked if expected(cell)} - anyway
    assert {cell for cell in asked if expected(cell)} <= own
    assert listed == ["yes", "no", "yes", "no", "no"]


async def _can_i(lab: RunningLab, kubectl: str) -> list[str]:
    """The questions of the page, as a person asks them."""
    questions = (
        ("list", "pods", "--all-namespaces"),
        ("get", "secrets", "-n", NAMESPACE),
        ("create", "jobs.batch", "-n", NAMESPACE),
        ("create", "jobs.batch", "-n", "default"),
        ("create", "pods", "-n", NAMESPACE),
    )
    said: list[str] = []
    for question in questions:
        argv = [kubectl, "auth", "can-i", *question, "--as", AGENT]
        done = await trio.run_process(argv, env=lab.environment, capture_stdout=True, capture_stderr=True, check=False)
        said.append(done.stdout.decode().strip())
    return said


@pytest.mark.parametrize("right", ["nodes", "pods", "jobs"])
def test_the_matrix_would_notice_a_right_that_is_missing(right: str) -> None:
    asked = cells([("", "nodes"), ("", "pods"), ("", "secrets"), ("batch", "jobs")])
    assert any(cell[3] == right for cell in asked if expected(cell))
    assert not any(cell[3] == "secrets" for cell in asked if expected(cell))
