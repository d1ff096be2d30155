"""One call: `.remote` waits for its result, `.submit` returns a `Task`; both have a twin for async programs."""

from __future__ import annotations

from typing import Generic, ParamSpec, TypeVar, cast

from ..model.figures import INLINE_MAX_BYTES
from ..wire.client import NewTask
from .calling import Caller
from .connection import Connection
from .interrupt import cancel_and_tell
from .ledger import Arrival
from .task import Task
from .waiting import Outcome, in_thread

P = ParamSpec("P")
R = TypeVar("R")


class Prepared(Generic[R]):
    """A call with an identity."""

    def __init__(self, connection: Connection, stub_id: str, task: NewTask) -> None:
        self._stub_id = stub_id
        self._new = task
        self._outcome = Outcome()
        self.task: Task[R] = Task(task.task_id, connection, self._outcome)

    def submitted(self) -> Task[R]:
        """Submit it."""
        self.task.connection.submit(self._stub_id, (self._new,), self._outcome)
        return self.task


class Submit(Generic[P, R]):
    """`f.submit(…)`: the call is under way when this returns. `await f.submit.aio(…)` is the same."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        """Submit one call."""
        return self.prepared(*args, **kwargs).submitted()

    def prepared(self, *args: P.args, **kwargs: P.kwargs) -> Prepared[R]:
        """A call that has an identity, and is not submitted yet."""
        caller = self._caller
        caller.check(args, kwargs)
        connection, stub_id = caller.stub()
        return Prepared(connection, stub_id, caller.new_task(connection, caller.pack(args, kwargs)))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
        """Submit one call without blocking the event loop."""
        caller = self._caller
        caller.check(args, kwargs)
        connection, stub_id = caller.stub() if caller.is_ready() else await in_thread(caller.stub)
        packed = caller.pack(args, kwargs)
        if len(packed[1]) <= INLINE_MAX_BYTES:
            task = caller.new_task(connection, packed)
        else:
            task = await in_thread(lambda: caller.new_task(connection, packed))
        return Prepared[R](connection, stub_id, task).submitted()


class Remote(Generic[P, R]):
    """`f.remote(…)`: runs the function on a worker and returns its result. `await f.remote.aio(…)` is the same."""

    def __init__(self, caller: Caller, submit: Submit[P, R]) -> None:
        self._caller = caller
        self._submit = submit

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and wait. Raises what the function raised, or `TaskFailed`. Ctrl-C cancels the call."""
        call = self._submit.prepared(*args, **kwargs)
        arrival = self._wait(call)
        if self._caller.forgotten(call.task.connection, arrival):
            call = self._submit.prepared(*args, **kwargs)
            arrival = self._wait(call)
        return cast(R, self._caller.value(call.task.connection, arrival))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and wait without blocking the event loop. Where the wait is cancelled, the call is too."""
        task = await self._submit.aio(*args, **kwargs)
        try:
            arrival = await task.outcome.wait_async()
        except BaseException:
            task.connection.abandon((task.id,))
            raise
        return cast(R, self._caller.value(task.connection, arrival))

    def _wait(self, call: Prepared[R]) -> Arrival:
        try:
            return call.submitted().outcome.wait()
        except KeyboardInterrupt:
            cancel_and_tell(call.task.connection, (call.task.id,))
            raise
