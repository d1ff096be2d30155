"""What agents report: who is believed, how fresh it is, what is offered of it, and of whose end it is evidence."""

from __future__ import annotations

import msgspec
import pytest
from levers9_test_cluster import (
    ADMIN,
    ANN,
    BEN,
    ROOM,
    SETTINGS,
    SPEC,
    Stage,
    a_job,
    a_node,
    created,
    exits,
    states,
)

from levers9.actors.cluster import Configured
from levers9.model.clusters import ClusterSpec, ClusterState, Flavour, Origin, pool_of
from levers9.model.nodes import NodeState, Traits
from levers9.model.resources import Capacity
from levers9.store import operations as ops
from levers9.wire import cluster as said
from levers9.wire import scheduling
from levers9.wire.client import RequestRefused
from levers9.wire.letter import Letter

LAB = pool_of("ann", "lab")
JP = said.JobPhase
GONE = "its Job is gone, and its node is there"


def state(stage: Stage) -> ClusterState:
    return stage.lists()[0].state


class TestWhoIsBelieved:
    def test_an_agent_speaks_of_its_own_cluster_only(self) -> None:
        stage = Stage()
        mine = stage.joins(ANN).cluster.cluster_id
        other = stage.joins(BEN).cluster.cluster_id
        report = stage.report(mine, a_node("n1"))
        assert stage.say(Letter(report, f"agent/{other}", "clusters")) == []
        assert stage.say(Letter(report, "worker/w", "clusters")) == []
        assert state(stage) is ClusterState.WAITING
        assert stage.agent(mine, report).of(said.NodesKnown) != []

    def test_an_older_life_of_an_agent_is_not_believed_any_more_and_hears_why(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        stage.reports(cluster_id, a_node("n2"), epoch=8)
        (told,) = stage.reports(cluster_id, a_node("n1"), epoch=7).of(said.AgentSettings)
        (again,) = stage.agent(cluster_id, said.AgentReady(cluster_id=cluster_id, epoch=7)).of(said.AgentSettings)
        assert (told.agent_epoch, again.agent_epoch) == (8, 8)
        assert [node.name for node in stage.lists(ANN, "lab")[0].nodes] == ["n2"]

    def test_a_new_leader_refuses_the_older_life_as_well(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        stage.reports(cluster_id, a_node("n2"), epoch=8)
        stage.begin()
        assert stage.reports(cluster_id, a_node("n1"), epoch=7).of(said.NodesKnown) == []
        assert len(stage.reports(cluster_id, a_node("n1"), epoch=8).of(said.NodesKnown)) == 1

    def test_two_agents_that_end_each_other_by_turns_are_told_of(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        for epoch in (2, 3):
            assert stage.lists()[0].problem == ""
            stage.reports(cluster_id, a_node("n1"), epoch=epoch)
            for _ in range(2):
                stage.reports(cluster_id, a_node("n1"), epoch=epoch - 1)
        assert "two agents speak for it" in stage.lists()[0].problem
        stage.now_s += 900.0
        stage.reports(cluster_id, a_node("n1"), epoch=3)
        assert stage.lists()[0].problem == ""

    def test_one_that_ends_late_is_none_of_two(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        for epoch in (2, 1, 1, 1, 2, 3, 4, 4):
            stage.reports(cluster_id, a_node("n1"), epoch=epoch)
        assert stage.lists()[0].problem == ""

    def test_a_report_that_a_newer_one_has_overtaken_counts_for_nothing(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        late = stage.report(cluster_id, a_node("late"))
        newest = stage.report(cluster_id, a_node("newest"))
        stage.agent(cluster_id, newest)
        for report in (late, newest):
            assert stage.agent(cluster_id, report) == []
        assert [node.name for node in stage.lists(ANN, "lab")[0].nodes] == ["newest"]

    @pytest.mark.parametrize(("said_of_it", "shown"), [(Flavour.PLAIN, Flavour.EKS), (Flavour.GKE, Flavour.GKE)])
    def test_whose_kubernetes_it_is_is_what_the_agent_finds_unless_a_person_said_it(
        self, said_of_it: Flavour, shown: Flavour
    ) -> None:
        stage = Stage()
        cluster_id = stage.joins(spec=msgspec.structs.replace(SPEC, flavour=said_of_it)).cluster.cluster_id
        stage.agent(cluster_id, said.AgentReady(cluster_id=cluster_id, epoch=1))
        report = msgspec.structs.replace(stage.report(cluster_id, a_node("n1")), flavour=Flavour.EKS)
        stage.agent(cluster_id, report)
        (standing,) = stage.lists(ANN, "lab")
        assert standing.spec is not None
        assert standing.spec.flavour is shown

    def test_the_agent_of_a_detached_cluster_is_not_heard(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.leaves(ANN, "lab")
        assert stage.reports(cluster_id, a_node("n1")) == []

    def test_pools_speak_of_their_own_workers_only(self) -> None:
        stage = Stage()
        stage.ready()
        order = said.RunWorkerJob(pool=LAB, worker_id="w1", token="t", capacity=ROOM, traits=Traits(node="n1"))
        assert created(stage.pool(order, pool_of("ben", "lab"))) == []
        assert created(stage.pool(order)) == ["w1"]

    def test_nobody_but_a_gateway_says_that_a_stream_has_closed(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.hushes(cluster_id, "agent/other")
        stage.tick(90.0)
        assert state(stage) is ClusterState.STALE

    def test_an_agent_that_is_ready_hears_how_workers_are_started(self) -> None:
        stage = Stage(msgspec.structs.replace(SETTINGS, http_url="https://l9.example", cache_max_gb=7))
        cluster_id = stage.joins().cluster.cluster_id
        sent = stage.agent(cluster_id, said.AgentReady(cluster_id=cluster_id, epoch=1))
        (settings,) = sent.to(f"agent/{cluster_id}", said.AgentSettings)
        assert (settings.spec, settings.leader_epoch, settings.http_url) == (SPEC, 1, "https://l9.example")

    def test_an_agent_that_has_not_heard_of_this_leader_hears_of_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.begin()
        sent = stage.reports(cluster_id, a_node("n1"), leader_epoch=1)
        assert sent.only(said.AgentSettings).leader_epoch == 2
        assert stage.reports(cluster_id, a_node("n1")).of(said.AgentSettings) == []


class TestStates:
    def test_waiting_online_stale_offline(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        assert state(stage) is ClusterState.WAITING
        stage.agent(cluster_id, said.AgentReady(cluster_id=cluster_id, epoch=1))
        assert state(stage) is ClusterState.WAITING
        stage.reports(cluster_id, a_node("n1"))
        stage.tick(89.0)
        assert state(stage) is ClusterState.ONLINE
        stage.tick(1.0)
        assert state(stage) is ClusterState.STALE
        stage.hushes(cluster_id)
        assert state(stage) is ClusterState.OFFLINE
        stage.reports(cluster_id, a_node("n1"))
        assert state(stage) is ClusterState.ONLINE

    def test_a_stream_that_closes_says_nothing_of_what_was_reported_a_moment_ago(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.hushes(cluster_id)
        assert state(stage) is ClusterState.ONLINE

    def test_a_report_is_as_old_as_what_the_agent_sees(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        sent = stage.reports(cluster_id, a_node("n1"), view_age_s=91.0)
        assert state(stage) is ClusterState.STALE
        assert states(sent.only(said.NodesKnown)) == [NodeState.STALE]

    def test_where_it_stands_is_about_known_to_a_new_leader(self) -> None:
        stage = Stage()
        stage.ready()
        stage.begin()
        assert state(stage) is ClusterState.ONLINE
        stage.tick(90.0)
        assert state(stage) is ClusterState.OFFLINE

    def test_when_an_agent_was_heard_is_kept_about_once_a_minute(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        kept = []
        for _ in range(13):
            stage.now_s += 10.0
            stage.reports(cluster_id, a_node("n1"))
            kept.append(stage.truth.tables.clusters[cluster_id].seen_at_s)
        assert len(set(kept)) == 3
        assert stage.lists()[0].last_seen_s == stage.now_s


class TestOffers:
    def test_a_worker_would_have_all_that_is_free_less_a_reserve(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        node = a_node("n1", free=Capacity(cpu_milli=3000, memory_mib=9000, gpu_count=1))
        known = stage.reports(cluster_id, node).only(said.NodesKnown)
        (offer,), (whole,) = known.offers, known.whole
        assert offer.capacity == Capacity(cpu_milli=2500, memory_mib=7976, gpu_count=1, gpu_type="GB200")
        assert whole.capacity == Capacity(cpu_milli=7500, memory_mib=31_744, gpu_count=4, gpu_type="GB200")
        assert offer.traits == Traits(node="n1", labels=(("rack", "r1"),), runtimes=("process",), serves="ann")

    def test_nodes_without_cards_are_not_offered(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        known = stage.reports(cluster_id, a_node("n1", 0), a_node("n2")).only(said.NodesKnown)
        assert [offer.traits.node for offer in known.offers] == ["n2"]
        assert [offer.traits.node for offer in known.whole] == ["n2"]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, NodeState.READY),
            ({"free": msgspec.structs.replace(ROOM, gpu_count=0)}, NodeState.FULL),
            ({"free": msgspec.structs.replace(ROOM, cpu_milli=500)}, NodeState.FULL),
            ({"free": msgspec.structs.replace(ROOM, memory_mib=1024)}, NodeState.FULL),
            ({"state": NodeState.CORDONED}, NodeState.CORDONED),
            ({"state": NodeState.NOT_READY, "free": msgspec.structs.replace(ROOM, gpu_count=0)}, NodeState.NOT_READY),
        ],
    )
    def test_what_stands_against_a_worker_on_a_node(self, changes: dict[str, object], expected: NodeState) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        known = stage.reports(cluster_id, a_node("n1", **changes)).only(said.NodesKnown)
        assert states(known) == [expected]

    def test_a_node_with_our_own_worker_keeps_its_offer(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.orders()
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        assert sent.of(said.NodesKnown) == []
        (shown,) = stage.lists(ANN, "lab")[0].nodes
        assert (shown.worker_id, shown.worker_state) == ("w1", "running")
        assert shown.ours == ROOM

    def test_what_a_worker_has_is_known_to_a_new_leader_as_well(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.orders()
        stage.begin()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        assert stage.lists(ANN, "lab")[0].nodes[0].ours == ROOM

    def test_a_pool_is_told_when_something_changed_only(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        assert stage.reports(cluster_id, a_node("n1"), a_node("n2")) == []
        assert len(stage.reports(cluster_id, a_node("n1")).of(said.NodesKnown)) == 1

    def test_a_pool_that_begins_is_told_all(self) -> None:
        stage = Stage()
        stage.ready()
        sent = stage.pool(scheduling.PoolDeclared(pool=LAB))
        assert len(sent.to(f"pool/{LAB}", said.NodesKnown)) == 1

    def test_nodes_of_a_cluster_that_is_not_heard_are_stale_since_its_last_report(self) -> None:
        stage = Stage()
        stage.ready(a_node("n1"))
        heard_at_s = stage.now_s
        (offer,) = stage.tick(90.0).only(said.NodesKnown).offers
        assert (offer.state, offer.since_s) == (NodeState.STALE, heard_at_s)

    def test_a_blind_agent_takes_no_node_away_and_its_problem_is_told(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        sent = stage.reports(cluster_id, blind=True, problem="nodes cannot be listed", matched=0)
        assert (exits(sent), sent.of(said.NodesKnown)) == ([], [])
        assert [node.name for node in stage.lists(ANN, "lab")[0].nodes] == ["n1"]
        assert sent.only(said.JobWaits).why == "nodes cannot be listed"

    def test_of_an_agent_that_was_blind_from_the_start_no_nodes_are_told(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        assert stage.reports(cluster_id, blind=True, problem="forbidden").of(said.NodesKnown) == []
        assert (state(stage), stage.lists()[0].problem) == (ClusterState.STALE, "forbidden")

    def test_a_new_leader_does_not_know_the_nodes_before_it_has_a_report_of_them(self) -> None:
        """A cluster that is online has not 0 nodes because whoever leads is new."""
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        assert stage.lists()[0].nodes_known
        stage.begin()
        (listed,) = stage.lists()
        assert (listed.state, listed.nodes_known, listed.nodes_total) == (ClusterState.ONLINE, False, 0)
        stage.reports(cluster_id, blind=True, problem="nodes cannot be listed", matched=0)
        assert not stage.lists()[0].nodes_known
        stage.reports(cluster_id)
        (listed,) = stage.lists()
        assert (listed.nodes_known, listed.nodes_total) == (True, 0)

    def test_that_an_agent_is_not_heard_is_told_ahead_of_the_90_s_that_its_report_is_good_for(self) -> None:
        """As when its node loses power: nobody closes its stream, and its gateway misses what it says for 15 s."""
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        assert not stage.lists()[0].agent_silent
        stage.tick(20.0)
        stage.hushes(cluster_id)
        (listed,) = stage.lists()
        assert (listed.state, listed.agent_silent) == (ClusterState.ONLINE, True)
        stage.tick(70.0)
        (listed,) = stage.lists()
        assert (listed.state, listed.agent_silent) == (ClusterState.OFFLINE, False)
        stage.reports(cluster_id, a_node("n1"))
        (listed,) = stage.lists()
        assert (listed.state, listed.agent_silent) == (ClusterState.ONLINE, False)

    def test_a_large_report_counts_with_its_last_part(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        whole = stage.report(cluster_id)
        parts = [
            msgspec.structs.replace(whole, nodes=(a_node(f"n{number}"),), part=number, parts=3) for number in range(3)
        ]
        assert stage.agent(cluster_id, parts[2]).of(said.NodesKnown) == []
        assert stage.agent(cluster_id, parts[0]).of(said.NodesKnown) == []
        assert stage.agent(cluster_id, parts[0]).of(said.NodesKnown) == []
        known = stage.agent(cluster_id, parts[1]).only(said.NodesKnown)
        assert [offer.traits.node for offer in known.offers] == ["n0", "n1", "n2"]

    def test_a_report_that_lacks_a_part_is_given_up_for_a_newer_one(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        first, second = stage.report(cluster_id, parts=2), stage.report(cluster_id, parts=2)
        for part in (first, second, msgspec.structs.replace(first, part=1)):
            assert stage.agent(cluster_id, part).of(said.NodesKnown) == []
        assert len(stage.agent(cluster_id, msgspec.structs.replace(second, part=1)).of(said.NodesKnown)) == 1


class TestWhy:
    def test_a_pool_hears_why_its_workers_do_not_start_and_when_they_do(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.orders()
        pending = a_job("w1", JP.PENDING, why="The image x cannot be pulled on n1")
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(pending,))
        assert sent.only(said.JobWaits).why == "The image x cannot be pulled on n1 (worker w1)"
        assert stage.reports(cluster_id, a_node("n1"), jobs=(pending,)).of(said.JobWaits) == []
        assert stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),)).only(said.JobWaits).why == ""

    def test_the_pool_of_a_shared_cluster_hears_it_as_well_for_its_owner(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.shares(LAB)
        stage.orders()
        pending = a_job("w1", JP.PENDING, why="The image x cannot be pulled on n1")
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(pending,))
        assert sent.only(said.JobWaits).why == "The image x cannot be pulled on n1 (worker w1)"

    def test_a_cluster_that_is_away_is_told_as_such(self) -> None:
        stage = Stage()
        stage.ready(a_node("n1"))
        assert "does not see its cluster" in stage.tick(90.0).only(said.JobWaits).why


def near() -> Configured:
    return Configured(pool="near", spec=ClusterSpec(name="near", gpu_type="H100"), origin=Origin.CREDENTIAL)


class TestConfigured:
    def test_a_cluster_of_the_configuration_is_seen_by_admins_and_changed_by_nobody(self) -> None:
        stage = Stage(configured=(near(),))
        assert stage.lists(ANN) == ()
        (seen,) = stage.lists(ADMIN)
        assert (seen.name, seen.origin, seen.owned) == ("near", Origin.CREDENTIAL, False)
        for message in (said.LeaveCluster(name="near"), said.ShareCluster(name="near", shared=True)):
            assert stage.asks(ADMIN, message, RequestRefused).failure.code == "conflict"

    def test_its_workers_listen_and_nothing_of_it_is_kept(self) -> None:
        stage = Stage(configured=(near(),))
        stage.reports("near", a_node("n1"))
        order = said.RunWorkerJob(pool="near", worker_id="w1", token="t", capacity=ROOM, traits=Traits(node="n1"))
        job = stage.pool(order, "near").only(said.CreateWorkerJob).job
        assert (job.listens, job.pool) == (True, "near")
        assert stage.truth.ask(ops.ListClusters()) == ()

    def test_why_its_workers_do_not_start_is_told_in_general_to_all_whom_it_serves(self) -> None:
        stage = Stage(configured=(near(),))
        stage.reports("near", a_node("n1"))
        order = said.RunWorkerJob(pool="near", worker_id="w1", token="t", capacity=ROOM, traits=Traits(node="n1"))
        stage.pool(order, "near")
        pending = a_job("w1", JP.PENDING, why="The image x cannot be pulled on n1")
        sent = stage.reports("near", a_node("n1"), jobs=(pending,))
        assert sent.only(said.JobWaits).why == "a worker that was ordered has not started"

    def test_its_agent_is_told_at_once_how_workers_are_started(self) -> None:
        sent = Stage(configured=(near(),)).begin()
        assert sent.to("agent/near", said.AgentSettings)[0].leader_epoch == 2

    def test_gateways_dial_its_workers_where_their_pods_are(self) -> None:
        stage = Stage(configured=(near(),))
        stage.reports("near", a_node("n1"), a_node("n2"))
        for worker_id, node in (("w1", "n1"), ("w2", "n2")):
            order = said.RunWorkerJob(
                pool="near", worker_id=worker_id, token="t", capacity=ROOM, traits=Traits(node=node)
            )
            assert stage.pool(order, "near").of(said.DialWorkers) == []
        jobs = (a_job("w1", address="127.0.0.7"), a_job("w2", JP.PENDING, node="n2"))
        (told,) = stage.reports("near", a_node("n1"), a_node("n2"), jobs=jobs).to("leader", said.DialWorkers)
        assert told.workers == (said.WorkerAddress(worker_id="w1", url="ws://127.0.0.7:1995"),)
        jobs = (a_job("w1", JP.ENDED), a_job("w2", node="n2", address="fd00::2"))
        (told,) = stage.reports("near", a_node("n1"), a_node("n2"), jobs=jobs).to("leader", said.DialWorkers)
        assert told.workers == (said.WorkerAddress(worker_id="w2", url="wss://[fd00::2]:1995"),)

    def test_a_new_leader_cuts_off_nobody_before_it_has_seen_who_is_there(self) -> None:
        stage = Stage(configured=(near(),))
        stage.reports("near", a_node("n1"))
        assert stage.begin().of(said.DialWorkers) == []
        assert stage.reports("near", a_node("n1"), blind=True).of(said.DialWorkers) == []
