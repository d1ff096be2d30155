"""The pool of a cluster: its nodes, and whom it serves, are told to it; its workers are Jobs of somebody else's."""

from __future__ import annotations

import trio
from levers9_test_deciding import SHAPE, Sent
from levers9_test_pool import Stage, node, reasons

from levers9.actors.pool import AttachedWorkers, PoolSettings
from levers9.actors.pool.policy import Adopt, EndWorker, StartWorker
from levers9.actors.pool.settings import retiring
from levers9.model.figures import WORKER_START_LIMIT_S
from levers9.model.ids import Chance
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.reasons import HoldKind
from levers9.model.resources import Capacity, Shape
from levers9.model.states import TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import cluster as said
from levers9.wire import scheduling
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.operating import PoolTold, TermsChanged
from levers9.wire.post import Post

CARD = Shape(cpu_milli=1000, memory_mib=100, gpu_count=1)
ATTACHED = PoolSettings(
    name="p", worker=None, max_workers=0, serves="ann", owner="ann", known_as="lab", gpu_type="A", attached=True
)


def letter(message: Message) -> Letter:
    return Letter(message, source="clusters", target="pool/p")


def knows(*offers: NodeOffer, serves: str = "ann", whole: tuple[NodeOffer, ...] = ()) -> Letter:
    return letter(said.NodesKnown(pool="p", offers=offers, whole=whole or offers, serves=serves))


def begun(*offers: NodeOffer) -> Stage:
    stage = Stage(settings=ATTACHED)
    stage.say(knows(*(offers or (node("n1", 2, "A"), node("n2", 2, "A")))))
    return stage


def tokens(stage: Stage) -> list[tuple[TokenKind, str]]:
    rows = rows_of(stage.truth.ask(ops.ListTokens()), ops.TokenRow)
    return [(row.kind, row.workspace_id) for row in rows]


def ordered(sent: Sent) -> list[str]:
    return [one.traits.node for one in sent.of(scheduling.WorkerOrdered)]


class TestNodes:
    def test_it_says_who_it_is_and_asks_what_its_nodes_are(self) -> None:
        sent = Stage(settings=ATTACHED).say()
        (asked,) = sent.to("clusters", scheduling.PoolDeclared)
        (declared,) = sent.to("scheduler", scheduling.PoolDeclared)
        assert asked == declared
        assert (declared.serves, declared.owner, declared.known_as, declared.gpu_type) == ("ann", "ann", "lab", "A")
        assert sent.of(scheduling.PoolNodes) == []

    def test_the_scheduler_and_what_can_ever_fit_know_its_nodes(self) -> None:
        stage = Stage(settings=ATTACHED)
        stage.say()
        whole = (node("n1", 4, "A"), node("n2", 8, "A"))
        sent = stage.say(knows(node("n1", 1, "A"), node("n2", 2, "A", state="full"), whole=whole))
        assert [offer.traits.node for offer in sent.only(scheduling.PoolNodes).offers] == ["n1", "n2"]
        assert sent.only(scheduling.PoolDeclared).max_workers == 2
        assert len(sent.to("tasks", TermsChanged)) == 1
        (record,) = rows_of(stage.truth.ask(ops.ListPools()), ops.PoolRecord)
        assert (record.largest.gpu_count, record.offers, record.max_workers) == (8, whole, 2)

    def test_a_worker_on_a_node_that_is_not_told_of_any_more_takes_no_other_node_s_place(self) -> None:
        """Its node was replaced while nobody looked, or the selector leaves it out; it counts until it has ended."""
        stage = begun(node("n1", 2, "A"))
        stage.say(stage.wanted(CARD))
        stage.say(*stage.arrived(*stage.ordered()))
        assert ordered(stage.say(knows(node("n2", 2, "A")), stage.wanted(CARD))) == ["n2"]
        assert ordered(stage.say(knows(node("n1", 2, "A"), node("n2", 2, "A")), stage.wanted(CARD, CARD, CARD))) == []

    def test_one_worker_a_node_is_ordered_where_it_is_ready(self) -> None:
        stage = begun(node("n1", 2, "A"), node("n2", 2, "A", state="stale"), node("n3", 2, "A", state="full"))
        sent = stage.say(stage.wanted(CARD, CARD, CARD, CARD, CARD))
        assert ordered(sent) == ["n1"]

    def test_nodes_that_come_later_take_what_still_waits(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD, CARD))
        stage.say(stage.wanted(CARD))
        sent = stage.say(knows(node("n1", 1, "A"), node("n2", 1, "A")))
        assert ordered(sent) == ["n2"]

    def test_what_a_node_has_now_is_what_its_next_worker_has(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(knows(node("n1", 2, "A")))
        stage.say(stage.wanted(CARD))
        assert [start.capacity.gpu_count for start in stage.starts] == [2]

    def test_a_node_with_a_worker_takes_no_other_whatever_is_offered(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        stage.say(knows(node("n1", 4, "A")))
        assert ordered(stage.say(stage.wanted(CARD))) == []

    def test_the_same_nodes_again_are_declared_no_second_time(self) -> None:
        stage = begun()
        sent = stage.say(knows(node("n1", 2, "A"), node("n2", 2, "A")))
        assert (sent.of(scheduling.PoolDeclared), sent.of(TermsChanged)) == ([], [])

    def test_nobody_else_says_what_its_nodes_are(self) -> None:
        stage = Stage(settings=ATTACHED)
        message = said.NodesKnown(pool="p", offers=(node("n1", 2, "A"),), serves="")
        for source in ("scheduler", "agent/c", "spawner"):
            stage.say(Letter(message, source=source, target="pool/p"))
        assert ordered(stage.say(stage.wanted(CARD))) == []

    def test_its_standing_is_that_of_a_cluster(self) -> None:
        sent = Stage(settings=ATTACHED).say(knows(node("n1", 2, "A"), node("n2", 2, "A")))
        standing = sent.of(PoolTold)[-1].standing
        assert (standing.attached, standing.size, len(standing.nodes)) == (True, None, 2)


class TestWorkersWithoutTheirCards:
    """Two nodes of two cards; on n1 a worker comes and cannot tell which are its own."""

    lacks = "the driver shows 4 cards, and nothing says which 2 of them are its own"

    def cardless(self, stage: Stage) -> Sent:
        """The newest worker comes without cards, and is gone again."""
        sent = stage.say(*stage.arrived(stage.ordered()[-1], lacks=self.lacks))
        sent += stage.gone(stage.ordered()[-1])
        return sent

    def test_the_node_gets_no_other_one_of_that_size_and_it_is_told_why(self) -> None:
        stage = begun(node("n1", 2, "A"))
        stage.say(stage.wanted(CARD))
        sent = self.cardless(stage)
        (told,) = sent.of(scheduling.PoolNodes)
        assert [offer.state for offer in told.offers] == [NodeState.CARDS_UNKNOWN]
        assert ordered(stage.say(stage.wanted(CARD))) == []

    def test_another_node_gets_one_meanwhile(self) -> None:
        stage = begun()
        stage.say(stage.wanted(CARD))
        self.cardless(stage)
        assert ordered(stage.say(stage.wanted(CARD))) == ["n2"]

    def test_it_is_tried_again_ever_later(self) -> None:
        stage = begun(node("n1", 2, "A"))
        stage.say(stage.wanted(CARD))
        waits = []
        for starts in range(2, 10):
            self.cardless(stage)
            began_s = stage.now_s
            while len(stage.starts) < starts:
                stage.tick(1.0)
                stage.say(stage.wanted(CARD))
            waits.append(stage.now_s - began_s)
        assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]

    def test_it_is_tried_at_once_where_it_has_more_cards_free_or_fewer(self) -> None:
        stage = begun(node("n1", 2, "A"))
        stage.say(stage.wanted(CARD))
        self.cardless(stage)
        assert ordered(stage.say(knows(node("n1", 2, "A")), stage.wanted(CARD))) == []
        assert ordered(stage.say(knows(node("n1", 4, "A")), stage.wanted(CARD))) == ["n1"]

    def test_one_that_comes_with_its_cards_begins_it_anew(self) -> None:
        stage = begun(node("n1", 2, "A"))
        stage.say(stage.wanted(CARD))
        self.cardless(stage)
        stage.tick(60.0)
        stage.say(stage.wanted(CARD))
        stage.say(*stage.arrived(stage.ordered()[-1]))
        stage.gone(stage.ordered()[-1])
        stage.say(stage.wanted(CARD))
        self.cardless(stage)
        stage.tick(60.0)
        assert ordered(stage.say(stage.wanted(CARD))) == ["n1"]

    def test_nothing_is_told_where_all_workers_have_their_cards(self) -> None:
        stage = begun()
        stage.say(stage.wanted(CARD))
        assert stage.say(*stage.arrived(stage.ordered()[-1])).of(scheduling.PoolNodes) == []


class TestTokens:
    def test_workers_of_a_private_cluster_carry_tokens_for_its_workspace_alone(self) -> None:
        stage = begun()
        stage.say(stage.wanted(CARD))
        assert tokens(stage) == [(TokenKind.WORKER_PRIVATE, "ann")]

    def test_those_of_a_shared_one_carry_tokens_of_the_platform_and_running_ones_keep_theirs(self) -> None:
        stage = begun(node("n1", 1, "A"), node("n2", 1, "A"))
        stage.say(stage.wanted(CARD))
        sent = stage.say(knows(node("n1", 1, "A"), node("n2", 1, "A"), serves=""))
        assert sent.only(scheduling.PoolDeclared).serves == ""
        assert len(sent.of(TermsChanged)) == 1
        stage.say(stage.wanted(CARD))
        assert tokens(stage) == [(TokenKind.WORKER_PRIVATE, "ann"), (TokenKind.WORKER, "")]

    def test_a_pool_of_processes_that_serves_one_workspace_has_workers_of_the_platform(self) -> None:
        size = Capacity(cpu_milli=2000, memory_mib=1000)
        stage = Stage(settings=PoolSettings(name="p", worker=size, serves="ann"))
        stage.say(stage.wanted(SHAPE))
        assert tokens(stage) == [(TokenKind.WORKER, "")]


class TestWorkers:
    def test_a_job_that_is_there_and_one_that_has_ended_are_told_by_clusters(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        (worker_id,) = stage.ordered()
        handle = "job/uid-n1/uid"
        stage.say(letter(scheduling.WorkerStarted(worker_id=worker_id, handle=handle, at_s=stage.now_s)))
        row = stage.truth.tables.workers[worker_id]
        assert (row.state, row.handle) == (WorkerState.PENDING, handle)
        gone = letter(scheduling.WorkerExited(worker_id=worker_id, evidence="its node is gone"))
        assert stage.say(gone).only(scheduling.WorkerGone).evidence == "its node is gone"
        assert ordered(stage.say(stage.wanted(CARD))) == ["n1"]

    def test_one_that_does_not_report_within_20_minutes_is_deleted(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        stage.tick(WORKER_START_LIMIT_S)
        assert [end.worker_id for end in stage.ends] == stage.ordered()

    def test_a_new_leader_has_its_jobs_looked_for_on_their_nodes(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        stage.restart()
        stage.say()
        assert [(adopt.worker_id, adopt.node) for adopt in stage.adopts] == [(stage.ordered()[0], "n1")]

    def test_why_workers_do_not_start_is_told_to_who_waits_and_taken_back(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        sent = stage.say(letter(said.JobWaits(pool="p", why="image x cannot be pulled on n1")))
        assert reasons(sent) == ["image x cannot be pulled on n1."]
        held = sent.only(scheduling.PoolHeld).reason
        assert held is not None
        assert (held.kind, held.machines_only) == (HoldKind.CLUSTER, True)
        assert reasons(stage.say(letter(said.JobWaits(pool="p", why="")))) == [""]

    def test_what_is_odd_in_a_cluster_is_told_to_nobody_while_nothing_is_wanted_there(self) -> None:
        stage = begun(node("n1", 1, "A"))
        assert reasons(stage.say(letter(said.JobWaits(pool="p", why="its agent is away")))) == []
        assert reasons(stage.say(stage.wanted(CARD))) == ["its agent is away."]

    def test_one_that_retires_tells_clusters_with_its_last_worker(self) -> None:
        stage = begun(node("n1", 1, "A"))
        stage.say(stage.wanted(CARD))
        (worker_id,) = stage.ordered()
        stage.settings = retiring("p", attached=True)
        stage.begin_pool()
        assert stage.say().of(scheduling.PoolRetired) == []
        sent = stage.say(letter(scheduling.WorkerExited(worker_id=worker_id, evidence="its cluster was detached")))
        assert [send.target for send in sent if isinstance(send.message, scheduling.PoolRetired)] == [
            "scheduler",
            "pools",
            "clusters",
        ]


async def test_what_is_to_be_done_of_workers_goes_to_clusters_as_letters() -> None:
    post = Post(chance=Chance(1))
    mailbox = Mailbox("clusters")
    post.register("clusters", mailbox)
    workers = AttachedWorkers(post, "p")
    traits = Traits(node="n1")
    size = Capacity(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_type="A")

    def tell(message: Message) -> None:
        raise AssertionError(message)

    with trio.fail_after(1):
        await workers.start(StartWorker(worker_id="w", token="t", capacity=size, traits=traits), tell)
        adopt = Adopt(worker_id="v", handle="h", state=WorkerState.PENDING, node="n2", ordered_at_s=3.0)
        await workers.adopt(adopt, tell)
        await workers.end(EndWorker(worker_id="u", why="too late"))
        await workers.stop_all()
        letters = [await mailbox.take() for _ in range(3)]
    assert {one.source for one in letters} == {"pool/p"}
    assert [one.message for one in letters] == [
        said.RunWorkerJob(pool="p", worker_id="w", token="t", capacity=size, traits=traits),
        said.AdoptWorkerJob(
            pool="p", worker_id="v", handle="h", state=WorkerState.PENDING, node="n2", ordered_at_s=3.0
        ),
        said.EndWorkerJob(pool="p", worker_id="u", why="too late"),
    ]
