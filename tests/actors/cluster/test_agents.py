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
    deleted,
    exits,
    states,
)

from levers9.actors.cluster import Configured
from levers9.model.clusters import ClusterSpec, ClusterState, Origin, pool_of
from levers9.model.nodes import NodeState, Traits
from levers9.model.resources import Capacity
from levers9.model.states import WorkerState
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

    def test_an_older_life_of_an_agent_is_not_believed_any_more(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        stage.reports(cluster_id, a_node("n2"), epoch=8)
        assert stage.reports(cluster_id, a_node("n1"), epoch=7) == []
        assert stage.agent(cluster_id, said.AgentReady(cluster_id=cluster_id, epoch=7)) == []
        assert [node.name for node in stage.lists()[0].nodes] == ["n2"]

    def test_a_new_leader_refuses_the_older_life_as_well(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        stage.reports(cluster_id, a_node("n2"), epoch=8)
        stage.begin()
        assert stage.reports(cluster_id, a_node("n1"), epoch=7) == []
        assert len(stage.reports(cluster_id, a_node("n1"), epoch=8).of(said.NodesKnown)) == 1

    def test_a_report_that_a_newer_one_has_overtaken_counts_for_nothing(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        late = stage.report(cluster_id, a_node("late"))
        newest = stage.report(cluster_id, a_node("newest"))
        stage.agent(cluster_id, newest)
        for report in (late, newest):
            assert stage.agent(cluster_id, report) == []
        assert [node.name for node in stage.lists()[0].nodes] == ["newest"]

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
        (shown,) = stage.lists()[0].nodes
        assert (shown.worker_id, shown.worker_state) == ("w1", "running")

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
        assert [node.name for node in stage.lists()[0].nodes] == ["n1"]
        assert sent.only(said.JobWaits).why == "nodes cannot be listed"

    def test_of_an_agent_that_was_blind_from_the_start_no_nodes_are_told(self) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        assert stage.reports(cluster_id, blind=True, problem="forbidden").of(said.NodesKnown) == []
        assert (state(stage), stage.lists()[0].problem) == (ClusterState.STALE, "forbidden")

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


class TestOrders:
    def test_an_order_goes_to_the_agent_at_once_with_all_that_a_job_needs(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        (order,) = stage.orders().to(f"agent/{cluster_id}", said.CreateWorkerJob)
        assert (order.namespace, order.leader_epoch) == ("levers9", 1)
        assert order.job == said.WorkerJob(
            worker_id="w1",
            token="t",
            pool=LAB,
            node="n1",
            node_uid="uid-n1",
            capacity=ROOM,
            image="secret.example/worker:1",
            host_network=True,
        )

    def test_the_platform_s_image_and_the_pod_network_are_used_where_that_is_said(self) -> None:
        stage = Stage(msgspec.structs.replace(SETTINGS, host_network=False))
        cluster_id = stage.joins(ANN, ClusterSpec(name="lab", gpu_type="A100")).cluster.cluster_id
        stage.reports(cluster_id, a_node("n1"))
        job = stage.orders().only(said.CreateWorkerJob).job
        assert (job.image, job.host_network, job.listens) == ("worker:1", False, False)
        stage.joins(ANN, ClusterSpec(name="lab", gpu_type="A100", host_network=True))
        sent = stage.reports(cluster_id, a_node("n1"), epoch=2)
        assert sent.only(said.CreateWorkerJob).job.host_network

    def test_it_is_given_again_after_each_report_that_lacks_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        assert created(stage.reports(cluster_id, a_node("n1"))) == ["w1"]
        assert created(stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.NO_POD),))) == []
        assert created(stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.PENDING),))) == []

    def test_it_waits_for_an_agent_that_is_away(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.hushes(cluster_id)
        assert created(stage.orders()) == []
        assert created(stage.reports(cluster_id, a_node("n1"))) == ["w1"]

    def test_a_node_never_gets_a_second_worker(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders("w1")
        assert created(stage.orders("w2")) == []
        jobs = (a_job("w1", JP.ENDED, why="it exited"),)
        assert exits(stage.reports(cluster_id, a_node("n1"), jobs=jobs)) == [("w1", "it exited")]
        assert created(stage.reports(cluster_id, a_node("n1"))) == ["w2"]

    def test_the_pool_hears_once_that_the_job_is_there_and_how_to_find_it_again(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        jobs = (a_job("w1", JP.PENDING),)
        (started,) = stage.reports(cluster_id, a_node("n1"), jobs=jobs).to(f"pool/{LAB}", scheduling.WorkerStarted)
        assert started.handle == "job/uid-n1/uid-w1"
        assert stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),)).of(scheduling.WorkerStarted) == []

    def test_an_order_that_the_agent_refuses_is_given_up_with_its_reason(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        refused = a_job("w1", JP.REFUSED, job_uid="", why="It was ordered for the namespace x")
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(refused,))
        assert (exits(sent), deleted(sent)) == ([], ["w1"])
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(refused,))
        assert (exits(sent), deleted(sent), created(sent)) == ([], ["w1"], [])
        sent = stage.reports(cluster_id, a_node("n1"))
        assert exits(sent) == [("w1", "its agent did not create it: It was ordered for the namespace x")]

    def test_an_order_that_was_refused_and_then_taken_after_all_is_deleted(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.REFUSED, job_uid=""),))
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.PENDING),))
        assert (exits(sent), deleted(sent)) == ([], ["w1"])
        ended = a_job("w1", JP.ENDED, why="Its Job was removed")
        assert len(exits(stage.reports(cluster_id, a_node("n1"), jobs=(ended,)))) == 1

    def test_what_nobody_wants_is_deleted_until_no_report_has_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        for phase in (JP.NO_POD, JP.PENDING, JP.RUNNING, JP.RUNNING, JP.ENDED):
            sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("stray", phase),))
            assert (deleted(sent), exits(sent)) == (["stray"], [])
        assert deleted(stage.reports(cluster_id, a_node("n1"))) == []

    def test_the_end_of_a_worker_is_told_before_its_agent_may_forget_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        ended = a_job("w1", JP.ENDED)
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(ended,))
        assert (exits(sent), deleted(sent)) == ([("w1", "its pod has ended")], [])
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(ended,))
        assert (exits(sent), deleted(sent)) == ([], ["w1"])

    def test_a_worker_of_no_use_is_deleted_until_there_is_evidence_of_its_end(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.PENDING),))
        end = said.EndWorkerJob(pool=LAB, worker_id="w1", why="it did not report within 20 minutes")
        assert deleted(stage.pool(end)) == ["w1"]
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.PENDING),))
        assert (deleted(sent), exits(sent)) == (["w1"], [])
        ended = a_job("w1", JP.ENDED, why="Its Job was removed")
        assert exits(stage.reports(cluster_id, a_node("n1"), jobs=(ended,))) == [
            ("w1", "it did not report within 20 minutes: Its Job was removed")
        ]

    def test_an_order_that_was_never_given_and_is_not_wanted_any_more_never_was(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.hushes(cluster_id)
        stage.orders()
        stage.pool(said.EndWorkerJob(pool=LAB, worker_id="w1", why="too late"))
        sent = stage.reports(cluster_id, a_node("n1"))
        assert exits(sent) == [("w1", "too late: its Job was never created")]

    def test_one_that_was_given_may_still_come_for_a_while(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.pool(said.EndWorkerJob(pool=LAB, worker_id="w1", why="too late"))
        for _ in range(8):
            stage.now_s += 10.0
            sent = stage.reports(cluster_id, a_node("n1"))
            assert (exits(sent), deleted(sent)) == ([], ["w1"])
        stage.now_s += 10.0
        assert len(exits(stage.reports(cluster_id, a_node("n1")))) == 1


class TestEvidence:
    @pytest.fixture
    def stage(self) -> Stage:
        """Ann's lab with a worker that runs on n1."""
        stage = Stage()
        self.cluster_id = stage.ready()
        stage.orders()
        stage.reports(self.cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        return stage

    def lacks(self, stage: Stage, *nodes: said.NodeReport, **changes: object) -> list[tuple[str, str]]:
        return exits(stage.reports(self.cluster_id, *nodes, **changes))

    def test_a_job_that_is_gone_from_a_node_that_is_ready_has_ended(self, stage: Stage) -> None:
        assert self.lacks(stage, a_node("n1")) == [("w1", GONE)]

    @pytest.mark.parametrize("node_state", [NodeState.NOT_READY, NodeState.TAINTED, NodeState.CORDONED])
    def test_a_node_that_is_not_ready_is_no_evidence(self, stage: Stage, node_state: NodeState) -> None:
        assert self.lacks(stage, a_node("n1", state=node_state)) == []
        assert self.lacks(stage, a_node("n1")) == [("w1", GONE)]

    def test_nor_is_a_node_that_the_selector_names_no_longer(self, stage: Stage) -> None:
        assert self.lacks(stage, a_node("n2")) == []

    def test_nor_is_an_old_view_or_one_that_is_troubled(self, stage: Stage) -> None:
        assert self.lacks(stage, a_node("n1"), view_age_s=90.0) == []
        assert self.lacks(stage, a_node("n1"), problem="pods cannot be listed") == []

    def test_nor_is_silence(self, stage: Stage) -> None:
        stage.hushes(self.cluster_id)
        assert exits(stage.tick(10_000.0)) == []
        assert stage.lists()[0].workers == 1

    def test_another_node_of_its_node_s_name_is_evidence(self, stage: Stage) -> None:
        other = a_node("n1", uid="another", state=NodeState.NOT_READY)
        assert self.lacks(stage, other) == [("w1", "its node was replaced by another of the same name")]

    def test_the_word_of_its_agent_that_it_ended_is_evidence_wherever_it_stood(self, stage: Stage) -> None:
        ended = a_job("w1", JP.ENDED, why="Its node is gone")
        assert exits(stage.reports(self.cluster_id, jobs=(ended,))) == [("w1", "Its node is gone")]

    def test_a_worker_that_has_ended_is_told_once(self, stage: Stage) -> None:
        assert len(self.lacks(stage, a_node("n1"))) == 1
        assert self.lacks(stage, a_node("n1")) == []

    def test_a_refusal_of_a_worker_that_runs_says_nothing(self, stage: Stage) -> None:
        refused = a_job("w1", JP.REFUSED)
        assert exits(stage.reports(self.cluster_id, a_node("n1"), jobs=(refused,))) == []


class TestNewLeaders:
    def adopt(self, stage: Stage, handle: str, state: str = "pending") -> said.AdoptWorkerJob:
        return said.AdoptWorkerJob(pool=LAB, worker_id="w1", handle=handle, state=WorkerState(state), node="n1")

    def begun(self, handle: str = "job/uid-n1/uid-w1", state: str = "pending") -> tuple[Stage, str]:
        """A leader whose pool has adopted a worker of the one before."""
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.begin()
        stage.pool(self.adopt(stage, handle, state))
        return stage, cluster_id

    def test_a_job_that_is_there_goes_on(self) -> None:
        stage, cluster_id = self.begun()
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        assert (exits(sent), deleted(sent), created(sent)) == ([], [], [])

    def test_no_job_is_deleted_before_its_pool_has_spoken(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.begin()
        assert deleted(stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))) == []

    def test_one_that_was_there_and_is_not_has_ended(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        move = ops.WorkerMove(worker_id="w1", sources=(), state=WorkerState.PENDING, handle="job/uid-n1/uid-w1")
        stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=1.0))
        stage.begin()
        sent = stage.reports(cluster_id, a_node("n1"))
        assert (exits(sent), created(sent)) == ([("w1", GONE)], [])

    def test_an_order_whose_token_is_lost_never_was_once_that_is_sure(self) -> None:
        stage, cluster_id = self.begun(handle="")
        assert exits(stage.reports(cluster_id, a_node("n1"), leader_epoch=1)) == []
        stage.now_s += 1000.0
        assert exits(stage.reports(cluster_id, a_node("n1"))) == []
        stage.now_s += 89.0
        assert exits(stage.reports(cluster_id, a_node("n1"))) == []
        stage.now_s += 1.0
        assert exits(stage.reports(cluster_id, a_node("n1"))) == [("w1", "its Job was never created")]

    def test_orders_are_of_the_new_leader_s_epoch(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.begin()
        stage.reports(cluster_id, a_node("n1"))
        assert stage.orders().only(said.CreateWorkerJob).leader_epoch == 2

    def test_one_whose_lease_ran_out_is_deleted_and_keeps_its_node_until_it_is_gone(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.begin()
        stage.pool(self.adopt(stage, "job/uid-n1/uid-w1", "gone"))
        assert deleted(stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))) == ["w1"]
        assert created(stage.orders("w2")) == []
        ended = a_job("w1", JP.ENDED, why="It exited with code 0")
        assert [one for one, _ in exits(stage.reports(cluster_id, a_node("n1"), jobs=(ended,)))] == ["w1"]
        assert created(stage.reports(cluster_id, a_node("n1"))) == ["w2"]


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

    def test_the_pool_of_a_shared_cluster_says_no_names_to_all_who_wait_for_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.shares(LAB)
        stage.orders()
        pending = a_job("w1", JP.PENDING, why="The image x cannot be pulled on n1")
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(pending,))
        assert sent.only(said.JobWaits).why == "a worker that was ordered has not started"

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
