"""What an agent tells, and what it does of what it is told."""

import msgspec
import pytest
from levers9_test_agent import SPEC, UNIX_S, Watched, job, marks, node, order, pod, removal

from levers9.actors.agent import events
from levers9.actors.agent.events import DropJob, MakeJob, Tell, View
from levers9.actors.agent.reporting import in_parts
from levers9.model.clusters import Flavour
from levers9.model.figures import FRAME_MAX_BYTES
from levers9.model.nodes import NodeState
from levers9.wire.cluster import AgentReady, ClusterReported, JobPhase, JobReport, NodeReport
from levers9.wire.codec import pack

CARDS = {"nvidia.com/gpu": "1"}


def ours(
    worker_id: str = "w1", *, node: str = "n1", phase: str = "Pending", uid: str = "pod-1", **more: object
) -> events.PodIs:
    return events.PodIs(
        pod(worker_id, node, uid=uid, namespace="levers9", phase=phase, labels=marks(worker_id), **more)  # type: ignore[arg-type]
    )


def running(agent: Watched, worker_id: str = "w1", node: str = "n1") -> None:
    """A worker is ordered, its Job is made and its pod runs."""
    agent.say(order(worker_id, node))
    agent.say(events.JobMade(worker_id, job(worker_id, node=node)))
    agent.say(ours(worker_id, node=node, phase="Running", uid=f"pod-{worker_id}"))


def standing(agent: Watched, worker_id: str = "w1") -> JobReport:
    return next(one for one in agent.report().jobs if one.worker_id == worker_id)


def test_where_a_worker_s_pod_is_reached_is_told_while_it_runs() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1", "n1"))
    agent.say(events.JobMade("w1", job("w1")))
    agent.say(ours("w1", phase="Pending", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == ""
    agent.say(ours("w1", phase="Running", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == "10.2.3.4"
    agent.say(ours("w1", phase="Failed", uid="pod-w1", status={"podIP": "10.2.3.4"}))
    assert standing(agent).address == ""


# Reports


def test_an_agent_says_that_it_is_ready_until_it_is_told_what_to_report() -> None:
    agent = Watched(settled=False)
    assert [type(one.message) for one in agent.decided if isinstance(one, Tell)] == [AgentReady]
    again = agent.wait(25.0)
    assert [type(one.message) for one in again if isinstance(one, Tell)] == [AgentReady, AgentReady]


def test_a_report_comes_every_ten_seconds_and_the_newest_has_the_highest_number() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.wait(41.0)
    sequences = [report.sequence for report in agent.reports]
    assert sequences == sorted(set(sequences))
    assert 5 <= len(sequences) <= 6


def test_a_change_is_told_within_a_second_and_a_burst_of_them_once() -> None:
    agent = Watched()
    agent.see(nodes=[node(cards=8)])
    agent.report()
    before = len(agent.reports)
    for number in range(5):
        agent.say(events.PodIs(pod(f"p{number}", requests=CARDS)))
    agent.wait(1.0)
    (report,) = agent.reports[before:]
    assert report.nodes[0].free.gpu_count == 3


def test_what_makes_no_difference_is_not_told_before_its_time() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.report()
    before = len(agent.reports)
    agent.say(events.NodeIs(node()))
    agent.say(events.PodIs(pod(node="elsewhere", requests=CARDS)))
    agent.wait(1.0)
    assert len(agent.reports) == before


def test_only_the_nodes_that_the_selector_names_are_told() -> None:
    agent = Watched(spec=msgspec.structs.replace(SPEC, selector="lent=yes"))
    agent.see(nodes=[node("a", labels={"lent": "yes"}), node("b"), node("c", cards=0, labels={"lent": "yes"})])
    report = agent.report()
    assert [one.name for one in report.nodes] == ["a", "c"]
    assert report.matched == 2


def test_a_selector_that_cannot_be_read_names_no_node_and_is_told() -> None:
    agent = Watched(spec=msgspec.structs.replace(SPEC, selector="a b c"))
    agent.see(nodes=[node()])
    report = agent.report()
    assert report.nodes == ()
    assert "no label selector" in report.problem


def test_our_own_worker_is_left_out_of_what_others_take() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    agent.say(events.PodIs(pod("other", requests=CARDS)))
    agent.say(events.PodIs(pod("like-ours", namespace="elsewhere", requests=CARDS, labels=marks("w2"))))
    (told,) = agent.report().nodes
    assert told.free.gpu_count == 2


def test_before_everything_was_seen_a_report_says_that_it_is_blind() -> None:
    agent = Watched()
    agent.say(events.ListBegan(View.NODES))
    agent.say(events.NodeIs(node()))
    agent.say(events.ListEnded(View.NODES))
    agent.say(events.ViewLost(View.PODS, "no", forbidden=True))
    report = agent.report()
    assert (report.blind, report.nodes, report.jobs) == (True, (), ())
    assert report.problem == "The agent may not list and watch the pods of all namespaces: apply its manifest again."


def test_the_view_grows_old_while_the_api_server_is_away_and_is_new_again_after() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(events.ViewLost(View.PODS, "connection refused"))
    agent.wait(30.0)
    old = agent.reports[-1]
    assert 20.0 <= old.view_age_s <= 30.0
    assert old.problem == "The agent has not seen pods of its cluster since 2026-01-01 00:00:00 UTC: connection refused"
    agent.say(events.ViewKept(View.PODS))
    agent.wait(1.0)
    assert (agent.reports[-1].view_age_s, agent.reports[-1].problem) == (0.0, "")


def test_nothing_is_told_while_nobody_listens_and_all_of_it_after() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.report()
    agent.say(events.LinkQuiet())
    before = len(agent.reports)
    agent.say(events.NodeIs(node(cards=2)))
    agent.wait(60.0)
    assert len(agent.reports) == before
    agent.say(events.LinkOpened(resumed=True))
    agent.wait(1.0)
    assert agent.reports[-1].nodes[0].free.gpu_count == 2


def test_what_a_new_list_does_not_have_is_gone() -> None:
    agent = Watched()
    agent.see(nodes=[node("a"), node("b")], pods=[pod("p", "a", requests=CARDS)])
    agent.see(nodes=[node("a")])
    (told,) = agent.report().nodes
    assert (told.name, told.free.gpu_count) == ("a", 4)


def test_a_node_of_the_same_name_that_came_since_is_not_taken_for_the_one_that_went() -> None:
    agent = Watched()
    agent.see(nodes=[node("a", uid="old")])
    agent.say(events.NodeIs(node("a", uid="new")))
    agent.say(events.NodeIs(node("a", uid="old"), gone=True))
    assert [one.uid for one in agent.report().nodes] == ["new"]


@pytest.mark.parametrize(
    ("label", "provider", "flavour"),
    [
        ("cloud.google.com/gke-nodepool", "gce://x/y/z", Flavour.GKE),
        ("eks.amazonaws.com/nodegroup", "aws:///eu-1a/i-1", Flavour.EKS),
        ("kubernetes.azure.com/agentpool", "", Flavour.AKS),
        ("eks.amazonaws.com/nodegroup", "kind://docker/a", Flavour.PLAIN),
        ("topology.kubernetes.io/zone", "aws:///eu-1a/i-1", Flavour.PLAIN),
    ],
)
def test_whose_kubernetes_it_is_is_told_from_its_nodes(label: str, provider: str, flavour: Flavour) -> None:
    agent = Watched()
    agent.see(nodes=[node(labels={label: "x"}, spec={"providerID": provider})])
    assert agent.report().flavour is flavour


def test_only_labels_of_the_allow_list_are_told() -> None:
    agent = Watched()
    labels = {
        "kubernetes.io/hostname": "secret",
        "team": "x",
        "nvidia.com/gpu.clique": "a.1",
        "topology.kubernetes.io/zone": "z",
        "cloud.google.com/gke-tpu-topology": "2x4",
        "accelerator.topograph.run/domain": "d",
    }
    agent.see(nodes=[node(labels=labels)])
    (told,) = agent.report().nodes
    assert dict(told.labels) == {
        key: labels[key] for key in sorted(labels) if key not in ("team", "kubernetes.io/hostname")
    }


def test_without_a_selector_only_the_usual_taints_of_cards_are_tolerated() -> None:
    taints = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    teams = {"taints": [{"key": "team", "effect": "NoExecute"}]}
    soft = {"taints": [{"key": "team", "effect": "PreferNoSchedule"}]}
    nodes = [node("cards", spec=taints), node("team", spec=teams), node("soft", spec=soft)]
    agent = Watched()
    agent.see(nodes=nodes)
    assert {one.name: one.state for one in agent.report().nodes} == {
        "cards": NodeState.READY,
        "team": NodeState.TAINTED,
        "soft": NodeState.READY,
    }
    chosen = Watched(spec=msgspec.structs.replace(SPEC, selector="!nobody"))
    chosen.see(nodes=nodes)
    assert {one.state for one in chosen.report().nodes} == {NodeState.READY}


def test_a_report_of_a_large_cluster_comes_in_parts_that_fit_in_a_frame() -> None:
    labels = tuple((f"topology.kubernetes.io/level-{number}", "x" * 60) for number in range(20))
    nodes = tuple(NodeReport(name=f"node-{number:05}", uid=f"{number:036}", labels=labels) for number in range(2000))
    jobs = tuple(
        JobReport(worker_id=f"w{number}", phase=JobPhase.RUNNING, why="\N{SNOWMAN}" * 500) for number in range(900)
    )
    whole = ClusterReported(cluster_id="c", epoch=1, sequence=7, nodes=nodes, jobs=jobs)
    parts = in_parts(whole)
    assert [one for part in parts for one in part.nodes] == list(nodes)
    assert [one for part in parts for one in part.jobs] == list(jobs)
    assert [(part.part, part.parts, part.sequence) for part in parts] == [(n, len(parts), 7) for n in range(len(parts))]
    assert max(len(pack(part)) for part in parts) < FRAME_MAX_BYTES
    assert in_parts(msgspec.structs.replace(whole, nodes=nodes[:3], jobs=()))[0].parts == 1


# Orders


def test_an_order_becomes_a_job_pinned_to_its_node() -> None:
    agent = Watched()
    tainted = {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    agent.see(nodes=[node(spec=tainted)])
    (made,) = agent.say(order("w1", pull_secret="regcred"))
    assert isinstance(made, MakeJob)
    body = msgspec.json.decode(msgspec.json.encode(made.body))
    assert body["metadata"]["name"] == "w1"
    assert body["metadata"]["labels"] == body["spec"]["template"]["metadata"]["labels"] == marks("w1")
    assert (body["spec"]["backoffLimit"], body["spec"]["ttlSecondsAfterFinished"]) == (0, 30)
    spec = body["spec"]["template"]["spec"]
    (terms,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "operator": "Equal", "value": "present"}
    ]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert spec["terminationGracePeriodSeconds"] >= 120
    assert spec["imagePullSecrets"] == [{"name": "regcred"}]
    (container,) = spec["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["securityContext"] == {"privileged": True}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert container["resources"]["requests"] == {"cpu": "8000m", "memory": "32768Mi", "nvidia.com/gpu": "4"}
    assert container["command"][:6] == ["levers9", "worker", "--id", "w1", "--pool", "lab-1"]
    assert {"name": "LEVERS9_WORKER_TOKEN", "value": "t"} in container["env"]
    assert "t" not in container["command"]
    assert {
        "name": "image-cache",
        "hostPath": {"path": "/var/lib/levers9/images/cache", "type": "DirectoryOrCreate"},
    } in spec["volumes"]


def test_a_worker_on_the_pod_network_that_is_dialled_listens() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    (made,) = agent.say(order("w1", host_network=False, listens=True))
    assert isinstance(made, MakeJob)
    spec = msgspec.json.decode(msgspec.json.encode(made.body))["spec"]["template"]["spec"]
    assert "hostNetwork" not in spec
    assert "--listen" in spec["containers"][0]["command"]
    assert "--url" not in spec["containers"][0]["command"]


def test_the_cards_of_a_node_are_asked_for_by_their_makers_name() -> None:
    agent = Watched()
    agent.see(nodes=[node(**{"nvidia.com/gpu": "0", "amd.com/gpu": "4"})])
    (made,) = agent.say(order("w1"))
    assert isinstance(made, MakeJob)
    spec = msgspec.json.decode(msgspec.json.encode(made.body))["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "4"}


def test_an_order_is_carried_out_once_however_often_it_is_given() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    assert len(agent.say(order("w1"))) == 1
    assert agent.say(order("w1")) == []
    agent.say(events.JobMade("w1", job("w1")))
    assert agent.say(order("w1")) == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (order("w2", namespace="kube-system"), "kube-system; this agent keeps to levers9"),
        (order("w2", "nowhere"), "nowhere is not there"),
        (order("w2", "n1", "another"), "another one than was meant"),
        (order("w2", "unlent"), "not among those that the selector names"),
        (order("w2", "silent"), "not ready"),
        (order("w2", "n2"), "w1 is on the node n2 already"),
    ],
)
def test_an_order_that_must_not_be_carried_out_is_refused_with_why(asked: events.LetterCame, why: str) -> None:
    agent = Watched(spec=msgspec.structs.replace(SPEC, selector="!unlent"))
    silent = node("silent", ready="Unknown")
    agent.see(nodes=[node(), node("n2"), node("unlent", labels={"unlent": ""}), silent])
    running(agent, "w1", "n2")
    assert agent.say(asked) == []
    told = standing(agent, "w2")
    assert told.phase is JobPhase.REFUSED
    assert why in told.why


def test_there_are_never_more_pending_workers_than_nodes() -> None:
    agent = Watched(spec=msgspec.structs.replace(SPEC, selector="lent"))
    lent, was_lent = node("a", labels={"lent": ""}), node("b")
    agent.see(nodes=[lent, was_lent], jobs=[job("w1", node="b")])
    assert agent.say(order("w2", "a")) == []
    assert standing(agent, "w2").why == "1 workers are pending here, as many as there are nodes."
    agent.say(ours("w1", node="b", phase="Running"))
    assert len(agent.say(order("w2", "a"))) == 1


def test_an_older_leader_is_not_listened_to() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w0", "nowhere", leader_epoch=3))
    assert agent.say(order("w1", leader_epoch=2)) == []
    running_before = agent.report()
    assert running_before.leader_epoch == 3
    assert [one.worker_id for one in running_before.jobs] == ["w0"]
    assert agent.say(removal("w0", leader_epoch=2)) == []
    assert [one.worker_id for one in agent.report().jobs] == ["w0"]


def test_orders_wait_until_everything_was_seen() -> None:
    agent = Watched()
    assert agent.say(order("w1")) == []
    agent.see(nodes=[node()])
    assert agent.report().jobs == ()
    assert len(agent.say(order("w1"))) == 1


def test_a_job_of_which_nobody_knows_is_not_told_so_that_it_is_ordered_again_on_its_own_node_only() -> None:
    agent = Watched()
    agent.see(nodes=[node(), node("n2")])
    agent.say(order("w1"))
    agent.say(events.JobNotMade("w1", "timed out", unsure=True))
    assert agent.report().jobs == ()
    assert agent.say(order("w2")) == []
    assert len(agent.say(order("w1"))) == 1
    agent.say(events.JobNotMade("w1", "timed out", unsure=True))
    agent.wait(70.0)  # by then it would have been seen
    assert len(agent.say(order("w3"))) == 1


def test_a_job_that_the_api_server_refuses_is_told_in_its_words() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    agent.say(events.JobNotMade("w1", "exceeded quota: gpus"))
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.REFUSED, "exceeded quota: gpus")
    agent.say(removal("w1"))
    assert agent.report().jobs == ()


# How a worker fares


def test_a_job_without_a_pod_is_not_admitted_after_thirty_seconds() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    agent.say(events.JobMade("w1", job("w1")))
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.NO_POD, "")
    agent.wait(30.0)
    assert standing(agent).why == "Its Job has no pod: it was not admitted (quota or webhook)"


WAITING = {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
}


@pytest.mark.parametrize(
    ("on", "status", "spec", "why"),
    [
        ("n1", {"containerStatuses": [WAITING]}, {}, "The image app:1 cannot be pulled without a pull secret"),
        (
            "n1",
            {"containerStatuses": [WAITING]},
            {"imagePullSecrets": [{"name": "regcred"}]},
            "with the pull secret regcred (ImagePullBackOff: Back-off)",
        ),
        ("", {"conditions": [UNSCHEDULABLE]}, {}, "(Unschedulable): 0/3 nodes are available"),
        (
            "n1",
            {"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}]},
            {},
            "does not start (CreateContainerConfigError)",
        ),
        (
            "n1",
            {"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
            {},
            "still being created after 60 s",
        ),
    ],
)
def test_why_a_pod_does_not_start_is_told(
    on: str, status: dict[str, object], spec: dict[str, object], why: str
) -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    agent.say(events.JobMade("w1", job("w1")))
    agent.say(ours(node=on, status=status, spec=spec))
    agent.wait(60.0)
    told = standing(agent)
    assert told.phase is JobPhase.PENDING
    assert why in told.why


@pytest.mark.parametrize(
    ("phase", "status", "why"),
    [
        (
            "Failed",
            {"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}]},
            "It exited with code 7",
        ),
        (
            "Failed",
            {"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "It exited with code 137 (OOMKilled)",
        ),
        (
            "Failed",
            {"reason": "Evicted", "message": "DiskPressure"},
            "Kubernetes ended its pod (Evicted): DiskPressure",
        ),
        (
            "Failed",
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "Kubernetes ended its pod (PreemptionByScheduler): ",
        ),
        ("Failed", {}, "Its pod failed"),
        ("Succeeded", {}, "It exited with code 0"),
    ],
)
def test_how_a_pod_ended_is_told_until_nobody_wants_it(phase: str, status: dict[str, object], why: str) -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    assert standing(agent).phase is JobPhase.RUNNING
    agent.say(ours(phase=phase, uid="pod-w1", status=status))
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.ENDED, why)
    agent.say(events.JobIs(job("w1"), gone=True))
    agent.say(events.PodIs(ours(phase=phase, uid="pod-w1", status=status).pod, gone=True))
    assert standing(agent).why == why
    agent.say(removal("w1"))
    assert agent.report().jobs == ()


def test_a_pod_that_is_deleted_by_force_on_a_silent_node_may_run_until_the_node_is_heard() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    agent.say(events.NodeIs(node(ready="Unknown")))
    agent.say(events.PodIs(ours(phase="Running", uid="pod-w1").pod, gone=True))
    agent.say(events.JobIs(job("w1"), gone=True))
    told = standing(agent)
    assert told.phase is JobPhase.RUNNING
    assert "nobody knows" in told.why
    agent.say(events.NodeIs(node()))
    assert standing(agent).phase is JobPhase.ENDED


def test_a_node_that_is_gone_ends_its_worker_and_the_job_goes_too() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    decisions = agent.say(events.NodeIs(node(), gone=True))
    assert [type(one) for one in decisions] == [DropJob]
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.ENDED, "Its node is gone")


def test_a_job_is_removed_when_its_pod_has_not_started_within_twenty_minutes() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    agent.say(events.JobMade("w1", job("w1")))
    agent.say(ours(status={"containerStatuses": [WAITING]}))
    assert not any(isinstance(one, DropJob) for one in agent.wait(1195.0))
    (dropped,) = [one for one in agent.wait(20.0) if isinstance(one, DropJob)]
    assert dropped.uid == "job-w1"
    assert dropped.why.startswith("It was removed: its pod had not started within 20 minutes. The image app:1")
    agent.say(events.JobDropped("w1"))
    agent.say(events.PodIs(ours().pod, gone=True))
    agent.say(events.JobIs(job("w1"), gone=True))
    assert standing(agent).why == dropped.why


def test_a_worker_that_started_is_never_removed_for_its_age() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    assert not any(isinstance(one, DropJob) for one in agent.wait(4000.0))


def test_twenty_minutes_count_across_the_lives_of_an_agent() -> None:
    later = Watched(now_s=2000.0, unix_s=UNIX_S + 600.0)
    later.see(nodes=[node()], jobs=[job("w1", created="2026-01-01T00:00:00Z")])
    assert not any(isinstance(one, DropJob) for one in later.wait(590.0))
    assert [type(one) for one in later.wait(20.0) if isinstance(one, DropJob)] == [DropJob]


def test_a_removal_that_failed_is_tried_again() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    agent.say(events.JobMade("w1", job("w1")))
    agent.wait(1210.0)
    agent.say(events.JobDropped("w1", why="the API server is away"))
    assert [type(one) for one in agent.wait(11.0) if isinstance(one, DropJob)] == [DropJob]


def test_an_order_that_is_taken_back_before_its_job_is_made_leaves_none() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(order("w1"))
    assert agent.say(removal("w1")) == []
    (dropped,) = agent.say(events.JobMade("w1", job("w1")))
    assert isinstance(dropped, DropJob)


def test_jobs_of_others_are_left_alone() -> None:
    agent = Watched()
    agent.see(nodes=[node()], jobs=[job("w1", cluster_id="another"), job("w2", namespace="elsewhere")])
    assert agent.report().jobs == ()
    assert agent.say(removal("w1")) == []
    assert agent.say(removal("w2")) == []


def test_what_ended_is_not_remembered_without_end() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    for number in range(1100):
        agent.say(order(f"w{number:04}", "nowhere"))
    assert len(agent.report().jobs) == 1000
    agent.now_s += 3600.0
    agent.say(events.TimePassed())
    assert agent.reports[-1].jobs == ()
