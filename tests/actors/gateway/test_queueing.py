"""Queues and quotas over REST: people's units and names outside, integers and identities inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from levers9.model.queues import FlavorLimits, Limits, Queue, Queueing, Quota, Share
from levers9.model.reasons import Excluded, Holder, HoldKind, Lack, Reason
from levers9.model.resources import Amount
from levers9.model.states import TaskState, TokenKind
from levers9.store.operations import CreateWorkspace
from levers9.wire.client import ExplainTask, RequestRefused, TaskExplained
from levers9.wire.message import Failure
from levers9.wire.operating import (
    ChangeQueueing,
    QueueingPart,
    QueueingStands,
    QueueStanding,
    QuotaStanding,
    ReadQueueing,
)

from .test_rest import with_tasks

if TYPE_CHECKING:
    from .conftest import Stand

QUOTA = Quota(
    name="gpu",
    flavors=(FlavorLimits(flavor="gb200", cpu=Limits(nominal=8000), gpu=Limits(nominal=8000, lending=0)),),
)
STANDS = QueueingStands(
    queueing=Queueing(quotas=(QUOTA,), queues=(Queue(name="gpu", workspace="ws-a", quota="gpu"),)),
    queues=(
        QueueStanding(
            name="gpu",
            workspace="ws-a",
            quota="gpu",
            pending=2,
            admitted=1,
            used=Amount(2500, 512, 4000),
            share_milli=500,
        ),
        QueueStanding(name="default", workspace="ws-b", quota="other", pending=0, admitted=0, used=Amount()),
    ),
    quotas=(
        QuotaStanding(
            name="gpu",
            cohort="all",
            flavor="gb200",
            pending=2,
            admitted=1,
            nominal=Amount(8000, 0, 8000),
            used=Amount(2500, 512, 4000),
            borrowed=Amount(),
        ),
        QuotaStanding(
            name="other",
            cohort="",
            flavor="",
            pending=0,
            admitted=0,
            nominal=Amount(),
            used=Amount(),
            borrowed=Amount(),
        ),
    ),
)


async def with_queues(stand: Stand) -> Stand:
    await stand.store.apply(CreateWorkspace(workspace_id="ws-b", name="b", now_s=0.0))
    for question in (ReadQueueing, ChangeQueueing):
        stand.brain.answers[question] = lambda _: STANDS
    return stand


async def test_the_admin_sees_all_of_it_in_the_units_and_names_of_people(stand: Stand) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        told = (await http.get("/api/v1/queueing")).json()
    assert told["queueing"]["quotas"] == [
        {"name": "gpu", "flavors": [{"flavor": "gb200", "cpu": 8, "gpu": {"nominal": 8, "lending": 0}}]}
    ]
    assert [(one["name"], one["workspace"], one["pending"], one["admitted"]) for one in told["queues"]] == [
        ("gpu", "a", 2, 1),
        ("default", "b", 0, 0),
    ]
    assert (told["queues"][0]["used"], told["queues"][0]["share"]) == ({"cpu": 2.5, "memory_mib": 512, "gpu": 4.0}, 0.5)
    assert (told["quotas"][0]["cohort"], told["quotas"][0]["nominal"]["gpu"]) == ("all", 8.0)


async def test_a_workspace_sees_its_own_queues_and_what_is_used_of_their_quotas(stand: Stand) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        told = (await http.get("/api/v1/queueing")).json()
    assert told["queueing"] is None
    assert [one["name"] for one in told["queues"]] == ["gpu"]
    (quota,) = told["quotas"]
    assert (quota["name"], quota["used"]["gpu"], quota["pending"]) == ("gpu", 4.0, 2)
    assert (quota["nominal"], quota["cohort"], quota["borrowed"]) == (None, None, None)


@pytest.mark.parametrize(
    ("path", "body", "put"),
    [
        (
            "quotas/gpu",
            {"flavors": [{"flavor": "gb200", "cpu": 8, "gpu": {"nominal": 8, "lending": "0"}}]},
            Queueing(quotas=(QUOTA,)),
        ),
        ("queues/b/fast", {"weight": 2}, Queueing(queues=(Queue(name="fast", workspace="ws-b", weight=2),))),
        ("shares/a", {"max_cpu": 1.5}, Queueing(shares=(Share(workspace="ws-a", max_cpu_milli=1500),))),
    ],
)
async def test_one_thing_is_put_by_its_name(stand: Stand, path: str, body: object, put: Queueing) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.put(f"/api/v1/queueing/{path}", json=body)
    ((envelope, message),) = stand.brain.heard(ChangeQueueing)
    assert (answer.status_code, envelope.target, envelope.kind) == (200, "scheduler", "cluster_admin")
    assert message == ChangeQueueing(put=put)
    assert answer.json()["queueing"]["quotas"][0]["name"] == "gpu"


@pytest.mark.parametrize(
    ("path", "drop"),
    [
        ("quotas/gpu", (QueueingPart.QUOTAS, "gpu")),
        ("queues/b/fast", (QueueingPart.QUEUES, "ws-b/fast")),
        ("shares/gone", (QueueingPart.SHARES, "gone")),
    ],
)
async def test_one_thing_is_dropped_by_its_name(stand: Stand, path: str, drop: tuple[QueueingPart, str]) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.delete(f"/api/v1/queueing/{path}")
    ((_, message),) = stand.brain.heard(ChangeQueueing)
    assert (answer.status_code, message) == (200, ChangeQueueing(drop=(drop,)))


async def test_a_whole_file_is_put_at_once(stand: Stand) -> None:
    await with_queues(stand)
    body = {"queues": [{"name": "q", "workspace": "a"}], "topologies": [{"name": "nvl", "levels": ["rack"]}]}
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.put("/api/v1/queueing", json=body)
    ((_, message),) = stand.brain.heard(ChangeQueueing)
    assert isinstance(message, ChangeQueueing)
    assert answer.status_code == 200
    assert (message.put.queues[0].workspace, message.put.topologies[0].levels) == ("ws-a", ("rack",))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("PUT", "quotas/gpu", {"colour": 1}, 400, "`colour`"),
        ("PUT", "quotas/gpu", {"flavors": [{"flavor": "x", "gpu": "many"}]}, 400, "'many' is not a quantity."),
        ("PUT", "queues/nameless", {}, 400, "Say workspace/name."),
        ("PUT", "queues/nowhere/q", {}, 404, "There is no workspace 'nowhere'. Workspaces: a, b."),
        ("PUT", "quota/gpu", {}, 404, "Parts: flavors, cohorts, quotas, queues"),
        ("DELETE", "nothing/gpu", None, 404, "There is nothing named 'nothing' here."),
    ],
)
async def test_what_is_wrong_is_told_and_asked_of_nobody(
    stand: Stand, method: str, path: str, body: object, status: int, told: str
) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.request(method, f"/api/v1/queueing/{path}", json=body)
    assert (answer.status_code, stand.brain.heard(ChangeQueueing)) == (status, [])
    assert told in answer.json()["err_msg"]


async def test_a_configuration_that_the_scheduler_refuses_is_refused(stand: Stand) -> None:
    await with_queues(stand)
    stand.brain.answers[ChangeQueueing] = lambda _: RequestRefused(failure=Failure("invalid", "A circle.", "", "Cut."))
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.put("/api/v1/queueing/cohorts/x", json={"parent": "x"})
    assert (answer.status_code, answer.json()["err_msg"]) == (400, "A circle. Cut.")


async def test_what_the_scheduler_refuses_is_told_with_the_names_of_workspaces(stand: Stand) -> None:
    await with_queues(stand)
    failure = Failure("invalid", "Queue ws-b/x: weight is 0.", "", "Write 1.")
    stand.brain.answers[ChangeQueueing] = lambda _: RequestRefused(failure=failure)
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.put("/api/v1/queueing/queues/b/x", json={"weight": 0})
    assert answer.json()["err_msg"] == "Queue b/x: weight is 0. Write 1."


async def test_a_workspace_changes_nothing(stand: Stand) -> None:
    await with_queues(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE_PRIMARY)) as http:
        answers = [
            await http.put("/api/v1/queueing/quotas/gpu", json={}),
            await http.delete("/api/v1/queueing/quotas/gpu"),
            await http.put("/api/v1/queueing", json={}),
        ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]


async def test_why_has_the_holds_as_data_in_the_units_of_people(stand: Stand) -> None:
    await with_tasks(stand)
    hold = Reason(
        kind=HoldKind.QUOTA,
        quota="gpu",
        lacks=(Lack("GB200", 8000), Lack("memory", 512)),
        excluded=(Excluded("tray-2", "cordoned"),),
        holders=(Holder("train", 2, 6000, 900.0), Holder("", 1, 500)),
    )
    stand.brain.answers[ExplainTask] = lambda m: TaskExplained(
        task_id=m.task_id, state=TaskState.PENDING, reasons=("8 more GB200 needed.",), holds=(hold,)
    )
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get("/api/v1/tasks/task-ws-a/why")).json()
    assert answer["holds"] == [
        {
            "kind": "quota",
            "quota": "gpu",
            "lacks": [{"resource": "GB200", "amount": 8.0}, {"resource": "memory", "amount": 512}],
            "excluded": [{"node": "tray-2", "why": "cordoned", "count": 1, "pool": "", "since_s": 0.0}],
            "holders": [
                {"who": "train", "containers": 2, "cards": 6.0, "frees_by_s": 900.0},
                {"who": "", "containers": 1, "cards": 0.5, "frees_by_s": 0.0},
            ],
        }
    ]
