"""Calls on their way out, gathered without a timer: the connection takes what has come together when it looks."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ..model.figures import BATCH_BYTES
from ..wire.client import NewTask
from .ledger import Receiver

if TYPE_CHECKING:
    from .connection import Connection

MESSAGE_CALLS: Final = 500


class Outbox:
    """Calls of one function, put in by one thread. Bounded by what its owner has in flight.

    Nothing waits here for more: while the owner pulls a slow input, what it put in before is already under way.
    """

    def __init__(self, connection: Connection, stub_id: str, receiver: Receiver) -> None:
        self._connection = connection
        self._stub_id = stub_id
        self._receiver = receiver
        self._tasks: deque[NewTask] = deque()
        self._called = False

    def put(self, task: NewTask) -> None:
        """Send this call soon."""
        self._tasks.append(task)
        if not self._called:
            self._called = True
            self._connection.soon(self._flush)

    def _flush(self) -> None:
        self._called = False  # before looking, so that what is put in while we look is not forgotten
        while self._tasks:
            self._connection.submit_here(self._stub_id, self._message_full(), self._receiver)

    def _message_full(self) -> tuple[NewTask, ...]:
        tasks: list[NewTask] = []
        size = 0
        while self._tasks and len(tasks) < MESSAGE_CALLS and size < BATCH_BYTES:
            tasks.append(self._tasks.popleft())
            size += len(tasks[-1].arguments.data)
        return tuple(tasks)
