"""A call that is under way, or was: here, or in another program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec

from ..errors import NOT_FOUND, BrokenByPeer, DeadlinePassed, LeversError, Refused, WouldBlock
from ..model.states import TaskState
from .waiting import Outcome

if TYPE_CHECKING:
    from ..model.holds import Hold, Why
    from .connection import Connection
    from .rest import Rest

R = TypeVar("R")
_CANCEL_WAIT_S = 30.0
_READ_AGAIN_S = 1.0
_COMMIT_WAIT_S = 30.0
_LOOK_AGAIN_S = 0.05


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a task wrote. `n` counts over both streams from 1; `time` is Unix seconds."""

    n: int
    stream: str
    time: float
    text: str


class _Told(msgspec.Struct):
    state: TaskState


class _LogEvent(msgspec.Struct):
    n: int = 0
    stream: str = "out"
    time: float = 0.0
    text: str = ""
    end: int | None = None
    lost: bool = False


class Task(Generic[R]):
    """One call. Tasks come from `f.submit(…)` and `Client.get_task_by_id`."""

    def __init__(self, task_id: str, connection: Connection, outcome: Outcome | None = None) -> None:
        self.id = task_id
        self.connection = connection
        self._outcome = outcome
        self._is_ours = outcome is not None

    def __repr__(self) -> str:
        return f"Task({self.id!r})"

    @property
    def outcome(self) -> Outcome:
        """Where the result arrives; watched from the first time on."""
        if self._outcome is None:
            self._outcome = Outcome()
            self.connection.watch(self.id, self._outcome)
        return self._outcome

    @property
    def status(self) -> TaskState:
        """The state of the task now."""
        return self._look()

    @property
    def is_complete(self) -> bool:
        """Whether the task has ended, with a result or without."""
        return self.status.terminal

    def result(self, wait: bool | float = False) -> R:
        """The result. `wait=True` waits for it, a number so many seconds. Raises what the task raised, or `TaskFailed`.

        Without waiting, or when it did not come in time, `WouldBlock` and `DeadlinePassed` say so.
        """
        from .calling import value_of

        outcome = self.outcome
        if wait is False and not self._here(outcome):
            raise WouldBlock(f"{self.id} has no result yet. result(wait=True) waits for it.")
        task_id, result = outcome.wait(-1 if wait is True or wait is False else float(wait))
        if isinstance(result, LeversError):
            raise result
        return cast(R, value_of(self.connection, task_id, result))

    async def aresult(self) -> R:
        """Wait for the result without blocking the event loop. The task goes on when this is cancelled."""
        await self.outcome.wait_async()
        return self.result(wait=True)

    def cancel(self) -> TaskState:
        """Cancel; returns CANCELLING while its code may still run, else how it ended."""
        outcome = self._outcome
        standings = self.connection.cancel((self.id,), _CANCEL_WAIT_S)
        if outcome is None:
            self.connection.watch(self.id, self.outcome)
        return next((standing.state for standing in standings if standing.task_id == self.id), self.status)

    def logs(self, follow: bool = True, after: int = 0) -> Iterator[LogLine]:
        """The lines it wrote after line `after`, each once. `follow` waits for those that are to come, to the end."""
        self._look()
        yield from read_lines(self.connection.rest, self.id, follow=follow, after=after)

    def subscribe(self) -> Iterator[LogLine | TaskState]:
        """Its lines as they come, and at last the state in which it ended."""
        yield from self.logs()
        self.outcome.wait()
        yield self.status

    def why(self) -> list[str]:
        """Why it waits, or how it ended, in sentences, outermost reason first."""
        return list(self._why().reasons)

    def holds(self) -> list[Hold]:
        """What it waits for, as data: empty where it waits for no room, or does not wait at all."""
        return list(self._why().holds)

    def _why(self) -> Why:
        from ..model.holds import Why

        self._look()
        return msgspec.json.decode(self.connection.rest.call("GET", f"/api/v1/tasks/{self.id}/why"), type=Why)

    def _ended(self) -> TaskState | None:
        arrival = self._outcome.arrival if self._outcome is not None else None
        if arrival is None:
            return None
        return TaskState.ERROR if isinstance(arrival[1], LeversError) else arrival[1].state

    def _look(self) -> TaskState:
        """The state; a call that was just submitted here may not be committed yet, so it is waited for."""
        until_s = time.monotonic() + _COMMIT_WAIT_S
        while True:
            ended = self._ended()
            if ended is not None:
                return ended
            try:
                return self._ask()
            except Refused as error:
                if error.code != NOT_FOUND or not self._is_ours or time.monotonic() > until_s:
                    raise
            self._outcome_within(_LOOK_AGAIN_S)

    def _outcome_within(self, wait_s: float) -> None:
        try:
            self.outcome.wait(wait_s)
        except DeadlinePassed:
            return

    def _ask(self) -> TaskState:
        return msgspec.json.decode(self.connection.rest.call("GET", f"/api/v1/tasks/{self.id}"), type=_Told).state

    def _here(self, outcome: Outcome) -> bool:
        if outcome.arrival is None and self.status.terminal:
            outcome.wait()  # it has ended, so its result is on its way
        return outcome.arrival is not None


def read_lines(rest: Rest, task_id: str, *, follow: bool, after: int = 0) -> Iterator[LogLine]:
    """The lines that a task wrote after line `after`, each once; reading goes on where a connection broke."""
    while True:
        try:
            for raw in rest.lines(f"/api/v1/tasks/{task_id}/logs?follow={int(follow)}&after={after}"):
                line = msgspec.json.decode(raw, type=_LogEvent)
                if line.lost:
                    yield LogLine(n=0, stream="err", time=line.time, text="[its last lines were lost with its machine]")
                if line.end is not None or line.lost:
                    return
                after = line.n
                yield LogLine(n=line.n, stream=line.stream, time=line.time, text=line.text)
            if not follow:
                return
        except BrokenByPeer:
            if not follow:
                raise
        time.sleep(_READ_AGAIN_S)
