"""What a worker's process dials in tests of it: a gateway that takes its stream, notes what it hears, and speaks."""

from __future__ import annotations

import ssl
import sys
from functools import partial

import msgspec
import trio

from levers9.errors import UNAUTHENTICATED, Refused
from levers9.model.ids import Chance
from levers9.model.resources import Shape
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter, open_envelope, seal
from levers9.wire.link import Acceptor, Link, Received
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import ContainerReady, StartContainer, WorkerReported
from levers9.wire.work import AttemptOrder, AttemptsFinished, RunAttempts

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Gateway:
    """Takes a worker's stream, notes what it hears, and speaks."""

    def __init__(self, worker_id: str = "w1", ssl_context: ssl.SSLContext | None = None) -> None:
        self.worker_id = worker_id
        self.ssl_context = ssl_context
        self.refuses = False
        self.came: list[websocket.RequestInfo] = []
        self.acceptor = Acceptor(chance=Chance(1))
        self.heard: list[Message] = []
        self.link: Link | None = None
        self.news = trio.Event()
        self.port = 0

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.acceptor.run)
            serve = partial(
                websocket.serve, "127.0.0.1", 0, self.handle, check=self.check, ssl_context=self.ssl_context
            )
            self.port = await nursery.start(serve)
            task_status.started()

    async def check(self, request: websocket.RequestInfo) -> None:
        self.came.append(request)
        if self.refuses:
            raise Refused("This token is not known.", "Its cluster was detached.", code=UNAUTHENTICATED)

    async def handle(self, request: websocket.RequestInfo, carrier: Carrier) -> None:

        await self.acceptor.serve(carrier, name=f"worker/{self.worker_id}", on_link=self.on_link)

    async def on_link(self, link: Link) -> None:
        self.link = link
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                self.heard += [open_envelope(envelope).message for envelope in event.envelopes]
                self.news.set()
                self.news = trio.Event()

    async def say(self, *messages: Message) -> None:
        assert self.link is not None
        await self.link.send(
            *(seal(Letter(one, source="tasks", target=f"worker/{self.worker_id}"), Chance()) for one in messages)
        )

    async def until(self, kind: type[Message]) -> Message:
        with trio.fail_after(20):
            while True:
                found = [message for message in self.heard if isinstance(message, kind)]
                if found:
                    return found[-1]
                await self.news.wait()


async def start(gateway: Gateway, env: tuple[tuple[str, str], ...] = (), *, rank: int = -1) -> ContainerReady:
    """Have container c1 started, as this rank of a gang of two if it is none below 0, and wait until it is ready."""
    await gateway.until(WorkerReported)
    shape = Shape(cpu_milli=100, memory_mib=256)
    spec = StubSpec(
        app="a",
        name="n",
        kind="job",
        handler="mod:function",
        code_key="",
        python=PYTHON,
        shape=shape,
        timeout_s=60,
        retries=0,
        env=env,
    )
    gang = {"gang_id": "g1", "rank": rank, "world_size": 2} if rank >= 0 else {}
    one = StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=spec)
    await gateway.say(msgspec.structs.replace(one, **gang))
    ready = await gateway.until(ContainerReady)
    assert isinstance(ready, ContainerReady)
    return ready


async def call(gateway: Gateway, rank0: str = "") -> bytes:
    """Have the function called in container c1; what it returned, packed."""
    order = AttemptOrder("t1", 1, Payload("msgpack", b"\x92\x90\x80"), 60.0, rank0)
    await gateway.say(RunAttempts(container_id="c1", attempts=(order,)))
    finished = await gateway.until(AttemptsFinished)
    assert isinstance(finished, AttemptsFinished)
    assert finished.results[0].result is not None
    return finished.results[0].result.data


async def run_a_call(gateway: Gateway, env: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Start a container, and call its function."""
    await start(gateway, env)
    return await call(gateway)
