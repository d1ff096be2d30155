"""Kubelets against a cluster in memory: nodes, leases, and pods that come and go."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from levers9_test_lab import until
from trio.testing import MockClock, wait_all_tasks_blocked

from levers9.kube.face import ChangeType
from levers9.kube.kinds import NODES
from levers9.kube.memory import MemoryCluster
from levers9.lab.daemon import write_programs
from levers9.lab.environment import Surroundings
from levers9.lab.faults import perform
from levers9.lab.fleet import Fleet
from levers9.lab.kubelet import LEASE_NAMESPACE, Kubelet
from levers9.lab.marks import marked
from levers9.lab.objects import LEASES, PODS, Pod
from levers9.lab.pod import PodServices
from levers9.lab.trays import plan_trays
from levers9.lab.traystate import TrayState
from levers9.lab.verbs import Verb

WITHIN_S = 20
BODY = {"spec": {"containers": [{"name": "main", "image": "busybox", "command": ["true"]}], "restartPolicy": "Never"}}


def fleet_on(kube: MemoryCluster, folder: Path) -> Fleet:
    around = Surroundings(lab_id=f"test-{os.getpid()}", api_host="127.0.0.1", api_port=1, programs=folder / "programs")
    write_programs(folder / "programs")
    trays = plan_trays("lab", 77, trays=2, gpus=4, gpu="GB200", cpu=8, memory="32Gi", trays_per_domain=2)
    services = PodServices(kube=kube, around=around, patterns=("busybox",))
    return Fleet(tuple(TrayState(tray) for tray in trays), folder, services, 10250, lease_every_s=1.0)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Fleet]:
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            fleet = fleet_on(MemoryCluster(namespaces=("default", LEASE_NAMESPACE)), folder)
            await nursery.start(fleet.run)
            yield fleet
            nursery.cancel_scope.cancel()


async def lease_of(fleet: Fleet, node: str) -> object:
    lease = await fleet.kube.get(LEASES, node, LEASE_NAMESPACE)
    return lease.metadata.resource_version if lease else None


async def test_nodes_register_with_labels_cards_and_a_lease(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        node = await fleet.kube.get(NODES, "tray-0")
        lease = await lease_of(fleet, "tray-0")
    assert node is not None
    assert node.metadata.labels["nvidia.com/gpu.product"] == "NVIDIA-GB200"
    assert node.status.allocatable["nvidia.com/gpu"] == "4"
    assert lease is not None


async def test_a_silent_node_renews_no_lease_until_it_is_back(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as fleet:
        kubelet = fleet.kubelets["tray-0"]
        before = await lease_of(fleet, "tray-0")
        await trio.sleep(1.5)
        renewed = await lease_of(fleet, "tray-0")
        await perform(Verb.PARTITION, kubelet, fleet.kube, 0)
        await trio.sleep(5)
        silent = await lease_of(fleet, "tray-0")
        await perform(Verb.HEAL, kubelet, fleet.kube, 0)
        await wait_all_tasks_blocked()
        back = await lease_of(fleet, "tray-0")
    assert before != renewed == silent != back


async def test_a_node_that_was_taken_for_lost_says_that_it_is_ready(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path) as fleet:
        lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
        await fleet.kube.patch(NODES, "tray-0", lost, subresource="status")
        await fleet.until(lambda: not fleet.is_ready("tray-0"))
        await fleet.until(lambda: fleet.is_ready("tray-0"))
        node = await fleet.kube.get(NODES, "tray-0")
    assert node is not None
    assert [one.status for one in node.status.conditions or () if one.type == "Ready"] == ["True"]


async def test_a_node_that_was_deleted_registers_again_when_it_gets_power(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        await fleet.kube.delete(NODES, "tray-0")
        await fleet.until(lambda: "tray-0" not in fleet.nodes)
        await perform(Verb.POWER_OFF, fleet.kubelets["tray-0"], fleet.kube, 0)
        await perform(Verb.POWER_ON, fleet.kubelets["tray-0"], fleet.kube, 0)
        await fleet.until(lambda: fleet.is_ready("tray-0"))
        assert await fleet.kube.get(NODES, "tray-0") is not None


async def ended(fleet: Fleet, name: str) -> Pod:
    async def look() -> Pod | None:
        pod = await fleet.kube.get(PODS, name, "default")
        return pod if pod is not None and pod.status.phase in ("Succeeded", "Failed") else None

    return await until(look)


async def idle(kubelet: Kubelet) -> bool:
    return not kubelet.lives


@pytest.mark.slow
async def test_a_pod_runs_and_what_became_of_it_is_written(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        await fleet.kube.create(PODS, {"metadata": {"name": "one"}, **BODY}, "default")
        pod = await ended(fleet, "one")
    assert pod.status.phase == "Succeeded"


@pytest.mark.slow
async def test_an_old_event_of_a_pod_that_has_ended_starts_it_no_second_time(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        await fleet.kube.create(PODS, {"metadata": {"name": "one"}, **BODY}, "default")
        pod = await ended(fleet, "one")
        kubelet = fleet.kubelets[pod.spec.node_name]
        await until(lambda: idle(kubelet))
        kubelet.pods[pod.metadata.uid] = msgspec.structs.replace(pod, status=type(pod.status)(phase="Running"))
        kubelet.sync()
        assert not kubelet.lives


@pytest.mark.slow
async def test_a_deleted_pod_is_gone_once_its_processes_are(tmp_path: Path) -> None:
    body = {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "1000"]}]}
    async with running(tmp_path) as fleet:
        created = await fleet.kube.create(PODS, {"metadata": {"name": "one"}, "spec": body}, "default")
        listing = await fleet.kube.list(PODS, "default")
        async with fleet.kube.watch(PODS, "default", since=listing.version) as changes:
            async for change in changes:
                if change.item is not None and change.item.status.phase == "Running":
                    await fleet.kube.delete(PODS, "one", "default")
                if change.type is ChangeType.DELETED:
                    break
        kubelet = fleet.kubelets[(change.item or created).spec.node_name]
        await until(lambda: idle(kubelet))
        assert await fleet.kube.get(PODS, "one", "default") is None
        assert not list(marked("LEVERS9_LAB_CONTAINER", f"{created.metadata.uid}/main"))


@pytest.mark.slow
async def test_a_pod_that_asks_for_more_cards_than_are_left_is_rejected(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        for kubelet in fleet.kubelets.values():
            kubelet.tray.faults.lost_cards = 3  # the scheduler doesn't know yet
        container = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 2}}}
        await fleet.kube.create(PODS, {"metadata": {"name": "one"}, "spec": {"containers": [container]}}, "default")
        pod = await ended(fleet, "one")
    assert pod.status.phase == "Failed"
