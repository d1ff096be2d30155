"""Log lines of a task, from the numbered chunks of its container: each line once, in order, for early and late readers.

A worker numbers chunks from 0, stores one only after the one before was acknowledged, and numbers the lines of an
attempt from 1. The task's terminal state carries the number of its last line. A tail that its container ended without
delivering is told as lost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final

import msgspec
import trio

from ...errors import INVALID, NOT_FOUND, Refused
from ...model.figures import LOG_LINE_MAX_BYTES
from ...model.states import ContainerState
from ...store.face import Store
from ...store.objects import Objects
from ...store.operations import ContainerRow, ReadTasks, TaskRow
from ...store.wakeups import Subscription, Wakeups
from .tenancy import Tenancy

LOOK_AGAIN_S: Final = 0.5  # wake-ups may be lost
LOST_AFTER_S: Final = 5.0  # after the ends of task and container: chunks under way have arrived by then
CHUNKS_AT_ONCE: Final = 8
LINE_MAX_CHARACTERS: Final = LOG_LINE_MAX_BYTES + 256  # a worker marks the first line after lost ones
DISCONNECTED: Final = "disconnected"  # architecture, section 6: a task lost with its worker


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """One line as a worker delivers it. `stream` is "out" or "err"; `number` counts over both, from 1, per attempt."""

    task_id: str
    attempt: int
    number: int
    stream: str
    unix_time: float
    text: str


class ShownLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line as a reader gets it."""

    n: int
    stream: str
    time: float
    text: str
    attempt: int


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Everything was delivered, up to this line."""

    end: int


class LogLost(msgspec.Struct, frozen=True, kw_only=True):
    """The container ended without delivering the rest."""

    lost: bool = True


LogEntry = ShownLine | LogEnd | LogLost
_decoder: Final = msgspec.msgpack.Decoder(tuple[LogLine, ...])


def read_lines(chunk: bytes) -> tuple[LogLine, ...]:
    """The lines of a chunk. Raises `Refused` for bytes that hold none."""
    try:
        lines = _decoder.decode(chunk)
    except msgspec.MsgspecError as error:
        raise Refused("The chunk cannot be read.", str(error), code=INVALID) from error
    if any(len(line.text) > LINE_MAX_CHARACTERS for line in lines):
        raise Refused("A log line is too long.", f"Lines have at most {LOG_LINE_MAX_BYTES} bytes.", code=INVALID)
    return lines


def chunk_key(workspace_id: str, container_id: str, chunk: int) -> str:
    """Where a chunk is kept."""
    return f"{workspace_id}/logs/{container_id}/{chunk:08d}"


def log_channel(container_id: str) -> str:
    """The wake-ups of a container's log."""
    return f"logs/{container_id}"


class LogCursor:
    """How far one reader is in one attempt of one task. Pure."""

    def __init__(self, task_id: str, attempt: int, after: int = 0) -> None:
        self.attempt = attempt
        self.delivered = after
        self._task_id = task_id

    def take(self, lines: Iterable[LogLine]) -> list[ShownLine]:
        """The lines of a chunk that are this attempt's and new."""
        shown: list[ShownLine] = []
        for line in lines:
            if line.task_id != self._task_id or line.attempt != self.attempt or line.number <= self.delivered:
                continue
            self.delivered = line.number
            shown.append(
                ShownLine(n=line.number, stream=line.stream, time=line.unix_time, text=line.text, attempt=line.attempt)
            )
        return shown

    def end_of(self, task: TaskRow) -> LogEnd | None:
        """The end, when the task has ended and everything that it said was delivered."""
        if not task.state.terminal or _torn(task) or self.delivered < task.last_log_line:
            return None
        return LogEnd(end=max(self.delivered, task.last_log_line))

    def loss_of(self, task: TaskRow, container: ContainerRow | None, now_s: float) -> LogLost | None:
        """The mark of a lost tail, when task and container have ended and no chunk can be under way any more."""
        if not task.state.terminal or (container is not None and container.state is not ContainerState.ENDED):
            return None
        ended_at_s = max(task.ended_at_s, container.ended_at_s if container else 0.0)
        return LogLost() if now_s - ended_at_s >= LOST_AFTER_S else None


def _torn(task: TaskRow) -> bool:
    return task.failure is not None and task.failure.code == DISCONNECTED


class LogReader:
    """Reads and follows logs of tasks. `clock` is Unix seconds."""

    def __init__(
        self, store: Store, objects: Objects, wakeups: Wakeups, tenancy: Tenancy, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._objects = objects
        self._wakeups = wakeups
        self._tenancy = tenancy
        self._clock = clock

    async def task(self, task_id: str, workspace_id: str | None) -> TaskRow:
        """The task. Raises `Refused` when there is none in this workspace (None: any)."""
        (rows,) = await self._store.apply(ReadTasks(task_ids=(task_id,), workspace_id=workspace_id))
        for row in rows if isinstance(rows, tuple) else ():
            if isinstance(row, TaskRow):
                return row
        raise Refused(f"There is no task {task_id!r}.", "It never existed, or was removed.", code=NOT_FOUND)

    async def entries(self, task: TaskRow, *, after: int = 0, follow: bool = False) -> AsyncGenerator[LogEntry, None]:
        """Lines after number `after`, then how it ended; with `follow` waits for those that are still to come."""
        workspace_id = task.workspace_id
        while True:
            cursor = LogCursor(task.task_id, task.attempt, after)
            async with aclosing(self._attempt(cursor, task, follow)) as entries:
                async for entry in entries:
                    yield entry
                    if not isinstance(entry, ShownLine):
                        return
            task, after = await self.task(task.task_id, workspace_id), 0

    async def _attempt(self, cursor: LogCursor, task: TaskRow, follow: bool) -> AsyncGenerator[LogEntry, None]:
        """The lines of one attempt; returns without an end when the task went on with another one."""
        chunk = 0
        async with self._wakeups.subscribe(log_channel(task.container_id)) as texts:
            while True:
                while found := await self._chunks(task, chunk):
                    chunk = found[-1][0] + 1
                    for line in cursor.take(line for _, lines in found for line in lines):
                        yield line
                ending = await self._ending(cursor, task)
                if ending is not None or not follow:
                    yield ending or LogEnd(end=cursor.delivered)
                    return
                task = await self._wait(texts, task)
                if task.attempt != cursor.attempt:
                    return

    async def _ending(self, cursor: LogCursor, task: TaskRow) -> LogEnd | LogLost | None:
        end = cursor.end_of(task)
        if end is not None or not task.state.terminal:
            return end
        return cursor.loss_of(task, await self._tenancy.container(task.container_id), self._clock())

    async def _wait(self, texts: Subscription, task: TaskRow) -> TaskRow:
        with trio.move_on_after(LOOK_AGAIN_S):
            await anext(texts)
        return task if task.state.terminal else await self.task(task.task_id, task.workspace_id)

    async def _chunks(self, task: TaskRow, first: int) -> list[tuple[int, tuple[LogLine, ...]]]:
        """Some chunks from `first` on. Where a later one is there, a missing one was refused, and will never come."""
        if not task.container_id:
            return []
        keys = {chunk_key(task.workspace_id, task.container_id, n): n for n in range(first, first + CHUNKS_AT_ONCE)}
        found = await self._objects.get_all(keys)
        return [(number, read_lines(found[key])) for key, number in keys.items() if key in found]
