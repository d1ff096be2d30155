"""Workers that listen are dialled: over real sockets, again when the stream breaks, and no more when they are gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import structlog.testing
import trio

from levers9.actors.gateway import dialling
from levers9.errors import LeversError
from levers9.model.ids import Chance
from levers9.model.states import TokenKind
from levers9.store.memory import MemoryStore
from levers9.store.operations import RevokeTokens
from levers9.store.wakeups import TOKENS_CHANNEL
from levers9.wire.carriers.proved import DialledListener, at_once
from levers9.wire.cluster import DialWorkers, WorkerAddress
from levers9.wire.codec import Envelope, pack
from levers9.wire.control import PeerArrived
from levers9.wire.link import DialledLink, Lost, Opened
from levers9.wire.redial import Redial
from levers9.wire.scheduling import WorkerLeaving

from .conftest import DEADLINE_S, Peer, Stand

pytestmark = pytest.mark.slow
Standing = Callable[..., AbstractAsyncContextManager[Stand]]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "Redial", lambda **_: Redial(first_min_s=0.0, first_max_s=0.01, max_s=0.02))


class Worker(Peer):
    """A worker that is dialled."""

    url: str = ""
    lost: int = 0

    async def read(self) -> None:
        """As `Peer`, counting the streams that were lost."""
        with contextlib.suppress(LeversError):
            while True:
                event = await self.link.next_event()
                if isinstance(event, Opened):
                    self.opened += 1
                    self.fresh += not event.resumed
                self.lost += isinstance(event, Lost)
                self._changed.set()
                self._changed = trio.Event()


@asynccontextmanager
async def a_worker(stand: Stand, worker_id: str, token: str) -> AsyncIterator[Worker]:
    listener = DialledListener(worker_id=worker_id, token=token)
    link = DialledLink(name="worker", dial=listener.dial, chance=Chance(5), redial=at_once())
    worker = Worker(link, stand.chance)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(listener.run, "127.0.0.1", 0)
        worker.url = f"ws://127.0.0.1:{port}"
        nursery.start_soon(link.run)
        nursery.start_soon(worker.read)
        with trio.fail_after(DEADLINE_S):
            yield worker
        nursery.cancel_scope.cancel()


def name(stand: Stand, gateway_id: str = "g1", **urls: str) -> None:
    """Have the brain name these workers, and no others."""
    workers = tuple(WorkerAddress(worker_id=worker_id, url=url) for worker_id, url in urls.items())
    stand.brain.say(f"gateway/{gateway_id}", DialWorkers(workers=workers))


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not true():  # noqa: ASYNC110 - what it looks at is in the gateway, which tells nobody
            await trio.sleep(0.005)


async def test_a_worker_that_is_named_is_dialled_and_speaks_as_itself(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, workspace_id="", subject="w1")
    async with a_worker(stand, "w1", token) as worker:
        name(stand, w1=worker.url)
        await worker.until(lambda: worker.opened == 1)
        arrived = await stand.brain.wait_for(PeerArrived)
        message = WorkerLeaving(worker_id="w1", why="done")
        await worker.link.send(Envelope("m1", "worker/other", "scheduler", pack(message)))
        ((envelope, said),) = await stand.brain.wait_for(WorkerLeaving)
    assert [one.peer for _, one in arrived] == ["worker/w1"]
    assert (envelope.source, said) == ("worker/w1", message)


class Wire:
    """What is between a gateway and a worker; it can be cut."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.carried = 0

    async def carry(self, near: trio.SocketStream, far_port: int) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", far_port)
        self.carried += 1
        async with near, far:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_copy, near, far)
                    nursery.start_soon(_copy, far, near)

    def cut(self) -> None:
        self.scope.cancel()
        self.scope = trio.CancelScope()


async def _copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()


async def test_a_stream_that_was_cut_is_dialled_again_and_its_session_goes_on(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, workspace_id="", subject="w1")
    wire = Wire()
    async with a_worker(stand, "w1", token) as worker, trio.open_nursery() as nursery:
        far_port = int(worker.url.rpartition(":")[2])
        listeners = await nursery.start(trio.serve_tcp, lambda near: wire.carry(near, far_port), 0)
        name(stand, w1=f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        for count in (1, 2, 3):
            await worker.until(lambda count=count: worker.opened == count)
            wire.cut()
        await worker.until(lambda: worker.opened == 4)
        nursery.cancel_scope.cancel()
    assert (worker.fresh, wire.carried) == (1, 4)


async def test_who_does_not_know_the_worker_s_token_gets_no_stream(stand: Stand) -> None:
    await stand.token(TokenKind.WORKER, workspace_id="", subject="w1")
    async with a_worker(stand, "w1", "another token") as worker:
        with structlog.testing.capture_logs() as told:
            name(stand, w1=worker.url)
            await until(lambda: bool(told))
        assert worker.opened == 0
    assert "not a control plane of worker w1" in told[0]["why"]


@pytest.mark.parametrize("kind", [TokenKind.WORKSPACE, TokenKind.AGENT])
async def test_a_token_of_another_kind_opens_no_worker_s_stream(stand: Stand, kind: TokenKind) -> None:
    token = await stand.token(kind, subject="w1")
    async with a_worker(stand, "w1", token) as worker:
        with structlog.testing.capture_logs() as told:
            name(stand, w1=worker.url)
            await until(lambda: bool(told))
        assert worker.opened == 0
    assert told[0]["why"] == "its token was revoked"


async def test_a_worker_that_is_named_no_more_is_dialled_no_more(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER, workspace_id="", subject="w1")
    async with a_worker(stand, "w1", token) as worker:
        name(stand, w1=worker.url)
        await worker.until(lambda: worker.opened == 1)
        name(stand)
        await until(lambda: worker.lost == 1)
        assert stand.gateway.dialling.statistics() == ()
        name(stand, w1=worker.url)
        await worker.until(lambda: worker.opened == 2)


async def test_the_stream_of_a_revoked_token_is_closed_and_not_dialled_again(stand: Stand) -> None:
    token = await stand.token(TokenKind.WORKER_PRIVATE, subject="w1")
    async with a_worker(stand, "w1", token) as worker:
        name(stand, w1=worker.url)
        await worker.until(lambda: worker.opened == 1)
        with structlog.testing.capture_logs() as told:
            await stand.store.apply(RevokeTokens(subjects=("w1",)))
            await stand.wakeups.publish(TOKENS_CHANNEL, "w1")
            await until(lambda: any(entry.get("why") == "its token was revoked" for entry in told))
        assert (worker.opened, worker.lost) == (1, 1)


async def test_another_gateway_takes_over_when_the_first_has_gone(make_stand: Standing) -> None:
    store = MemoryStore()
    async with make_stand(store=store, gateway_id="g2") as second:
        token = await second.token(TokenKind.WORKER, workspace_id="", subject="w1")
        async with a_worker(second, "w1", token) as worker:
            async with make_stand(store=store) as first:
                name(first, w1=worker.url)
                await worker.until(lambda: worker.opened == 1)
                with structlog.testing.capture_logs() as told:
                    name(second, "g2", w1=worker.url)
                    await until(lambda: bool(told))
                assert "503" in told[0]["why"]
                assert second.brain.heard(PeerArrived) == []
            await worker.until(lambda: worker.opened == 2)
            ((_, arrived),) = await second.brain.wait_for(PeerArrived)
    assert arrived == PeerArrived(peer="worker/w1")
