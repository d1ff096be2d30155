"""A cluster of the lab that is attached to a control plane of real processes, and calls that run there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import trio
from levers9_test_lab import RunningLab

from levers9.actors.agent.jobs import WORKER
from levers9.cli.kube_context import apply, parts_of, remove_agent
from levers9.cli.tokens import Token, Tokens
from levers9.kube.client import KubeClient, open_kube
from levers9.kube.config import load_config
from levers9.kube.face import Body
from levers9.kube.kinds import JOBS, NAMESPACES, PODS
from levers9.lab.objects import PODS as WHOLE_PODS
from levers9.lab.objects import Pod
from levers9.model.clusters import CLUSTER_LABEL as CLUSTER
from levers9.model.holds import Why
from levers9.model.ids import Chance
from levers9.wire.rest.clusters import ClusterList, ClusterShown, ClusterView, NodeView

from ..faults.controlplane import ControlPlane, all_pids, command_of, kill, wait_until

WITHIN_S = 45.0
T = TypeVar("T")
R = TypeVar("R")


class _Worker(msgspec.Struct):
    worker_id: str
    state: str
    why: str


class _Workers(msgspec.Struct):
    workers: tuple[_Worker, ...]


class Attached:
    """A cluster that joined, by what a person sees of it and by what there is."""

    def __init__(self, plane: ControlPlane, lab: RunningLab, name: str) -> None:
        self.plane = plane
        self.lab = lab
        self.name = name
        self._endpoint = trio.run(load_config, lab.kubeconfig)

    # What a person does, and sees

    def ask(self, kind: type[T], path: str, body: object = None, *, method: str = "GET", token: str = "") -> T:
        """What REST answers, read as the command line does."""
        request = urllib.request.Request(
            f"{self.plane.http_url}/api/v1/{path}",
            None if body is None else msgspec.json.encode(body),
            {"Authorization": f"Bearer {token or self.plane.token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return msgspec.json.decode(answer.read(), type=kind)

    def join(self) -> None:
        """As `levers9 cluster join` does it: register, apply, wait."""
        body = {"name": self.name, "gpu_type": "GB200", "namespace": self.name}
        manifest = self.ask(ClusterShown, "controlplane/clusters", body, method="POST").manifest
        self.kube(lambda kube: apply(kube, parts_of(manifest)))
        wait_until(
            lambda: sum(node.ready for node in self.cluster.nodes) == 2, "the agent has told both nodes", WITHIN_S
        )

    def leave(self) -> None:
        """As `levers9 cluster leave`."""
        cluster = self.cluster
        self.ask(object, f"controlplane/clusters/{self.name}", method="DELETE")
        self.kube(lambda kube: remove_agent(kube, cluster.cluster_id, self.name))

    @property
    def cluster(self) -> ClusterView:
        """What `levers9 cluster list` shows."""
        return self.ask(ClusterShown, f"controlplane/clusters/{self.name}").cluster

    def seen_by(self, token: str) -> dict[str, ClusterView]:
        """The same, for somebody else."""
        return {one.name: one for one in self.ask(ClusterList, "controlplane/clusters", token=token).clusters}

    @property
    def cards_free(self) -> int:
        """Cards that new work could have."""
        return sum(node.gpus_free for node in self.cluster.nodes if node.ready)

    def node(self, name: str) -> NodeView:
        """One row of `levers9 cluster nodes`."""
        return next(node for node in self.cluster.nodes if node.name == name)

    def why(self, task_id: str, token: str = "") -> str:
        """What `levers9 task why` says, as one text; "" of a task that is only just on its way."""
        try:
            return " ".join(self.ask(Why, f"tasks/{task_id}/why", token=token).reasons)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:
                    raise
            return ""

    def gone(self, worker_id: str) -> str:
        """How a worker ended, as `levers9 worker list` tells it; "" while it has not."""
        found = self.ask(_Workers, "workers?gone=1").workers
        return next((one.why for one in found if one.worker_id == worker_id and one.state == "gone"), "")

    def state_of(self, worker_id: str) -> str:
        """Where a worker stands."""
        found = self.ask(_Workers, "workers?gone=1").workers
        return next((one.state for one in found if one.worker_id == worker_id), "")

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, those of machines as well."""
        return self.ask(Tokens, "tokens").tokens

    def streams(self) -> int:
        """How many agents have a stream to our gateway."""
        with urllib.request.urlopen(f"{self.plane.http_url}/health", timeout=10.0) as answer:
            return int(json.load(answer)["agents"])

    def workspace(self, name: str) -> str:
        """Another workspace; returns its token."""
        found = json.loads(self.plane.ask("/api/v1/workspaces", {"name": name}, method="POST"))
        return str(found["token"]["value"] if isinstance(found["token"], dict) else found["token"])

    def share(self, *, shared: bool) -> None:
        """As `levers9 cluster share`, with `--off` or without."""
        self.ask(object, f"cluster/{self.name}/shared", {"shared": shared}, method="PUT")

    # The cluster

    def kube(self, act: Callable[[KubeClient], Awaitable[R]]) -> R:
        """Do something as the cluster's administrator."""

        async def whole() -> R:
            with trio.fail_after(WITHIN_S):
                async with open_kube(self._endpoint, Chance()) as kube:
                    return await act(kube)

        return trio.run(whole)

    def pods(self, label: str = WORKER) -> tuple[Pod, ...]:
        """The pods of workers that there are, in the cluster's own namespace."""
        return self.kube(lambda kube: kube.list(WHOLE_PODS, self.name, labels=label)).items

    def worker_jobs(self) -> list[str]:
        """The names of the Jobs that there are."""
        found = self.kube(lambda kube: kube.list(JOBS, self.name, labels=CLUSTER)).items
        return [job.metadata.name for job in found]

    def remove_pod(self, name: str, grace_s: int | None = None) -> None:
        """Delete a pod, by force with 0 s."""
        self.kube(lambda kube: kube.delete(PODS, name, self.name, grace_s=grace_s))

    def agent_pod(self) -> str:
        """The agent's pod that is not on its way out."""
        found = self.pods("app.kubernetes.io/name=levers9-agent")
        return next((pod.metadata.name for pod in found if not pod.metadata.deletion_timestamp), "")

    def log_of_agent(self) -> str:
        """What `kubectl logs` has of it."""
        pod = self.agent_pod()
        return self.kube(lambda kube: kube.log_tail(pod, self.name, container="agent", lines=200)) if pod else ""

    def processes(self, worker_id: str) -> list[int]:
        """Those of a worker: `levers9 worker` itself."""
        mark = re.compile(rf"--id {re.escape(worker_id)}( |$)")
        return [pid for pid in all_pids() if mark.search(command_of(pid)) and "worker" in command_of(pid)]

    def kill_worker(self, worker_id: str) -> None:
        """End its process as the kernel does when memory is short."""
        for pid in self.processes(worker_id):
            kill(pid)

    @contextmanager
    def hanging(self, worker_id: str) -> Iterator[None]:
        """Its process is there, and does nothing."""
        pids = self.processes(worker_id)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def tenant(self, node: str, cards: int) -> Iterator[None]:
        """Somebody else's pod takes cards of a node."""
        limits = {"cpu": "100m", "nvidia.com/gpu": str(cards)}
        container = {"name": "main", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": limits}}
        body: Body = {
            "metadata": {"name": f"tenant-{node}"},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
        self.kube(lambda kube: kube.create(PODS, body, "default"))
        try:
            yield
        finally:
            self.kube(lambda kube: kube.delete(PODS, f"tenant-{node}", "default", grace_s=0))

    # Afterwards

    def remove(self) -> None:
        """It leaves, and its namespace goes, with all that is in it."""
        if self.name in self.seen_by(self.plane.token):
            self.leave()
        self.kube(lambda kube: kube.delete(NAMESPACES, self.name))

        def empty() -> bool:
            pods = self.kube(lambda kube: kube.list(PODS, self.name)).items
            for pod in pods:
                self.remove_pod(pod.metadata.name, 0)
            return not pods

        wait_until(empty, "no pod is left", WITHIN_S)


class Calls:
    """A program that submits calls for a test, with a token of its own."""

    def __init__(self, plane: ControlPlane, folder: Path, token: str = "", program: str = "calls.py") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._told: dict[str, dict[str, object]] = {}
        env = plane.environment | {"HOME": str(folder)} | ({"LEVERS9_TOKEN": token} if token else {})
        with (folder / "calls.log").open("wb") as log:
            shutil.copy(Path(__file__).with_name(program), folder / "app.py")
            self._process = subprocess.Popen(
                [sys.executable, "app.py", str(folder)],
                cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self._told[told["key"]] = {**self._told.get(told["key"], {}), **told}

    def submit(self, key: str, function: str = "one") -> Call:
        """Submit one, and wait until it is accepted."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([function, key]) + "\n")
        self._process.stdin.flush()
        call = Call(self, key)
        wait_until(lambda: bool(call.told), f"{key} is accepted", WITHIN_S)
        return call

    def told(self, key: str) -> dict[str, object]:
        """What the program said of a call."""
        return self._told.get(key, {})

    def all_told(self) -> list[dict[str, object]]:
        """What the program said of all calls."""
        return list(self._told.values())

    def close(self) -> None:
        """Let all calls end, and the program with them."""
        for key in self._told:
            (self.folder / f"{key}.go").touch()
        with suppress(AssertionError):
            wait_until(lambda: all(len(told) > 2 or "error" in told for told in self._told.values()), "all ended", 15)
        self._process.kill()
        self._process.communicate()


class Call:
    """One call, by what it leaves in its folder and what its caller is told."""

    def __init__(self, calls: Calls, key: str) -> None:
        self._calls = calls
        self.key = key

    @property
    def told(self) -> dict[str, object]:
        """What the caller knows."""
        return self._calls.told(self.key)

    @property
    def task_id(self) -> str:
        """Its identity."""
        return str(self.told["task_id"])

    @property
    def attempts(self) -> list[tuple[int, str]]:
        """Each attempt that began, and on which node."""
        found = [path.name.split(".") for path in self._calls.folder.glob(f"{self.key}.*.*")]
        return sorted((int(attempt), node) for _, attempt, node in found)

    def begins(self, attempt: int | None = None, within_s: float = WITHIN_S) -> str:
        """Wait until an attempt has begun, any if none is named; returns its node.

        One that was handed back begins as the second.
        """

        def begun() -> list[str]:
            return [node for number, node in self.attempts if attempt in (None, number)]

        wait_until(lambda: bool(begun()), f"attempt {attempt or 'any'} begins: {self.told}", within_s)
        return begun()[0]

    def go(self) -> None:
        """Let it end."""
        (self._calls.folder / f"{self.key}.go").touch()

    def ends(self, within_s: float = WITHIN_S) -> tuple[int, str, int]:
        """Let it end; returns attempt, node and cards of its result."""
        self.go()
        wait_until(lambda: "value" in self.told or "error" in self.told, f"{self.key} ends", within_s)
        assert "value" in self.told, self.told
        attempt, node, cards = msgspec.convert(self.told["value"], tuple[int, str, int])
        return attempt, node, cards


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, for servers that come back to them."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in taken]
    for one in taken:
        one.close()
    return ports
