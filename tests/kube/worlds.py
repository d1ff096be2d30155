"""One cluster of two kinds, for tests that hold for both."""

from __future__ import annotations

import itertools
from typing import Protocol

import trio

from levers9.kube.client import KubeClient
from levers9.kube.face import Body, Kube
from levers9.kube.kinds import NAMESPACES
from levers9.kube.memory import MemoryCluster

from .api_server import ApiServer

_numbers = itertools.count(1)


class World(Protocol):
    """A cluster with a namespace that is the test's own; names that begin with it are as well."""

    kube: Kube
    namespace: str

    async def begin(self) -> None: ...

    async def forget_history(self) -> None:
        """From now on, only what is new can be watched."""
        ...

    async def go_away(self) -> None: ...

    async def come_back(self) -> None: ...

    def one_without_rights(self) -> Kube: ...


class MemoryWorld:
    def __init__(self, cluster: MemoryCluster) -> None:
        self.kube: Kube = cluster
        self.namespace = f"test-{next(_numbers)}"
        self._cluster = cluster

    async def begin(self) -> None:
        await self.kube.create(NAMESPACES, {"metadata": {"name": self.namespace}})

    async def forget_history(self) -> None:
        self._cluster.compact()

    async def go_away(self) -> None:
        self._cluster.go_away()

    async def come_back(self) -> None:
        self._cluster.come_back()

    def one_without_rights(self) -> Kube:
        for verb, plural in (("list", "nodes"), ("create", "jobs")):
            self._cluster.forbid(verb, plural)
        return self._cluster


class RealWorld:
    def __init__(self, server: ApiServer, admin: KubeClient, guest: KubeClient) -> None:
        self.kube: Kube = admin
        self.namespace = f"test-{next(_numbers)}"
        self._server = server
        self._guest = guest

    async def begin(self) -> None:
        await self.kube.create(NAMESPACES, {"metadata": {"name": self.namespace}})

    async def forget_history(self) -> None:
        await self.go_away()
        await self.come_back()

    async def go_away(self) -> None:
        await trio.to_thread.run_sync(self._server.kill)

    async def come_back(self) -> None:
        await trio.to_thread.run_sync(self._server.start)

    def one_without_rights(self) -> Kube:
        return self._guest


def a_pod(name: str, labels: dict[str, str] | None = None, node: str = "") -> Body:
    spec: dict[str, object] = {"containers": [{"name": "main", "image": "an-image"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def a_job(name: str, *, cards: int = 0, node: str = "", backoff_limit: int = 0) -> Body:
    limits = {"limits": {"nvidia.com/gpu": str(cards)}} if cards else {}
    pod: dict[str, object] = {
        "restartPolicy": "Never",
        "containers": [{"name": "worker", "image": "an-image", "resources": limits}],
    }
    if node:
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    template = {"metadata": {"labels": {"levers9.dev/worker": name}}, "spec": pod}
    spec = {"backoffLimit": backoff_limit, "ttlSecondsAfterFinished": 30, "template": template}
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "levers9"}}, "spec": spec}
