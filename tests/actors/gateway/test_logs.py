"""Log lines reach each reader once and in order, early or late, and a lost tail is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
import trio.testing

from levers9.actors.gateway.logs import LOST_AFTER_S, LogCursor, LogEnd, LogLine, LogLost
from levers9.model.resources import Shape
from levers9.model.states import ContainerState, End, TaskState, TokenKind
from levers9.store.operations import (
    AcceptTasks,
    AttemptEnd,
    AttemptStart,
    ContainerMove,
    ContainerRow,
    EndAttempts,
    MoveContainers,
    PutContainers,
    PutStub,
    StartAttempts,
    StubRow,
    TaskRow,
    TaskToAccept,
)
from levers9.wire.client import StubSpec
from levers9.wire.message import Failure, Payload

if TYPE_CHECKING:
    from .conftest import Stand


SPEC = StubSpec(
    app="demo",
    name="talk",
    kind="job",
    handler="m:f",
    code_key="",
    python="3.11",
    shape=Shape(cpu_milli=100, memory_mib=128),
    timeout_s=60.0,
    retries=1,
)


def lines(first: int, last: int, task: str = "t", attempt: int = 1) -> bytes:
    made = [LogLine(task, attempt, n, "out", 1.5, f"line {n}") for n in range(first, last + 1)]
    return msgspec.msgpack.encode(made)


class Run:
    """A task that runs in a container on worker w1."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.worker_token = ""
        self.reader_token = ""

    async def begin(self) -> None:
        stub = StubRow(stub_id="s", workspace_id="ws-a", spec=SPEC, created_at_s=0.0)
        task = TaskToAccept(task_id="t", arguments=Payload("msgpack", b""))
        await self.stand.store.apply(
            PutStub(stub=stub), AcceptTasks(workspace_id="ws-a", stub_id="s", tasks=(task,), now_s=1.0)
        )
        self.worker_token = await self.stand.token(TokenKind.WORKER, "", subject="w1")
        self.reader_token = await self.stand.token(TokenKind.WORKSPACE)
        await self.attempt(1, "c1")

    async def attempt(self, number: int, container_id: str) -> None:
        row = ContainerRow(
            container_id=container_id,
            stub_id="s",
            workspace_id="ws-a",
            state=ContainerState.READY,
            worker_id="w1",
        )
        start = AttemptStart(task_id="t", attempt=number, container_id=container_id, worker_id="w1")
        await self.stand.store.apply(PutContainers(containers=(row,)), StartAttempts(starts=(start,), now_s=2.0))

    async def deliver(self, chunk: int, body: bytes, container_id: str = "c1") -> int:
        async with self.stand.http(self.worker_token) as http:
            return (await http.post(f"/api/v1/logs/{container_id}/{chunk}", content=body)).status_code

    async def end(
        self, last_line: int, *, state: TaskState = TaskState.COMPLETE, code: str = "", attempt: int = 1
    ) -> None:
        failure = Failure(code, "It failed.") if code else None
        end = AttemptEnd(
            task_id="t", attempt=attempt, state=state, end=End.OK, failure=failure, last_log_line=last_line
        )
        await self.stand.store.apply(EndAttempts(ends=(end,), now_s=self.stand.now_s[0]))

    async def end_container(self) -> None:
        move = ContainerMove(container_id="c1", sources=(ContainerState.READY,), state=ContainerState.ENDED)
        await self.stand.store.apply(MoveContainers(moves=(move,), now_s=self.stand.now_s[0]))

    async def read(self, query: str = "follow=1") -> list[dict[str, object]]:
        with trio.fail_after(10):
            async with self.stand.http(self.reader_token) as http:
                answer = await http.get(f"/api/v1/tasks/t/logs?{query}")
        return [msgspec.json.decode(line) for line in answer.content.splitlines()]


@pytest.fixture
async def run(stand: Stand) -> Run:
    one = Run(stand)
    await one.begin()
    return one


def numbers(entries: list[dict[str, object]]) -> list[object]:
    return [entry["n"] for entry in entries if "n" in entry]


async def test_a_late_reader_gets_every_line_once_and_the_end(run: Run) -> None:
    for chunk, body in enumerate([lines(1, 3), lines(4, 5)]):
        assert await run.deliver(chunk, body) == 200
    await run.end(5)
    entries = await run.read()
    assert entries[0] == {"n": 1, "stream": "out", "time": 1.5, "text": "line 1", "attempt": 1}
    assert (numbers(entries), entries[-1]) == ([1, 2, 3, 4, 5], {"end": 5})


async def test_an_early_reader_gets_lines_as_they_come(run: Run) -> None:
    got: list[dict[str, object]] = []
    arrived = trio.Event()

    async def read_along() -> None:
        async with run.stand.http(run.reader_token) as http:
            async with http.stream("GET", "/api/v1/tasks/t/logs?follow=1") as answer:
                async for line in answer.aiter_lines():
                    got.append(msgspec.json.decode(line))
                    arrived.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_along)
            await run.deliver(0, lines(1, 2))
            await arrived.wait()
            assert numbers(got)[0] == 1
            await run.deliver(1, lines(3, 3))
            await run.end(3)
    assert (numbers(got), got[-1]) == ([1, 2, 3], {"end": 3})


async def test_a_chunk_that_is_delivered_twice_is_read_once(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    await run.deliver(0, lines(1, 2))
    await run.deliver(1, lines(2, 3))
    await run.end(3)
    assert numbers(await run.read()) == [1, 2, 3]


async def test_a_chunk_that_was_refused_holds_up_nobody(run: Run) -> None:
    await run.deliver(0, lines(1, 1))
    await run.deliver(2, lines(3, 3))
    await run.end(3)
    assert numbers(await run.read()) == [1, 3]


async def test_a_reader_goes_on_after_the_line_it_has(run: Run) -> None:
    await run.deliver(0, lines(1, 4))
    await run.end(4)
    assert numbers(await run.read("after=2")) == [3, 4]


async def test_without_following_a_running_task_ends_with_what_is_there(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    assert await run.read("follow=0") == [*(await run.read("follow=0"))[:2], {"end": 2}]


async def test_lines_of_other_tasks_in_the_same_container_are_not_shown(run: Run) -> None:
    await run.deliver(0, lines(1, 2, task="other"))
    await run.deliver(1, lines(1, 1))
    await run.end(1)
    assert numbers(await run.read()) == [1]


async def test_a_tail_that_ended_with_its_container_is_told_as_lost(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    await run.end(9)
    await run.end_container()
    run.stand.now_s[0] += LOST_AFTER_S
    entries = await run.read()
    assert (numbers(entries), entries[-1]) == ([1, 2], {"lost": True})


async def test_a_reader_waits_for_a_tail_that_is_still_under_way(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    await run.end(3)
    await run.end_container()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.deliver, 1, lines(3, 3))
            entries = await run.read()
    assert entries[-1] == {"end": 3}


async def test_a_task_lost_with_its_worker_has_a_lost_tail_whatever_came(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    await run.end(0, state=TaskState.ERROR, code="disconnected")
    await run.end_container()
    run.stand.now_s[0] += LOST_AFTER_S
    entries = await run.read()
    assert (numbers(entries), entries[-1]) == ([1, 2], {"lost": True})


async def test_a_follower_goes_on_with_the_next_attempt(run: Run) -> None:
    await run.deliver(0, lines(1, 2))
    entries: list[dict[str, object]] = []

    async def follow() -> None:
        entries.extend(await run.read())

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await run.end(2, state=TaskState.RETRY)
            await run.attempt(2, "c2")
            await run.deliver(0, lines(1, 1, attempt=2), "c2")
            await run.end(1, attempt=2)
    assert [(entry.get("attempt"), entry.get("n")) for entry in entries[:-1]] == [(1, 1), (1, 2), (2, 1)]
    assert entries[-1] == {"end": 1}


async def test_a_worker_delivers_logs_of_its_own_containers_only(run: Run) -> None:
    run.worker_token = await run.stand.token(TokenKind.WORKER, "", subject="w2")
    assert await run.deliver(0, lines(1, 1)) == 403


@pytest.mark.parametrize(
    "body", [b"", b"\x93\x01", msgspec.msgpack.encode([["t", 1, 1, "out", 0.0, "x" * ((64 << 10) + 257)]])]
)
async def test_a_chunk_that_holds_no_lines_is_refused(run: Run, body: bytes) -> None:
    assert await run.deliver(0, body) == 400


async def test_logs_of_another_workspace_are_not_found(run: Run) -> None:
    async with run.stand.http(await run.stand.token(TokenKind.WORKSPACE, "ws-b")) as http:
        assert (await http.get("/api/v1/tasks/t/logs")).status_code == 404


def test_a_cursor_ends_only_with_the_last_line() -> None:
    cursor = LogCursor("t", 1)
    row = task_row(last=2)
    assert cursor.end_of(row) is None
    cursor.take([LogLine("t", 1, 1, "out", 0.0, "a"), LogLine("t", 1, 2, "err", 0.0, "b")])
    assert cursor.end_of(row) == LogEnd(end=2)
    assert cursor.loss_of(row, None, 99.0) == LogLost()


def task_row(last: int) -> TaskRow:
    return TaskRow(task_id="t", workspace_id="w", stub_id="s", state=TaskState.COMPLETE, attempt=1, last_log_line=last)
