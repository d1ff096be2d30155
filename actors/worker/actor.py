"""The worker's shell: letters and the runtime's news go to the policy, and its decisions are carried out."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
import trio

from ...errors import LeversError, PeerProtocolError, Refused, WouldBlock
from ...model.ids import Chance
from ...model.states import End
from ...wire.codec import Envelope
from ...wire.letter import Letter, open_envelope, seal
from ...wire.link import Link, Lost, Opened, PeerBack, PeerSilent, Received
from ...wire.message import Failure, Payload
from ...wire.work import AttemptResult
from . import events
from .events import Decision, Event
from .meeting import free_port
from .objects import Objects, Owner, key_in_thread
from .policy import WorkerPolicy
from .runtime.face import RunningContainer, Runtime

_log = structlog.get_logger()


@dataclass
class _Hosted:
    """A container of the runtime: its sink, and its handle once it has started."""

    launch: events.Launch
    happened: Callable[[Event], None]
    new_port: Callable[[], int]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    container: RunningContainer | None = None

    def started(self, container: RunningContainer | None = None) -> None:
        """The runtime has started it."""
        self.container = container

    def loaded(self) -> None:
        """See `Sink`."""
        port = self.new_port() if self.launch.gang_id else 0
        self.happened(events.ContainerLoaded(self.launch.container_id, port))

    def finished(self, results: tuple[AttemptResult, ...]) -> None:
        """See `Sink`."""
        self.happened(events.AttemptsReturned(self.launch.container_id, results))

    @property
    def owner(self) -> Owner:
        """For whom objects are fetched and stored."""
        launch = self.launch
        return Owner(workspace_id=launch.workspace_id, container_id=launch.container_id, token=launch.token)


class WorkerActor:
    """One worker on one link. Its state is the policy's; nothing here decides."""

    def __init__(
        self,
        *,
        policy: WorkerPolicy,
        link: Link,
        runtime: Runtime,
        objects: Objects,
        chance: Chance,
        clock: Callable[[], float] = trio.current_time,
        key_of: Callable[[bytes], Awaitable[str]] = key_in_thread,
        new_port: Callable[[], int] = free_port,
    ) -> None:
        self._policy = policy
        self._link = link
        self._runtime = runtime
        self._objects = objects
        self._chance = chance
        self._clock = clock
        self._key_of = key_of
        self._new_port = new_port
        self._address = f"worker/{policy.identity.worker_id}"
        self._hosted: dict[str, _Hosted] = {}
        self._unsent: deque[Envelope] = deque()  # bounded by credits: all of it is results and ends of what we hold
        self._sending = trio.Event()
        self._drained = trio.Event()
        self._left = trio.Event()
        self._wake_at_s: float | None = None
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until the worker has left; raises `BrokenByPeer` or `Refused` when the link has ended for good."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._receive)
            nursery.start_soon(self._send_rest)
            nursery.start_soon(self._watch_time)
            task_status.started()
            await self._left.wait()
            while self._unsent:
                self._drained = trio.Event()
                await self._drained.wait()
            nursery.cancel_scope.cancel(reason="the worker has left")

    def leave(self, why: str, grace_s: float) -> None:
        """Take nothing new, let what runs finish within `grace_s`, say goodbye, and return from `run`."""
        self._happened(events.LeaveAsked(why, grace_s))

    # In

    async def _receive(self) -> None:
        while True:
            event = await self._link.next_event()
            if isinstance(event, Received):
                self._letters(event.envelopes)
            elif isinstance(event, Opened):
                if not event.resumed:
                    self._unsent.clear()  # all of it is told again
                    self._drained.set()
                self._happened(events.LinkOpened(event.resumed))
            elif isinstance(event, PeerSilent | Lost):
                self._happened(events.LinkQuiet())
            elif isinstance(event, PeerBack):
                self._happened(events.LinkHeard())

    def _letters(self, envelopes: tuple[Envelope, ...]) -> None:
        decisions: deque[Decision] = deque()
        for envelope in envelopes:
            try:
                letter = open_envelope(envelope)
            except PeerProtocolError as error:
                _log.warning("a message could not be read", source=envelope.source, error=str(error))
                continue
            decisions.extend(self._policy.handle(events.MessageArrived(letter.message), self._clock()))
        self._perform(decisions)

    def _happened(self, event: Event) -> None:
        self._perform(deque(self._policy.handle(event, self._clock())))

    # Decisions

    def _perform(self, decisions: deque[Decision]) -> None:
        sealed: list[Envelope] = []
        while decisions:
            decision = decisions.popleft()
            if isinstance(decision, events.Send):
                message = decision.message
                letter = Letter(message, source=self._address, target=type(message).receiver)
                sealed.append(seal(letter, self._chance))
            elif isinstance(decision, events.Revoke):
                decisions.extend(self._policy.handle(self._revoke(decision), self._clock()))
            else:
                self._perform_one(decision)
        if sealed:
            self._send(sealed)
        self._set_alarm()

    def _perform_one(self, decision: Decision) -> None:
        match decision:
            case events.Give(container_id, orders):
                container = self._hosted[container_id].container
                if container is not None:
                    container.give(orders)
            case events.Launch():
                self._hosted[decision.container_id] = hosted = _Hosted(decision, self._happened, self._new_port)
                self._tasks().start_soon(self._host, hosted)
            case events.Terminate(container_id) | events.Kill(container_id):
                self._end(self._hosted.get(container_id), kill=isinstance(decision, events.Kill))
            case events.Fetch():
                self._tasks().start_soon(self._fetch, decision, self._hosted[decision.container_id].owner)
            case events.Store():
                self._tasks().start_soon(self._store, decision, self._hosted[decision.container_id].owner)
            case events.Leave(why):
                _log.info("leaving", why=why)
                self._left.set()
            case _:
                raise AssertionError(decision)

    def _revoke(self, decision: events.Revoke) -> events.AttemptsRevoked:
        hosted = self._hosted.get(decision.container_id)
        if hosted is None or hosted.container is None:
            return events.AttemptsRevoked(decision.container_id, (), ())
        revoked = hosted.container.revoke(decision.keys)
        return events.AttemptsRevoked(decision.container_id, revoked.dropped, revoked.started)

    @staticmethod
    def _end(hosted: _Hosted | None, *, kill: bool) -> None:
        if hosted is None:
            return
        if hosted.container is None:
            hosted.scope.cancel(reason="stopped before it started")
        elif kill:
            hosted.container.kill()
        else:
            hosted.container.terminate()

    # What takes time

    def _tasks(self) -> trio.Nursery:
        assert self._nursery is not None, "run() comes first"
        return self._nursery

    async def _host(self, hosted: _Hosted) -> None:
        container_id = hosted.launch.container_id
        exited = events.ContainerExited(container_id, End.OK, "it was stopped before it started")
        with hosted.scope:
            exited = await self._run(hosted)
        del self._hosted[container_id]
        _log.info("container ended", container_id=container_id, end=exited.end.value, why=exited.why)
        self._happened(exited)

    async def _run(self, hosted: _Hosted) -> events.ContainerExited:
        container_id = hosted.launch.container_id
        try:
            ended = await self._runtime.run(hosted.launch, hosted, task_status=hosted)
        except Refused as error:
            return events.ContainerExited(container_id, End.REFUSED, str(error))
        except LeversError as error:
            return events.ContainerExited(container_id, End.APP_FAILED_TO_LOAD, str(error))
        except OSError as error:  # a full disk, no more processes, no more descriptors
            why = f"It could not be started on this machine: {error}"
            return events.ContainerExited(container_id, End.APP_FAILED_TO_LOAD, why)
        return events.ContainerExited(container_id, ended.end, ended.why, ended.started)

    async def _fetch(self, decision: events.Fetch, owner: Owner) -> None:
        key = decision.arguments.object_key

        async def get() -> Payload:
            data = await self._objects.get(owner, key)
            return Payload(decision.arguments.format, data, "", len(data))

        arguments, failure = await _attempted(get, "The arguments of the call could not be fetched.")
        self._happened(events.ArgumentsFetched(decision.container_id, decision.key, arguments, failure))

    async def _store(self, decision: events.Store, owner: Owner) -> None:
        result = decision.result

        async def put() -> Payload:
            key = await self._key_of(result.data)
            await self._objects.put(owner, key, result.data)
            return Payload(result.format, b"", key, result.size_bytes)

        stored, failure = await _attempted(put, "The result of the call could not be stored.")
        self._happened(events.ResultStored(decision.container_id, decision.key, stored, failure))

    # Out

    def _send(self, envelopes: list[Envelope]) -> None:
        if not self._unsent:
            try:
                return self._link.send_nowait(*envelopes)
            except WouldBlock:
                pass
        self._unsent.extend(envelopes)
        self._sending.set()

    async def _send_rest(self) -> None:
        while True:
            await self._sending.wait()
            self._sending = trio.Event()
            while self._unsent:
                envelope = self._unsent[0]
                await self._link.send(envelope)
                if self._unsent and self._unsent[0] is envelope:
                    self._unsent.popleft()
            self._drained.set()

    # Time

    def _set_alarm(self) -> None:
        at_s = self._policy.next_deadline_s()
        if at_s != self._wake_at_s:
            earlier = at_s is not None and (self._wake_at_s is None or at_s < self._wake_at_s)
            self._wake_at_s = at_s
            if earlier:
                self._wake.set()

    async def _watch_time(self) -> None:
        while True:
            self._wake = trio.Event()
            at_s = self._wake_at_s
            with trio.CancelScope() as scope:
                if at_s is not None:
                    scope.deadline = trio.current_time() + max(0.0, at_s - self._clock())
                await self._wake.wait()
            if self._wake_at_s is not None and self._wake_at_s <= self._clock():
                self._happened(events.TimePassed())


async def _attempted(work: Callable[[], Awaitable[Payload]], what: str) -> tuple[Payload | None, Failure | None]:
    try:
        return await work(), None
    except LeversError as error:
        return None, Failure(error.code, what, str(error))
