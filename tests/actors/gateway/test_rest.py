"""The REST interface over real HTTP: tasks, machines, workspaces, tokens, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from levers9.actors.gateway import questions
from levers9.actors.gateway.rest import tasks
from levers9.errors import FORBIDDEN, NOT_FOUND, Refused
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, TaskState, TokenKind, WorkerState
from levers9.store import operations as ops
from levers9.store.operations import (
    AcceptTasks,
    ContainerRow,
    CreateWorkspace,
    PutContainers,
    PutStub,
    PutWorkers,
    StubRow,
    TaskToAccept,
    WorkerRow,
)
from levers9.wire.client import (
    CancelAccepted,
    CancelTasks,
    ExplainTask,
    RequestRefused,
    StubSpec,
    TaskExplained,
    TaskStanding,
)
from levers9.wire.control import ChildStanding, Inspect, Inspected, Totals
from levers9.wire.message import Failure, Payload
from levers9.wire.operating import PoolsStand, PoolStanding, ReadPools

if TYPE_CHECKING:
    from .conftest import Stand

SPEC = StubSpec(
    app="demo",
    name="double",
    kind="job",
    handler="m:f",
    code_key="",
    python="3.11",
    shape=Shape(cpu_milli=100, memory_mib=128),
    timeout_s=60.0,
    retries=0,
)


async def with_tasks(stand: Stand) -> Stand:
    """One task in workspace a, one in b."""
    await stand.store.apply(CreateWorkspace(workspace_id="ws-b", name="b", now_s=0.0))
    for workspace in ("ws-a", "ws-b"):
        stub = StubRow(stub_id=f"stub-{workspace}", workspace_id=workspace, spec=SPEC, created_at_s=0.0)
        task = TaskToAccept(task_id=f"task-{workspace}", arguments=Payload("msgpack", b"\xc0"))
        await stand.store.apply(
            PutStub(stub=stub),
            AcceptTasks(workspace_id=workspace, stub_id=stub.stub_id, tasks=(task,), now_s=500.0),
        )
    return stand


async def test_a_workspace_sees_its_own_tasks_and_the_admin_sees_all(stand: Stand) -> None:
    await with_tasks(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        own = (await http.get("/api/v1/tasks")).json()["tasks"]
        other = await http.get("/api/v1/tasks/task-ws-b")
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        all_of_them = (await http.get("/api/v1/tasks")).json()["tasks"]
    assert [(one["task_id"], one["name"], one["state"]) for one in own] == [("task-ws-a", "demo/double", "PENDING")]
    assert (other.status_code, other.json()["code"]) == (404, "not_found")
    assert len(all_of_them) == 2


@pytest.mark.parametrize(("stub", "count"), [("double", 1), ("demo/double", 1), ("stub-ws-a", 1)])
async def test_tasks_are_listed_by_stub(stand: Stand, stub: str, count: int) -> None:
    await with_tasks(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.get("/api/v1/tasks", params={"stub": stub, "state": "pending", "limit": "5"})
    assert len(answer.json()["tasks"]) == count


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("state=SLEEPING", 400, "States are PENDING"),
        ("limit=0", 400, "from 1 to 1000"),
        ("limit=many", 400, "from 1 to 1000"),
        ("stub=triple", 404, "demo/double"),
    ],
)
async def test_a_wrong_filter_is_told_with_what_would_be_right(
    stand: Stand, query: str, status: int, told: str
) -> None:
    await with_tasks(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.get(f"/api/v1/tasks?{query}")
    assert answer.status_code == status
    assert told in answer.json()["err_msg"]


async def test_a_task_is_shown_with_its_state(stand: Stand) -> None:
    await with_tasks(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        task = (await http.get("/api/v1/tasks/task-ws-a")).json()
    assert (task["state"], task["name"], task["accepted_at_s"], task["attempts"]) == (
        "PENDING",
        "demo/double",
        500.0,
        [],
    )


async def test_stopping_asks_the_leader_in_the_tasks_workspace(stand: Stand) -> None:
    await with_tasks(stand)
    stand.brain.answers[CancelTasks] = lambda m: CancelAccepted(
        standings=tuple(TaskStanding(one, TaskState.CANCELLING) for one in m.task_ids)
    )
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = (await http.post("/api/v1/tasks/task-ws-b/stop")).json()
    ((envelope, _),) = stand.brain.heard(CancelTasks)
    assert (answer["task_id"], answer["state"]) == ("task-ws-b", "CANCELLING")
    assert (envelope.source, envelope.workspace, envelope.kind) == ("gateway/g1", "ws-b", "cluster_admin")


async def test_why_a_task_waits_is_asked_of_the_leader(stand: Stand) -> None:
    await with_tasks(stand)
    reasons = ("It waits for a container.", "No worker has room.")
    stand.brain.answers[ExplainTask] = lambda m: TaskExplained(
        task_id=m.task_id, state=TaskState.PENDING, reasons=reasons
    )
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get("/api/v1/tasks/task-ws-a/why")).json()
    assert (answer["state"], tuple(answer["reasons"])) == ("PENDING", reasons)


@pytest.mark.parametrize(("kept_after_s", "found"), [(0.0, True), (0.3, True), (2.0, False)])
async def test_a_task_that_was_just_submitted_is_waited_for_a_moment(
    autojump_clock: trio.testing.MockClock, kept_after_s: float, found: bool
) -> None:
    row = ops.TaskRow(task_id="t", workspace_id="a", stub_id="s", state=TaskState.PENDING, attempt=0)
    begun_s = trio.current_time()

    async def look() -> ops.TaskRow:
        if trio.current_time() - begun_s < kept_after_s:
            raise Refused("There is no task 't'.", code=NOT_FOUND)
        return row

    if found:
        assert await tasks.soon(look) is row
    else:
        with pytest.raises(Refused, match="no task 't'"):
            await tasks.soon(look)
        assert trio.current_time() - begun_s == pytest.approx(tasks.KEPT_WITHIN_S, abs=0.1)


async def test_one_that_may_not_be_seen_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    async def look() -> ops.TaskRow:
        raise Refused("You may not.", code=FORBIDDEN)

    with pytest.raises(Refused, match="may not"):
        await tasks.soon(look)
    assert trio.current_time() == 0.0


async def test_how_a_task_ended_is_told_without_the_leader(stand: Stand) -> None:
    await with_tasks(stand)
    await stand.store.apply(ops.CancelTasks(task_ids=("task-ws-a",), now_s=510.0))
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = (await http.get("/api/v1/tasks/task-ws-a/why")).json()
    assert (answer["state"], answer["reasons"]) == ("CANCELLED", ["It was cancelled: no attempt had begun."])


async def test_a_refusal_of_the_leader_arrives_as_it_was_said(stand: Stand) -> None:
    await with_tasks(stand)
    stand.brain.answers[ExplainTask] = lambda _: RequestRefused(failure=Failure("never_fits", "No.", "Why.", "Fix."))
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.get("/api/v1/tasks/task-ws-a/why")
    assert (answer.status_code, answer.json()["err_msg"]) == (422, "No. Why. Fix.")


async def test_a_leader_that_says_nothing_is_not_waited_for_for_ever(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_WITHIN_S", 0.05)
    await with_tasks(stand)
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        answer = await http.get("/api/v1/tasks/task-ws-a/why")
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline")


async def test_the_live_tree_comes_from_the_brain(stand: Stand) -> None:
    child = ChildStanding(path="brain/tasks", kind="actor", state="running", restarts=2)
    totals = Totals(tasks_accepted=9)
    stand.brain.answers[Inspect] = lambda _: Inspected(
        children=(child,), dead_letters=3, latest_dead=("x",), totals=totals
    )
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        tree = (await http.get("/api/v1/inspect")).json()
    assert tree["totals"]["tasks_accepted"] == 9
    assert (tree["children"][0]["path"], tree["children"][0]["restarts"], tree["dead_letters"]) == ("brain/tasks", 2, 3)


async def test_workers_and_containers_are_listed(stand: Stand) -> None:
    capacity = Capacity(cpu_milli=4000, memory_mib=1024, gpu_count=1, gpu_type="A10G")
    worker = WorkerRow(worker_id="w1", pool="local", state=WorkerState.AVAILABLE, capacity=capacity)
    containers = tuple(
        ContainerRow(container_id=f"c-{one}", stub_id="s", workspace_id=one, state=ContainerState.REQUESTED)
        for one in ("ws-a", "ws-b")
    )
    stand.brain.answers[ReadPools] = lambda _: PoolsStand(names=("local",), pools=(PoolStanding(name="local"),))
    await stand.store.apply(PutWorkers(workers=(worker,)), PutContainers(containers=containers))
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        workers = (await http.get("/api/v1/workers")).json()["workers"]
        own = (await http.get("/api/v1/containers")).json()["containers"]
    assert [(one["worker_id"], one["gpu_type"], one["cpu_milli"]) for one in workers] == [("w1", "A10G", 4000)]
    assert [one["container_id"] for one in own] == ["c-ws-a"]


async def test_a_workspace_is_made_with_a_token_that_works(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        made = await http.post("/api/v1/workspaces", json={"name": "research"})
        again = await http.post("/api/v1/workspaces", json={"name": "research"})
        names = [one["name"] for one in (await http.get("/api/v1/workspaces")).json()["workspaces"]]
    async with stand.http(made.json()["token"]) as http:
        who = (await http.get("/api/v1/whoami")).json()
    assert (made.status_code, again.status_code, again.json()["code"]) == (201, 409, "conflict")
    assert names == ["a", "research"]
    assert (who["workspace"], who["kind"]) == ("research", "workspace_primary")


async def test_a_tokens_value_is_shown_once_and_lists_show_hints(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE_PRIMARY)) as http:
        made = (await http.post("/api/v1/tokens", json={"kind": "workspace", "name": "laptop"})).json()
        listed = await http.get("/api/v1/tokens")
    value = made["token"]
    assert value.startswith("l9_space_")
    assert value not in listed.text
    shown = next(one for one in listed.json()["tokens"] if one["token_id"] == made["token_id"])
    assert (shown["name"], shown["hint"]) == ("laptop", f"{value[:6]}…{value[-4:]}")


async def test_nobody_makes_a_token_that_reaches_beyond_their_own(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE_PRIMARY)) as http:
        admin = await http.post("/api/v1/tokens", json={"kind": "cluster_admin"})
        elsewhere = await http.post("/api/v1/tokens", json={"kind": "workspace", "workspace": "b"})
    assert (admin.status_code, elsewhere.status_code) == (403, 404)


async def test_a_revoked_token_is_refused_at_once(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE_PRIMARY)) as http:
        made = (await http.post("/api/v1/tokens", json={})).json()
        async with stand.http(made["token"]) as other:
            before = (await other.get("/api/v1/whoami")).status_code
            revoked = (await http.delete(f"/api/v1/tokens/{made['token_id']}")).status_code
            after = await other.get("/api/v1/whoami")
        unknown = await http.delete("/api/v1/tokens/nothing")
    assert (before, revoked, after.status_code, unknown.status_code) == (200, 200, 401, 404)
    assert after.json()["what"] == "The token is unknown or revoked."


async def test_nobody_revokes_what_they_could_not_have_made(stand: Stand) -> None:
    worker = await stand.token(TokenKind.WORKER_PRIVATE, subject="w1")
    async with stand.http(await stand.token(TokenKind.WORKSPACE_PRIMARY)) as http:
        answer = await http.delete(f"/api/v1/tokens/{stand.tokens[worker].token_id}")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    async with stand.http(worker) as http:
        assert (await http.get("/api/v1/whoami")).status_code == 200


async def test_so_many_questions_are_open_at_once_and_no_more(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "OPEN_QUESTIONS", 1)
    stand.brain.answers[Inspect] = lambda _: Inspected(children=())
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        in_turn = [(await http.get("/api/v1/inspect")).status_code for _ in range(3)]
        stand.brain.answers.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http.get, "/api/v1/inspect")
            await stand.brain.wait_for(Inspect, 4)
            busy = await http.get("/api/v1/inspect")
            nursery.cancel_scope.cancel()
    assert (in_turn, busy.status_code, busy.json()["code"]) == ([200, 200, 200], 503, "busy")


@pytest.mark.parametrize("body", ["{", '{"name": 3}', '{"nmae": "x"}', '{"name": "Not A Name"}', '{"name": ""}'])
async def test_a_body_that_cannot_be_read_is_told_where(stand: Stand, body: str) -> None:
    async with stand.http(await stand.token(TokenKind.CLUSTER_ADMIN, "")) as http:
        answer = await http.post("/api/v1/workspaces", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert answer.json()["err_msg"]


async def test_an_unknown_path_and_a_wrong_method_are_errors_of_the_same_form(stand: Stand) -> None:
    async with stand.http(await stand.token(TokenKind.WORKSPACE)) as http:
        nowhere, wrong = await http.get("/api/v1/nothing"), await http.delete("/api/v1/whoami")
    assert (nowhere.status_code, nowhere.json()["code"], nowhere.json()["ok"]) == (404, "not_found", False)
    assert (wrong.status_code, sorted(wrong.headers["allow"].split(", "))) == (405, ["GET", "HEAD"])


async def test_a_store_that_is_away_is_told_and_asked_again_later(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    async with stand.http(token) as http:
        await http.get("/api/v1/whoami")
        stand.store.fail_next()
        answer = await http.get("/api/v1/tasks")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"] == "5"
