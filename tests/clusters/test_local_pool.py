"""A pool of kind `local`: the control plane is a pod of the cluster whose nodes it uses, with its own account."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from levers9_test_lab import RunningLab, until

from levers9.kube.client import KubeClient
from levers9.kube.face import Body
from levers9.kube.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, JOBS, PODS, ROLE_BINDINGS, ROLES

pytestmark = pytest.mark.slow
PLANE = "plane"
RBAC = "rbac.authorization.k8s.io"
SETTINGS = """
[[pools]]
name = "here"
kind = "local"
gpu = "GB200"
namespace = "{namespace}"
isolation = "trusted"
"""
PROGRAM = """
import os
from levers9 import job

@job(gpu="GB200", gpu_count=2)
def look():
    return os.environ["LEVERS9_NODE"], os.environ["LEVERS9_CARDS"]

if __name__ == "__main__":
    print(*look.remote())
"""


async def let_it(kube: KubeClient, namespace: str) -> None:
    """The rights of an agent, for the pod's account."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    wide = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
    narrow = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "get", "create", "delete"]}]
    await kube.create(CLUSTER_ROLES, {"metadata": {"name": namespace}, "rules": wide})
    await kube.create(ROLES, {"metadata": {"name": PLANE}, "rules": narrow}, namespace)
    for kind, made, name, inside in (
        ("ClusterRole", CLUSTER_ROLE_BINDINGS, namespace, ""),
        ("Role", ROLE_BINDINGS, PLANE, namespace),
    ):
        role = {"apiGroup": RBAC, "kind": kind, "name": name}
        await kube.create(made, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}, inside)


def pod_of(folder: Path, namespace: str) -> Body:
    """A control plane that keeps all that it has in this folder."""
    folder.mkdir()
    (folder / "settings.toml").write_text(SETTINGS.format(namespace=namespace))
    command = ["levers9", "controlplane", "--json", "--config", str(folder / "settings.toml")]
    command += ["--state-dir", str(folder / "state"), "--run-dir", str(folder / "run"), "--metrics-port", "-1"]
    command += ["--stream-port", "0", "--http-port", "0"]
    container = {"name": PLANE, "image": "levers9", "command": command}
    return {"metadata": {"name": PLANE}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def client_of(log: str) -> dict[str, str] | None:
    """What callers have in their environment, once the control plane has said it."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    said = {key: value for line in lines for key, value in line.items() if isinstance(value, str)}
    if not {"stream_url", "first_admin_token"} <= said.keys():
        return None
    host, _, port = said["stream_url"].partition("://")[2].rpartition(":")
    return {
        "LEVERS9_TOKEN": said["first_admin_token"],
        "LEVERS9_CONTROLPLANE_HOST": host,
        "LEVERS9_CONTROLPLANE_PORT": port,
        "LEVERS9_HTTP_URL": said["http_url"],
    }


@asynccontextmanager
async def control_plane(kube: KubeClient, namespace: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """A control plane in a pod, and the environment of its callers."""
    await let_it(kube, namespace)
    await kube.create(PODS, pod_of(folder, namespace), namespace)

    async def ready() -> dict[str, str] | None:
        return client_of(await kube.log_tail(PLANE, namespace, container=PLANE, lines=200))

    try:
        yield await until(ready, 90.0)
    finally:
        with trio.move_on_after(30, shield=True):
            await kube.delete(PODS, PLANE, namespace)


async def test_it_runs_workers_beside_itself_without_a_kubeconfig(lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        async with control_plane(kube, namespace, tmp_path / PLANE) as told:
            with trio.fail_after(90):
                done = await trio.run_process(
                    [sys.executable, "app.py"], cwd=tmp_path, env={**lab.environment, **told}, capture_stdout=True
                )
            jobs = (await kube.list(JOBS, namespace)).items
            owners = [(job.metadata.labels["levers9.dev/cluster"], job.status.active) for job in jobs]
            await kube.delete(JOBS, jobs[0].metadata.name, namespace)
    node, cards = done.stdout.decode().split()
    assert (node in lab.nodes, cards) == (True, "0,1")
    assert owners == [("here", 1)]
