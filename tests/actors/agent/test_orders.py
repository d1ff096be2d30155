"""What an agent does of what it is ordered, and what it tells of how workers fare."""

import msgspec
import pytest
from levers9_test_agent import SPEC, UNIX_S, Watched, job, marks, node, order, ours, removal, running, standing

from levers9.actors.agent import events
from levers9.actors.agent.events import DropJob, MakeJob, View
from levers9.wire.cluster import AgentSettings, JobPhase

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


def test_a_worker_is_told_nothing_that_it_does_not_read() -> None:
    agent = Watched()
    settings = AgentSettings(cluster_id="c1", leader_epoch=1, spec=SPEC, cache_max_gb=100, cache_min_free_pct=20)
    agent.say(events.LetterCame(settings))
    agent.see(nodes=[node()])
    (made,) = agent.say(order("w1"))
    assert isinstance(made, MakeJob)
    (container,) = msgspec.json.decode(msgspec.json.encode(made.body))["spec"]["template"]["spec"]["containers"]
    names = [variable["name"] for variable in container["env"]]
    assert names == ["LEVERS9_WORKER_TOKEN", "LEVERS9_POD_IP", "LEVERS9_HOST_IP"]


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
    ("phase", "status", "why", "says"),
    [
        (
            "Failed",
            {"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 7, "reason": "Error"}}}]},
            "It exited with code 7",
            "badly",
        ),
        (
            "Failed",
            {"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "It exited with code 137 (OOMKilled)",
            "badly",
        ),
        (
            "Failed",
            {"reason": "Evicted", "message": "DiskPressure"},
            "Kubernetes ended its pod (Evicted): DiskPressure",
            "made way",
        ),
        (
            "Failed",
            {"reason": "UnexpectedAdmissionError", "message": "no card is free"},
            "Kubernetes ended its pod (UnexpectedAdmissionError): no card is free",
            "badly",
        ),
        (
            "Failed",
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "Kubernetes ended its pod (PreemptionByScheduler): ",
            "made way",
        ),
        ("Failed", {}, "Its pod failed", "badly"),
        ("Succeeded", {}, "It exited with code 0", "left"),
    ],
)
def test_how_a_pod_ended_is_told_until_nobody_wants_it_and_whether_that_says_something_of_the_next_one(
    phase: str, status: dict[str, object], why: str, says: str
) -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    assert standing(agent).phase is JobPhase.RUNNING
    agent.say(ours(phase=phase, uid="pod-w1", status=status))
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.ENDED, why)
    assert (standing(agent).expected, standing(agent).left) == (says == "made way", says == "left")
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
    assert (standing(agent).phase, standing(agent).expected) == (JobPhase.ENDED, True)


def test_a_node_that_is_gone_ends_its_worker_and_the_job_goes_too() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    decisions = agent.say(events.NodeIs(node(), gone=True))
    assert [type(one) for one in decisions] == [DropJob]
    assert (standing(agent).phase, standing(agent).why) == (JobPhase.ENDED, "Its node is gone")
    assert standing(agent).expected


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
    assert (standing(agent).why, standing(agent).expected) == (dropped.why, False)


def test_a_worker_that_started_is_never_removed_for_its_age() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    running(agent)
    assert not any(isinstance(one, DropJob) for one in agent.wait(4000.0))


@pytest.mark.parametrize("ahead_s", [0.0, 1200.0, -1200.0])
def test_twenty_minutes_count_across_the_lives_of_an_agent_by_the_api_server_s_clock(ahead_s: float) -> None:
    later = Watched(now_s=2000.0, unix_s=UNIX_S + 600.0 + ahead_s)
    later.see(nodes=[node()], jobs=[job("w1", created="2026-01-01T00:00:00Z")], served_at_s=UNIX_S + 600.0)
    assert not any(isinstance(one, DropJob) for one in later.wait(590.0))
    assert [type(one) for one in later.wait(20.0) if isinstance(one, DropJob)] == [DropJob]


def test_where_the_api_server_tells_no_time_a_job_is_as_old_as_it_is_known() -> None:
    later = Watched(now_s=2000.0, unix_s=UNIX_S + 6000.0)
    later.see(nodes=[node()], jobs=[job("w1", created="2026-01-01T00:00:00Z")])
    assert not any(isinstance(one, DropJob) for one in later.wait(1190.0))
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


def test_before_everything_was_seen_nobody_is_thought_dead() -> None:
    agent = Watched()
    for view, event in ((View.JOBS, events.JobIs(job("w1"))), (View.PODS, ours(phase="Running"))):
        agent.say(events.ListBegan(view))
        assert agent.say(event) == []
        assert agent.say(events.ListEnded(view)) == []
    agent.say(events.ListBegan(View.NODES))
    agent.say(events.NodeIs(node()))
    agent.say(events.ListEnded(View.NODES))
    assert standing(agent).phase is JobPhase.RUNNING
