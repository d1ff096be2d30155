"""What an agent costs in a large cluster: a real API server with 5,000 nodes and 50,000 pods, and an agent beside it.

The agent runs in a process of its own, which measures itself: how long until its first report, what later ones cost
while nothing changes and while pods come and go, how soon a change is told, and the most memory that it ever had. Most
pods are as large in the API server as those of real clusters are: labels, owners, conditions, statuses.
"""

import importlib.util
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec
import trio
from harness import Figure, Options, percentile, run_bench

from levers9.actors.agent import AgentActor, Place, events
from levers9.daemons.collector import settle
from levers9.kube.client import KubeClient, open_kube
from levers9.kube.endpoint import Endpoint
from levers9.kube.kinds import NAMESPACES, NODES, PODS
from levers9.lab.binaries import missing
from levers9.model.clusters import ClusterSpec
from levers9.model.ids import Chance
from levers9.wire.cluster import AgentSettings, ClusterReported
from levers9.wire.codec import pack
from levers9.wire.message import Message

NODE_COUNT: Final = 5_000
POD_COUNT: Final = 50_000
AT_ONCE: Final = 64  # requests, while the cluster is filled
QUIET_S: Final = 60.0
CHANGES: Final = 50
FIRST_GOAL_S: Final = 10.0
CPU_GOAL_MS: Final = 100.0
MEMORY_GOAL_MIB: Final = 150.0
NAMESPACE: Final = "levers9"
OTHERS: Final = "tenants"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent's process is to do."""

    server: str
    ca_pem: str
    authorization: str
    nodes: int
    quiet_s: float
    changes: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What it found."""

    first_s: float
    first_cpu_s: float
    quiet_cpu_ms: float  # a report while nothing changes
    change_cpu_ms: float  # a pod that comes, its report, the pod that goes, and the report of that
    change_s: tuple[float, ...]
    bytes_a_report: int
    memory_mib: float
    lists: int


# Filling a cluster


def node_body(number: int) -> dict[str, object]:
    """A node as a cloud makes them."""
    labels = {
        "kubernetes.io/hostname": f"node-{number:05}",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "node.kubernetes.io/instance-type": "gpu-8x",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.clique": f"clique-{number // 16}",
        **{f"feature.node.kubernetes.io/cpu-{flag}": "true" for flag in range(30)},
    }
    return {"metadata": {"name": f"node-{number:05}", "labels": labels}}


def node_status() -> dict[str, object]:
    """It is ready and has eight cards."""
    room = {"cpu": "190450m", "memory": "2095606484Ki", "pods": "110", "nvidia.com/gpu": "8"}
    conditions = [{"type": type_, "status": "False"} for type_ in ("MemoryPressure", "DiskPressure", "PIDPressure")]
    return {"status": {"capacity": room, "allocatable": room, "conditions": [*conditions, _ready()]}}


def pod_body(number: int, nodes: int) -> dict[str, object]:
    """Another tenant's pod, as a Deployment makes them."""
    asked = {"cpu": f"{100 + number % 50}m", "memory": "512Mi", **({"nvidia.com/gpu": "1"} if number % 3 == 0 else {})}
    container = {"image": "registry.example/team/app:1.2.3", "resources": {"requests": asked, "limits": asked}}
    labels = {"app": f"app-{number % 200}", "pod-template-hash": "5d9f8b7c6d", "team": f"team-{number % 20}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": f"{number:036}", "controller": True}
    sidecar = {"name": "proxy", "image": "registry.example/mesh/proxy:1", "restartPolicy": "Always"}
    return {
        "metadata": {
            "name": f"pod-{number:06}",
            "labels": labels,
            "annotations": {"example.com/config": "x" * 300},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": f"node-{number % nodes:05}",
            "automountServiceAccountToken": False,
            "initContainers": [{**sidecar, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
            "containers": [
                {"name": "app", **container, "env": [{"name": f"V{n}", "value": "x" * 20} for n in range(10)]}
            ],
        },
    }


def _ready() -> dict[str, object]:
    return {"type": "Ready", "status": "True", "reason": "KubeletReady"}


async def fill(kube: KubeClient, nodes: int, pods: int) -> None:
    """Make all of them."""
    for namespace in (NAMESPACE, OTHERS):
        await kube.create(NAMESPACES, {"metadata": {"name": namespace}})

    async def make_node(number: int) -> None:
        await kube.create(NODES, node_body(number))
        await kube.patch(NODES, f"node-{number:05}", node_status(), subresource="status")

    async def make_pod(number: int) -> None:
        await kube.create(PODS, pod_body(number, nodes), OTHERS)

    await each(range(nodes), make_node)
    await each(range(pods), make_pod)


async def each(numbers: Iterable[int], make: Callable[[int], Awaitable[None]]) -> None:
    """Make several at once."""
    rest = iter(numbers)

    async def work() -> None:
        for number in rest:
            await make(number)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)


# The agent's process


class Ear:
    """Hears an agent's reports, whole ones only."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._parts: dict[int, dict[int, ClusterReported]] = {}
        self._heard = trio.Event()
        self.whole = 0
        self.free: dict[str, int] = {}
        self.bytes = 0

    async def say(self, message: Message) -> None:
        """One part came."""
        data = pack(message)  # as a link would
        if not isinstance(message, ClusterReported) or message.blind:
            await trio.lowlevel.checkpoint()
            return
        parts = self._parts.setdefault(message.sequence, {})
        parts[message.part] = message
        self.bytes = len(data) + (self.bytes if message.part else 0)
        if len(parts) == message.parts:
            self.free = {node.name: node.free.gpu_count for part in parts.values() for node in part.nodes}
            self._parts.clear()
            self.whole += len(self.free) == self._nodes
            self._heard.set()
            self._heard = trio.Event()
        await trio.lowlevel.checkpoint()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a report after which this holds."""
        with trio.fail_after(300):
            while not condition():
                await self._heard.wait()


async def measure_itself(asked: Asked) -> Measured:
    """Be an agent."""
    tls = ssl.create_default_context(cadata=asked.ca_pem)
    endpoint = Endpoint(server=asked.server, tls=tls, authorization=asked.authorization)
    ear = Ear(asked.nodes)
    async with open_kube(endpoint, Chance()) as kube, trio.open_nursery() as nursery:
        began_s, used_s = time.perf_counter(), time.process_time()
        place = Place(cluster_id="bench", namespace=NAMESPACE)
        agent = AgentActor(kube=kube, place=place, say=ear.say, epoch=1, version="1", chance=Chance())
        await nursery.start(agent.run)
        agent.hear(events.LinkOpened())
        spec = ClusterSpec(name="bench", gpu_type="H100")
        agent.hear(events.LetterCame(AgentSettings(cluster_id="bench", leader_epoch=1, spec=spec)))
        await ear.until(lambda: ear.whole > 0)
        first_s, first_cpu_s = time.perf_counter() - began_s, time.process_time() - used_s
        await trio.sleep(2.0)
        used_s, whole = time.process_time(), ear.whole
        await trio.sleep(asked.quiet_s)
        quiet_cpu_s = (time.process_time() - used_s) / max(1, ear.whole - whole)
        used_s = time.process_time()
        changes = [await _change(kube, ear, number) for number in range(asked.changes)]
        change_cpu_s = (time.process_time() - used_s) / asked.changes
        nursery.cancel_scope.cancel()
    return Measured(
        first_s=first_s,
        first_cpu_s=first_cpu_s,
        quiet_cpu_ms=1e3 * quiet_cpu_s,
        change_cpu_ms=1e3 * change_cpu_s,
        change_s=tuple(changes),
        bytes_a_report=ear.bytes,
        memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        lists=sum(view.lists for _, view in agent.statistics().views),
    )


async def _change(kube: KubeClient, ear: Ear, number: int) -> float:
    """A pod comes, and goes: how long until the first of it is told."""
    node = f"node-{number:05}"
    body = pod_body(3 * number, 10**6)
    name = f"change-{number}"
    spec = {**msgspec.convert(body["spec"], dict[str, object]), "nodeName": node}
    before, began_s = ear.free[node], time.perf_counter()
    await kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, OTHERS)
    await ear.until(lambda: ear.free[node] == before - 1)
    took_s = time.perf_counter() - began_s
    await kube.delete(PODS, name, OTHERS, grace_s=0)  # no kubelet would end it
    await ear.until(lambda: ear.free[node] == before)
    return took_s


# The bench


def api_servers() -> ModuleType:
    """The API server of the tests: etcd and kube-apiserver alone, since no controller is to touch what is measured."""
    path = Path(__file__).parent.parent / "tests" / "kube" / "api_server.py"
    spec = importlib.util.spec_from_file_location("levers9_bench_api_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def filled(endpoint: Endpoint, nodes: int, pods: int) -> None:
    """Fill it, as its administrator."""
    async with open_kube(endpoint, Chance()) as kube:
        await fill(kube, nodes, pods)


def measure(options: Options) -> list[Figure]:
    """Start, fill, and have an agent measure itself."""
    if reason := missing():
        raise SystemExit(reason)
    nodes, pods, quiet_s, changes = (100, 1000, 12.0, 5) if options.short else (NODE_COUNT, POD_COUNT, QUIET_S, CHANGES)
    with api_servers().running_api_server() as server:
        endpoint: Endpoint = server.endpoint()
        trio.run(filled, endpoint, nodes, pods)
        asked = Asked(
            server=endpoint.server,
            ca_pem=server.authority.decode(),
            authorization=endpoint.authorization,
            nodes=nodes,
            quiet_s=quiet_s,
            changes=changes,
        )
        child = [sys.executable, __file__, "--agent"]
        done = subprocess.run(child, input=msgspec.json.encode(asked), stdout=subprocess.PIPE, check=True, timeout=900)
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)
    what = f"{nodes:,} nodes, {pods:,} pods"
    return [
        Figure(name=f"first report, {what}", value=found.first_s, unit="s", goal=FIRST_GOAL_S, better="lower"),
        Figure(name="CPU until then", value=found.first_cpu_s, unit="s", better="lower"),
        Figure(name="CPU of a later report", value=found.quiet_cpu_ms, unit="ms", goal=CPU_GOAL_MS, better="lower"),
        Figure(name="CPU of a pod's coming and going", value=found.change_cpu_ms, unit="ms", better="lower"),
        Figure(name="a change is told, p50", value=percentile(found.change_s, 50), unit="s", goal=1.0, better="lower"),
        Figure(name="a change is told, p99", value=percentile(found.change_s, 99), unit="s", better="lower"),
        Figure(name="memory, at most", value=found.memory_mib, unit="MiB", goal=MEMORY_GOAL_MIB, better="lower"),
        Figure(name="a report", value=found.bytes_a_report / 1024, unit="KiB", better="lower"),
        Figure(name="lists", value=found.lists, unit="", goal=3, better="lower"),
    ]


if __name__ == "__main__":
    if "--agent" in sys.argv:
        settle()
        found = trio.run(measure_itself, msgspec.json.decode(sys.stdin.buffer.read(), type=Asked))
        print(msgspec.json.encode(found).decode())
    else:
        run_bench("An agent in a large cluster", measure)
