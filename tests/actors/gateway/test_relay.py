"""Streams through a gateway: who spoke is stamped, and what is answered finds its way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levers9.model.states import TokenKind
from levers9.wire.client import NewTask, SubmitTasks, TasksAccepted
from levers9.wire.control import PeerArrived
from levers9.wire.message import Payload

if TYPE_CHECKING:
    from .conftest import Stand


async def test_what_a_client_submits_reaches_the_brain_with_its_workspace(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    stand.brain.answers[SubmitTasks] = lambda m: TasksAccepted(task_ids=tuple(one.task_id for one in m.tasks))
    async with stand.peer("/v1/stream?peer=client", token) as peer:
        number = await peer.send(SubmitTasks(stub_id="s", tasks=(NewTask("t1", Payload("msgpack", b"1")),)))
        (accepted,) = await peer.wait_for(TasksAccepted)
    ((envelope, _),) = stand.brain.heard(SubmitTasks)
    assert accepted == TasksAccepted(task_ids=("t1",))
    assert peer.received[-1].correlation == number
    assert (envelope.workspace, envelope.kind) == ("ws-a", "workspace")
    assert envelope.source.startswith(f"client/{stand.tokens[token].token_id}.")
    assert len(stand.brain.heard(PeerArrived)) == 1


async def test_health_is_open_to_anybody(stand: Stand) -> None:
    async with stand.http() as http:
        answer = await http.get("/health")
    assert (answer.status_code, answer.json()["leader"]) == (200, True)
