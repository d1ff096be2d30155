"""What an agent tells, and when."""

import msgspec
import pytest
from levers9_test_agent import SPEC, Watched, marks, node, pod, running

from levers9.actors.agent import events
from levers9.actors.agent.events import Tell, View
from levers9.actors.agent.reporting import in_parts
from levers9.model.clusters import Flavour
from levers9.model.figures import FRAME_MAX_BYTES
from levers9.model.nodes import NodeState
from levers9.wire.cluster import AgentReady, AgentSettings, ClusterReported, JobPhase, JobReport, NodeReport
from levers9.wire.codec import pack

CARDS = {"nvidia.com/gpu": "1"}


def test_an_agent_says_that_it_is_ready_until_it_is_told_what_to_report() -> None:
    agent = Watched(settled=False)
    assert [type(one.message) for one in agent.decided if isinstance(one, Tell)] == [AgentReady]
    again = agent.wait(25.0)
    assert [type(one.message) for one in again if isinstance(one, Tell)] == [AgentReady, AgentReady]


def superseding(epoch: int) -> events.Event:
    return events.LetterCame(AgentSettings(cluster_id="c1", leader_epoch=1, spec=SPEC, agent_epoch=epoch))


def test_one_that_begins_comes_after_all_others_whatever_its_clock_says() -> None:
    agent = Watched(settled=False)
    agent.say(superseding(70))
    agent.see(nodes=[node()])
    assert agent.report().epoch == 71


def test_one_that_has_reported_is_over_once_a_newer_one_has() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.report()
    assert agent.say(superseding(1)) == []
    assert agent.say(superseding(2)) == [events.End(1)]


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


def test_more_cards_than_any_machine_has_are_multiples_of_them() -> None:
    agent = Watched()
    agent.see(nodes=[node(cards=17)])
    (told,) = agent.report().nodes
    assert told.allocatable.gpu_count == 0
    assert "no machine has so many" in told.why


def test_a_view_that_was_old_when_that_was_noticed_is_as_old_as_it_is() -> None:
    agent = Watched()
    agent.see(nodes=[node()])
    agent.say(events.ViewLost(View.NODES, "no answer", age_s=40.0))
    agent.wait(1.0)
    assert agent.reports[-1].view_age_s > 40.0
