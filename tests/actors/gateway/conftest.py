"""A gateway on real sockets with a store in memory, a brain that tests speak for, and clients by real links."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio

from levers9.actors.gateway.gateway import Gateway, Listeners, Surroundings
from levers9.actors.gateway.outlet import QUEUE_BYTES
from levers9.actors.gateway.server import Tls
from levers9.daemons.gateway import bind_port
from levers9.errors import LeversError
from levers9.model.ids import Chance
from levers9.model.states import TokenKind
from levers9.model.tokens import hash_of, hint_of, make_token
from levers9.store.memory import MemoryStore
from levers9.store.objects import MemoryObjects
from levers9.store.operations import CreateToken, CreateWorkspace, TokenRow
from levers9.store.wakeups import MemoryWakeups
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.codec import Envelope, pack, unpack
from levers9.wire.control import GatewayReady, LeaderIs
from levers9.wire.link import Acceptor, DialledLink, Link, Opened, Received
from levers9.wire.message import Message
from levers9.wire.redial import Redial

Dial = Callable[[], Awaitable[Carrier]]
FAST = Redial(first_min_s=0.0, first_max_s=0.01, max_s=0.05)
DEADLINE_S = 10.0
OWN_BRAIN = LeaderIs(epoch=1)
NOBODY_TRUSTED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once: reading the system's roots takes 30 ms
REPLICA_TOKEN = make_token(TokenKind.REPLICA, b"r" * 32)


@dataclass
class FakeBrain:
    """The far end of a gateway's ipc link: what arrives is kept, and tests say what is answered."""

    chance: Chance
    arrived: list[Envelope] = field(default_factory=list)
    link: Link | None = None
    answers: dict[type[Message], Callable[[Message], Message | None]] = field(default_factory=dict)
    cable: MemoryCable | None = None

    def __post_init__(self) -> None:
        self.acceptor = Acceptor(chance=self.chance)
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self.acceptor.run)
            task_status.started()

    async def dial(self) -> Carrier:
        await trio.lowlevel.checkpoint()
        self.cable = MemoryCable()
        assert self._nursery is not None
        self._nursery.start_soon(partial(self.acceptor.serve, self.cable.right, name="gateway", on_link=self.own))
        return self.cable.left

    async def own(self, link: Link) -> None:
        self.link = link
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                for envelope in event.envelopes:
                    self.arrived.append(envelope)
                    self._answer(link, envelope)
            self._tell()

    def _answer(self, link: Link, envelope: Envelope) -> None:
        message = unpack(envelope.payload)
        answer = self.answers.get(type(message), lambda _: None)(message)
        if answer is not None:
            link.send_nowait(Envelope("", envelope.target, envelope.source, pack(answer), envelope.id))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def say(self, target: str, message: Message) -> None:
        assert self.link is not None
        self.link.send_nowait(Envelope(self.chance.id("m"), "tasks", target, pack(message)))

    def heard(self, kind: type[Message]) -> list[tuple[Envelope, Message]]:
        opened = [(envelope, unpack(envelope.payload)) for envelope in self.arrived]
        return [(envelope, message) for envelope, message in opened if isinstance(message, kind)]

    async def wait_for(self, kind: type[Message], count: int = 1) -> list[tuple[Envelope, Message]]:
        with trio.fail_after(DEADLINE_S):
            while len(self.heard(kind)) < count:
                await self._changed.wait()
        return self.heard(kind)


@dataclass
class Stand:
    """A running gateway and everything around it."""

    gateway: Gateway
    store: MemoryStore
    objects: MemoryObjects
    brain: FakeBrain
    wakeups: MemoryWakeups
    chance: Chance
    stream_port: int
    http_port: int
    metrics_port: int
    now_s: list[float]
    nursery: trio.Nursery
    scheme: str = "http"
    tokens: dict[str, TokenRow] = field(default_factory=dict)

    async def token(self, kind: TokenKind, workspace_id: str = "ws-a", subject: str = "") -> str:
        """A new token of this kind."""
        value = make_token(kind, self.chance.secret(32))
        row = TokenRow(
            token_id=self.chance.id("token"),
            workspace_id=workspace_id,
            kind=kind,
            name=str(kind),
            hash=hash_of(value),
            hint=hint_of(value),
            active=True,
            created_at_s=self.now_s[0],
            subject=subject,
        )
        await self.store.apply(CreateToken(token=row))
        self.tokens[value] = row
        return value

    async def restart_brain(self) -> None:
        """The brain's process begins anew: nothing of any session is known to it."""
        old = self.brain.cable
        assert old is not None
        self.brain.acceptor = Acceptor(chance=self.chance)
        await self.nursery.start(self.brain.acceptor.run)
        old.cut()

    def http(
        self, token: str = "", *, verify: ssl.SSLContext = NOBODY_TRUSTED, wait_s: float = DEADLINE_S
    ) -> httpx2.AsyncClient:
        """A client; under TLS it has to be told whom to trust."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        url = f"{self.scheme}://127.0.0.1:{self.http_port}"
        return httpx2.AsyncClient(base_url=url, headers=headers, verify=verify, timeout=wait_s)

    def dial(self, path: str, token: str, port: int | None = None) -> Dial:
        letter = "s" if self.scheme == "https" else ""
        url = f"ws{letter}://127.0.0.1:{port or self.stream_port}{path}"
        return partial(websocket.connect, url, token=token)

    @asynccontextmanager
    async def peer(
        self, path: str, token: str, port: int | None = None, dial: Dial | None = None
    ) -> AsyncIterator[Peer]:
        """A peer that dials by a real link, as SDK and worker do."""
        dialled = dial or self.dial(path, token, port)
        link = DialledLink(name="peer", dial=dialled, chance=self.chance, redial=FAST)
        async with trio.open_nursery() as nursery:
            peer = Peer(link, self.chance)
            nursery.start_soon(link.run)
            nursery.start_soon(peer.read)
            with trio.fail_after(DEADLINE_S):
                await peer.until(lambda: peer.opened > 0)
            yield peer
            nursery.cancel_scope.cancel()


class Peer:
    """One end of a stream, as SDK and workers hold it."""

    def __init__(self, link: DialledLink, chance: Chance) -> None:
        self.link = link
        self.chance = chance
        self.opened = self.fresh = 0
        self.received: list[Envelope] = []
        self.hold: trio.Event | None = None
        self._changed = trio.Event()

    async def read(self) -> None:
        while True:
            if self.hold is not None:
                await self.hold.wait()
            try:
                event = await self.link.next_event()
            except LeversError:
                return  # the one who runs the link hears why
            if isinstance(event, Opened):
                self.opened += 1
                self.fresh += not event.resumed
            elif isinstance(event, Received):
                self.received += event.envelopes
            self._changed.set()
            self._changed = trio.Event()

    async def until(self, reached: Callable[[], bool]) -> None:
        with trio.fail_after(DEADLINE_S):
            while not reached():
                await self._changed.wait()

    async def send(self, message: Message, target: str = "") -> str:
        number = self.chance.id("m")
        await self.link.send(
            Envelope(number, "forged", target or message.receiver, pack(message), "", "forged", "root")
        )
        return number

    def messages(self) -> list[Message]:
        return [unpack(envelope.payload) for envelope in self.received]

    async def wait_for(self, kind: type[Message], count: int = 1) -> list[Message]:
        await self.until(lambda: sum(isinstance(one, kind) for one in self.messages()) >= count)
        return [one for one in self.messages() if isinstance(one, kind)]


@asynccontextmanager
async def standing(
    *,
    tls: Tls | None = None,
    behind_tls: bool = False,
    one_port: bool = False,
    gateway_id: str = "g1",
    store: MemoryStore | None = None,
    leader: LeaderIs | None = OWN_BRAIN,
    queue_bytes: int = QUEUE_BYTES,
    journal_dir: Path | None = None,
    external_url: str = "",
    ca_pem: str = "",
) -> AsyncIterator[Stand]:
    """A gateway that knows its leader."""
    chance, store, wakeups, now_s = Chance(7), store or MemoryStore(), MemoryWakeups(), [1_000.0]
    objects, brain = MemoryObjects(), FakeBrain(chance)
    await store.apply(CreateWorkspace(workspace_id="ws-a", name="a", now_s=0.0))
    given = Surroundings(
        gateway_id=gateway_id,
        store=store,
        objects=objects,
        wakeups=wakeups,
        dial_brain=brain.dial,
        dial_replica=lambda url: websocket.connect(f"{url}/v1/relay?gateway={gateway_id}", token=REPLICA_TOKEN),
        chance=chance,
        clock=lambda: now_s[0],
        secret=chance.secret,
        replica_token=REPLICA_TOKEN,
        behind_tls=behind_tls,
        queue_bytes=queue_bytes,
        journal_dir=journal_dir,
        external_url=external_url,
        ca_pem=ca_pem,
    )
    sockets = [bind_port("127.0.0.1", 0, "tests", "--port") for _ in range(3)]
    listeners = Listeners(http=sockets[0], streams=None if one_port else sockets[1], metrics=sockets[2], tls=tls)
    ports = [one.getsockname()[1] for one in sockets]
    gateway = Gateway(given)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(brain.run)
            await nursery.start(gateway.run, listeners)
            stand = Stand(gateway, store, objects, brain, wakeups, chance, ports[1], *ports[::2], now_s, nursery)
            stand.scheme = "https" if tls else "http"
            if leader is not None:
                await _tell_leader(stand, gateway_id, leader)
            yield stand
            nursery.cancel_scope.cancel()
    finally:
        for one in sockets:
            one.close()


async def _tell_leader(stand: Stand, gateway_id: str, leader: LeaderIs) -> None:
    await stand.brain.wait_for(GatewayReady)
    stand.brain.say(f"gateway/{gateway_id}", leader)
    with trio.fail_after(DEADLINE_S):
        await stand.gateway.relay.leader_known.wait()


@pytest.fixture
async def fake_brain() -> FakeBrain:
    """A brain that nobody is linked to yet."""
    return FakeBrain(Chance(8))


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing() as one:
        yield one


@pytest.fixture
def make_stand() -> Callable[..., AbstractAsyncContextManager[Stand]]:
    """For tests that want a gateway of another make, or several."""
    return standing
