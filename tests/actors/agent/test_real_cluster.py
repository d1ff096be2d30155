"""The agent and its rule on a real API server."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
import trio
from levers9_test_agent import SPEC, order, removal
from levers9_test_lab import RunningLab, until

from levers9.actors.agent import AgentActor, Place, events
from levers9.actors.agent.accounts import Accounts
from levers9.actors.agent.seen_pods import SEEN_PODS
from levers9.kube.client import KubeClient
from levers9.kube.kinds import JOBS, NODES, PODS
from levers9.model.ids import Chance
from levers9.model.nodes import NodeState
from levers9.wire.cluster import AgentSettings, ClusterReported, JobPhase, JobReport
from levers9.wire.message import Message

pytestmark = pytest.mark.slow

SIDECAR = {"name": "side", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
INIT = {
    "name": "init",
    "image": "x",
    "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}},
}
PODS_OF_OTHERS: tuple[tuple[list[dict[str, object]], dict[str, object]], ...] = (
    ([{"requests": {"cpu": "250m", "memory": "128Mi"}}, {"requests": {"cpu": "1.5", "memory": "1.1Gi"}}], {}),
    ([{"limits": {"nvidia.com/gpu": "1", "memory": "2G"}}, {"limits": {"nvidia.com/gpu": 1}}], {}),
    ([{"requests": {"cpu": "100m"}}], {"initContainers": [SIDECAR]}),
    ([{"requests": {"cpu": "1"}}], {"initContainers": [INIT, SIDECAR]}),
    ([{"requests": {"memory": "400m", "cpu": "1e-1"}}], {}),
    ([{}], {}),
    ([{"requests": {"memory": "0.6G"}}], {}),
)


async def test_what_pods_take_is_what_kubectl_describes(lab: RunningLab, kubectl: str) -> None:
    with trio.fail_after(60):
        async with lab.kube() as kube, lab.namespace(kube) as namespace:
            await kube.create(NODES, {"metadata": {"name": namespace}})
            room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
            status = {"status": {"capacity": room, "allocatable": room}}
            await kube.patch(NODES, namespace, status, subresource="status")
            for number, (containers, more) in enumerate(PODS_OF_OTHERS):
                await kube.create(PODS, _pod(f"p{number}", namespace, containers, more), namespace)
            accounts = Accounts()
            for pod in (await kube.list(SEEN_PODS, fields=f"spec.nodeName={namespace}")).items:
                accounts.put(pod)
            described = await _describe(kubectl, lab, namespace)
            await kube.delete(NODES, namespace)
    total = accounts.of(namespace)
    assert total.pods == len(PODS_OF_OTHERS)
    assert not total.odd
    cpu_milli, memory_bytes, cards = described
    assert (total.cpu_milli, total.cards[0]) == (cpu_milli, cards)
    assert 0 <= total.memory_bytes - memory_bytes < total.pods  # it adds first, and rounds then; the scheduler does not


def _pod(name: str, node: str, containers: list[dict[str, object]], more: dict[str, object]) -> dict[str, object]:
    parts = [{"name": f"c{place}", "image": "x", "resources": each} for place, each in enumerate(containers)]
    spec = {"nodeName": node, "automountServiceAccountToken": False, "containers": parts, **more}
    return {"metadata": {"name": name}, "spec": spec}


async def _describe(kubectl: str, lab: RunningLab, node: str) -> tuple[int, int, int]:
    """CPU in thousandths, memory in bytes and cards, of `kubectl describe node`."""
    done = await trio.run_process([kubectl, "describe", "node", node], capture_stdout=True, env=lab.environment)
    rows = dict(
        re.findall(
            r"^\s+(cpu|memory|nvidia.com/gpu)\s+(\S+)", done.stdout.decode().split("Allocated resources")[1], re.M
        )
    )
    return _number(rows["cpu"], 1000), _number(rows["memory"], 1), _number(rows["nvidia.com/gpu"], 1)


def _number(text: str, times: int) -> int:
    number, suffix = re.fullmatch(r"(\d+)(m|Ki|Mi|Gi|)", text).groups()  # type: ignore[union-attr]
    scale = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}.get(suffix, 1)
    return -(-int(number) * times // 1000) if suffix == "m" else int(number) * scale * times


class Plane:
    """What an agent tells a control plane."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.reports: list[ClusterReported] = []
        self.agent = AgentActor(
            kube=kube,
            place=Place(cluster_id=namespace, namespace=namespace),
            say=self.say,
            epoch=1,
            version="1",
            chance=Chance(),
        )

    async def say(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, ClusterReported):
            self.reports.append(message)

    async def until(self, condition: Callable[[], bool], within_s: float = 15.0) -> None:
        async def look() -> bool:
            return bool(self.reports) and condition()

        await until(look, within_s)

    def standing(self, worker_id: str) -> JobReport | None:
        return next((one for one in self.reports[-1].jobs if one.worker_id == worker_id), None)

    def phase(self, worker_id: str) -> JobPhase | None:
        standing = self.standing(worker_id)
        return standing.phase if standing is not None else None

    def free(self, node: str) -> int:
        return next(one.free.gpu_count for one in self.reports[-1].nodes if one.name == node)

    def state(self, node: str) -> NodeState:
        return next(one.state for one in self.reports[-1].nodes if one.name == node)


async def test_an_agent_reports_a_real_cluster_and_keeps_its_jobs(lab: RunningLab) -> None:
    first, second = lab.nodes[:2]
    with trio.fail_after(120):
        async with lab.kube() as kube, lab.namespace(kube) as namespace, trio.open_nursery() as nursery:
            await lab.calm(kube)
            plane = Plane(kube, namespace)
            await nursery.start(plane.agent.run)
            plane.agent.hear(events.LinkOpened())
            settings = AgentSettings(
                cluster_id=namespace,
                leader_epoch=1,
                spec=msgspec.structs.replace(SPEC, selector="!nobody"),
                stream_url="ws://127.0.0.1:9",
                http_url="http://127.0.0.1:9",
            )
            plane.agent.hear(events.LetterCame(settings))
            await plane.until(lambda: not plane.reports[-1].blind)
            uid = next(one.uid for one in plane.reports[-1].nodes if one.name == first)
            plane.agent.hear(
                order("w-real", first, uid, namespace=namespace, image="levers9/worker:1", host_network=False)
            )
            await plane.until(lambda: plane.phase("w-real") is JobPhase.RUNNING, 30.0)
            assert plane.free(first) == 4
            await kube.create(PODS, _pod("tenant", second, [{"limits": {"nvidia.com/gpu": 3}}], {}), namespace)
            await plane.until(lambda: plane.free(second) == 1)
            lab.verb("cordon", first)
            await plane.until(lambda: plane.state(first) is NodeState.CORDONED)
            lab.verb("uncordon", first)
            plane.agent.hear(_removal("w-real", namespace))
            await plane.until(lambda: plane.phase("w-real") is JobPhase.ENDED, 30.0)
            assert await kube.get(JOBS, "w-real", namespace) is None
            await kube.delete(PODS, "tenant", namespace)
            await plane.until(lambda: plane.free(second) == 4)
            nursery.cancel_scope.cancel()


def _removal(worker_id: str, namespace: str) -> events.LetterCame:
    asked = removal(worker_id)
    return events.LetterCame(msgspec.structs.replace(asked.message, namespace=namespace))
