"""Agents of attached clusters on their streams: who is let in, what they may say, and when they are put out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from levers9.actors.gateway.auth import check_subject
from levers9.actors.gateway.policy import Announce, GatewayPolicy, LeaderTold, PeerHushed, PeerOpened, Place
from levers9.errors import FORBIDDEN, UNAUTHENTICATED, Refused
from levers9.model.clusters import ClusterSpec
from levers9.model.states import TokenKind
from levers9.model.tokens import Principal
from levers9.store.operations import RevokeTokens
from levers9.wire.client import WatchTasks
from levers9.wire.cluster import AgentReady, AgentSettings, ClusterReported
from levers9.wire.control import LeaderIs, PeerArrived, PeerQuiet

if TYPE_CHECKING:
    from .conftest import Stand

AGENT = "/v1/stream?peer=agent&id=cluster-1"
READY = AgentReady(cluster_id="cluster-1", epoch=1)
SETTINGS = AgentSettings(cluster_id="cluster-1", leader_epoch=1, spec=ClusterSpec(name="lab", gpu_type="H100"))


async def test_an_agent_is_reached_by_its_cluster_and_speaks_as_itself(stand: Stand) -> None:
    token = await stand.token(TokenKind.AGENT, subject="cluster-1")
    async with stand.peer(AGENT, token) as peer:
        await peer.send(READY)
        ((envelope, _),) = await stand.brain.wait_for(AgentReady)
        stand.brain.say("agent/cluster-1", SETTINGS)
        (told,) = await peer.wait_for(AgentSettings)
        counts = stand.gateway.relay.statistics()
    assert (envelope.source, envelope.target, envelope.kind) == ("agent/cluster-1", "clusters", "agent")
    assert envelope.workspace == "ws-a"
    assert (told, counts.agents, counts.workers) == (SETTINGS, 1, 0)


async def test_agents_are_counted_where_people_and_programs_look(stand: Stand) -> None:
    async with stand.peer(AGENT, await stand.token(TokenKind.AGENT, subject="cluster-1")), stand.http() as http:
        health = (await http.get("/health")).json()
        metrics = (await http.get(f"http://127.0.0.1:{stand.metrics_port}/metrics")).text
    assert health["agents"] == 1
    assert 'levers9_gateway_peers{role="agent"} 1.0' in metrics


async def test_an_agent_may_say_what_agents_say_and_nothing_else(stand: Stand) -> None:
    report = ClusterReported(cluster_id="cluster-1", epoch=1, sequence=1)
    async with stand.peer(AGENT, await stand.token(TokenKind.AGENT, subject="cluster-1")) as peer:
        await peer.send(WatchTasks(task_ids=("t",)))
        await peer.send(SETTINGS, target="agent/cluster-2")
        await peer.send(report)
        await stand.brain.wait_for(ClusterReported)
    assert (stand.brain.heard(WatchTasks), stand.gateway.relay.statistics().refused) == ([], 2)


async def test_an_agents_token_opens_no_other_clusters_stream_and_no_workers(stand: Stand) -> None:
    token = await stand.token(TokenKind.AGENT, subject="cluster-1")
    for path in ("/v1/stream?peer=agent&id=cluster-2", "/v1/stream?peer=worker&id=cluster-1"):
        with pytest.raises(Refused) as caught:
            await stand.dial(path, token)()
        assert caught.value.code == FORBIDDEN


async def test_an_agent_on_the_port_of_http_is_let_in_as_well(stand: Stand) -> None:
    token = await stand.token(TokenKind.AGENT, subject="cluster-1")
    async with stand.peer(AGENT, token, stand.http_port) as peer:
        await peer.send(READY)
        await stand.brain.wait_for(AgentReady)


async def test_the_stream_of_a_revoked_agent_is_closed_and_it_is_refused_in_words(stand: Stand) -> None:
    token = await stand.token(TokenKind.AGENT, subject="cluster-1")
    with pytest.RaisesGroup(Refused, flatten_subgroups=True):
        async with stand.peer(AGENT, token):
            await stand.brain.wait_for(PeerArrived)
            await stand.store.apply(RevokeTokens(subjects=("cluster-1",)))
            await stand.wakeups.publish("tokens", "")
            ((envelope, _),) = await stand.brain.wait_for(PeerQuiet)
            assert envelope.target == "clusters"
            await trio.sleep_forever()
    with pytest.raises(Refused) as caught:
        await stand.dial(AGENT, token)()
    assert (caught.value.code, stand.gateway.relay.statistics().agents) == (UNAUTHENTICATED, 0)


def test_an_agents_token_is_for_its_cluster() -> None:
    agent = Principal(token_id="t", workspace_id="", kind=TokenKind.AGENT, subject="cluster-1")
    check_subject(agent, "cluster-1", "agent")
    with pytest.raises(Refused, match=r"not for agent 'cluster-2'.*levers9 cluster join"):
        check_subject(agent, "cluster-2", "agent")


def test_that_an_agent_is_silent_is_told_to_clusters() -> None:
    policy = GatewayPolicy("g")
    policy.handle(LeaderTold(leader=LeaderIs(epoch=1), by=Place.BRAIN))
    policy.handle(PeerOpened(peer="agent/c"))
    quiet = policy.handle(PeerHushed(peer="agent/c", closed=False))
    message = PeerQuiet(peer="agent/c", closed=False)
    assert quiet == (Announce(place=Place.BRAIN, target="clusters", message=message),)
