"""Pools that people create and delete: what is refused, what is a row first, and what a new leader goes on with."""

from __future__ import annotations

import pytest
from levers9_test_deciding import SIZE, Sent, Truth, decide

from levers9.actors.pool.registry import POOLS_MAX, Begin, Finish, PoolRegistry
from levers9.actors.pool.settings import PoolSettings, retiring
from levers9.errors import INVALID, OutcomeUnknown, Refused
from levers9.model.clusters import ClusterSpec, pool_of
from levers9.model.states import TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import scheduling
from levers9.wire.client import RequestRefused
from levers9.wire.letter import Letter
from levers9.wire.message import Message
from levers9.wire.operating import CreatePool, DeletePool, PoolSpec, PoolsStand, PoolStanding, PoolTold, ReadPools


def read(name: str, table: str, rank: int) -> PoolSettings:
    if table == "bad":
        raise Refused("It is bad.", code=INVALID)
    return PoolSettings(name=name, worker=SIZE, rank=rank)


class Stage:
    def __init__(self, *configured: str) -> None:
        self.truth = Truth()
        self.configured = configured
        self.changes: list[Begin | Finish] = []
        self.restart()

    def restart(self) -> None:
        self.registry = PoolRegistry(self.configured, read)
        specs, workers = self.truth.ask(ops.ListPoolSpecs()), self.truth.ask(ops.LoadWorkers())
        clusters = rows_of(self.truth.ask(ops.ListClusters()), ops.ClusterRow)
        self.registry.load(rows_of(specs, ops.PoolSpecRow), rows_of(workers, ops.WorkerRow), clusters)

    def say(self, *letters: Letter, how: str = "well") -> Sent:
        sent = Sent()
        for plan, sends in decide(self.registry, self.truth, letters, 0.0, how):
            sent += sends
            self.changes += plan.changes
        return sent

    def ask(self, message: Message, kind: TokenKind = TokenKind.CLUSTER_ADMIN) -> Message:
        sent = self.say(Letter(message, source="gateway/g", target="pools", kind=kind, id="question"))
        ((target, answer, correlation),) = [(one.target, one.message, one.correlation) for one in sent]
        assert (target, correlation) == ("gateway/g", "question")
        return answer

    def create(self, name: str, table: str = "{}") -> Message:
        return self.ask(CreatePool(spec=PoolSpec(name=name, table=table)))

    def specs(self) -> dict[str, str]:
        rows = rows_of(self.truth.ask(ops.ListPoolSpecs()), ops.PoolSpecRow)
        return {row.name: row.table for row in rows}

    def retired(self, name: str) -> Sent:
        return self.say(Letter(scheduling.PoolRetired(pool=name), source=f"pool/{name}", target="pools"))


def refusal(answer: Message) -> str:
    assert isinstance(answer, RequestRefused)
    return answer.failure.what


def test_a_created_pool_is_a_row_and_begins_after_those_of_the_file() -> None:
    stage = Stage("a", "b")
    assert stage.create("new", "keys") == PoolsStand(names=("a", "b", "new"))
    assert stage.specs() == {"new": "keys"}
    assert stage.changes == [Begin(settings=PoolSettings(name="new", worker=SIZE, rank=2))]


def test_a_commit_that_is_unheard_of_begins_nothing_and_the_next_leader_finds_the_row() -> None:
    stage = Stage()
    letter = Letter(CreatePool(spec=PoolSpec(name="new", table="keys")), source="g", kind=TokenKind.CLUSTER_ADMIN)
    with pytest.raises(OutcomeUnknown):
        stage.say(letter, how="after")
    assert stage.changes == []
    stage.restart()
    stage.say()
    assert [change.settings.name for change in stage.changes if isinstance(change, Begin)] == ["new"]


def test_a_name_is_given_once_also_while_its_pool_is_leaving() -> None:
    stage = Stage("a")
    stage.create("new")
    assert refusal(stage.create("a")) == "There is a pool 'a' already."
    assert refusal(stage.create("new")) == "There is a pool 'new' already."
    stage.ask(DeletePool(name="new"))
    assert refusal(stage.create("new")) == "Pool 'new' is being taken away."
    stage.retired("new")
    assert isinstance(stage.create("new"), PoolsStand)


def test_there_are_not_more_pools_than_a_brain_can_hold() -> None:
    stage = Stage(*(f"p{number}" for number in range(POOLS_MAX)))
    assert refusal(stage.create("new")) == "There are 1000 pools already."


def test_what_cannot_be_read_is_refused_and_leaves_nothing() -> None:
    stage = Stage()
    assert refusal(stage.create("new", "bad")) == "It is bad."
    assert (stage.specs(), stage.changes) == ({}, [])


def test_a_deleted_pool_retires_and_is_forgotten_with_its_last_worker() -> None:
    stage = Stage()
    stage.create("new")
    assert stage.ask(DeletePool(name="new")) == PoolsStand(names=())
    assert stage.ask(DeletePool(name="new")) == PoolsStand(names=())
    assert stage.changes[1:] == [Begin(settings=retiring("new"))]
    stage.retired("new")
    stage.retired("new")
    assert (stage.specs(), stage.changes[2:]) == ({}, [Finish(name="new")])


def test_a_new_leader_goes_on_taking_it_away() -> None:
    stage = Stage()
    stage.create("new")
    stage.ask(DeletePool(name="new"))
    stage.changes.clear()
    stage.restart()
    stage.say()
    assert stage.changes == [Begin(settings=retiring("new"))]


def test_a_pool_of_the_file_is_not_deleted_and_nobody_deletes_what_is_not_there() -> None:
    stage = Stage("a")
    assert refusal(stage.ask(DeletePool(name="a"))) == "Pool 'a' is in the configuration file."
    assert refusal(stage.ask(DeletePool(name="b"))) == "There is no pool 'b'."


def test_a_pool_that_the_file_takes_over_is_the_files() -> None:
    stage = Stage()
    stage.create("a")
    stage.configured = ("a",)
    stage.changes.clear()
    stage.restart()
    stage.say()
    assert (stage.specs(), stage.changes, stage.registry.names) == ({}, [], ("a",))


def test_workers_of_a_pool_that_nobody_declares_any_more_are_drained() -> None:
    stage = Stage("a")
    rows = [
        ops.WorkerRow(worker_id=f"w{number}", pool=pool, state=state, capacity=SIZE)
        for number, (pool, state) in enumerate(
            [("a", WorkerState.AVAILABLE), ("old", WorkerState.PENDING), ("older", WorkerState.GONE)]
        )
    ]
    stage.truth.ask(ops.PutWorkers(workers=tuple(rows)))
    stage.restart()
    stage.say()
    assert stage.changes == [Begin(settings=retiring("old"))]


def test_workers_that_a_cluster_left_behind_are_asked_after_as_the_jobs_they_were() -> None:
    stage = Stage()
    job = ops.WorkerRow(worker_id="j", pool="lab-1", state=WorkerState.UNKNOWN, capacity=SIZE, handle="job/node/uid")
    stage.truth.ask(ops.PutWorkers(workers=(job,)))
    stage.restart()
    stage.say()
    assert stage.changes == [Begin(settings=retiring("lab-1", attached=True))]


def test_a_pool_whose_keys_are_good_no_more_is_taken_away_rather_than_forgotten() -> None:
    stage = Stage()
    stage.truth.ask(ops.PutPoolSpec(name="new", table="bad"))
    stage.restart()
    stage.say()
    assert stage.changes == [Begin(settings=retiring("new"))]


@pytest.mark.parametrize("kind", [kind for kind in TokenKind if kind is not TokenKind.CLUSTER_ADMIN])
def test_nobody_but_the_platforms_admin_is_heard(kind: TokenKind) -> None:
    stage = Stage()
    for message in (CreatePool(spec=PoolSpec(name="new", table="{}")), DeletePool(name="new"), ReadPools()):
        assert refusal(stage.ask(message, kind)) == "Pools are the platform's."
    assert stage.changes == []


def test_how_pools_stand_is_what_they_said_last() -> None:
    stage = Stage("a")
    stage.create("new")
    for name in ("new", "a", "nobody"):
        told = PoolTold(standing=PoolStanding(name=name, workers=1))
        stage.say(Letter(told, source=f"pool/{name}", target="pools"))
    stage.say(Letter(PoolTold(standing=PoolStanding(name="a", workers=9)), source="pool/new", target="pools"))
    answer = stage.ask(ReadPools())
    assert isinstance(answer, PoolsStand)
    assert [(one.name, one.workers, one.created) for one in answer.pools] == [("a", 1, False), ("new", 1, True)]


class TestAttached:
    LAB = pool_of("ann", "lab")

    def told(self, stage: Stage) -> None:
        standing = PoolStanding(name=self.LAB, attached=True, max_workers=2)
        stage.say(Letter(PoolTold(standing=standing), source=f"pool/{self.LAB}", target="pools"))

    def test_workers_of_an_attached_cluster_are_not_drained_as_those_of_nobody(self) -> None:
        stage = Stage()
        row = ops.ClusterRow(
            cluster_id="c", workspace_id="ann", spec=ClusterSpec(name="lab", gpu_type="A"), leaving=True
        )
        worker = ops.WorkerRow(worker_id="w", pool=self.LAB, state=WorkerState.AVAILABLE, capacity=SIZE)
        stage.truth.ask(ops.PutCluster(cluster=row))
        stage.truth.ask(ops.PutWorkers(workers=(worker,)))
        stage.restart()
        stage.say()
        assert stage.changes == []
        stage.truth.ask(ops.DropCluster(cluster_id="c"))
        stage.restart()
        stage.say()
        assert stage.changes == [Begin(settings=retiring(self.LAB))]

    def test_its_pool_is_shown_until_it_is_no_more_and_its_name_is_taken(self) -> None:
        stage = Stage("p")
        self.told(stage)
        stand = stage.ask(ReadPools())
        assert isinstance(stand, PoolsStand)
        assert (stand.names, [one.name for one in stand.pools]) == (("p", self.LAB), [self.LAB])
        assert isinstance(stage.create(self.LAB), RequestRefused)
        assert isinstance(stage.ask(DeletePool(name=self.LAB)), RequestRefused)
        stage.retired(self.LAB)
        stand = stage.ask(ReadPools())
        assert isinstance(stand, PoolsStand)
        assert stand.names == ("p",)
