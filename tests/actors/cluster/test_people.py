"""Who may attach, see, share and detach clusters: two workspaces and an admin, by each rule of the page."""

from __future__ import annotations

import msgspec
import pytest
from levers9_test_cluster import ADMIN, ANN, BEN, SETTINGS, SPEC, Stage, Who, a_job, a_node, deleted, exits

from levers9.actors.cluster.decisions import BeginPool, FinishPool, TermsOfPool
from levers9.model.clusters import ClusterSpec, ClusterState, pool_of
from levers9.model.figures import FRAME_MAX_BYTES
from levers9.model.nodes import NodeState
from levers9.model.states import TokenKind, WorkerState
from levers9.model.tokens import hash_of
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import cluster as said
from levers9.wire import scheduling
from levers9.wire.client import RequestRefused
from levers9.wire.codec import pack
from levers9.wire.letter import Letter

LAB = pool_of("ann", "lab")


def named(name: str, **changes: object) -> ClusterSpec:
    return msgspec.structs.replace(SPEC, name=name, **changes)


def row(stage: Stage, cluster_id: str) -> ops.ClusterRow:
    return stage.truth.tables.clusters[cluster_id]


def active(stage: Stage) -> list[str]:
    return [token.subject for token in rows_of(stage.truth.ask(ops.ListTokens()), ops.TokenRow) if token.active]


class TestJoin:
    def test_an_attached_cluster_is_its_workspace_s_and_its_agent_s_token_is_shown_once(self) -> None:
        stage = Stage()
        joined = stage.joins()
        (token,) = stage.truth.tables.tokens.values()
        assert (token.kind, token.workspace_id, token.subject) == (TokenKind.AGENT, "ann", joined.cluster.cluster_id)
        assert token.hash == hash_of(joined.token)
        assert (joined.agent_image, joined.worker_image, joined.renewed) == ("agent:1", "worker:1", False)
        assert (joined.cluster.state, joined.cluster.owned) == (ClusterState.WAITING, True)
        assert joined.token not in repr(stage.lists())

    def test_its_pool_begins_and_serves_its_workspace_alone(self) -> None:
        stage = Stage()
        stage.joins()
        (begin,) = stage.changes
        assert isinstance(begin, BeginPool)
        assert (begin.pool.name, begin.pool.serves, begin.pool.owner, begin.pool.known_as) == (LAB, "ann", "ann", "lab")

    def test_names_are_per_workspace(self) -> None:
        stage = Stage()
        assert stage.joins(ANN).cluster.cluster_id != stage.joins(BEN).cluster.cluster_id

    def test_a_sixth_cluster_is_one_too_many_for_one_workspace_and_not_for_another(self) -> None:
        stage = Stage()
        for number in range(5):
            stage.joins(ANN, named(f"lab-{number}"))
        assert stage.refused(ANN, said.JoinCluster(spec=named("lab-5"))) == "conflict"
        assert stage.joins(BEN, named("lab-5")).cluster.owned
        assert stage.joins(ANN, named("lab-4")).renewed

    def test_a_limit_of_0_is_none(self) -> None:
        stage = Stage(msgspec.structs.replace(SETTINGS, clusters_per_workspace=0))
        for number in range(9):
            stage.joins(ANN, named(f"lab-{number}"))
        assert len(stage.lists()) == 9

    def test_an_admin_attaches_for_the_default_workspace_unless_another_is_meant(self) -> None:
        stage = Stage()
        first = stage.joins(ADMIN).cluster.cluster_id
        second = stage.joins(("ben", TokenKind.CLUSTER_ADMIN)).cluster.cluster_id
        assert [row(stage, one).workspace_id for one in (first, second)] == ["default", "ben"]

    @pytest.mark.parametrize(
        "kind",
        [
            TokenKind.WORKSPACE_RESTRICTED,
            TokenKind.WORKER,
            TokenKind.WORKER_PRIVATE,
            TokenKind.AGENT,
            TokenKind.MACHINE,
        ],
    )
    def test_a_container_s_token_can_neither_attach_nor_detach_nor_look(self, kind: str) -> None:
        stage = Stage()
        stage.joins()
        for message in (said.JoinCluster(spec=named("b")), said.LeaveCluster(name="lab"), said.ReadClusters()):
            letter = Letter(message, "gateway/g", "clusters", workspace="ann", kind=kind, id="asked")
            assert stage.say(letter).only(RequestRefused).failure.code == "forbidden"
        assert len(stage.lists()) == 1

    @pytest.mark.parametrize(
        "spec",
        [
            named("Lab"),
            named(""),
            named("x" * 41),
            named("lab", gpu_type=""),
            named("lab", namespace=""),
            named("lab", selector="x" * 501),
        ],
    )
    def test_what_no_cluster_can_be_is_refused(self, spec: ClusterSpec) -> None:
        assert Stage().refused(ANN, said.JoinCluster(spec=spec)) == "invalid"

    def test_joining_a_name_that_is_attached_renews_its_token_and_keeps_its_sharing(self) -> None:
        stage = Stage()
        first = stage.joins()
        stage.shares(LAB)
        again = stage.joins(ANN, named("lab", selector="pool=gpu"))
        assert (again.renewed, again.cluster.cluster_id) == (True, first.cluster.cluster_id)
        assert (again.cluster.shared, again.cluster.spec) == (True, named("lab", selector="pool=gpu"))
        assert active(stage) == [first.cluster.cluster_id]
        tokens = {token.hash: token.active for token in stage.truth.tables.tokens.values()}
        assert (tokens[hash_of(first.token)], tokens[hash_of(again.token)]) == (False, True)

    def test_a_renewed_cluster_waits_for_the_agent_that_has_the_new_token(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        assert stage.lists()[0].state is ClusterState.ONLINE
        assert stage.joins().cluster.state is ClusterState.WAITING
        stage.reports(cluster_id, a_node("n1"), epoch=7)
        assert stage.lists()[0].state is ClusterState.ONLINE

    def test_the_namespace_stays_while_workers_are_there(self) -> None:
        stage = Stage()
        stage.ready()
        stage.orders()
        assert stage.refused(ANN, said.JoinCluster(spec=named("lab", namespace="other"))) == "conflict"
        assert stage.joins(ANN, named("lab", selector="a=b")).renewed


class TestSeeing:
    def test_a_private_cluster_is_seen_by_its_workspace_and_by_admins_only(self) -> None:
        stage = Stage()
        stage.ready()
        assert [one.name for one in stage.lists(ANN)] == ["lab"]
        assert stage.lists(BEN) == ()
        assert stage.refused(BEN, said.ReadClusters(name="lab")) == "not_found"
        assert stage.refused(BEN, said.ReadClusters(name=LAB)) == "not_found"
        (seen,) = stage.lists(ADMIN)
        assert (seen.workspace, seen.spec) == ("ann's", SPEC)

    def test_of_another_s_shared_cluster_one_sees_what_can_run_there_and_no_names(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1", why="odd on n1"))
        stage.shares(LAB)
        stage.orders()
        waiting = a_job("w1", said.JobPhase.PENDING, why="The image secret.example/worker:1 cannot be pulled on n1")
        stage.reports(cluster_id, a_node("n1", why="odd on n1"), jobs=(waiting,), problem="n1 is forbidden")
        (seen,) = stage.lists(BEN, "lab")
        for secret in ("n1", "secret.example", "levers9", "rack", "w1", "ann'"):
            assert secret not in repr(msgspec.structs.replace(seen, problem="")), secret
        assert (seen.gpu_type, seen.state, seen.shared, seen.owned) == ("GB200", ClusterState.ONLINE, True, False)
        (node,) = seen.nodes
        assert (node.free.gpu_count, node.free.gpu_type, node.worker_state) == (4, "GB200", "pending")
        assert (seen.workers, seen.pending) == (1, 1)
        assert "n1" not in seen.problem
        assert seen.waits == ("a worker that was ordered has not started",)

    def test_its_owner_and_an_admin_see_all_of_it(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.shares(LAB)
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1", said.JobPhase.PENDING, why="No image"),))
        for who in (ANN, ADMIN):
            (seen,) = stage.lists(who, "lab")
            assert (seen.nodes[0].name, seen.nodes[0].worker_id, seen.nodes[0].labels) == (
                "n1",
                "w1",
                (("rack", "r1"),),
            )
            assert (seen.spec, seen.waits) == (SPEC, ("No image (worker w1)",))

    def test_what_several_workers_wait_for_is_told_once(self) -> None:
        stage = Stage()
        nodes = [a_node(f"n{number}") for number in (1, 2, 3)]
        cluster_id = stage.ready(*nodes)
        for number in (1, 2, 3):
            stage.orders(f"w{number}", f"n{number}")
        pending = said.JobPhase.PENDING
        jobs = (a_job("w1", pending, why="No image"), a_job("w2", pending, why="Full"))
        stage.reports(cluster_id, *nodes, jobs=(*jobs, a_job("w3", pending, why="No image")))
        assert stage.lists()[0].waits == ("No image (worker w1 and 1 more)", "Full (worker w2)")

    def test_a_refusal_names_nothing_that_the_asker_did_not_say(self) -> None:
        stage = Stage()
        stage.ready()
        for message in (said.LeaveCluster(name="lab"), said.ReadClusters(name="lab")):
            refused = stage.asks(BEN, message, RequestRefused).failure
            assert refused.what == "There is no cluster 'lab'."
            assert "ann" not in repr(refused)

    def test_shared_clusters_of_a_name_that_one_has_oneself_go_by_their_pools(self) -> None:
        stage = Stage()
        stage.joins(ANN)
        stage.joins(BEN)
        stage.shares(LAB)
        assert [(one.name, one.owned) for one in stage.lists(BEN)] == [("lab", True), (LAB, False)]
        assert stage.lists(BEN, "lab")[0].owned
        assert not stage.lists(BEN, LAB)[0].owned
        assert [one.name for one in stage.lists(ANN)] == ["lab"]

    def test_a_name_of_one_s_own_is_never_another_s_not_even_where_it_is_that_of_another_s_pool(self) -> None:
        stage = Stage()
        stage.joins(ANN)
        stage.joins(BEN)
        stage.joins(BEN, named(LAB))
        stage.shares(LAB)
        shown = [(one.name, one.owned) for one in stage.lists(BEN)]
        assert shown == [("lab", True), (LAB, True), (f"{LAB}-2", False)]
        assert [stage.lists(BEN, name)[0].owned for name, _ in shown] == [True, True, False]

    @pytest.mark.slow
    def test_a_large_cluster_is_listed_by_counts_and_shown_in_pages(self) -> None:
        """A message is a frame: nodes with all their labels do not fit one where there are thousands."""
        stage = Stage()
        labels = tuple((f"topology.example/label-{number}", "x" * 40) for number in range(10))
        nodes = [a_node(f"node-{number:04}", labels=labels) for number in range(2000)]
        stage.ready(*nodes[:-1], msgspec.structs.replace(nodes[-1], state=NodeState.CORDONED))
        stage.orders("w1", "node-0007")
        (listed,) = stage.lists()
        assert (listed.nodes, listed.nodes_total, listed.nodes_ready) == ((), 2000, 1999)
        assert (listed.cards, listed.cards_ours, listed.cards_free) == (8000, 4, 7992)
        shown: list[said.NodeShown] = []
        while len(shown) < listed.nodes_total:
            stand = stage.asks(ANN, said.ReadClusters(name="lab", start=len(shown)), said.ClustersStand)
            assert len(pack(stand)) < FRAME_MAX_BYTES * 0.9
            assert len(stand.clusters[0].nodes) >= 100
            shown += stand.clusters[0].nodes
        assert [node.name for node in shown] == [node.name for node in nodes]

    @pytest.mark.slow
    def test_many_clusters_are_listed_in_pages(self) -> None:
        stage = Stage(msgspec.structs.replace(SETTINGS, clusters_per_workspace=0))
        total = 700
        for number in range(total):
            spec = named(f"lab-{number:03}", worker_image="y" * 500, namespace="n" * 63, pull_secret="z" * 250)
            stage.joins(ANN, msgspec.structs.replace(spec, selector=f"k in ({','.join(['v' * 59] * 8)})"))
        found: list[str] = []
        while len(found) < total:
            stand = stage.asks(ANN, said.ReadClusters(start=len(found)), said.ClustersStand)
            assert (stand.total, len(pack(stand)) < FRAME_MAX_BYTES) == (total, True)
            found += [one.name for one in stand.clusters]
        assert found == [f"lab-{number:03}" for number in range(total)]

    def test_an_agent_older_than_the_platform_is_shown_to_its_owner(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        for version, older in (("1.2.0", False), ("1.1.9", True), ("1.10.0", False), ("dev", False), ("", False)):
            stage.reports(cluster_id, a_node("n1"), version=version)
            assert stage.lists(ANN)[0].agent_outdated is older

    @pytest.mark.parametrize(
        ("nodes", "matched", "problem"),
        [
            ((), 0, "its selector names no node"),
            ((a_node("n1", 0), a_node("n2", 0)), 2, "none of the 2 nodes that its selector names has a card"),
            ((a_node("n1"),), 1, ""),
        ],
    )
    def test_why_nothing_is_offered_is_told(
        self, nodes: tuple[said.NodeReport, ...], matched: int, problem: str
    ) -> None:
        stage = Stage()
        cluster_id = stage.joins().cluster.cluster_id
        stage.reports(cluster_id, *nodes, matched=matched)
        assert stage.lists()[0].problem == problem


class TestShare:
    @pytest.mark.parametrize("who", [ANN, BEN])
    def test_only_an_admin_shares_and_takes_back(self, who: Who) -> None:
        stage = Stage()
        stage.joins()
        for shared in (True, False):
            assert stage.refused(who, said.ShareCluster(name="lab", shared=shared)) == "forbidden"

    def test_sharing_takes_effect_as_new_workers_start(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        sent = stage.shares(LAB)
        known = sent.only(said.NodesKnown)
        assert (known.serves, known.offers[0].traits.serves) == ("", "")
        assert isinstance(stage.changes[-1], TermsOfPool)
        assert stage.changes[-1].pool.serves == ""
        assert row(stage, cluster_id).shared
        assert deleted(sent) == []

    def test_taking_back_takes_effect_with_the_next_job_and_ends_no_worker(self) -> None:
        stage = Stage()
        cluster_id = stage.ready(a_node("n1"))
        stage.shares(LAB)
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        sent = stage.shares(LAB, off=True)
        assert (sent.only(said.NodesKnown).serves, deleted(sent), exits(sent)) == ("ann", [], [])
        assert stage.lists(BEN) == ()

    def test_where_workspaces_do_not_trust_each_other_nothing_is_shared_and_the_fix_is_told(self) -> None:
        stage = Stage(msgspec.structs.replace(SETTINGS, trusted=False))
        stage.joins()
        refused = stage.asks(ADMIN, said.ShareCluster(name=LAB, shared=True), RequestRefused).failure
        assert refused.code == "forbidden"
        assert 'isolation = "trusted"' in refused.fix
        assert "plain processes" in refused.why
        assert not stage.lists()[0].shared

    def test_what_was_shared_serves_its_owner_alone_once_trust_is_taken_out_of_the_configuration(self) -> None:
        stage = Stage()
        stage.joins()
        stage.shares(LAB)
        stage._settings = msgspec.structs.replace(SETTINGS, trusted=False)
        stage.begin()
        (begin,) = stage.changes
        assert isinstance(begin, BeginPool)
        assert begin.pool.serves == "ann"

    def test_an_admin_finds_a_cluster_by_its_name_or_by_its_pool(self) -> None:
        stage = Stage()
        stage.joins()
        assert stage.shares("lab").only(said.ClustersStand).clusters[0].shared
        assert not stage.shares(LAB, off=True).only(said.ClustersStand).clusters[0].shared


class TestLeave:
    def test_leaving_ends_the_tokens_of_agent_and_workers_and_the_pool_retires(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        for subject in ("w1", "elsewhere"):
            token = ops.TokenRow(
                token_id=f"token-of-{subject}",
                workspace_id="ann",
                kind=TokenKind.WORKER_PRIVATE,
                name="",
                hash=subject.encode(),
                hint="",
                active=True,
                created_at_s=0.0,
                subject=subject,
            )
            stage.truth.ask(ops.CreateToken(token=token))
        assert stage.leaves(ANN, "lab").only(said.ClustersStand).clusters == ()
        assert active(stage) == ["elsewhere"]
        assert isinstance(stage.changes[-1], BeginPool)
        assert stage.changes[-1].pool.retiring
        assert row(stage, cluster_id).leaving

    def test_its_agent_is_told_first_to_delete_the_jobs_and_a_little_is_waited_for_that(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        sent = stage.wishes(ANN, said.LeaveCluster(name="lab"))
        assert (deleted(sent), sent.of(said.ClustersStand)) == (["w1"], [])
        assert stage.tick(0.25).of(said.ClustersStand) == []
        assert active(stage) == [cluster_id]
        stage.reports(cluster_id, a_node("n1"))
        assert len(stage.tick(0.25).of(said.ClustersStand)) == 1
        assert active(stage) == []

    def test_an_agent_that_says_nothing_holds_it_up_for_a_moment_only(self) -> None:
        stage = Stage()
        cluster_id = stage.ready()
        stage.orders()
        stage.reports(cluster_id, a_node("n1"), jobs=(a_job("w1"),))
        stage.wishes(ANN, said.LeaveCluster(name="lab"))
        assert len(stage.tick(2.0).of(said.ClustersStand)) == 1

    def test_workers_of_a_detached_cluster_are_gone_so_that_their_work_runs_elsewhere(self) -> None:
        stage = Stage()
        stage.ready()
        stage.orders()
        stage.leaves(ANN, "lab")
        adopt = said.AdoptWorkerJob(pool=LAB, worker_id="w1", handle="", state=WorkerState.ORDERED, node="n1")
        assert exits(stage.pool(adopt)) == [("w1", "its cluster was detached")]

    @pytest.mark.parametrize("who", [ANN, ADMIN])
    def test_who_lost_the_answer_and_asks_again_is_answered(self, who: Who) -> None:
        stage = Stage()
        stage.ready()
        stage.orders()
        stage.leaves(who, LAB)
        for name in ("lab", LAB):
            assert stage.wishes(who, said.LeaveCluster(name=name)).only(said.ClustersStand).clusters == ()
        assert stage.refused(BEN, said.LeaveCluster(name="lab")) == "not_found"
        stage.pool(scheduling.PoolRetired(pool=LAB))
        assert stage.refused(who, said.LeaveCluster(name="lab")) == "not_found"

    def test_with_its_pool_it_is_forgotten(self) -> None:
        stage = Stage()
        stage.ready()
        stage.truth.ask(ops.PutPool(pool=LAB, largest=a_node("n").free))
        stage.leaves(ANN, "lab")
        stage.pool(scheduling.PoolRetired(pool=LAB))
        assert isinstance(stage.changes[-1], FinishPool)
        assert stage.truth.tables.clusters == {}
        assert stage.truth.tables.pools == {}

    def test_joining_again_is_a_new_cluster_that_is_not_shared(self) -> None:
        stage = Stage()
        first = stage.ready()
        stage.shares(LAB)
        stage.leaves(ADMIN, LAB)
        stage.pool(scheduling.PoolRetired(pool=LAB))
        again = stage.joins()
        assert (again.renewed, again.cluster.shared) == (False, False)
        assert again.cluster.cluster_id != first

    def test_who_joins_again_before_the_pool_has_gone_is_answered_when_it_has(self) -> None:
        stage = Stage()
        stage.ready()
        stage.leaves(ANN, "lab")
        assert stage.wishes(ANN, said.JoinCluster(spec=SPEC)) == []
        joined = stage.pool(scheduling.PoolRetired(pool=LAB)).only(said.ClusterJoined)
        assert not joined.renewed

    def test_a_shared_cluster_is_detached_by_an_admin_only(self) -> None:
        stage = Stage()
        stage.ready()
        stage.shares(LAB)
        assert stage.refused(ANN, said.LeaveCluster(name="lab")) == "forbidden"
        assert stage.refused(BEN, said.LeaveCluster(name="lab")) == "forbidden"
        assert len(stage.leaves(ADMIN, LAB).of(said.ClustersStand)) == 1

    def test_nobody_detaches_another_s_private_cluster_but_an_admin(self) -> None:
        stage = Stage()
        stage.ready()
        assert stage.refused(BEN, said.LeaveCluster(name="lab")) == "not_found"
        assert len(stage.leaves(ADMIN, LAB).of(said.ClustersStand)) == 1

    def test_a_leader_that_begins_meanwhile_goes_on_retiring_the_pool(self) -> None:
        stage = Stage()
        stage.ready()
        stage.orders()
        stage.leaves(ANN, "lab")
        stage.begin()
        (begin,) = stage.changes
        assert isinstance(begin, BeginPool)
        assert begin.pool.retiring
        assert stage.lists() == ()
        adopt = said.AdoptWorkerJob(pool=LAB, worker_id="w1", handle="", state=WorkerState.ORDERED, node="n1")
        assert exits(stage.pool(adopt)) == [("w1", "its cluster was detached")]
        stage.pool(scheduling.PoolRetired(pool=LAB))
        assert stage.truth.tables.clusters == {}
