"""What counts of an agent's words: what is refused as a whole, what is clipped, and how its cluster's owner hears."""

from __future__ import annotations

import math

import msgspec
import pytest
from levers9_test_cluster import ADMIN, ANN, BEN, ROOM, Stage, a_job, a_node, deleted

from levers9.actors.cluster import reports
from levers9.actors.cluster.jobs import DELETES_MAX
from levers9.model.clusters import ClusterState
from levers9.model.hearsay import WORDS_MAX
from levers9.model.nodes import NodeState
from levers9.model.resources import Capacity
from levers9.wire import cluster as said

TWICE = (a_node("n1"), a_node("n1"))
MANY_LABELS = tuple((f"k{number}", "v") for number in range(reports.LABELS_MAX + 1))


@pytest.fixture
def lab() -> tuple[Stage, str]:
    stage = Stage()
    return stage, stage.ready(a_node("n1"))


class TestRefused:
    @pytest.mark.parametrize(
        "changes",
        [
            {"epoch": 2**63},
            {"epoch": -1},
            {"sequence": 2**63},
            {"leader_epoch": -1},
            {"parts": reports.PARTS_MAX + 1},
            {"part": 3, "parts": 2},
            {"parts": 0},
            {"view_age_s": math.nan},
            {"nodes": (a_node("n\0"),)},
            {"nodes": (a_node("N1"),)},
            {"nodes": (a_node("n1", uid="a/b"),)},
            {"nodes": (a_node("n1", uid="\0"),)},
            {"nodes": (a_node("n1", labels=(("k", "\x1b"),)),)},
            {"nodes": (a_node("n1", labels=(("k", "v" * 64),)),)},
            {"nodes": (a_node("n1", labels=MANY_LABELS),)},
            {"nodes": TWICE},
            {"jobs": (a_job("w\n"),)},
            {"jobs": (a_job("w1", job_uid="\0"),)},
            {"jobs": (a_job("w1", node="a b"),)},
            {"jobs": (a_job("w1"), a_job("w1"))},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_what_no_agent_says_counts_for_nothing_and_its_owner_is_told(
        self, lab: tuple[Stage, str], changes: dict[str, object]
    ) -> None:
        stage, cluster_id = lab
        stage.reports(cluster_id, **{"nodes": (a_node("n2"),), **changes})
        (seen,) = stage.lists(name="lab")
        assert [node.name for node in seen.nodes] == ["n1"]
        assert seen.problem.startswith("what its agent says is refused: ")
        assert seen.problem.isprintable()

    def test_a_report_that_counts_ends_the_problem(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        stage.reports(cluster_id, *TWICE)
        stage.reports(cluster_id, a_node("n2"))
        assert stage.lists(name="lab")[0].problem == ""

    def test_an_agent_that_says_nothing_else_grows_stale(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        for _ in range(10):
            stage.tick(10.0)
            stage.reports(cluster_id, *TWICE)
        assert stage.lists(name="lab")[0].state is ClusterState.STALE

    def test_others_of_a_shared_cluster_are_told_that_there_is_a_problem_only(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        stage.shares("lab")
        stage.reports(cluster_id, *TWICE)
        assert "n1" not in stage.lists(BEN)[0].problem
        assert stage.lists(BEN)[0].problem

    def test_so_many_nodes_are_taken_and_one_more_is_told_with_what_to_do(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        nodes = [a_node(f"n{number}") for number in range(reports.NODES_MAX)]
        (known,) = stage.reports(cluster_id, *nodes).of(said.NodesKnown)
        assert len(known.offers) == reports.NODES_MAX
        stage.reports(cluster_id, *nodes, a_node("more"))
        problem = stage.lists(name="lab")[0].problem
        assert f"{reports.NODES_MAX + 1} nodes" in problem
        assert "selector" in problem

    def test_parts_that_are_well_may_make_a_report_that_is_not(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        for part in (0, 1):
            report = stage.report(cluster_id, a_node("n1"), sequence=50, part=part, parts=2)
            stage.agent(cluster_id, report)
        assert "in it 2 times" in stage.lists(name="lab")[0].problem


class TestClipped:
    def test_sizes_below_nothing_are_nothing_and_no_room(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        below = Capacity(cpu_milli=-5, memory_mib=-(2**63), gpu_count=-3)
        sent = stage.reports(cluster_id, a_node("n1", free=below))
        (known,) = sent.of(said.NodesKnown)
        (offer,) = known.offers
        assert offer.state is NodeState.FULL
        assert offer.capacity == Capacity(cpu_milli=0, memory_mib=0)

    def test_nothing_is_free_that_is_not_there(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        stage.reports(cluster_id, a_node("n1", free=msgspec.structs.replace(ROOM, gpu_count=2**31)))
        assert stage.lists(name="lab")[0].nodes[0].free.gpu_count == ROOM.gpu_count
        huge = Capacity(cpu_milli=2**31, memory_mib=2**31, gpu_count=2**31)
        stage.reports(cluster_id, a_node("n1", allocatable=huge, free=huge))
        assert stage.lists(name="lab")[0].nodes[0].free.gpu_count == reports.CARDS_MAX

    def test_times_that_are_no_number_are_no_time_in_an_admins_list(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        stage.reports(cluster_id, a_node("n1"), started_at_s=math.nan)
        seen = stage.lists(ADMIN)
        assert seen[0].agent_started_at_s == 0.0
        assert msgspec.json.decode(msgspec.json.encode(seen), type=tuple[said.ClusterStanding, ...]) == seen

    def test_words_are_short_and_drive_no_terminal(self, lab: tuple[Stage, str]) -> None:
        stage, cluster_id = lab
        stage.orders("w1", "n1")
        why = "\x1b[2J" + "x" * 900_000
        job = a_job("w1", said.JobPhase.PENDING, why=why)
        sent = stage.reports(cluster_id, a_node("n1", why=why), jobs=(job,), version=why)
        (waits,) = sent.of(said.JobWaits)
        (seen,) = stage.lists(ANN, "lab")
        for words in (waits.why, seen.waits[0], seen.nodes[0].why, seen.agent_version):
            assert words.isprintable()
            assert len(words) <= WORDS_MAX + 50
        stage.reports(cluster_id, a_node("n1"), problem=why)
        assert len(stage.lists(ANN)[0].problem) == WORDS_MAX


def test_jobs_that_nobody_wants_go_some_at_a_time_and_that_is_told(lab: tuple[Stage, str]) -> None:
    stage, cluster_id = lab
    jobs = tuple(a_job(f"w{number}") for number in range(DELETES_MAX + 1))
    sent = stage.reports(cluster_id, a_node("n1"), jobs=jobs)
    assert len(deleted(sent)) == DELETES_MAX
    assert f"{DELETES_MAX} at a time" in stage.lists(name="lab")[0].problem
    sent = stage.reports(cluster_id, a_node("n1"), jobs=jobs[DELETES_MAX:])
    assert len(deleted(sent)) == 1
    assert stage.lists(name="lab")[0].problem == ""
