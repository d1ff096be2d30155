"""Workers that exist only as messages: what a scheduler, and `tasks`, see of a worker, without a process behind it.

For simulation at a size for which there are no machines. A call takes as long as `took_s` says and returns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import trio

from ...model.resources import Capacity
from ...model.states import ContainerState, End
from ...wire import control, scheduling, work
from ...wire.letter import Letter
from ...wire.mailbox import Mailbox
from ...wire.message import Message, Payload
from ...wire.post import Post
from ...wire.work import AttemptKey, AttemptOrder, AttemptResult
from .policy import Adopt, EndWorker, StartWorker

WINDOW: Final = 1  # a container takes the next call when it has returned the last one
NOTHING: Final = Payload("msgpack", b"\xc0", "", 1)


class _Running(msgspec.Struct, kw_only=True):
    """A container: ready at some time, then busy with one call after the other."""

    container_id: str
    stub_id: str
    ready_at_s: float
    ready: bool = False
    calls: dict[AttemptKey, float] = msgspec.field(default_factory=dict)  # when each returns
    results: dict[AttemptKey, AttemptResult] = msgspec.field(default_factory=dict)  # that are not committed yet


class ReplayWorker:
    """One worker, pure: messages in, messages out, at the times that it names."""

    def __init__(
        self, worker_id: str, pool: str, capacity: Capacity, took_s: Callable[[AttemptOrder], float], start_s: float
    ) -> None:
        self.worker_id = worker_id
        self._pool = pool
        self._capacity = capacity
        self._took_s = took_s
        self._start_s = start_s
        self._running: dict[str, _Running] = {}
        self._ended: dict[str, scheduling.ContainerEnded] = {}
        self._leaving = ""
        self.left = False

    def report(self) -> Iterator[Message]:
        """The whole truth, what it still owes, and what it runs."""
        reports = tuple(
            scheduling.ContainerReport(
                one.container_id, one.stub_id, ContainerState.READY if one.ready else ContainerState.PLACED, WINDOW
            )
            for one in self._running.values()
        )
        yield from self._ended.values()
        for one in self._running.values():
            if one.results:
                yield self._finished(one, tuple(one.results.values()))
        yield scheduling.WorkerReported(
            worker_id=self.worker_id, pool=self._pool, epoch=1, capacity=self._capacity, containers=reports
        )
        for one in self._running.values():
            if one.ready:
                held = tuple(one.calls)
                yield work.AttemptsHeld(container_id=one.container_id, attempts=held, window=WINDOW)

    def hear(self, message: Message, now_s: float) -> Iterator[Message]:
        """Take one message in."""
        if isinstance(message, control.ReportAgain):
            yield from self.report()
        elif type(message).sender == "tasks":
            yield from self._hear_tasks(message, now_s)
        else:
            yield from self._hear_scheduler(message, now_s)

    def _hear_scheduler(self, message: Message, now_s: float) -> Iterator[Message]:
        match message:
            case scheduling.StartContainer(container_id=container_id, stub_id=stub_id):
                self._start(container_id, stub_id, now_s)
            case scheduling.StopContainer(container_id=container_id):
                yield self._stop(container_id)
            case scheduling.WorkerAccepted(stop=container_ids):
                yield from (self._stop(container_id) for container_id in container_ids)
            case scheduling.ContainerForgotten(container_id=container_id):
                self._ended.pop(container_id, None)
            case scheduling.StopWorker(why=why):
                self._leaving = why or "it was told to"

    def _hear_tasks(self, message: Message, now_s: float) -> Iterator[Message]:
        match message:
            case work.RunAttempts(container_id=container_id, attempts=attempts):
                yield from self._run(container_id, attempts, now_s)
            case work.CancelAttempts(container_id=container_id, attempts=keys):
                yield from self._cancel(container_id, keys)
            case work.ResultsCommitted(container_id=container_id, attempts=keys):
                for key in keys:
                    self._results(container_id).pop(key, None)

    def _start(self, container_id: str, stub_id: str, now_s: float) -> None:
        if container_id not in self._running and container_id not in self._ended:
            self._running[container_id] = _Running(
                container_id=container_id, stub_id=stub_id, ready_at_s=now_s + self._start_s
            )

    def _stop(self, container_id: str) -> scheduling.ContainerEnded:
        self._running.pop(container_id, None)
        ended = scheduling.ContainerEnded(container_id=container_id, end=End.OK)
        return self._ended.setdefault(container_id, ended)

    def _run(self, container_id: str, attempts: tuple[AttemptOrder, ...], now_s: float) -> Iterator[Message]:
        one = self._running.get(container_id)
        keys = [AttemptKey(order.task_id, order.attempt) for order in attempts]
        if one is None:
            lost = tuple(AttemptResult(key.task_id, key.attempt, End.DISCONNECTED, started=False) for key in keys)
            yield work.AttemptsFinished(container_id=container_id, results=lost, window=0)
            return
        for key, order in zip(keys, attempts):
            if key not in one.calls and key not in one.results:
                begins_s = max([now_s, *one.calls.values()])
                one.calls[key] = begins_s + self._took_s(order)

    def _cancel(self, container_id: str, keys: tuple[AttemptKey, ...]) -> Iterator[Message]:
        one = self._running.get(container_id)
        if one is None:
            return
        known = [key for key in keys if one.calls.pop(key, None) is not None]
        for key in known:
            one.results[key] = AttemptResult(key.task_id, key.attempt, End.CANCELLED)
        if known:
            yield self._finished(one, tuple(one.results[key] for key in known))

    def _results(self, container_id: str) -> dict[AttemptKey, AttemptResult]:
        one = self._running.get(container_id)
        return {} if one is None else one.results

    @staticmethod
    def _finished(one: _Running, results: tuple[AttemptResult, ...]) -> work.AttemptsFinished:
        return work.AttemptsFinished(container_id=one.container_id, results=results, window=WINDOW)

    @property
    def next_at_s(self) -> float:
        """When something happens by itself; infinity for never."""
        times = [one.ready_at_s for one in self._running.values() if not one.ready]
        times += [min(one.calls.values()) for one in self._running.values() if one.ready and one.calls]
        return min(times, default=math.inf)

    def due(self, now_s: float) -> Iterator[Message]:
        """What has happened by now: containers that are ready, calls that have returned; its goodbye, at last."""
        for one in self._running.values():
            if not one.ready and one.ready_at_s <= now_s:
                one.ready = True
                yield scheduling.ContainerReady(container_id=one.container_id, window=WINDOW)
            returned = [key for key, at_s in one.calls.items() if at_s <= now_s] if one.ready else []
            for key in returned:
                del one.calls[key]
                one.results[key] = AttemptResult(key.task_id, key.attempt, End.OK, result=NOTHING)
            if returned:
                yield self._finished(one, tuple(one.results[key] for key in returned))
        if self._leaving and not self._running and not self.left:
            self.left = True
            yield scheduling.WorkerLeaving(worker_id=self.worker_id, why=self._leaving)


class ReplayWorkers:
    """The workers of one pool, over all reigns, as `Processes`. They end with this process, or are `kill`ed one by one.

    `clock` is Unix time in seconds; `took_s` how long a call takes, `start_s` a container.
    """

    def __init__(
        self,
        post: Post,
        pool: str,
        clock: Callable[[], float],
        took_s: Callable[[AttemptOrder], float] = lambda order: 0.0,
        start_s: float = 0.0,
    ) -> None:
        self._post = post
        self._pool = pool
        self._clock = clock
        self._took_s = took_s
        self._start_s = start_s
        self._alive: dict[str, ReplayWorker] = {}
        self._scopes: dict[str, trio.CancelScope] = {}

    @property
    def alive(self) -> tuple[str, ...]:
        """The workers that have not ended."""
        return tuple(self._alive)

    async def start(self, order: StartWorker, tell: Callable[[Message], None]) -> None:
        """Be the worker of an order until it has left, or until the reign ends."""
        worker = ReplayWorker(order.worker_id, self._pool, order.capacity, self._took_s, self._start_s)
        self._alive[order.worker_id] = worker
        await self._live(worker, tell)

    async def adopt(self, order: Adopt, tell: Callable[[Message], None]) -> None:
        """Go on being the worker of an earlier reign; those of an earlier process are gone."""
        worker = self._alive.get(order.worker_id)
        if worker is None:
            await trio.lowlevel.checkpoint()
            tell(scheduling.WorkerExited(worker_id=order.worker_id, evidence="whoever simulated it has ended"))
        else:
            await self._live(worker, tell)

    def kill(self, worker_id: str) -> None:
        """End a worker as SIGKILL does."""
        self._alive.pop(worker_id, None)
        if worker_id in self._scopes:
            self._scopes[worker_id].cancel(reason="killed")

    async def end(self, order: EndWorker) -> None:
        """End one worker."""
        self.kill(order.worker_id)
        await trio.lowlevel.checkpoint()

    async def stop_all(self) -> None:
        """Nothing is left running."""
        for worker_id in tuple(self._alive):
            self.kill(worker_id)
        await trio.lowlevel.checkpoint()

    async def _live(self, worker: ReplayWorker, tell: Callable[[Message], None]) -> None:
        handle = f"replay:{worker.worker_id}"
        tell(scheduling.WorkerStarted(worker_id=worker.worker_id, handle=handle, at_s=self._clock()))
        address = f"worker/{worker.worker_id}"
        mailbox = Mailbox(address)
        self._post.register(address, mailbox)
        try:
            with trio.CancelScope() as self._scopes[worker.worker_id]:
                await self._converse(worker, address, mailbox)
        finally:
            self._post.unregister(address, mailbox)
            del self._scopes[worker.worker_id]
        killed = self._alive.pop(worker.worker_id, None) is None
        evidence = "it was killed" if killed else "it has left"
        tell(scheduling.WorkerExited(worker_id=worker.worker_id, evidence=evidence, expected=not killed))

    async def _converse(self, worker: ReplayWorker, address: str, mailbox: Mailbox) -> None:
        says = list(worker.report())
        while True:
            says += worker.due(self._clock())
            await self._post.send_many(Letter(one, source=address, target=type(one).receiver) for one in says)
            if worker.left:
                return
            letters: tuple[Letter, ...] = ()
            with trio.move_on_after(max(0.0, worker.next_at_s - self._clock())):
                letters = await mailbox.take_batch()
            says = [said for letter in letters for said in worker.hear(letter.message, self._clock())]
