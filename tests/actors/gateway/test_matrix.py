"""The whole matrix of token kinds and routes, against a running gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from levers9.actors.gateway.rest.app import HANDLERS
from levers9.errors import FORBIDDEN, Refused
from levers9.model.queues import Queueing
from levers9.model.routes import Route, allows
from levers9.model.states import TokenKind
from levers9.wire.cluster import ClustersStand, JoinCluster, LeaveCluster, ReadClusters, ShareCluster
from levers9.wire.control import Inspect, Inspected
from levers9.wire.operating import (
    ChangeQueueing,
    CreatePool,
    DeletePool,
    PoolsStand,
    PoolStanding,
    QueueingStands,
    ReadPools,
    ReadQueueing,
    TellWorkers,
    WorkersTold,
)

if TYPE_CHECKING:
    from .conftest import Stand

STREAMS = {
    Route.STREAM_CLIENT: "/v1/stream?peer=client&workspace=ws-a",
    Route.STREAM_WORKER: "/v1/stream?peer=worker&id=w1",
    Route.STREAM_AGENT: "/v1/stream?peer=agent&id=w1",
    Route.RELAY: "/v1/relay?gateway=f",
}
PLACES = {
    "{key:path}": "blob/x",
    "{container_id}": "c",
    "{chunk:int}": "0",
    "{task_id}": "t",
    "{token_id}": "t",
    "{part}": "quotas",
    "{name:path}": "gpu",
    "{name}": "p",
    "{worker_id}": "w1",
}
UNKNOWN = "l9_space_" + "A" * 43


async def status_of(stand: Stand, route: Route, token: str) -> tuple[int, str]:
    method, _, path = str(route).partition(" ")
    for name, value in PLACES.items():
        path = path.replace(name, value)
    async with stand.http(token) as http:
        answer = await http.request(method, path, content=b"")
    return answer.status_code, "" if answer.status_code < 400 else answer.json()["code"]


async def code_of_dial(stand: Stand, route: Route, token: str) -> str:
    try:
        carrier = await stand.dial(STREAMS[route], token)()
    except Refused as refused:
        return refused.code
    await carrier.aclose()
    return ""


def test_every_route_is_either_a_stream_or_served() -> None:
    assert {*STREAMS, *HANDLERS} == set(Route)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TokenKind))
async def test_a_kind_takes_its_routes_and_no_others(stand: Stand, kind: TokenKind) -> None:
    stand.brain.answers[Inspect] = lambda _: Inspected(children=())
    for question in (ReadQueueing, ChangeQueueing):
        stand.brain.answers[question] = lambda _: QueueingStands(queueing=Queueing(), queues=(), quotas=())
    for question in (ReadPools, CreatePool, DeletePool):
        stand.brain.answers[question] = lambda _: PoolsStand(names=(), pools=(PoolStanding(name="p"),))
    stand.brain.answers[TellWorkers] = lambda _: WorkersTold(states=(("w1", "cordoned"),))
    for question in (ReadClusters, ShareCluster, LeaveCluster, JoinCluster):
        stand.brain.answers[question] = lambda _: ClustersStand(clusters=())
    token = await stand.token(kind, subject="w1")
    wrong: list[Route] = []
    with trio.fail_after(20):
        for route in HANDLERS:
            status, code = await status_of(stand, route, token)
            forbidden = (status, code) == (403, FORBIDDEN) and route not in (Route.LOGS_WRITE, Route.TOKEN_CREATE)
            if forbidden if allows(route, kind) else status != 403:
                wrong.append(route)
        for route in STREAMS:
            if (await code_of_dial(stand, route, token) == "") is not allows(route, kind):
                wrong.append(route)
    assert wrong == []


async def test_without_a_token_every_route_is_closed_but_health(stand: Stand) -> None:
    answers = {await status_of(stand, route, "") for route in HANDLERS}
    async with stand.http() as http:
        health = await http.get("/health")
    assert (answers, health.status_code) == ({(401, "unauthenticated")}, 200)


@pytest.mark.parametrize("route", list(STREAMS))
async def test_an_unknown_token_opens_no_stream(stand: Stand, route: Route) -> None:
    with pytest.raises(Refused) as caught:
        await stand.dial(STREAMS[route], UNKNOWN)()
    assert (caught.value.code, caught.value.what) == ("unauthenticated", "The token is unknown or revoked.")


async def test_a_workers_token_opens_no_other_workers_stream(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, "", subject="w1")
    with pytest.raises(Refused) as caught:
        await stand.dial("/v1/stream?peer=worker&id=w2", token)()
    assert caught.value.code == FORBIDDEN


async def test_a_stream_that_does_not_exist_is_told_as_such(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    for path in ("/v1/other", "/v1/stream?peer=neither"):
        with pytest.raises(Refused) as caught:
            await stand.dial(path, token)()
        assert caught.value.code == "not_found"


async def test_the_body_of_a_refusal_says_what_why_and_what_to_do(stand: Stand) -> None:
    async with stand.http(UNKNOWN) as http:
        answer = await http.get("/api/v1/whoami")
    assert answer.headers["www-authenticate"] == "Bearer"
    body = answer.json()
    assert (body["ok"], body["what"]) == (False, "The token is unknown or revoked.")
    assert body["err_msg"] == " ".join((body["what"], body["why"], body["fix"]))
