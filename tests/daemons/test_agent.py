"""An agent's process: what it is told, and its line to the control plane."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest
import trio

from levers9.cli import DAEMONS
from levers9.daemons import agent
from levers9.daemons.agent import AgentConfig, Line, configure, run_agent
from levers9.errors import UNAUTHENTICATED, ConfigError, Refused
from levers9.kube.memory import MemoryCluster
from levers9.model.clusters import ClusterSpec
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.cluster import AgentReady, AgentSettings, ClusterReported
from levers9.wire.letter import Letter, open_envelope, seal
from levers9.wire.link import Acceptor, Link, Received

GIVEN = {"LEVERS9_CLUSTER_ID": "c1", "LEVERS9_URL": "https://levers9.example", "LEVERS9_NAMESPACE": "gpu"}


class Gateway:
    """Takes an agent's stream, notes what it hears, and tells it what to report."""

    def __init__(self) -> None:
        self.refuses = False
        self.came: list[websocket.RequestInfo] = []
        self.heard: list[Letter] = []
        self.news = trio.Event()
        self.left = trio.Event()
        self.acceptor = Acceptor(chance=Chance(1))
        self.port = 0

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.acceptor.run)
            serve = partial(websocket.serve, "127.0.0.1", 0, self.handle, check=self.check)
            self.port = await nursery.start(serve)
            task_status.started()

    async def check(self, request: websocket.RequestInfo) -> None:
        self.came.append(request)
        self.tell()
        if self.refuses:
            raise Refused("This token is not known.", "Its cluster was detached.", code=UNAUTHENTICATED)

    async def handle(self, request: websocket.RequestInfo, carrier: Carrier) -> None:
        await self.acceptor.serve(carrier, name="agent/c1", on_link=self.on_link)
        self.left.set()

    async def on_link(self, link: Link) -> None:
        settings = AgentSettings(cluster_id="c1", leader_epoch=1, spec=ClusterSpec(name="lab", gpu_type="T4"))
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                self.heard += [open_envelope(envelope) for envelope in event.envelopes]
                if isinstance(self.heard[-1].message, AgentReady):
                    await link.send(seal(Letter(settings, source="clusters", target="agent/c1"), Chance(2)))
                self.tell()

    def tell(self) -> None:
        self.news.set()
        self.news = trio.Event()

    def config(self) -> AgentConfig:
        return AgentConfig(cluster_id="c1", url=f"http://127.0.0.1:{self.port}", token="secret")


def test_it_is_a_daemon_of_the_command_line() -> None:
    assert "agent" in DAEMONS


def test_the_environment_says_all_and_keeps_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERS9_AGENT_TOKEN", " secret\n")
    config = configure(GIVEN | {"HTTPS_PROXY": "http://proxy:3128", "HOME": "/root"})
    assert (config.cluster_id, config.namespace, config.token) == ("c1", "gpu", "secret")
    assert "LEVERS9_AGENT_TOKEN" not in os.environ
    assert config.place.environment == (("HTTPS_PROXY", "http://proxy:3128"),)


def test_what_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVERS9_AGENT_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"LEVERS9_URL and LEVERS9_AGENT_TOKEN .*levers9 cluster join"):
        configure({"LEVERS9_CLUSTER_ID": "c1"})


async def test_it_dials_reports_and_says_goodbye_when_it_is_asked_to_end() -> None:
    gateway = Gateway()
    cluster = MemoryCluster(namespaces=("levers9",))
    cluster.add_node("n1", cards=8)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.serve)
            nursery.start_soon(run_agent, gateway.config(), cluster)
            while not any(isinstance(letter.message, ClusterReported) for letter in gateway.heard):
                await gateway.news.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await gateway.left.wait()
            nursery.cancel_scope.cancel()
    (request,) = gateway.came
    assert (request.path, request.query) == ("/v1/stream", {"peer": "agent", "id": "c1"})
    assert request.token == "secret"
    ready, report = gateway.heard[0], gateway.heard[-1]
    assert (ready.source, ready.target) == ("agent/c1", "clusters")
    assert isinstance(report.message, ClusterReported)
    assert [node.name for node in report.message.nodes] == ["n1"]


async def test_a_refused_token_is_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "REFUSED_AGAIN_S", (0.01, 0.02))
    gateway = Gateway()
    gateway.refuses = True
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.serve)
            nursery.start_soon(run_agent, gateway.config(), MemoryCluster(namespaces=("levers9",)))
            while len(gateway.came) < 3:
                await gateway.news.wait()
            gateway.refuses = False
            while not gateway.heard:
                await gateway.news.wait()
            nursery.cancel_scope.cancel()
    assert isinstance(gateway.heard[0].message, AgentReady)


async def test_what_is_said_without_a_line_is_lost_and_no_failure() -> None:
    line = Line(AgentConfig(cluster_id="c1", url="http://127.0.0.1:9", token="t"), Chance(3))
    await line.say(AgentReady(cluster_id="c1", epoch=1))
    await line.aclose()
    assert line.statistics() is None
