"""The SDK's core in a world's own loop: its connection without its thread, and the results that callers wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from levers9.errors import LeversError, Refused
from levers9.model.states import TaskState
from levers9.sdk.config import Settings
from levers9.sdk.connection import Connection
from levers9.sdk.ledger import Arrival, Request
from levers9.wire.client import CancelAccepted, NewTask, RegisterStub, StubRegistered, SubmitTasks, TaskResult
from levers9.wire.message import Message

from .functions import ENDLESS, FUNCTIONS, packed
from .plan import HORIZON_S, MapPlan

if TYPE_CHECKING:
    from .machines import Attempts
    from .plane import ControlPlane
    from .world import World

_NAME: Final = "caller"


class LoopConnection(Connection):
    """A connection whose callers live in its own loop."""

    def __init__(self, world: World) -> None:
        super().__init__(
            lambda: Settings(world.admin_token, "ws://gateway-0", "http://gateway-0", "the world"),
            lambda settings: world.dial_gateway("client", _NAME, settings.token),
            world.chance("caller"),
        )
        self.is_open = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        await self._main()

    def soon(self, step: Callable[[], None]) -> None:
        """At once: the caller is in the loop."""
        step()

    async def answer_to(self, message: Message) -> Message:
        """The answer to a request. Raises what it was refused with."""
        heard = _Heard()
        self._send(self._ledger.ask(message, heard.come, trio.current_time()))
        return await heard.outcome()

    async def cancelled(self, task_ids: tuple[str, ...]) -> Message:
        """The answer to a cancel."""
        heard = _Heard()
        self._send(self._ledger.cancel(task_ids, heard.come, trio.current_time()))
        return await heard.outcome()

    def submit_again(self, stub_id: str, tasks: tuple[NewTask, ...]) -> None:
        """The same calls under another request, as when a message is said twice."""
        self._send([Request(self.chance.id("m"), SubmitTasks(stub_id=stub_id, tasks=tasks))])

    def open_work(self) -> str:
        """What this connection still waits for or owes, in words; empty for nothing."""
        standing = self._ledger.standing()
        return "" if not (standing.awaited or standing.requests or standing.acks) else f"the caller has {standing}"

    def _open_anew(self) -> None:
        super()._open_anew()
        self.is_open.set()


class _Heard:
    def __init__(self) -> None:
        self._come = trio.Event()
        self._outcome: Message | LeversError | None = None

    def come(self, outcome: Message | LeversError) -> None:
        self._outcome = outcome
        self._come.set()

    async def outcome(self) -> Message:
        await self._come.wait()
        if isinstance(self._outcome, LeversError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class Taker:
    """Takes the results of `calls`, each of which ends once, and cancels calls."""

    def __init__(self, plane: ControlPlane, attempts: Attempts, calls: Mapping[str, object]) -> None:
        self._plane = plane
        self._attempts = attempts
        self._calls = calls
        self.connection: LoopConnection
        self.ends: dict[str, TaskResult | LeversError] = {}
        self._news = trio.Event()

    def deliver(self, arrivals: list[Arrival]) -> None:
        """See `Receiver`."""
        for task_id, outcome in arrivals:
            if task_id in self.ends:
                self._plane.violated(f"I3: {task_id} ended twice for its caller: {self.ends[task_id]}, then {outcome}")
            self.ends[task_id] = outcome
            self.check(task_id, outcome)
        self._news.set()
        self._news = trio.Event()

    def check(self, task_id: str, outcome: TaskResult | LeversError) -> None:
        """Hold an outcome against the truth."""
        raise AssertionError("each kind of caller knows what it was promised")

    async def until_all_ended(self) -> None:
        """Until each call that was submitted has ended."""
        while len(self.ends) < len(self._calls):
            await self._news.wait()

    def missing(self) -> tuple[str, ...]:
        """Calls that have not ended."""
        return tuple(task_id for task_id in self._calls if task_id not in self.ends)

    async def cancel_these(self, task_ids: tuple[str, ...]) -> None:
        """Cancel these, ended or not."""
        try:
            accepted = await self.connection.cancelled(task_ids)
        except Refused:
            return
        assert isinstance(accepted, CancelAccepted)
        for standing in accepted.standings:
            if standing.state is TaskState.CANCELLED:
                self._attempts.cancelled[standing.task_id] = None


class Caller(Taker):
    """Submits the maps of a plan, takes results, and holds each against the truth."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("calls")
        self.numbers: dict[str, tuple[str, int]] = {}
        super().__init__(world, world.attempts, self.numbers)
        self.connection = LoopConnection(world)
        self._submitted: list[tuple[str, tuple[NewTask, ...]]] = []

    def check(self, task_id: str, outcome: TaskResult | LeversError) -> None:
        """See `Taker`."""
        row = self._world.truth.tables.tasks.get(task_id)
        if isinstance(outcome, LeversError):
            if row is not None:
                self._world.violated(f"I3: {task_id} was accepted, and its caller was told {outcome!r}")
            return
        if row is None and outcome.state is not TaskState.EXPIRED:
            self._world.violated(f"I3: {task_id} is {outcome.state} for its caller and nowhere else")
        if row is not None and row.state is not outcome.state:
            self._world.violated(f"I3: {task_id} is {row.state}, and its caller was told {outcome.state}")
        if outcome.state is TaskState.CANCELLED:
            self._world.attempts.cancelled[task_id] = None
        if outcome.state is TaskState.COMPLETE:
            self._check_value(task_id, outcome)

    def _check_value(self, task_id: str, outcome: TaskResult) -> None:
        function, number = self.numbers[task_id]
        wanted = packed(FUNCTIONS[function].call(number)).data
        got = b"" if outcome.result is None else outcome.result.data
        if outcome.result is not None and outcome.result.object_key:
            got = self._world.objects.kept.get(outcome.result.object_key, b"")
            self.connection.taken([task_id])
        if got != wanted:
            self._world.violated(f"I3: {function}({number}) answered {got[:60]!r}")

    async def submit(self, plan: MapPlan) -> None:
        """Submit one map in its waves."""
        function = FUNCTIONS[plan.function]
        registered = await self.connection.answer_to(RegisterStub(spec=function.spec()))
        assert isinstance(registered, StubRegistered)
        for wave in range(plan.waves):
            await trio.sleep(self._chance.uniform(0.0, HORIZON_S / plan.waves) if plan.waves > 1 else 0.0)
            count = plan.calls // plan.waves + (wave < plan.calls % plan.waves)
            tasks = tuple(self._new_task(plan.function) for _ in range(count))
            if tasks:
                self._submitted.append((registered.stub_id, tasks))
                self.connection.submit(registered.stub_id, tasks, self)
        if plan.function == ENDLESS:
            await trio.sleep_until(HORIZON_S)
            await self.cancel_these(tuple(task_id for task_id, (name, _) in self.numbers.items() if name == ENDLESS))

    def _new_task(self, function: str) -> NewTask:
        task_id, number = self._chance.id("task"), int(self._chance.uniform(0, 1000))
        self.numbers[task_id] = (function, number)
        return NewTask(task_id, packed([[number], {}]))

    # Faults

    def submit_again(self, chance_at: float) -> None:
        """Say one of the submissions a second time."""
        if self._submitted:
            stub_id, tasks = self._submitted[int(chance_at * len(self._submitted)) % len(self._submitted)]
            self.connection.submit_again(stub_id, tasks)

    async def cancel(self, chance_at: float, share: float) -> None:
        """Cancel a share of the calls of one submission, ended or not."""
        if not self._submitted:
            return
        _, tasks = self._submitted[int(chance_at * len(self._submitted)) % len(self._submitted)]
        await self.cancel_these(tuple(task.task_id for task in tasks[: max(1, int(share * len(tasks)))]))

    async def cancel_all(self) -> None:
        """Cancel every call that has not ended."""
        await self.cancel_these(self.missing())
