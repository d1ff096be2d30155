"""A worker over an in-memory link, with a control plane that only notes what it hears."""

import contextlib
import hashlib
import importlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import msgspec
import trio

import levers9.actors.worker
from levers9.actors.worker.actor import WorkerActor
from levers9.actors.worker.logs import LogLine
from levers9.actors.worker.objects import Owner
from levers9.actors.worker.policy import WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.actors.worker.runtime.face import Runtime
from levers9.errors import Refused
from levers9.model.ids import Chance
from levers9.model.resources import Capacity, Shape
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter, open_envelope, seal
from levers9.wire.link import Acceptor, DialledLink, Link, Received
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import ContainerReady, StartContainer
from levers9.wire.work import AttemptOrder, AttemptResult, AttemptsFinished, RunAttempts

_T = TypeVar("_T")
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def a_spec(handler: str = "mod:function", memory_mib: int = 256, env: tuple[tuple[str, str], ...] = ()) -> StubSpec:
    shape = Shape(cpu_milli=125, memory_mib=memory_mib)
    return StubSpec(
        app="app",
        name="name",
        kind="job",
        handler=handler,
        code_key="",
        python=PYTHON,
        shape=shape,
        timeout_s=60.0,
        retries=0,
        env=env,
    )


def an_order(number: int, *positional: object, attempt: int = 1, timeout_s: float = 60.0) -> AttemptOrder:
    arguments = Payload("msgpack", msgspec.msgpack.encode([list(positional), {}]))
    return AttemptOrder(f"task-{number}", attempt, arguments, timeout_s)


class MemoryObjects:
    """An object store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def get_many(self, owner: Owner, keys: tuple[str, ...]) -> dict[str, bytes]:
        await trio.lowlevel.checkpoint()
        self.asked += keys
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def get(self, owner: Owner, key: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked.append(key)
        if key not in self.kept:
            raise Refused(f"There is no object {key!r}.")
        return self.kept[key]

    async def put(self, owner: Owner, key: str, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.kept[key] = data


def put_code(objects: MemoryObjects, files: dict[str, bytes], mode: int = 0o644) -> str:
    rows = []
    for path, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        objects.kept[f"blob/{digest}"] = data
        rows.append([path, digest, mode, len(data)])
    manifest = msgspec.msgpack.encode({"files": rows})
    key = f"blob/{hashlib.sha256(manifest).hexdigest()}"
    objects.kept[key] = manifest
    return key


class NotedLogs:
    """A log sink that keeps all lines, and the numbers of the chunks they came in."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.chunks: list[int] = []

    async def send(self, container_id: str, chunk: int, lines: tuple[LogLine, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.chunks.append(chunk)
        self.lines += lines


class ControlPlane:
    """The other end of a worker's link: what it heard, and what it says."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.acceptor = Acceptor(chance=Chance(1))
        self.cables: list[MemoryCable] = []
        self.heard: list[Message] = []
        self.link: Link | None = None
        self.news = trio.Event()

    @staticmethod
    def new_acceptor() -> Acceptor:
        """A control plane that has forgotten all sessions."""
        return Acceptor(chance=Chance(5))

    async def dial(self) -> Carrier:
        cable = MemoryCable()
        self.cables.append(cable)

        async def serve() -> None:
            await self.acceptor.serve(cable.right, name="worker/w1", on_link=self.on_link)

        self.nursery.start_soon(serve)
        return cable.left

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
        await self.link.send(*(seal(Letter(one, source="tasks", target="worker/w1"), Chance(3)) for one in messages))

    async def until(self, done: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not done():
                await self.news.wait()

    def of(self, kind: type[_T]) -> list[_T]:
        return [message for message in self.heard if isinstance(message, kind)]

    def results(self) -> dict[tuple[str, int], AttemptResult]:
        return {(one.task_id, one.attempt): one for message in self.of(AttemptsFinished) for one in message.results}

    async def result(self, task_id: str, attempt: int = 1) -> AttemptResult:
        await self.until(lambda: (task_id, attempt) in self.results())
        return self.results()[task_id, attempt]

    async def start(self, container_id: str = "c1", spec: StubSpec | None = None, **gang: object) -> None:
        spec = spec or a_spec()
        known = StartContainer(container_id=container_id, stub_id="s1", workspace_id="ws", spec=spec, token="t0")
        await self.say(msgspec.structs.replace(known, **gang))
        await self.until(lambda: any(one.container_id == container_id for one in self.of(ContainerReady)))

    async def run(self, *orders: AttemptOrder, container_id: str = "c1") -> None:
        await self.say(RunAttempts(container_id=container_id, attempts=orders))


@contextlib.asynccontextmanager
async def worked(
    runtime: Runtime, objects: MemoryObjects, grace_s: float = 30.0
) -> AsyncIterator[tuple[ControlPlane, WorkerActor]]:
    """A worker that runs over a memory link."""
    capacity = Capacity(cpu_milli=2000, memory_mib=4096)
    identity = Identity(worker_id="w1", pool="p", epoch=1, capacity=capacity, host="127.0.0.1")
    policy = WorkerPolicy(identity, stop_grace_s=grace_s)
    async with trio.open_nursery() as nursery:
        plane = ControlPlane(nursery)
        link = DialledLink(name="worker/w1", dial=plane.dial, chance=Chance(2))
        actor = WorkerActor(policy=policy, link=link, runtime=runtime, objects=objects, chance=Chance(4))
        await nursery.start(plane.acceptor.run)
        nursery.start_soon(link.run)
        await nursery.start(actor.run)
        await plane.until(lambda: bool(plane.heard))
        yield plane, actor
        nursery.cancel_scope.cancel()


def bundle_module(name: str) -> ModuleType:
    """A module of the runner bundle, which is no part of the package."""
    bundle = str(Path(levers9.actors.worker.__file__).parent / "runner")
    sys.path.insert(0, bundle)
    try:
        return importlib.import_module(f"levers9_runner.{name}")
    finally:
        sys.path.remove(bundle)
