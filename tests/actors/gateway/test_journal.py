"""The scheduler's journal over HTTP: whole files, for the platform's admin, from the replica that leads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from levers9.model.states import TokenKind
from levers9.wire.control import LeaderIs

if TYPE_CHECKING:
    from .conftest import Stand

MakeStand = Callable[..., "AbstractAsyncContextManager[Stand]"]


async def ask(stand: Stand, query: str = "", kind: TokenKind = TokenKind.CLUSTER_ADMIN) -> httpx2.Response:
    async with stand.http(await stand.token(kind)) as http:
        return await http.get(f"/api/v1/scheduler/journal{query}")


def write_segments(folder: Path, *contents: bytes) -> None:
    for number, content in enumerate(contents, start=9):
        (folder / f"{number:010d}.l9journal").write_bytes(content)


async def test_segments_come_whole_and_the_oldest_first(make_stand: MakeStand, tmp_path: Path) -> None:
    write_segments(tmp_path, b"a" * 300_000, b"b", b"c")
    async with make_stand(journal_dir=tmp_path) as stand:
        everything, newest = await ask(stand), await ask(stand, "?segments=2")
    assert (everything.status_code, everything.content) == (200, b"a" * 300_000 + b"bc")
    assert newest.content == b"bc"


async def test_without_a_journal_that_is_said(make_stand: MakeStand, tmp_path: Path) -> None:
    async with make_stand(journal_dir=tmp_path) as stand:
        empty = await ask(stand)
    async with make_stand() as stand:
        nowhere = await ask(stand)
    assert [answer.status_code for answer in (empty, nowhere)] == [404, 404]
    assert empty.json()["what"] == "There is no journal yet."


async def test_a_number_that_is_none_is_refused(make_stand: MakeStand, tmp_path: Path) -> None:
    async with make_stand(journal_dir=tmp_path) as stand:
        answer = await ask(stand, "?segments=-1")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_a_replica_that_does_not_lead_says_whom_to_ask(make_stand: MakeStand, tmp_path: Path) -> None:
    write_segments(tmp_path, b"of an earlier reign")
    async with make_stand(journal_dir=tmp_path, leader=LeaderIs(epoch=2, url="ws://127.0.0.1:1")) as stand:
        answer = await ask(stand)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_leader")
    assert "ws://127.0.0.1:1" in answer.json()["why"]


async def test_a_workspace_does_not_see_what_others_asked_for(make_stand: MakeStand, tmp_path: Path) -> None:
    write_segments(tmp_path, b"of everybody")
    async with make_stand(journal_dir=tmp_path) as stand:
        answer = await ask(stand, kind=TokenKind.WORKSPACE_PRIMARY)
    assert answer.status_code == 403
