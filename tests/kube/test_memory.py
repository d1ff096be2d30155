"""The cluster in memory beyond an API server: what controllers, the scheduler and kubelets do there."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from levers9.errors import AlreadyThere, KubeUnavailable, VersionGone
from levers9.kube.face import ChangeType
from levers9.kube.history import KEPT
from levers9.kube.kinds import JOBS, NAMESPACES, NODES, PODS
from levers9.kube.memory import MemoryCluster
from levers9.kube.objects import Pod

from .worlds import a_job

HERE = "levers9"


def a_cluster(**cards: int) -> MemoryCluster:
    cluster = MemoryCluster(namespaces=("default", HERE))
    for name, count in cards.items():
        cluster.add_node(name, cards=count)
    return cluster


async def a_worker(
    cluster: MemoryCluster, name: str, *, cards: int = 4, node: str = "a", backoff_limit: int = 0
) -> Pod:
    await cluster.create(JOBS, a_job(name, cards=cards, node=node, backoff_limit=backoff_limit), HERE)
    return cluster.pods_of_job(name, HERE)[-1]


def key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def reason(pod: Pod) -> str:
    return next((each.message for each in pod.status.conditions or () if each.status == "False"), "")


# Jobs


async def test_a_job_gets_a_pod_of_its_template_which_it_owns() -> None:
    cluster = a_cluster(a=4)
    pod = await a_worker(cluster, "w-1")
    job = cluster.find(JOBS, "w-1", HERE)
    assert job is not None
    assert pod.metadata.labels["levers9.dev/worker"] == "w-1"
    assert pod.metadata.labels["batch.kubernetes.io/job-name"] == "w-1"
    assert [(owner.kind, owner.uid, owner.controller) for owner in pod.metadata.owner_references] == [
        ("Job", job.metadata.uid, True)
    ]
    assert (pod.spec.node_name, pod.status.phase, job.status.active) == ("a", "Pending", 1)


@pytest.mark.parametrize(("exit_code", "ended"), [(0, "Complete"), (137, "Failed")])
async def test_a_job_ends_as_its_pod_did(exit_code: int, ended: str) -> None:
    cluster = a_cluster(a=4)
    pod = await a_worker(cluster, "w-1")
    assert cluster.start_pod(key(pod)).status.phase == "Running"
    left = cluster.end_pod(key(pod), exit_code, "OOMKilled" if exit_code else "")
    job = cluster.find(JOBS, "w-1", HERE)
    assert job is not None
    assert [each.type for each in job.status.conditions or ()] == [ended]
    assert job.status.active == 0
    assert left.status.container_statuses is not None
    terminated = left.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert (terminated.exit_code, terminated.reason) == (exit_code, "OOMKilled" if exit_code else "Completed")


async def test_a_job_that_may_try_again_gets_another_pod() -> None:
    cluster = a_cluster(a=4)
    first = await a_worker(cluster, "w-1", backoff_limit=1)
    cluster.end_pod(key(first), 1)
    _, second = sorted(cluster.pods_of_job("w-1", HERE), key=lambda pod: int(pod.metadata.resource_version))
    cluster.end_pod(key(second), 1)
    job = cluster.find(JOBS, "w-1", HERE)
    assert job is not None
    assert (job.status.failed, len(cluster.pods_of_job("w-1", HERE))) == (2, 2)
    assert [each.type for each in job.status.conditions or ()] == ["Failed"]


async def test_a_job_whose_pod_was_taken_away_has_failed() -> None:
    cluster = a_cluster(a=4)
    pod = await a_worker(cluster, "w-1")
    cluster.start_pod(key(pod))
    cluster.remove_node("a")
    job = cluster.find(JOBS, "w-1", HERE)
    assert job is not None
    assert cluster.pods_of_job("w-1", HERE) == ()
    assert job.status.failed == 1


async def test_a_job_that_is_deleted_takes_its_pods_with_it() -> None:
    cluster = a_cluster(a=4)
    pod = await a_worker(cluster, "w-1")
    cluster.start_pod(key(pod))
    assert await cluster.delete(JOBS, "w-1", HERE)
    assert cluster.all_of(PODS) == ()
    assert (await a_worker(cluster, "w-2")).spec.node_name == "a"  # its cards are free again


async def test_with_real_kubelets_a_pod_that_is_deleted_holds_its_cards_until_it_has_ended() -> None:
    cluster = a_cluster(a=4)
    cluster.terminate_gracefully()
    first = await a_worker(cluster, "w-1")
    cluster.start_pod(key(first))
    await cluster.delete(JOBS, "w-1", HERE)
    second = await a_worker(cluster, "w-2")
    assert cluster.all_of(PODS, HERE, fields=f"metadata.name={first.metadata.name}")[0].metadata.deletion_timestamp
    assert "Insufficient nvidia.com/gpu" in reason(second)
    cluster.end_pod(key(first), 143)
    assert [pod.metadata.name for pod in cluster.all_of(PODS)] == [second.metadata.name]
    assert cluster.pods_of_job("w-2", HERE)[0].spec.node_name == "a"


async def test_a_job_gets_no_pod_while_something_forbids_it() -> None:
    cluster = a_cluster(a=4)
    cluster.hold_pods()
    await cluster.create(JOBS, a_job("w-1", node="a"), HERE)
    assert cluster.pods_of_job("w-1", HERE) == ()
    cluster.hold_pods(False)
    assert len(cluster.pods_of_job("w-1", HERE)) == 1


async def test_a_job_that_ended_is_kept_as_long_as_it_asked(autojump_clock: trio.testing.MockClock) -> None:
    cluster = a_cluster(a=4)
    cluster.end_pod(key(await a_worker(cluster, "w-1")))
    await trio.sleep(29)
    cluster.remove_finished_jobs()
    assert cluster.find(JOBS, "w-1", HERE) is not None
    await trio.sleep(1)
    cluster.remove_finished_jobs()
    assert cluster.find(JOBS, "w-1", HERE) is None
    assert cluster.all_of(PODS) == ()


async def test_a_namespace_that_is_deleted_takes_everything_with_it() -> None:
    cluster = a_cluster(a=4)
    await a_worker(cluster, "w-1")
    await cluster.delete(NAMESPACES, HERE)
    assert (cluster.all_of(JOBS), cluster.all_of(PODS)) == ((), ())
    assert len(cluster.all_of(NODES)) == 1


async def test_an_image_that_cannot_be_pulled_is_told_by_its_container() -> None:
    cluster = a_cluster(a=4)
    pod = cluster.fail_pull(key(await a_worker(cluster, "w-1")), message="no such image")
    assert pod.status.phase == "Pending"
    assert pod.status.container_statuses is not None
    waiting = pod.status.container_statuses[0].state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("ImagePullBackOff", "no such image")


# The scheduler


async def test_a_pod_goes_to_the_node_it_is_pinned_to_and_nowhere_else() -> None:
    cluster = a_cluster(a=4, b=4)
    first, second = await a_worker(cluster, "w-1", node="b"), await a_worker(cluster, "w-2", node="b")
    assert first.spec.node_name == "b"
    assert second.spec.node_name == ""
    assert reason(second) == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector."
    )


async def test_a_pod_waits_for_cards_that_other_tenants_hold() -> None:
    cluster = a_cluster(a=4)
    cluster.add_pod("default/theirs", "a", cards=1)
    waiting = await a_worker(cluster, "w-1", cards=4)
    assert waiting.spec.node_name == ""
    cluster.end_pod("default/theirs")
    assert cluster.pods_of_job("w-1", HERE)[0].spec.node_name == "a"


async def test_a_cordoned_node_takes_no_pod_until_it_is_uncordoned() -> None:
    cluster = a_cluster(a=4)
    assert cluster.cordon("a").spec.unschedulable
    assert "node(s) were unschedulable" in reason(await a_worker(cluster, "w-1"))
    assert not cluster.cordon("a", False).spec.unschedulable
    assert cluster.pods_of_job("w-1", HERE)[0].spec.node_name == "a"


async def test_a_tainted_node_takes_only_pods_that_tolerate_it() -> None:
    cluster = a_cluster(a=4)
    cluster.taint("a", "nvidia.com/gpu", "present")
    assert "untolerated taint {nvidia.com/gpu: present}" in reason(await a_worker(cluster, "w-1"))
    job = a_job("w-2", cards=1, node="a")
    job["spec"]["template"]["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]  # type: ignore[index]
    await cluster.create(JOBS, job, HERE)
    assert cluster.pods_of_job("w-2", HERE)[0].spec.node_name == "a"


@pytest.mark.parametrize(("ready", "status"), [(False, "False"), (None, "Unknown")])
async def test_a_node_that_is_not_ready_says_so_and_takes_nothing(ready: bool | None, status: str) -> None:
    cluster = a_cluster(a=4)
    node = cluster.set_ready("a", ready)
    assert [each.status for each in node.status.conditions or () if each.type == "Ready"] == [status]
    assert "untolerated taint" in reason(await a_worker(cluster, "w-1"))
    assert cluster.set_ready("a").spec.taints is None
    assert cluster.pods_of_job("w-1", HERE)[0].spec.node_name == "a"


async def test_cards_that_are_lost_are_not_given_out() -> None:
    cluster = a_cluster(a=4)
    cluster.set_cards("a", 3)
    assert "Insufficient" in reason(await a_worker(cluster, "w-1", cards=4))
    cluster.set_cards("a", 4)
    assert cluster.pods_of_job("w-1", HERE)[0].spec.node_name == "a"


async def test_a_pod_pinned_by_affinity_goes_to_that_node() -> None:
    cluster = a_cluster(a=4, b=4)
    job = a_job("w-1", cards=4)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    job["spec"]["template"]["spec"]["affinity"] = affinity  # type: ignore[index]
    await cluster.create(JOBS, job, HERE)
    assert cluster.pods_of_job("w-1", HERE)[0].spec.node_name == "b"


# Time, order and faults


async def test_two_clusters_of_one_name_and_one_story_are_equal_to_the_letter() -> None:
    async def story() -> tuple[object, ...]:
        cluster = a_cluster(a=4, b=2)
        await a_worker(cluster, "w-1")
        cluster.cordon("b")
        return (cluster.all_of(PODS), cluster.all_of(JOBS), cluster.all_of(NODES), cluster.statistics())

    assert await story() == await story()


def test_clusters_of_different_names_share_no_identity() -> None:
    uids = [MemoryCluster(name).add_node("a").metadata.uid for name in ("one", "two")]
    assert uids[0] != uids[1]


async def test_an_answer_that_is_lost_is_of_something_that_was_done() -> None:
    cluster = a_cluster(a=4)
    cluster.lose_next_answer()
    with pytest.raises(KubeUnavailable):
        await cluster.create(JOBS, a_job("w-1"), HERE)
    with pytest.raises(AlreadyThere):
        await cluster.create(JOBS, a_job("w-1"), HERE)


async def test_what_a_pod_printed_is_read_from_its_end() -> None:
    cluster = a_cluster(a=4)
    cluster.add_pod("default/one", "a")
    cluster.write_log("one", "default", "first", "second", "third")
    assert await cluster.log_tail("one", "default", container="main", lines=2) == "second\nthird\n"


@pytest.mark.slow
async def test_a_watch_that_falls_too_far_behind_is_told_to_list_again() -> None:
    cluster = a_cluster(a=4)
    since = (await cluster.list(NODES)).version
    cluster.set_cards("a", 3)
    async with cluster.watch(NODES, since=since) as changes:
        assert (await anext(changes)).type is ChangeType.MODIFIED
        for turn in range(2 * KEPT):
            cluster.set_cards("a", turn % 4)
        with pytest.raises(VersionGone, match="too old resource version"):
            await anext(changes)


async def test_an_open_watch_is_counted_until_it_is_left() -> None:
    cluster = a_cluster()
    since = (await cluster.list(NODES)).version
    async with cluster.watch(NODES, since=since):
        assert cluster.statistics().watches_open == 1
    assert cluster.statistics().watches_open == 0


def test_what_is_not_there_cannot_be_driven() -> None:
    with pytest.raises(KeyError, match="no Node 'nobody'"):
        a_cluster().cordon("nobody")
