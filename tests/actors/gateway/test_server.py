"""Sockets: TLS, one port for everything, metrics, and refusals of a gateway's command line."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from levers9.actors.gateway.server import Tls
from levers9.actors.gateway.web import serve_http
from levers9.daemons.gateway import GatewayConfig, bind_port, certificates_of, read_config, run_gateway
from levers9.errors import BrokenByPeer, LeversError, Refused
from levers9.model.resources import Capacity
from levers9.model.states import TokenKind, WorkerState
from levers9.store.operations import PutWorkers, WorkerRow
from levers9.wire.carriers import websocket
from levers9.wire.client import TasksAccepted, WatchTasks
from levers9.wire.control import ChildStanding, Inspect, Inspected, Totals

if TYPE_CHECKING:
    from .conftest import Stand

    MakeStand = Callable[..., AbstractAsyncContextManager[Stand]]

CLIENT = "/v1/stream?peer=client"
UNKNOWN = "l9_space_" + "A" * 43


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> Tls:
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return Tls(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_streams_and_http_travel_under_tls(make_stand: MakeStand, tls: Tls, trusting: ssl.SSLContext) -> None:
    async with make_stand(tls=tls) as stand:
        token = await stand.token(TokenKind.WORKSPACE)
        async with stand.http(token, verify=trusting) as http:
            who = await http.get("/api/v1/whoami")
        url = f"wss://127.0.0.1:{stand.stream_port}{CLIENT}"
        dial = partial(websocket.connect, url, token=token, ssl_context=trusting)
        async with stand.peer(CLIENT, token, dial=dial) as peer:
            await peer.send(WatchTasks(task_ids=("t",)))
            await stand.brain.wait_for(WatchTasks)
    assert who.json()["workspace"] == "a"


async def test_a_certificate_that_nobody_vouches_for_is_not_spoken_to(make_stand: MakeStand, tls: Tls) -> None:
    async with make_stand(tls=tls) as stand:
        token = await stand.token(TokenKind.WORKSPACE)
        with trio.fail_after(5), pytest.raises(BrokenByPeer):
            await stand.dial(CLIENT, token)()


async def test_streams_and_http_share_one_port_by_path(make_stand: MakeStand) -> None:
    async with make_stand(one_port=True) as stand:
        stand.brain.answers[WatchTasks] = lambda m: TasksAccepted(task_ids=m.task_ids)
        token = await stand.token(TokenKind.WORKSPACE)
        async with stand.http(token) as http, stand.peer(CLIENT, token, stand.http_port) as peer:
            for number in range(50):
                await peer.send(WatchTasks(task_ids=(f"t{number}",)))
            await peer.wait_for(TasksAccepted, 50)
            assert (await http.get("/health")).json()["clients"] == 1


async def test_on_the_shared_port_a_bad_token_is_told_as_elsewhere(stand: Stand) -> None:
    with pytest.raises(Refused) as caught:
        await stand.dial(CLIENT, UNKNOWN, stand.http_port)()
    assert (caught.value.code, caught.value.what) == ("unauthenticated", "The token is unknown or revoked.")


async def test_behind_a_proxy_that_ends_tls_the_proxy_vouches_for_it(make_stand: MakeStand) -> None:
    async with make_stand(behind_tls=True) as stand:
        token = await stand.token(TokenKind.WORKSPACE)
        async with stand.http(token) as http:
            answer = await http.get("/api/v1/whoami", headers={"x-forwarded-proto": "https"})
    assert answer.status_code == 200


async def test_metrics_count_what_the_relay_did(stand: Stand) -> None:
    async with stand.peer(CLIENT, await stand.token(TokenKind.WORKSPACE)) as peer:
        await peer.send(WatchTasks(task_ids=("t",)))
        await stand.brain.wait_for(WatchTasks)
        async with stand.http() as http:
            text = (await http.get(f"http://127.0.0.1:{stand.metrics_port}/metrics")).text
    assert 'levers9_gateway_peers{role="client"} 1.0' in text
    assert 'levers9_gateway_envelopes_total{way="up"} 1.0' in text


async def test_metrics_tell_of_the_brain_that_leads_and_of_the_fleet(stand: Stand) -> None:
    tasks = ChildStanding(
        path="brain/leader/reign/tasks", kind="actor", state="running", restarts=0, mailbox_depth=3, handled=40
    )
    totals = Totals(tasks_accepted=9, tasks_failed=1, store_failures=4, commits=2, commit_s=0.5)
    stand.brain.answers[Inspect] = lambda _: Inspected(children=(tasks,), dead_letters=2, totals=totals)
    size = Capacity(cpu_milli=1, memory_mib=1)
    worker = WorkerRow(worker_id="w", pool="local", state=WorkerState.ORDERED, capacity=size)
    await stand.store.apply(PutWorkers(workers=(worker,)))
    async with stand.http() as http:
        text = (await http.get(f"http://127.0.0.1:{stand.metrics_port}/metrics")).text
    assert 'levers9_mailbox_depth{actor="brain/leader/reign/tasks"} 3.0' in text
    assert 'levers9_messages_handled_total{actor="brain/leader/reign/tasks"} 40.0' in text
    assert "levers9_dead_letters_total 2.0" in text
    assert "levers9_tasks_accepted_total 9.0" in text
    assert "levers9_tasks_failed_total 1.0" in text
    assert "levers9_store_failures_total 4.0" in text
    assert "levers9_commit_seconds_count 2.0" in text
    assert "levers9_commit_seconds_sum 0.5" in text
    assert 'levers9_workers{pool="local",state="ordered"} 1.0' in text
    assert "levers9_store_read_seconds" in text


async def test_a_gateway_without_a_leader_says_that_it_is_not_well(make_stand: MakeStand) -> None:
    async with make_stand(leader=None) as stand:
        async with stand.http() as http:
            answer = await http.get("/health")
    assert (answer.status_code, answer.json()["ok"]) == (503, False)


async def test_a_header_without_end_is_refused(stand: Stand) -> None:
    with trio.fail_after(5):
        async with await trio.open_tcp_stream("127.0.0.1", stand.http_port) as stream:
            await stream.send_all(b"GET /health HTTP/1.1\r\nx: " + b"a" * 70_000)
            answer = await stream.receive_some(100)
    assert answer.split(b" ")[1] in (b"400", b"431")


async def test_an_address_that_guesses_too_often_is_told_to_dial_later(stand: Stand) -> None:
    for _ in range(10):
        with pytest.raises(Refused):
            await stand.dial(CLIENT, UNKNOWN)()
    with trio.fail_after(5), pytest.raises(BrokenByPeer, match="429"):
        await stand.dial(CLIENT, UNKNOWN)()


async def test_a_store_that_is_away_breaks_a_dial_and_refuses_nobody_for_good(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    stand.store.fail_next()
    with trio.fail_after(5), pytest.raises(BrokenByPeer, match="503"):
        await stand.dial(CLIENT, token)()
    carrier = await stand.dial(CLIENT, token)()
    await carrier.aclose()


# How many at a time


async def test_streams_are_counted_by_process_on_whichever_port_they_come(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKSPACE)
    stand.gateway.door.places.total_tokens = 1
    for first, other in ((stand.stream_port, stand.http_port), (stand.http_port, stand.stream_port)):
        carrier = await stand.dial(CLIENT, token, first)()
        for port in (first, other):
            with trio.fail_after(5), pytest.raises(BrokenByPeer, match="503"):
                await stand.dial(CLIENT, token, port)()
        await carrier.aclose()
        with trio.fail_after(5):
            while stand.gateway.door.places.borrowed_tokens:
                await trio.lowlevel.checkpoint()


@pytest.fixture
def one_connection() -> Iterator[socket.socket]:
    listener = bind_port("127.0.0.1", 0, "tests", "--port")
    yield listener
    listener.close()


async def _ask(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(5):
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await stream.receive_some(1000)
        while not answer.endswith((b"Not Found", b"close\r\n\r\n")):
            answer += await stream.receive_some(1000)
        return answer.partition(b"\r\n")[0]


async def test_a_connection_over_http_beyond_those_that_are_kept_is_told_so(one_connection: socket.socket) -> None:
    port = one_connection.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_http, Starlette(), one_connection, None, 1)
        async with await trio.open_tcp_stream("127.0.0.1", port) as first:
            assert await _ask(first) == b"HTTP/1.1 404 "
            async with await trio.open_tcp_stream("127.0.0.1", port) as second:
                assert await _ask(second) == b"HTTP/1.1 503 Service Unavailable"
            assert await _ask(first) == b"HTTP/1.1 404 "
        await _until_there_is_a_place(port)
        nursery.cancel_scope.cancel()


async def test_whose_peer_went_before_the_answer_leaves_its_place_with_the_answer(
    one_connection: socket.socket,
) -> None:
    port, asked, go_on = one_connection.getsockname()[1], trio.Event(), trio.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await go_on.wait()
        return Response()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve_http, Starlette(routes=[Route("/slow", slow)]), one_connection, None, 1)
        async with await trio.open_tcp_stream("127.0.0.1", port) as first:
            await first.send_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
            await asked.wait()
        async with await trio.open_tcp_stream("127.0.0.1", port) as second:
            assert await _ask(second) == b"HTTP/1.1 503 Service Unavailable"
        go_on.set()
        await _until_there_is_a_place(port)
        nursery.cancel_scope.cancel()


async def _until_there_is_a_place(port: int) -> None:
    with trio.fail_after(5):
        while True:
            async with await trio.open_tcp_stream("127.0.0.1", port) as third:
                if await _ask(third) == b"HTTP/1.1 404 ":
                    return


async def test_under_tls_a_connection_beyond_those_that_are_kept_is_closed(
    one_connection: socket.socket, tls: Tls
) -> None:
    port = one_connection.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_http, Starlette(), one_connection, tls, 1)
        async with await trio.open_tcp_stream("127.0.0.1", port), await trio.open_tcp_stream("127.0.0.1", port) as two:
            with trio.fail_after(5):
                assert await two.receive_some(100) == b""
        nursery.cancel_scope.cancel()


# The command line


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_port_in_use_is_refused_with_who_holds_it(taken_port: int) -> None:
    with pytest.raises(Refused) as caught:
        bind_port("127.0.0.1", taken_port, "streams", "--stream-port")
    text = str(caught.value)
    assert f"Port {taken_port} for streams is in use. Process {os.getpid()} holds it:" in text
    assert "pytest" in text
    assert "--stream-port" in text


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(Refused, match="cannot be used for HTTP"):
        bind_port("203.0.113.1", 0, "HTTP", "--http-port")


def config(**changes: object) -> GatewayConfig:
    settings: dict[str, object] = {
        "gateway_id": "g",
        "brain": "ipc:///nowhere",
        "database_url": "postgresql://127.0.0.1:1/none",
        "objects_url": "/no/objects",
        "stream_port": 0,
        "http_port": 0,
        "metrics_port": -1,
    }
    return GatewayConfig(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"cert": "/no/cert"}, "both --cert and --key"), ({"cert": "/no/cert", "key": "/no/key"}, "cannot be used")],
)
async def test_what_cannot_work_is_told_before_anything_starts(changes: dict[str, object], told: str) -> None:
    with pytest.raises(LeversError, match=told):
        await run_gateway(config(**changes))


def test_certificates_that_clusters_shall_trust_are_read_once_and_checked(
    authority: trustme.CA, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    assert certificates_of(str(path)) == path.read_text()
    assert certificates_of("") == ""
    path.write_text("no certificate")
    with pytest.raises(Refused, match="holds no certificate"):
        certificates_of(str(path))
    with pytest.raises(Refused, match="--external-ca"):
        certificates_of(str(tmp_path / "nowhere"))


def test_urls_with_passwords_come_in_the_environment_and_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERS9_DATABASE_URL", "postgresql://me:secret@host/db")
    monkeypatch.setenv("LEVERS9_REDIS_URL", "redis://:secret@host")
    read = read_config(["--gateway-id", "g", "--brain", "ipc://b", "--objects-url", "o"])
    assert (read.database_url, read.redis_url) == ("postgresql://me:secret@host/db", "redis://:secret@host")
    assert not any("secret" in value for value in os.environ.values())


def test_the_replicas_token_comes_in_the_environment_and_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERS9_REPLICA_TOKEN", "secret")
    words = ["--gateway-id", "g", "--brain", "ipc://b", "--database-url", "d", "--objects-url", "o", "--http-port", "0"]
    read = read_config(words)
    assert (read.replica_token, read.http_port, read.stream_port) == ("secret", 0, 1993)
    assert "LEVERS9_REPLICA_TOKEN" not in os.environ
