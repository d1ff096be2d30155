"""Pools and wishes over REST: what is asked of the brain, and what is shown of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from levers9.model.nodes import Traits
from levers9.model.resources import Capacity
from levers9.model.states import TokenKind, WorkerState
from levers9.store.operations import PutWorkers, WorkerRow
from levers9.wire.client import RequestRefused
from levers9.wire.message import Failure
from levers9.wire.operating import (
    CreatePool,
    DeletePool,
    NodeStanding,
    PoolsStand,
    PoolStanding,
    ReadPools,
    TellWorkers,
    WorkersTold,
    WorkerWish,
)

if TYPE_CHECKING:
    from .conftest import Stand

SIZE = Capacity(cpu_milli=2000, memory_mib=1024, gpu_count=4, gpu_type="GB200")
POOL = PoolStanding(
    name="p",
    max_workers=2,
    workers=1,
    nodes=(NodeStanding(name="n1", capacity=SIZE, labels=(("nvl", "d1"),), worker_id="w1"),),
    wanted=1,
    holds=("it is at its maximum of 2 workers.",),
)
STAND = PoolsStand(names=("p", "q"), pools=(POOL,))


async def with_pools(stand: Stand) -> Stand:
    for question in (ReadPools, CreatePool, DeletePool):
        stand.brain.answers[question] = lambda _: STAND
    row = WorkerRow(
        worker_id="w1", pool="p", state=WorkerState.AVAILABLE, capacity=SIZE, traits=Traits(node="n1"), gang_id="g"
    )
    other = WorkerRow(worker_id="w2", pool="q", state=WorkerState.AVAILABLE, capacity=SIZE)
    await stand.store.apply(PutWorkers(workers=(row, other)))
    return stand


async def test_pools_are_listed_with_what_holds_them(stand: Stand) -> None:
    await with_pools(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        (pool,) = (await http.get("/api/v1/pools")).json()["pools"]
    assert (pool["name"], pool["wanted"], pool["holds"]) == ("p", 1, ["it is at its maximum of 2 workers."])
    assert pool["nodes"] == [
        {
            "name": "n1",
            "state": "ready",
            "capacity": {"cpu_milli": 2000, "memory_mib": 1024, "gpu_count": 4, "gpu_type": "GB200"},
            "labels": {"nvl": "d1"},
            "worker_id": "w1",
        }
    ]


async def test_a_pool_is_shown_with_its_own_workers(stand: Stand) -> None:
    await with_pools(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        shown = (await http.get("/api/v1/pools/p")).json()
        missing = await http.get("/api/v1/pools/nobody")
    assert [(one["worker_id"], one["node"], one["gang_id"]) for one in shown["workers"]] == [("w1", "n1", "g")]
    assert (missing.status_code, missing.json()["what"]) == (404, "There is no pool 'nobody'.")


async def test_a_pool_is_created_from_the_keys_of_its_table(stand: Stand) -> None:
    await with_pools(stand)
    keys = {"name": "new", "cpu": 2, "nodes": [{"name": "n9"}]}
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.post("/api/v1/pools", json=keys)
    ((envelope, message),) = stand.brain.heard(CreatePool)
    assert (answer.json()["names"], envelope.target, envelope.kind) == (["p", "q"], "pools", "cluster_admin")
    assert isinstance(message, CreatePool)
    assert (message.spec.name, msgspec.json.decode(message.spec.table)) == ("new", keys)


async def test_what_the_brain_refuses_is_told_in_its_words(stand: Stand) -> None:
    failure = Failure("conflict", "There is a pool 'p' already.", "", "Take another name.")
    stand.brain.answers[CreatePool] = lambda _: RequestRefused(failure=failure)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.post("/api/v1/pools", json={"name": "p"})
        nameless = await http.post("/api/v1/pools", json={"name": 7})
    assert (answer.status_code, answer.json()["err_msg"]) == (409, "There is a pool 'p' already. Take another name.")
    assert nameless.status_code == 400


async def test_a_pool_is_deleted_by_its_name(stand: Stand) -> None:
    await with_pools(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.delete("/api/v1/pools/q")
    ((_, message),) = stand.brain.heard(DeletePool)
    assert (answer.status_code, message) == (200, DeletePool(name="q"))


@pytest.mark.parametrize("wish", list(WorkerWish))
async def test_a_wish_is_passed_on_and_answered_with_the_state(stand: Stand, wish: WorkerWish) -> None:
    stand.brain.answers[TellWorkers] = lambda _: WorkersTold(states=(("w1", "cordoned"),))
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.post(f"/api/v1/workers/w1/{wish}")
        missing = await http.post(f"/api/v1/workers/w9/{wish}")
    assert (answer.json()["worker_id"], answer.json()["state"], missing.status_code) == ("w1", "cordoned", 404)
    assert stand.brain.heard(TellWorkers)[0][1] == TellWorkers(worker_ids=("w1",), wish=wish)


@pytest.mark.parametrize(
    ("kind", "seen"),
    [(TokenKind.CLUSTER_ADMIN, ["w1", "w2", "w3", "w4", "w5"]), (TokenKind.WORKSPACE, ["w1", "w3"])],
)
async def test_workers_of_pools_that_serve_others_alone_are_told_to_the_platforms_admin_only(
    stand: Stand, kind: TokenKind, seen: list[str]
) -> None:
    pools = (
        PoolStanding(name="everybodys"),
        PoolStanding(name="theirs", serves="ws-b"),
        PoolStanding(name="own", serves="ws-a"),
        PoolStanding(name="leaves", leaving=True),
    )
    stand.brain.answers[ReadPools] = lambda _: PoolsStand(names=(), pools=pools)
    names = ("everybodys", "theirs", "own", "leaves", "of nobody")
    rows = (
        WorkerRow(worker_id=f"w{number}", pool=pool, state=WorkerState.AVAILABLE, capacity=SIZE)
        for number, pool in enumerate(names, 1)
    )
    await stand.store.apply(PutWorkers(workers=tuple(rows)))
    async with stand.http(await stand.token(kind)) as http:
        workers = (await http.get("/api/v1/workers")).json()["workers"]
    assert [one["worker_id"] for one in workers] == seen


async def test_names_of_nodes_are_told_to_the_platforms_admin_only(stand: Stand) -> None:
    await with_pools(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        admin = (await http.get("/api/v1/workers")).json()["workers"][0]["node"]
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        person = (await http.get("/api/v1/workers")).json()["workers"][0]["node"]
    assert (admin, person) == ("n1", "")
