"""A runtime in virtual time: calls take as long, and end, as they are told to. No process, no clock."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from ....model.states import End
from ....wire.message import Payload
from ....wire.work import AttemptKey, AttemptOrder, AttemptResult
from ..events import Launch
from .face import Exit, Revoked, RunningContainer, Sink


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a call goes: it takes `duration_s`, then has `result`; or `exits`, and its container ends with it."""

    duration_s: float = 0.0
    result: AttemptResult | None = None
    exits: Exit | None = None


class SimulatedRuntime:
    """Containers that load within `start_s` and run calls as `behave` says."""

    def __init__(
        self, behave: Callable[[Launch, AttemptOrder], Ran], *, start_s: float = 0.03, stop_s: float = 0.0
    ) -> None:
        self._behave = behave
        self._start_s = start_s
        self._stop_s = stop_s

    async def run(self, launch: Launch, sink: Sink, *, task_status: trio.TaskStatus[RunningContainer]) -> Exit:
        """Run one to its end; see `Runtime`."""
        container = SimulatedContainer(launch, sink, self._behave)
        task_status.started(container)
        with container.scope:
            await trio.sleep(self._start_s)
            sink.loaded()
            return await container.work()
        if not container.killed:
            with container.kill_scope:
                await trio.sleep(self._stop_s)
        return Exit(end=End.KILLED, why="it was stopped", started=container.revoke(None).started)


class SimulatedContainer:
    """One simulated container."""

    def __init__(self, launch: Launch, sink: Sink, behave: Callable[[Launch, AttemptOrder], Ran]) -> None:
        self._launch = launch
        self._sink = sink
        self._behave = behave
        self._waiting: dict[AttemptKey, AttemptOrder] = {}
        self._running: AttemptKey | None = None
        self._more = trio.Event()
        self.scope = trio.CancelScope()
        self.kill_scope = trio.CancelScope()
        self.killed = False

    def give(self, orders: tuple[AttemptOrder, ...]) -> None:
        """Run these after those given before."""
        self._waiting |= {AttemptKey(order.task_id, order.attempt): order for order in orders}
        self._more.set()

    def revoke(self, keys: frozenset[AttemptKey] | None) -> Revoked:
        """Take back those of `keys` (None: all) that have not started."""
        dropped = tuple(key for key in self._waiting if keys is None or key in keys)
        for key in dropped:
            del self._waiting[key]
        return Revoked(dropped=dropped, started=() if self._running is None else (self._running,))

    def terminate(self) -> None:
        """End after the runtime's `stop_s`."""
        self.scope.cancel(reason="terminated")

    def kill(self) -> None:
        """End now."""
        self.killed = True
        self.scope.cancel(reason="killed")
        self.kill_scope.cancel(reason="killed")

    async def work(self) -> Exit:
        """Run calls until one ends the container."""
        while True:
            while not self._waiting:
                self._more = trio.Event()
                await self._more.wait()
            self._running = next(iter(self._waiting))
            order = self._waiting.pop(self._running)
            ran = self._behave(self._launch, order)
            await trio.sleep(ran.duration_s)
            if ran.exits is not None:
                return msgspec.structs.replace(ran.exits, started=(self._running,))
            self._running = None
            plain = AttemptResult(
                order.task_id, order.attempt, End.OK, True, Payload("msgpack", b"\xc0", "", 1), None, ran.duration_s
            )
            self._sink.finished((ran.result or plain,))
