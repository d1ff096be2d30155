"""Orders of workers: given until a report has them, given up with a reason, over only where there is evidence."""

from __future__ import annotations

import msgspec
import pytest
from levers9_test_cluster import (
    ANN,
    ROOM,
    SETTINGS,
    Stage,
    a_job,
    a_node,
    created,
    deleted,
    exits,
)

from levers9.model.clusters import ClusterSpec, pool_of
from levers9.model.nodes import NodeState
from levers9.model.states import WorkerState
from levers9.store import operations as ops
from levers9.wire import cluster as said
from levers9.wire import scheduling

LAB = pool_of("ann", "lab")
JP = said.JobPhase
GONE = "its Job is gone, and its node is there"
LACKED = "neither its Job nor its node has been there for 300 s"


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
        assert not sent.only(scheduling.WorkerExited).expected

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


class TestWhatAnEndSaysOfTheNext:
    @pytest.mark.parametrize("expected", [False, True])
    def test_of_one_that_ended_its_agent_knows(self, expected: bool) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        jobs = (a_job("w1", JP.ENDED, why="it ended", expected=expected),)
        sent = stage.reports(cluster_id, a_node("n1"), jobs=jobs)
        assert sent.only(scheduling.WorkerExited).expected is expected

    def test_one_that_its_pool_wanted_to_end_says_nothing(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.pool(said.EndWorkerJob(pool=LAB, worker_id="w1", why="of no use"))
        sent = stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", JP.ENDED),))
        assert sent.only(scheduling.WorkerExited).expected

    def test_nor_does_one_whose_job_somebody_deleted(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        assert stage.reports(cluster_id, a_node("n1")).only(scheduling.WorkerExited).expected


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

    def test_a_node_that_is_not_among_all_nodes_is_gone_with_its_worker(self, stage: Stage) -> None:
        assert self.lacks(stage, a_node("n2"), every=True) == [("w1", "its node is gone")]

    def for_a_while(self, stage: Stage, seconds: float, *nodes: said.NodeReport, **changes: object) -> list[str]:
        """Who ends while reports come every ten seconds."""
        ended: list[str] = []
        for _ in range(int(seconds / 10)):
            stage.now_s += 10.0
            ended += [why for _, why in self.lacks(stage, *nodes, **changes)]
        return ended

    def test_one_whose_job_and_node_nobody_tells_of_is_waited_for_as_long_as_a_lease(self, stage: Stage) -> None:
        """Its node may be gone, as its agent was away when it went; or the selector leaves it out."""
        assert self.for_a_while(stage, 300.0, a_node("n2")) == []
        assert self.for_a_while(stage, 10.0, a_node("n2")) == [LACKED]
        assert deleted(stage.reports(self.cluster_id, a_node("n2"))) == []

    def test_and_for_as_long_again_where_it_or_its_node_was_seen_meanwhile(self, stage: Stage) -> None:
        for seen in ({"jobs": (a_job("w1"),)}, {"nodes": (a_node("n1", state=NodeState.NOT_READY),)}):
            assert self.for_a_while(stage, 290.0, a_node("n2")) == []
            stage.now_s += 5.0
            stage.agent(self.cluster_id, stage.report(self.cluster_id, **seen))
        assert self.for_a_while(stage, 300.0, a_node("n2")) == []
        assert self.for_a_while(stage, 10.0, a_node("n2")) == [LACKED]

    def test_and_where_no_complete_report_came_for_too_long(self, stage: Stage) -> None:
        assert self.for_a_while(stage, 200.0, a_node("n2")) == []
        assert self.for_a_while(stage, 90.0, a_node("n2"), problem="pods cannot be listed") == []
        assert self.for_a_while(stage, 300.0, a_node("n2")) == []
        assert self.for_a_while(stage, 10.0, a_node("n2")) == [LACKED]

    def test_a_node_that_is_there_and_not_ready_is_waited_for_without_end(self, stage: Stage) -> None:
        assert self.for_a_while(stage, 3600.0, a_node("n1", state=NodeState.NOT_READY)) == []

    def test_the_word_of_its_agent_that_it_ended_is_evidence_wherever_it_stood(self, stage: Stage) -> None:
        ended = a_job("w1", JP.ENDED, why="Its node is gone")
        assert exits(stage.reports(self.cluster_id, jobs=(ended,))) == [("w1", "Its node is gone")]

    def test_a_worker_that_has_ended_is_told_once(self, stage: Stage) -> None:
        assert len(self.lacks(stage, a_node("n1"))) == 1
        assert self.lacks(stage, a_node("n1")) == []

    def test_a_refusal_of_a_worker_that_runs_says_nothing(self, stage: Stage) -> None:
        refused = a_job("w1", JP.REFUSED)
        assert exits(stage.reports(self.cluster_id, a_node("n1"), jobs=(refused,))) == []


class TestJoiningAgain:
    """An agent with a new token may be of another cluster, whose nodes have the same names."""

    @pytest.fixture
    def stage(self) -> Stage:
        stage = Stage()
        self.cluster_id = stage.ready()
        stage.orders()
        stage.reports(self.cluster_id, a_node("n1"), a_node("n2"), jobs=(a_job("w1"),))
        stage.joins()
        return stage

    def test_nodes_of_another_cluster_say_nothing_of_workers_of_the_one_before(self, stage: Stage) -> None:
        elsewhere = a_node("n1", uid="elsewhere-1"), a_node("n2", uid="elsewhere-2")
        for seconds in range(0, 301, 10):
            sent = stage.reports(self.cluster_id, *elsewhere, epoch=2, every=True)
            assert exits(sent) == ([] if seconds < 300 else [("w1", LACKED)])
            stage.now_s += 10.0

    def test_of_a_cluster_that_is_the_same_they_do(self, stage: Stage) -> None:
        nodes = a_node("n1", uid="another"), a_node("n2")
        replaced = [("w1", "its node was replaced by another of the same name")]
        assert exits(stage.reports(self.cluster_id, *nodes, epoch=2)) == replaced

    def test_a_new_leader_takes_another_cluster_for_another_too(self, stage: Stage) -> None:
        move = ops.WorkerMove(worker_id="w1", sources=(), state=WorkerState.PENDING, handle="job/uid-n1/uid-w1")
        stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=1.0))
        stage.begin()
        assert exits(stage.reports(self.cluster_id, a_node("n1", uid="elsewhere-1"), epoch=2)) == []

    def test_parts_of_an_earlier_agent_s_report_hold_up_none_of_the_next(self, stage: Stage) -> None:
        stage.agent(self.cluster_id, stage.report(self.cluster_id, a_node("n1"), epoch=9, parts=2))
        stage.joins()
        whole = stage.report(self.cluster_id, a_node("n1"), epoch=3, parts=2)
        stage.agent(self.cluster_id, whole)
        last = msgspec.structs.replace(whole, nodes=(a_node("n2"),), part=1)
        assert len(stage.agent(self.cluster_id, last).of(said.NodesKnown)) == 1


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

    def test_one_that_joins_under_the_name_of_one_that_was_left_waits_for_none_of_its_workers(self) -> None:
        stage = Stage()
        stage.ready()
        stage.begin()
        gone = self.adopt(stage, "job/uid-n1/uid-w1", "gone")
        sent = stage.pool(msgspec.structs.replace(gone, ordered_at_s=stage.now_s - 3600.0))
        assert exits(sent) == [("w1", "its cluster was detached")]
        assert stage.lists()[0].workers == 0
        sent = stage.pool(msgspec.structs.replace(gone, ordered_at_s=stage.now_s + 1.0))
        assert (exits(sent), stage.lists()[0].workers) == ([], 1)

    def test_one_that_was_there_and_is_not_has_ended(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        move = ops.WorkerMove(worker_id="w1", sources=(), state=WorkerState.PENDING, handle="job/uid-n1/uid-w1")
        stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=1.0))
        stage.begin()
        sent = stage.reports(cluster_id, a_node("n1"))
        assert (exits(sent), created(sent)) == ([("w1", GONE)], [])

    def test_a_report_that_was_made_before_its_agent_heard_of_this_leader_ends_nothing(self) -> None:
        """It may be older than what the earlier leader was told: said again, it comes before all newer ones."""
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        move = ops.WorkerMove(worker_id="w1", sources=(), state=WorkerState.PENDING, handle="job/uid-n1/uid-w1")
        stage.truth.ask(ops.MoveWorkers(moves=(move,), now_s=1.0))
        stage.begin()
        assert exits(stage.reports(cluster_id, a_node("n1"), leader_epoch=1)) == []
        assert exits(stage.reports(cluster_id, a_node("n1", uid="another"), leader_epoch=1)) == []
        assert exits(stage.reports(cluster_id, a_node("n1"))) == [("w1", GONE)]

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
