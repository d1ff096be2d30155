"""A control plane in a few lines: the wire's messages over in-memory cables, and objects over real HTTP.

It lives in the event loop of whoever dials it, and runs calls on the spot. Tests tell it what to hold, drop and refuse.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

import cloudpickle
import msgspec
import trio

from levers9.model.ids import Chance
from levers9.model.states import TaskState
from levers9.sdk.config import Settings
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.client import (
    CancelAccepted,
    CancelTasks,
    NewTask,
    RegisterStub,
    RequestRefused,
    ResultsTaken,
    StubRegistered,
    StubSpec,
    SubmitTasks,
    TaskResult,
    TasksAccepted,
    TasksFinished,
    TaskStanding,
    WatchTasks,
)
from levers9.wire.codec import Envelope
from levers9.wire.letter import Letter, answer, open_envelope, seal
from levers9.wire.link import Acceptor, Link, Received
from levers9.wire.message import Failure, Message, Payload

from .http_stub import HttpStub

Answering = Callable[[Letter, Message], None]


@dataclass
class FakeControlPlane:
    """What it was told, and how it behaves."""

    http: HttpStub
    stubs: dict[str, StubSpec] = field(default_factory=dict)
    seen: list[Message] = field(default_factory=list)
    tasks: dict[str, tuple[str, NewTask]] = field(default_factory=dict)
    results: dict[str, TaskResult] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    runs: dict[str, int] = field(default_factory=dict)
    hold: bool = False  # accept, but run nothing until `release`
    deaf: int = 0  # lose so many submissions
    refuse: list[Failure] = field(default_factory=list)  # answers to the next requests
    dials: int = 0
    outage: OSError | None = None

    def __post_init__(self) -> None:
        self._chance = Chance(1)
        self._acceptor: Acceptor | None = None
        self._cable: MemoryCable | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._link: Link | None = None
        self._changed = threading.Condition()

    def settings(self) -> Settings:
        return Settings("token-of-a-test", "ws://127.0.0.1:1/v1/stream?peer=client", self.http.url, "the test")

    async def dial(self, settings: Settings) -> Carrier:
        self.dials += 1
        if self.outage is not None:
            raise self.outage
        if self._acceptor is None or self._token is not trio.lowlevel.current_trio_token():
            self.restart()
        cable = self._cable = MemoryCable(copies=True)
        trio.lowlevel.spawn_system_task(self._serve, cable.right)
        return cable.left

    # What tests do to it, from their own thread.

    def restart(self) -> None:
        """Forget every session, as a new process would."""
        self._token = trio.lowlevel.current_trio_token()
        self._acceptor = Acceptor(chance=self._chance)
        trio.lowlevel.spawn_system_task(self._acceptor.run)

    def cut(self, *, forget: bool = False) -> None:
        """Cut the connection."""
        self._soon(lambda: self._cut(forget))

    def release(self) -> None:
        """Run what was held."""
        self._soon(self._release)

    def tell(self, message: Message) -> None:
        """Say something unasked."""
        self._soon(lambda: self._send(Letter(message, source="tasks", target="client")))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 10), "the control plane never came to that"

    def _soon(self, step: Callable[[], None]) -> None:
        assert self._token is not None
        self._token.run_sync_soon(step)

    def _cut(self, forget: bool) -> None:
        assert self._cable is not None
        if forget:
            self.restart()
        self._cable.cut()

    def _release(self) -> None:
        self.hold = False
        waiting = [task_id for task_id in self.tasks if task_id not in self.results]
        self._finish(waiting)

    # Its side of the conversation.

    async def _serve(self, carrier: Carrier) -> None:
        assert self._acceptor is not None
        await trio.lowlevel.checkpoint()
        await self._acceptor.serve(carrier, name="client/test", on_link=self._on_link)

    async def _on_link(self, link: Link) -> None:
        self._link = link
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                for envelope in event.envelopes:
                    self._handle(envelope)

    def _handle(self, envelope: Envelope) -> None:
        letter = open_envelope(envelope)
        with self._changed:
            self.seen.append(letter.message)
            self._decide(letter)
            self._changed.notify_all()

    def _decide(self, letter: Letter) -> None:
        message = letter.message
        if isinstance(message, ResultsTaken):
            self.taken.update(message.task_ids)
        elif self.refuse and not isinstance(message, CancelTasks):
            self._reply(letter, RequestRefused(failure=self.refuse.pop(0)))
        elif isinstance(message, RegisterStub):
            self._reply(letter, StubRegistered(stub_id=self._register(message.spec)))
        elif isinstance(message, SubmitTasks):
            self._submitted(letter, message)
        elif isinstance(message, WatchTasks):
            self._watched(message)
        elif isinstance(message, CancelTasks):
            self._reply(letter, CancelAccepted(standings=tuple(map(self._cancel, message.task_ids))))

    def _register(self, spec: StubSpec) -> str:
        known = next((stub_id for stub_id, one in self.stubs.items() if one == spec), "")
        stub_id = known or f"stub-{len(self.stubs)}"
        self.stubs[stub_id] = spec
        return stub_id

    def _submitted(self, letter: Letter, message: SubmitTasks) -> None:
        if self.deaf:
            self.deaf -= 1
            return
        if message.stub_id not in self.stubs:
            self._reply(letter, RequestRefused(failure=Failure("not_found", "No such function.")))
            return
        for task in message.tasks:
            self.tasks.setdefault(task.task_id, (message.stub_id, task))
        ids = tuple(task.task_id for task in message.tasks)
        self._reply(letter, TasksAccepted(task_ids=ids))
        if not self.hold:
            self._finish(list(ids))

    def _watched(self, message: WatchTasks) -> None:
        for task_id in message.task_ids:
            if task_id not in self.tasks:
                self.results[task_id] = TaskResult(task_id, TaskState.EXPIRED, 0)
        self._tell_results([self.results[task_id] for task_id in message.task_ids if task_id in self.results])

    def _cancel(self, task_id: str) -> TaskStanding:
        result = self.results.setdefault(task_id, TaskResult(task_id, TaskState.CANCELLED, 0))
        self._tell_results([result])
        return TaskStanding(task_id, result.state)

    def _finish(self, task_ids: list[str]) -> None:
        for task_id in task_ids:
            if task_id not in self.results:
                self.results[task_id] = self._run(task_id)
        self._tell_results([self.results[task_id] for task_id in task_ids])

    def _run(self, task_id: str) -> TaskResult:
        stub_id, task = self.tasks[task_id]
        self.runs[task_id] = self.runs.get(task_id, 0) + 1
        try:
            return TaskResult(task_id, TaskState.COMPLETE, 1, self._call(self.stubs[stub_id], task.arguments))
        except BaseException as error:
            pickled = cloudpickle.dumps(error)
            failure = Failure("exception", repr(error), exception=pickled, traceback=traceback.format_exc())
            return TaskResult(task_id, TaskState.ERROR, 1, None, failure)

    def _call(self, spec: StubSpec, arguments: Payload) -> Payload:
        data = self.http.objects[arguments.object_key] if arguments.object_key else arguments.data
        positional, named = msgspec.msgpack.decode(data) if arguments.format == "msgpack" else pickle.loads(data)
        value = self._load(spec)(*positional, **named)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        result = cloudpickle.dumps(value)
        if len(result) <= 512 << 10:
            return Payload("pickle", result, "", len(result))
        key = f"blob/{len(result):064x}"
        self.http.objects[key] = result
        return Payload("pickle", b"", key, len(result))

    def _load(self, spec: StubSpec) -> Callable[..., object]:
        module, _, name = spec.handler.partition(":")
        found = pickle.loads(self.http.objects[name]) if module == "pickle" else getattr(import_module(module), name)
        function = getattr(found, "__levers9_function__", found)
        assert callable(function)
        return function  # type: ignore[no-any-return]

    def _tell_results(self, results: list[TaskResult]) -> None:
        for start in range(0, len(results), 200):
            part = tuple(results[start : start + 200])
            self._send(Letter(TasksFinished(results=part), source="tasks", target="client"))

    def _reply(self, letter: Letter, message: Message) -> None:
        self._send(answer(letter, message))

    def _send(self, letter: Letter) -> None:
        assert self._link is not None
        self._link.send_nowait(seal(letter, self._chance))
