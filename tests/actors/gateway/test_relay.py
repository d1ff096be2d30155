"""Streams through a gateway: who spoke is stamped, answers find their way, and nobody holds up anybody else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from levers9.errors import Refused
from levers9.model.resources import Capacity
from levers9.model.states import TaskState, TokenKind
from levers9.store.operations import RevokeTokens
from levers9.wire.client import (
    CancelTasks,
    NewTask,
    RequestRefused,
    SubmitTasks,
    TaskResult,
    TasksAccepted,
    TasksFinished,
    WatchTasks,
)
from levers9.wire.codec import Envelope, pack
from levers9.wire.control import GatewayReady, Inspect, Inspected, LeaderIs, PeerArrived, PeerQuiet, ReportAgain
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import StopContainer, WorkerReported
from levers9.wire.work import AttemptKey, ResultsCommitted

if TYPE_CHECKING:
    from .conftest import Stand

    MakeStand = Callable[..., AbstractAsyncContextManager[Stand]]

CLIENT = "/v1/stream?peer=client"
WORKER = "/v1/stream?peer=worker&id=w1"
REPORT = WorkerReported(worker_id="w1", pool="p", epoch=1, capacity=Capacity(cpu_milli=1, memory_mib=1), containers=())


def submission(*ids: str) -> SubmitTasks:
    return SubmitTasks(stub_id="s", tasks=tuple(NewTask(one, Payload("msgpack", b"1")) for one in ids))


def accept_all(stand: Stand) -> None:
    stand.brain.answers[SubmitTasks] = lambda m: TasksAccepted(task_ids=tuple(one.task_id for one in m.tasks))


async def test_what_a_client_submits_reaches_the_brain_with_its_workspace(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    accept_all(stand)
    async with stand.peer(CLIENT, token) as peer:
        number = await peer.send(submission("t1"))
        (accepted,) = await peer.wait_for(TasksAccepted)
    ((envelope, _),) = stand.brain.heard(SubmitTasks)
    assert accepted == TasksAccepted(task_ids=("t1",))
    assert peer.received[-1].correlation == number
    assert (envelope.workspace, envelope.kind) == ("ws-a", "workspace")
    assert envelope.source.startswith(f"client/{stand.tokens[token].token_id}.")
    assert len(stand.brain.heard(PeerArrived)) == 1


async def test_a_worker_is_reached_by_its_id_and_speaks_as_itself(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, "", subject="w1")
    async with stand.peer(WORKER, token) as peer:
        await peer.send(REPORT)
        ((envelope, _),) = await stand.brain.wait_for(WorkerReported)
        stand.brain.say("worker/w1", StopContainer(container_id="c", why="w"))
        (stop,) = await peer.wait_for(StopContainer)
    assert (envelope.source, envelope.workspace, envelope.kind) == ("worker/w1", "", "worker")
    assert stop == StopContainer(container_id="c", why="w")


async def test_what_a_client_may_not_say_is_refused_and_goes_nowhere(stand: Stand) -> None:
    async with stand.peer(CLIENT, await stand.token(TokenKind.WORKSPACE)) as peer:
        number = await peer.send(REPORT)
        await peer.send(StopContainer(container_id="c", why=""), target="worker/w1")
        first, _ = await peer.wait_for(RequestRefused, 2)
    assert isinstance(first, RequestRefused)
    assert (first.failure.code, peer.received[0].correlation) == ("forbidden", number)
    assert (stand.brain.heard(WorkerReported), stand.gateway.relay.statistics().refused) == ([], 2)


async def test_a_peer_whose_stream_is_cut_is_quiet_and_resumes_its_session(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, "", subject="w1")
    async with stand.peer(WORKER, token) as peer:
        carrier = peer.link._carrier
        assert carrier is not None
        await carrier.aclose()
        ((_, quiet),) = await stand.brain.wait_for(PeerQuiet)
        await peer.until(lambda: peer.opened == 2)
        await stand.brain.wait_for(PeerArrived, 2)
    assert quiet == PeerQuiet(peer="worker/w1", closed=True)
    assert peer.fresh == 1


async def test_a_worker_that_comes_anew_takes_its_place_and_the_old_stream_is_over(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, "", subject="w1")
    async with stand.peer(WORKER, token), stand.peer(WORKER, token) as second:
        stand.brain.say("worker/w1", StopContainer(container_id="c", why=""))
        await second.wait_for(StopContainer)
    assert stand.gateway.relay.statistics().workers <= 1


async def test_a_slow_peer_holds_up_nobody_and_has_to_begin_anew(make_stand: MakeStand) -> None:
    async with make_stand(queue_bytes=1 << 20) as stand:
        slow_token = await stand.token(TokenKind.WORKER, "", subject="w1")
        large = TasksFinished(results=(TaskResult("t", TaskState.COMPLETE, 1, Payload("msgpack", bytes(500_000))),))
        async with (
            stand.peer(WORKER, slow_token) as slow,
            stand.peer(CLIENT, await stand.token(TokenKind.WORKSPACE)) as quick,
        ):
            await quick.send(WatchTasks(task_ids=("t",)))
            ((watching, _),) = await stand.brain.wait_for(WatchTasks)
            slow.hold = trio.Event()
            stand.brain.say("worker/w1", StopContainer(container_id="c", why=""))
            await slow.wait_for(StopContainer)
            for _ in range(120):
                await say(stand, "worker/w1", large)
                await say(stand, watching.source, ResultsCommitted(container_id="c", attempts=(AttemptKey("t", 1),)))
            await quick.wait_for(ResultsCommitted, 120)
            slow.hold.set()
            slow.hold = None
            await slow.until(lambda: slow.fresh == 2)
    assert stand.gateway.relay.statistics().overflows >= 1
    assert stand.gateway.relay.statistics().dropped > 0


async def say(stand: Stand, target: str, message: Message) -> None:
    assert stand.brain.link is not None
    await stand.brain.link.send(Envelope("", "tasks", target, pack(message)))


async def test_a_new_epoch_asks_every_peer_to_report(stand: Stand) -> None:
    worker = await stand.token(TokenKind.WORKER, "", subject="w1")
    async with (
        stand.peer(WORKER, worker) as first,
        stand.peer(CLIENT, await stand.token(TokenKind.WORKSPACE)) as second,
    ):
        await stand.brain.wait_for(PeerArrived, 2)
        stand.brain.say("gateway/g1", LeaderIs(epoch=2))
        asked = [(await peer.wait_for(ReportAgain))[-1] for peer in (first, second)]
    assert asked == [ReportAgain(epoch=2)] * 2


async def test_a_brain_that_began_anew_hears_who_is_here_and_the_peers_report(stand: Stand) -> None:
    async with stand.peer(WORKER, await stand.token(TokenKind.WORKER, "", subject="w1")) as peer:
        await stand.brain.wait_for(PeerArrived)
        await stand.restart_brain()
        await stand.brain.wait_for(GatewayReady, 2)
        await peer.wait_for(ReportAgain)
        await peer.send(REPORT)
        await stand.brain.wait_for(WorkerReported)
    ready = [message for _, message in stand.brain.heard(GatewayReady)]
    assert ready[-1] == GatewayReady(gateway_id="g1", peers=("worker/w1",))


async def test_while_another_replica_leads_peers_are_relayed_there_and_back(make_stand: MakeStand) -> None:
    async with make_stand() as leader, make_stand(gateway_id="g2") as follower:
        accept_all(leader)
        token = await follower.token(TokenKind.WORKSPACE)
        async with follower.peer(CLIENT, token) as peer:
            follower.brain.say("gateway/g2", LeaderIs(epoch=2, url=f"ws://127.0.0.1:{leader.stream_port}"))
            await peer.wait_for(ReportAgain)
            await peer.send(submission("far"))
            (accepted,) = await peer.wait_for(TasksAccepted)
            ((envelope, _),) = leader.brain.heard(SubmitTasks)
            ready = [message for _, message in await leader.brain.wait_for(GatewayReady, 2)]
            assert leader.gateway.relay.statistics().relays == 1
    assert accepted == TasksAccepted(task_ids=("far",))
    assert (envelope.source, envelope.workspace) == (peer.received[-1].target, "ws-a")
    assert ready[-1] == GatewayReady(gateway_id="g2", peers=(envelope.source,))
    assert follower.brain.heard(SubmitTasks) == []


async def test_what_a_follower_relays_before_we_know_that_we_lead_is_asked_for_again(make_stand: MakeStand) -> None:
    elsewhere = LeaderIs(epoch=2, url="ws://127.0.0.1:1")
    async with make_stand(leader=elsewhere) as leader, make_stand(gateway_id="g2") as follower:
        accept_all(leader)
        async with follower.peer(CLIENT, await follower.token(TokenKind.WORKSPACE)) as peer:
            follower.brain.say("gateway/g2", LeaderIs(epoch=3, url=f"ws://127.0.0.1:{leader.stream_port}"))
            await peer.wait_for(ReportAgain)
            await peer.send(submission("early"))
            await leader.brain.wait_for(SubmitTasks)
            leader.brain.say("gateway/g1", LeaderIs(epoch=3))
            asked = await peer.wait_for(ReportAgain, 2)
            await peer.send(submission("again"))
            accepted = await peer.wait_for(TasksAccepted)
    assert asked[-1] == ReportAgain(epoch=3)
    assert accepted == [TasksAccepted(task_ids=("again",))], "the first answer was of a brain that did not lead yet"


async def test_a_question_over_rest_reaches_a_leader_elsewhere(make_stand: MakeStand) -> None:
    async with make_stand() as leader, make_stand(gateway_id="g2") as follower:
        leader.brain.answers[Inspect] = lambda _: Inspected(children=(), dead_letters=7)
        follower.brain.say("gateway/g2", LeaderIs(epoch=2, url=f"ws://127.0.0.1:{leader.stream_port}"))
        await leader.brain.wait_for(GatewayReady, 2)
        async with follower.http(await follower.token(TokenKind.CLUSTER_ADMIN, "")) as http:
            answer = await http.get("/api/v1/inspect")
    assert answer.json()["dead_letters"] == 7


async def test_when_our_own_brain_leads_again_nothing_is_relayed_any_more(make_stand: MakeStand) -> None:
    async with make_stand() as leader, make_stand(gateway_id="g2") as follower:
        async with follower.peer(CLIENT, await follower.token(TokenKind.WORKSPACE)) as peer:
            follower.brain.say("gateway/g2", LeaderIs(epoch=2, url=f"ws://127.0.0.1:{leader.stream_port}"))
            await peer.wait_for(ReportAgain)
            follower.brain.say("gateway/g2", LeaderIs(epoch=3))
            await peer.wait_for(ReportAgain, 2)
            await peer.send(CancelTasks(task_ids=("t",)))
            await follower.brain.wait_for(CancelTasks)
    assert leader.brain.heard(CancelTasks) == []


async def test_the_streams_of_a_revoked_token_are_closed_and_it_cannot_come_back(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, "", subject="w1")
    with pytest.RaisesGroup(Refused, flatten_subgroups=True):
        async with stand.peer(WORKER, token):
            await stand.brain.wait_for(PeerArrived)
            await stand.store.apply(RevokeTokens(subjects=("w1",)))
            await stand.wakeups.publish("tokens", "")
            await stand.brain.wait_for(PeerQuiet)
            await trio.sleep_forever()
    assert stand.gateway.relay.statistics().workers == 0


async def test_envelopes_for_nobody_are_dropped_and_counted(stand: Stand) -> None:
    before = stand.gateway.relay.statistics().dropped
    stand.brain.say("worker/nobody", StopContainer(container_id="c", why=""))
    await wait_all_tasks_blocked(0.01)
    assert stand.gateway.relay.statistics().dropped == before + 1


async def test_a_peer_waits_while_the_brain_is_away_and_loses_nothing(stand: Stand) -> None:
    accept_all(stand)
    async with stand.peer(CLIENT, await stand.token(TokenKind.WORKSPACE)) as peer:
        assert stand.brain.cable is not None
        stand.brain.cable.stall()
        for number in range(20):
            await peer.send(submission(f"t{number}"))
        await wait_all_tasks_blocked(0.01)
        stand.brain.cable.resume()
        await peer.wait_for(TasksAccepted, 20)
    assert stand.gateway.relay.statistics().dropped == 0


async def test_a_relay_wants_the_replicas_token(stand: Stand) -> None:
    token = await stand.token(TokenKind.CLUSTER_ADMIN, "")
    with pytest.raises(Refused, match="may not do this"):
        await stand.dial("/v1/relay?gateway=x", token)()
